#include "policy/snapkv.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "policy/methods.h"
#include "policy/query_head_lists.h"
#include "policy/rows.h"
#include "policy/stages.h"

namespace rkv::policy {
namespace {

constexpr std::array<std::string_view, 2> kHeads = {"group", "query"};

class SnapKv final : public Evictor {
 public:
  explicit SnapKv(const SnapKvOptions& options) : options_(options) {}

  void Options(OptionVisitor& options) override {
    options.Int("window_size", options_.window, kSnapKvWindow, kSnapKvWindowHelp);
    options.Int("kernel_size", options_.kernel, kSnapKvKernel, kSnapKvKernelHelp);
    if (!options_.fixed_heads) {
      std::size_t heads = options_.per_head ? 1 : 0;
      options.Choice("heads", heads, kHeads,
                     "whose attention decides: the group's together, or each query head's alone, "
                     "which then keeps its share of the budget");
      options_.per_head = heads == 1;
    }
  }

  Needs needs(const TurnShape&) const override { return {.window = options_.window}; }
  std::int32_t LeastRows() const override { return options_.window + 1; }

  void Score(const LayerPrefill& layer, const HeadPrefill& in,
             std::vector<float>& scores) const override {
    if (!options_.per_head) {
      Evictor::Score(layer, in, scores);
    } else if (in.prefix() > 0) {
      ScoreQueryHeads(layer, in, scores);
    }
  }

  Status Evict(const LayerPrefill& in, std::span<Rows> keep) const override {
    const std::int32_t budget = in.shape.prompt_budget;
    for (std::size_t h = 0; h < in.heads.size(); ++h) {
      const HeadPrefill& head = in.heads[h];
      keep[h].all = head.view.rows <= HeadBudget(in.shape);
      if (keep[h].all) {
        continue;
      }
      if (!options_.per_head) {
        keep[h].list = SnapKvRows(head.scores, head.window.tokens, options_.kernel, budget);
        continue;
      }
      const std::size_t prefix = head.scores.size() / static_cast<std::size_t>(in.shape.group);
      for (std::int32_t g = 0; g < in.shape.group; ++g) {
        keep[h].heads.push_back(
            SnapKvRows(head.scores.subspan(static_cast<std::size_t>(g) * prefix, prefix),
                       head.window.tokens, options_.kernel, HeadBudget(in.shape)));
      }
      keep[h].list = Union(keep[h]);
    }
    return {};
  }

  std::unique_ptr<HeadState> NewState(const StateShape& /*shape*/) const override {
    return options_.per_head ? std::make_unique<QueryHeadLists>() : nullptr;
  }
  void Live(const HeadDecode& in, Rows& live) const override {
    if (in.state != nullptr) {
      static_cast<const QueryHeadLists&>(*in.state).Fill(live);
    }
  }

 private:
  std::int32_t HeadBudget(const TurnShape& shape) const {
    return options_.per_head ? std::max(shape.prompt_budget / shape.group, options_.window + 1)
                             : shape.prompt_budget;
  }

  SnapKvOptions options_;
};

}  // namespace

std::unique_ptr<Evictor> MakeSnapKv(const SnapKvOptions& options) {
  return std::make_unique<SnapKv>(options);
}

Method SnapKvMethod() {
  return {
      .info = {.name = "snapkv",
               .keeps = "budget rows per KV head: the last window_size tokens and the rows that "
                        "they attend to most",
               .reads = "everything kept",
               .state = "none; with heads=query a row list per query head",
               .source = "SnapKV, arXiv:2404.14469"},
      .make = [] { return Parts{.evictor = MakeSnapKv({})}; }};
}

}  // namespace rkv::policy
