// H2O: the rows that got the most attention so far ("heavy hitters") and the last ones, chosen
// greedily at every token. Policy specification 2.12.
#include <algorithm>

#include "policy/attention_sums.h"
#include "policy/methods.h"

namespace rkv::policy {
namespace {

class H2o final : public SummingEvictor {
 public:
  void Options(OptionVisitor& options) override {
    options.Int("heavy", heavy_, {.low = 1, .high = kMaxTokens, .automatic = true},
                "rows with the most attention that stay beside the last ones; auto: what `recent` "
                "leaves of the budget");
    options.Int("recent", recent_, {.low = 1, .high = kMaxTokens, .automatic = true},
                "last rows, which always stay; auto: half of the budget, or what `heavy` leaves");
  }

  Needs needs(const TurnShape&) const override { return {.column_mass = true, .observes = true}; }
  std::int32_t LeastRows() const override { return std::max(heavy_, 1) + std::max(recent_, 1); }
  std::int64_t RowsKept(const TurnShape& shape, std::int64_t rows) const override {
    const Split split = SplitOf(shape);
    return std::min<std::int64_t>(rows, split.heavy + split.recent);
  }
  void Explain(const TurnShape& shape, Numbers& out) const override {
    const Split split = SplitOf(shape);
    out.emplace_back("heavy", split.heavy);
    out.emplace_back("recent", split.recent);
  }

  Status Evict(const LayerPrefill& in, std::span<Rows> keep) const override {
    const Split split = SplitOf(in.shape);
    for (std::size_t h = 0; h < in.heads.size(); ++h) {
      SlotSums slots = SlotSums::AfterPrompt(in.heads[h]);
      slots.LeaveHeaviest(split.heavy, split.recent);
      keep[h].all = slots.live_slots() == slots.slots();
      if (!keep[h].all) {
        keep[h].list = std::move(slots.live);
      }
    }
    return {};
  }

  Status Observe(const HeadDecode& in, const Rows& read, std::span<const float> log_sum,
                 Rows& keep) const override {
    SlotSums& slots = static_cast<AttentionSums&>(*in.state).slots();
    AddStepMass(in, read, log_sum, slots.sums);
    const Split split = SplitOf(*in.shape);
    slots.LeaveHeaviest(split.heavy, split.recent);
    slots.Drop(keep);
    return {};
  }

 private:
  struct Split {
    std::int32_t heavy, recent;  // Bh, Br
  };

  Split SplitOf(const TurnShape& shape) const {
    const std::int32_t half =
        heavy_ > 0 ? std::max(shape.prompt_budget - heavy_, 1) : shape.prompt_budget / 2;
    const std::int32_t recent = recent_ > 0 ? recent_ : half;
    return {heavy_ > 0 ? heavy_ : shape.prompt_budget - recent, recent};
  }

  std::int32_t heavy_ = 0;  // 0: from the budget
  std::int32_t recent_ = 0;
};

}  // namespace

Method H2oMethod() {
  return {.info = {.name = "h2o",
                   .keeps = "budget rows per KV head: those that got the most attention so far and "
                            "the last ones, chosen anew at every token",
                   .reads = "everything kept, and the token's own row",
                   .state = "the attention that each kept row got: 4 bytes a row",
                   .source = "H2O, arXiv:2306.14048"},
          .make = [] { return Parts{.evictor = std::make_unique<H2o>()}; }};
}

}  // namespace rkv::policy
