#include "cli/stats_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"

namespace rkv::cli {
namespace {

constexpr std::size_t kLabelColumns = 22;
constexpr std::size_t kMinValueColumns = 24;

std::string Rate(std::int32_t tokens, double seconds) {
  return fmt::format("{:.1f} tok/s ({:.2f} s)", PerSecond(tokens, seconds), seconds);
}

std::string OfFull(std::size_t bytes, const SessionStats& stats) {
  if (stats.kv_bytes_full == 0) {
    return HumanBytes(bytes);
  }
  const double share = static_cast<double>(bytes) / static_cast<double>(stats.kv_bytes_full);
  return fmt::format("{} ({:.1f}%)", HumanBytes(bytes), 100 * share);
}

std::string Generated(const Report& r) {
  std::string reason(StopReasonName(r.result.stop_reason));
  std::ranges::replace(reason, '_', ' ');
  return fmt::format("{} tokens ({})", r.generated_tokens, reason);
}

struct Row {
  std::string_view label;
  std::string (*value)(const Report& report);
};

constexpr std::array<Row, 13> kRows = {{
    {"method", [](const Report& r) { return r.method; }},
    {"prompt", [](const Report& r) { return fmt::format("{} tokens", r.stats.prompt_tokens); }},
    {"prefill",
     [](const Report& r) { return Rate(r.stats.prompt_tokens, r.stats.prefill_seconds); }},
    {"generated", Generated},
    {"decode",
     [](const Report& r) { return Rate(r.stats.generated_tokens, r.stats.decode_seconds); }},
    {"KV full", [](const Report& r) { return HumanBytes(r.stats.kv_bytes_full); }},
    {"KV kept", [](const Report& r) { return OfFull(r.stats.kv_bytes_kept, r.stats); }},
    {"KV index", [](const Report& r) { return OfFull(r.stats.kv_bytes_index, r.stats); }},
    {"KV parked", [](const Report& r) { return OfFull(r.stats.kv_bytes_parked, r.stats); }},
    {"KV peak", [](const Report& r) { return OfFull(r.stats.kv_bytes_peak, r.stats); }},
    {"tokens kept", [](const Report& r) { return fmt::format("{:.1f}", r.stats.tokens_kept); }},
    {"tokens read per step",
     [](const Report& r) { return fmt::format("{:.1f}", r.stats.tokens_read_per_step); }},
    {"dense reads",
     [](const Report& r) { return fmt::format("{:.0f}%", 100 * r.stats.dense_share); }},
}};

}  // namespace

std::string StatsTable(std::span<const Report> reports) {
  std::vector<std::size_t> widths;
  for (const Report& report : reports) {
    std::size_t width = kMinValueColumns;
    for (const Row& row : kRows) {
      width = std::max(width, row.value(report).size());
    }
    widths.push_back(width);
  }
  std::string table;
  for (const Row& row : kRows) {
    std::string line = fmt::format("{:<{}}", row.label, kLabelColumns);
    for (std::size_t i = 0; i < reports.size(); ++i) {
      line += fmt::format("{:<{}}  ", row.value(reports[i]), widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    table += line + "\n";
  }
  return table;
}

std::string StageTable(const Report& report) {
  using Stage = std::pair<std::string, double>;
  std::vector<Stage> stages(report.stats.stage_seconds.begin(), report.stats.stage_seconds.end());
  std::ranges::sort(stages, [](const Stage& a, const Stage& b) { return a.second > b.second; });
  std::string table;
  for (const auto& [name, seconds] : stages) {
    table += fmt::format("{:<{}}{:.3f} s\n", name, kLabelColumns, seconds);
  }
  return table;
}

}  // namespace rkv::cli
