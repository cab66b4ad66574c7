// FastGen: every head gets the cheapest of five nested eviction rules that recovers enough of its
// attention. Policy specification 2.13.
#include <algorithm>
#include <utility>

#include "policy/attention_sums.h"
#include "policy/fastgen_rules.h"
#include "policy/methods.h"

namespace rkv::policy {
namespace {

constexpr double kRatio = 0.3;       // of the prompt, for frequent and for local rows
constexpr double kThreshold = 0.95;  // recovery, where the budget allows it

class FastGenState final : public AttentionSums {
 public:
  using AttentionSums::AttentionSums;
  FastGenRule rule() const { return rule_; }
  Status Build(const StateBuild& build) override {
    rule_ = static_cast<FastGenRule>(build.keep->rule);
    return AttentionSums::Build(build);
  }

 private:
  FastGenRule rule_ = kEverything;
};

class FastGen final : public SummingEvictor {
 public:
  void Options(OptionVisitor& options) override {
    options.Number("threshold", threshold_, {.low = 0, .high = 2, .automatic = true},
                   "attention that a head's rule must recover; auto: 0.95 within the budget");
    options.Number("frequent", frequent_, {.low = 0, .high = 1, .automatic = true},
                   "part of the prompt kept for its attention; auto: 0.3, and within the budget");
    options.Number("local", local_, {.low = 0, .high = 1, .automatic = true},
                   "part of the prompt in the local window; auto: 0.3, at most half of the budget");
    options.Int("sinks", sinks_, {.low = 0, .high = 4096}, "first tokens that count as special");
  }

  Needs needs(const TurnShape& shape) const override {
    return {.column_mass = true,
            .band = CountsOf(shape).local,
            .token_classes = true,
            .observes = true};
  }
  std::int64_t RowsKept(const TurnShape& shape, std::int64_t rows) const override {
    return threshold_ < 0 ? Evictor::RowsKept(shape, rows) : rows;
  }
  void Explain(const TurnShape& shape, Numbers& out) const override {
    const FastGenCounts counts = CountsOf(shape);
    out.emplace_back("local", counts.local);
    out.emplace_back("frequent", counts.FrequentRows(0));
  }

  Status Evict(const LayerPrefill& in, std::span<Rows> keep) const override {
    const FastGenCounts counts = CountsOf(in.shape);
    std::vector<FastGenProfile> heads;
    for (const HeadPrefill& head : in.heads) {
      heads.push_back(ProfileHead(in, head, counts));
    }
    std::vector<FastGenRule> fitted;
    if (threshold_ < 0) {
      fitted = FitRules(heads, counts, kThreshold, RowsLeft(in, counts), in.shape.max_new_tokens);
    }
    for (std::size_t h = 0; h < heads.size(); ++h) {
      keep[h].rule = fitted.empty() ? heads[h].First(threshold_) : fitted[h];
      std::vector<std::int32_t>& rows = heads[h].rows[static_cast<std::size_t>(keep[h].rule)];
      keep[h].all = rows.size() == static_cast<std::size_t>(in.heads[h].view.rows);
      if (!keep[h].all) {
        keep[h].list = std::move(rows);
      }
    }
    return {};
  }

  std::unique_ptr<HeadState> NewState(const StateShape& shape) const override {
    return std::make_unique<FastGenState>(shape);
  }
  Status Observe(const HeadDecode& in, const Rows& read, std::span<const float> log_sum,
                 Rows& keep) const override {
    auto& state = static_cast<FastGenState&>(*in.state);
    if (state.rule() >= kFrequent) {
      AddStepMass(in, read, log_sum, state.slots().sums);
    }
    state.slots().live = LiveUnderRule(in, state.rule(), CountsOf(*in.shape), state.slots());
    state.slots().Drop(keep);
    return {};
  }

 private:
  FastGenCounts CountsOf(const TurnShape& shape) const {
    const auto rows = [&](double ratio) {
      return static_cast<std::int32_t>((ratio < 0 ? kRatio : ratio) * shape.prompt_tokens);
    };
    FastGenCounts counts = {
        .sinks = sinks_, .local = std::max(rows(local_), 1), .frequent = rows(frequent_)};
    if (threshold_ < 0 && local_ < 0) {
      counts.local = std::min(counts.local, shape.prompt_budget / 2);
    }
    if (threshold_ < 0 && frequent_ < 0) {
      counts.room = shape.prompt_budget;
    }
    return counts;
  }

  // What this layer may hold so that the mean over it and the layers before is the budget: what
  // those left over, because their choices go in jumps, is not lost.
  static std::int64_t RowsLeft(const LayerPrefill& in, const FastGenCounts& counts) {
    const auto layers = static_cast<std::int64_t>(in.earlier.size()) + 1;
    std::int64_t left =
        layers * static_cast<std::int64_t>(in.heads.size()) * in.shape.prompt_budget;
    for (const std::vector<Rows>& layer : in.earlier) {
      for (const Rows& head : layer) {
        left -=
            counts.RowsAtEnd(static_cast<FastGenRule>(head.rule),
                             head.Of(0, in.heads.front().view.rows).count, in.shape.max_new_tokens);
      }
    }
    return left;
  }

  double threshold_ = -1;  // -1: kThreshold within the budget
  double frequent_ = -1;   // -1: kRatio, within the budget where it decides
  double local_ = -1;
  std::int32_t sinks_ = 4;
};

}  // namespace

Method FastGenMethod() {
  return {.info = {.name = "fastgen",
                   .keeps = "by head: special tokens, also punctuation, also rows with much "
                            "attention, also a local window, or all; budget rows on average",
                   .reads = "everything kept, and the token's own row",
                   .state = "the attention that each kept row got: 4 bytes a row",
                   .source = "FastGen, arXiv:2310.01801"},
          .make = [] { return Parts{.evictor = std::make_unique<FastGen>()}; }};
}

}  // namespace rkv::policy
