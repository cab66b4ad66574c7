// Ada-KV: the KV heads of a layer share its budget; each gets a floor, and the rest goes to the
// best rows of all heads. Policy specification 2.7.
#include <algorithm>
#include <cmath>

#include "policy/methods.h"
#include "policy/scored_rows.h"
#include "policy/snapkv.h"

namespace rkv::policy {
namespace {

class AdaKv final : public Evictor {
 public:
  void Options(OptionVisitor& options) override {
    options.Int("window_size", window_, kSnapKvWindow, kSnapKvWindowHelp);
    options.Int("kernel_size", kernel_, kSnapKvKernel, kSnapKvKernelHelp);
    options.Number("floor", floor_, {.low = 0, .high = 1},
                   "share of an even split that every KV head keeps in any case");
  }

  Needs needs(const TurnShape&) const override { return {.window = window_}; }
  std::int32_t LeastRows() const override { return window_ + 1; }

  Status Evict(const LayerPrefill& in, std::span<Rows> keep) const override {
    std::int64_t left = std::int64_t{in.shape.prompt_budget} * in.shape.kv_heads;
    std::int64_t held = 0;
    for (const HeadPrefill& head : in.heads) {
      held += head.view.rows;
    }
    if (held <= left) {
      return {};
    }
    std::vector<ScoredRow> open;  // what the heads compete for
    for (std::size_t h = 0; h < in.heads.size(); ++h) {
      keep[h].all = false;
      left -= KeepFloor(in.heads[h], in.shape.prompt_budget, keep[h], open);
    }
    const auto wins = static_cast<std::size_t>(std::max<std::int64_t>(0, left));
    BestFirst(open, wins);
    open.resize(std::min(wins, open.size()));
    for (const ScoredRow& row : open) {
      keep[static_cast<std::size_t>(row.head)].list.push_back(row.row);
    }
    for (std::size_t h = 0; h < in.heads.size(); ++h) {
      std::ranges::sort(keep[h].list);
      keep[h].all = keep[h].list.size() == static_cast<std::size_t>(in.heads[h].view.rows);
    }
    return {};
  }

 private:
  // Keeps the window and the floor's best rows of a head, and adds its other rows to `open`.
  // Returns the number of rows kept.
  std::int64_t KeepFloor(const HeadPrefill& head, std::int32_t budget, Rows& keep,
                         std::vector<ScoredRow>& open) const {
    std::vector<ScoredRow> rows = ScoreRows(head.scores, kernel_, head.kv_head);
    const double share = floor_ * std::max(0, budget - head.window.tokens);
    const auto floor = std::min(rows.size(), static_cast<std::size_t>(share));
    BestFirst(rows, floor);
    for (std::size_t i = 0; i < floor; ++i) {
      keep.list.push_back(rows[i].row);
    }
    open.insert(open.end(), rows.begin() + static_cast<std::ptrdiff_t>(floor), rows.end());
    for (std::int32_t row = std::max(0, head.prefix()); row < head.view.rows; ++row) {
      keep.list.push_back(row);
    }
    return static_cast<std::int64_t>(keep.list.size());
  }

  std::int32_t window_ = 32;
  std::int32_t kernel_ = 7;
  double floor_ = 0.2;
};

}  // namespace

Method AdaKvMethod() {
  return {.info = {.name = "adakv",
                   .keeps = "budget rows per KV head on average over a layer: the last window_size "
                            "tokens, and more rows in heads whose attention is spread wider",
                   .reads = "everything kept",
                   .state = "none",
                   .source = "Ada-KV, arXiv:2407.11550"},
          .make = [] { return Parts{.evictor = std::make_unique<AdaKv>()}; }};
}

}  // namespace rkv::policy
