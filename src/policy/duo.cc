// DuoAttention: heads that a table calls retrieval heads keep everything, the others the first
// rows and a sliding window. Policy specification 2.9, arXiv:2410.10819.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "policy/head_classes.h"
#include "policy/head_table.h"
#include "policy/methods.h"
#include "policy/sliding_window.h"

namespace rkv::policy {
namespace {

constexpr std::string_view kName = "duo";

// Rows of a streaming head while the budget has room for them.
constexpr std::int32_t kSinks = 128;
constexpr std::int32_t kRecent = 512;
constexpr std::int32_t kSmallBudget = 256;  // up to it, a fifth of the budget are sinks

class Duo final : public Evictor {
 public:
  void Options(OptionVisitor& options) override {
    options.Text("table", path_, "file of the heads' scores, made by rkv calibrate duo; required");
    options.Int("sinks", sinks_, {.low = 1, .high = kMaxTokens, .automatic = true},
                "first tokens that a streaming head keeps");
    options.Int("recent", recent_, {.low = 1, .high = kMaxTokens, .automatic = true},
                "last tokens that a streaming head keeps, the current one included");
    options.Number("fraction", fraction_, {.low = 0, .high = 1, .automatic = true},
                   "part of all KV heads that keep everything");
  }

  Status Load() override {
    if (path_.empty()) {
      return {Code::kInvalidArgument,
              fmt::format("method '{0}' needs option 'table', a file of head scores: make one with "
                          "`rkv calibrate {0} -m MODEL -o FILE`",
                          kName)};
    }
    return LoadRanks(path_, kName, table_, ranks_);
  }

  Status CheckShape(const TurnShape& shape) const override { return CheckHeadTable(table_, shape); }
  Needs needs(const TurnShape&) const override { return {.observes = true}; }
  std::int32_t LeastRows() const override { return std::max(sinks_, 1) + std::max(recent_, 1); }

  std::int64_t RowsKept(const TurnShape& shape, std::int64_t rows) const override {
    return RowsAt(shape, rows, 0);
  }
  std::int64_t RowsAfter(const TurnShape& shape, std::int64_t kept,
                         std::int64_t more) const override {
    const std::int64_t prompt = shape.prompt_tokens;
    return kept + RowsAt(shape, prompt, more) - RowsAt(shape, prompt, 0);
  }
  void Explain(const TurnShape& shape, Numbers& out) const override {
    const SlidingWindow window = Window(shape);
    out.emplace_back("sinks", window.sinks);
    out.emplace_back("recent", window.recent);
    out.emplace_back("retrieval_heads", RetrievalHeads(shape));
  }

  Status Evict(const LayerPrefill& in, std::span<Rows> keep) const override {
    for (std::size_t h = 0; h < in.heads.size(); ++h) {
      if (Streams(in.shape, in.layer, in.heads[h].kv_head)) {
        Window(in.shape).Fill(in.heads[h].view.rows, keep[h]);
      }
    }
    return {};
  }
  void Live(const HeadDecode& in, Rows& live) const override {
    if (Streams(*in.shape, in.layer, in.kv_head)) {
      Window(*in.shape).Fill(in.rows.slots, live);
    }
  }
  Status Observe(const HeadDecode& in, const Rows&, std::span<const float>,
                 Rows& keep) const override {
    if (Streams(*in.shape, in.layer, in.kv_head)) {
      Window(*in.shape).Drop(in.rows.slots, keep);
    }
    return {};
  }

 private:
  SlidingWindow Window(const TurnShape& shape) const {
    const std::int32_t budget = shape.prompt_budget;
    SlidingWindow window{.sinks = sinks_, .recent = recent_};
    if (sinks_ == 0) {
      window.sinks = budget > kSmallBudget ? kSinks : std::max(budget / 5, 1);
    }
    if (recent_ == 0) {
      window.recent = budget > kSinks + kRecent ? kRecent : std::max(budget - window.sinks, 1);
    }
    return window;
  }

  // How many heads the budget lets keep all of the prompt: the mean over heads is at most it.
  std::int32_t RetrievalHeads(const TurnShape& shape) const {
    const auto heads = static_cast<std::int32_t>(table_.scores.size());
    return fraction_ >= 0
               ? static_cast<std::int32_t>(std::lround(fraction_ * heads))
               : FullHeads(heads, shape.prompt_budget, shape.prompt_tokens, Window(shape).rows());
  }

  bool Streams(const TurnShape& shape, std::int32_t layer, std::int32_t kv_head) const {
    const auto at = static_cast<std::size_t>(layer) * static_cast<std::size_t>(table_.kv_heads) +
                    static_cast<std::size_t>(kv_head);
    return ranks_[at] >= RetrievalHeads(shape);
  }

  // Mean over heads of what is left of `rows` and read after `more` steps, rounded up.
  std::int64_t RowsAt(const TurnShape& shape, std::int64_t rows, std::int64_t more) const {
    return MeanRows(static_cast<std::int64_t>(table_.scores.size()), RetrievalHeads(shape),
                    rows + more, std::min<std::int64_t>(rows + more, Window(shape).rows()));
  }

  std::string path_;
  std::int32_t sinks_ = 0;  // 0: from the budget
  std::int32_t recent_ = 0;
  double fraction_ = -1;  // below 0: from the budget
  HeadTable table_;
  std::vector<std::int32_t> ranks_;  // [layers][kv_heads]
};

}  // namespace

Method DuoMethod() {
  return {.info = {.name = std::string(kName),
                   .keeps = "everything in the heads that the table scores highest; in the others "
                            "the first and the last tokens, a window that slides while decoding; "
                            "budget rows on average",
                   .reads = "everything kept",
                   .state = "none; a head table of the model, from a file",
                   .source = "DuoAttention, arXiv:2410.10819"},
          .make = [] { return Parts{.evictor = std::make_unique<Duo>()}; }};
}

}  // namespace rkv::policy
