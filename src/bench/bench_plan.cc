#include "bench/bench_plan.h"

#include <fmt/format.h>

#include <algorithm>

namespace rkv::bench {
namespace {

std::vector<std::int32_t> WithoutRepeats(const std::vector<std::int32_t>& values) {
  std::vector<std::int32_t> once;
  for (const std::int32_t value : values) {
    if (std::ranges::find(once, value) == once.end()) {
      once.push_back(value);
    }
  }
  return once;
}

}  // namespace

std::vector<Cell> PlanCells(const PlanLists& lists) {
  std::vector<std::int32_t> depths = WithoutRepeats(lists.depths);
  std::ranges::sort(depths);
  std::vector<Cell> cells;
  const auto add = [&cells](Phase phase, const std::vector<std::int32_t>& counts,
                            std::int32_t depth) {
    for (const std::int32_t tokens : WithoutRepeats(counts)) {
      if (tokens > 0) {
        cells.push_back({phase, tokens, depth});
      }
    }
  };
  for (const std::int32_t depth : depths) {
    add(Phase::kPrompt, lists.prompt_tokens, depth);
    add(Phase::kDecode, lists.decode_tokens, depth);
  }
  return cells;
}

std::string TestName(const Cell& cell) {
  const std::string name =
      fmt::format("{}{}", cell.phase == Phase::kPrompt ? "pp" : "tg", cell.tokens);
  return cell.depth == 0 ? name : fmt::format("{} @ d{}", name, cell.depth);
}

std::int32_t StartDepth(const Cell& cell) {
  return cell.phase == Phase::kDecode ? std::max(cell.depth, 1) : cell.depth;
}

std::int32_t ContextFor(const std::vector<Cell>& cells) {
  std::int32_t context = 0;
  for (const Cell& cell : cells) {
    context = std::max(context, StartDepth(cell) + cell.tokens + 1);
  }
  return context;
}

}  // namespace rkv::bench
