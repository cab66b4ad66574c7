// StreamingLLM: attention sinks and a sliding window, for every head alike. Policy specification
// 2.11, variant B (original positions).
#include <algorithm>

#include "policy/methods.h"
#include "policy/sliding_window.h"

namespace rkv::policy {
namespace {

class Streaming final : public Evictor {
 public:
  void Options(OptionVisitor& options) override {
    options.Int("sinks", sinks_, {.low = 0, .high = 4096}, "first tokens, which always stay");
    options.Int("recent", recent_, {.low = 1, .high = kMaxTokens, .automatic = true},
                "last tokens, the current one included; auto: what the sinks leave of the budget");
  }

  Needs needs(const TurnShape&) const override { return {.observes = true}; }
  std::int32_t LeastRows() const override { return sinks_ + std::max(recent_, 1); }
  std::int64_t RowsKept(const TurnShape& shape, std::int64_t rows) const override {
    return std::min<std::int64_t>(rows, Window(shape).rows());
  }
  std::int64_t RowsAfter(const TurnShape& shape, std::int64_t kept,
                         std::int64_t more) const override {
    return RowsKept(shape, kept + more);
  }
  void Explain(const TurnShape& shape, Numbers& out) const override {
    out.emplace_back("sinks", sinks_);
    out.emplace_back("recent", Window(shape).recent);
  }

  Status Evict(const LayerPrefill& in, std::span<Rows> keep) const override {
    for (std::size_t h = 0; h < in.heads.size(); ++h) {
      Window(in.shape).Fill(in.heads[h].view.rows, keep[h]);
    }
    return {};
  }
  void Live(const HeadDecode& in, Rows& live) const override {
    Window(*in.shape).Fill(in.rows.slots, live);
  }
  Status Observe(const HeadDecode& in, const Rows&, std::span<const float>,
                 Rows& keep) const override {
    Window(*in.shape).Drop(in.rows.slots, keep);
    return {};
  }

 private:
  SlidingWindow Window(const TurnShape& shape) const {
    return {.sinks = sinks_, .recent = recent_ > 0 ? recent_ : shape.prompt_budget - sinks_};
  }

  std::int32_t sinks_ = 4;
  std::int32_t recent_ = 0;  // 0: from the budget
};

}  // namespace

Method StreamingMethod() {
  return {.info = {.name = "streaming",
                   .keeps = "the first sinks tokens and the last ones, budget in all; the window "
                            "slides while decoding",
                   .reads = "everything kept",
                   .state = "none",
                   .source = "StreamingLLM, arXiv:2309.17453, without its shift of positions"},
          .make = [] { return Parts{.evictor = std::make_unique<Streaming>()}; }};
}

}  // namespace rkv::policy
