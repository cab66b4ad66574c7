// Exact-TopK: the rows with the largest exact scores. An oracle: what finding them reads is not
// counted. Policy specification 2.8.
#include <array>
#include <memory>

#include "policy/methods.h"
#include "policy/score_blocks.h"

namespace rkv::policy {
namespace {

constexpr std::array<std::string_view, 2> kHeads = {"group", "query"};

class ExactTopK final : public Selector {
 public:
  void Options(OptionVisitor& options) override {
    options.Int("topk", top_k_, {.low = 1, .high = kMaxTokens, .automatic = true},
                "rows read per step, with heads=query by each query head");
    options.Choice("heads", heads_, kHeads,
                   "whose exact attention decides: the group's together, or each query head's");
  }

  void Explain(const TurnShape& shape, Numbers& out) const override {
    out.emplace_back("topk", TopK(shape));
  }

  StepCost Cost(const TurnShape& shape, std::int32_t /*slots*/) const override {
    return {.rows = static_cast<double>(TopK(shape))};
  }

  Status Select(const HeadDecode& in, Rows& read) const override {
    const std::int32_t slots = in.rows.slots;
    const std::int32_t group = in.query.group;
    const std::size_t numbers = static_cast<std::size_t>(group) * static_cast<std::size_t>(slots);
    Scratch::Frame frame(*in.scratch);
    const std::span<float> scores(frame.Array<float>(numbers), numbers);
    in.backend->score_rows(in.query, in.rows.head, {in.rows.list, slots}, in.scale, scores.data());
    if (heads_ == 1) {
      ReadBestOfHeads(in, scores, TopK(*in.shape), read);
    } else {
      ReadBest(in, SumOfSoftmaxes(scores, group, slots, frame), TopK(*in.shape), read);
    }
    return {};
  }

 private:
  std::int32_t TopK(const TurnShape& shape) const { return top_k_ > 0 ? top_k_ : shape.budget; }

  std::int32_t top_k_ = 0;
  std::size_t heads_ = 0;
};

}  // namespace

Method ExactTopKMethod() {
  return {.info = {.name = "exact-topk",
                   .keeps = "everything",
                   .reads = "the topk rows with the largest exact attention; finding them is not "
                            "counted",
                   .state = "none",
                   .source = "the oracle of RocketKV, arXiv:2502.14051"},
          .make = [] { return Parts{.selector = std::make_unique<ExactTopK>()}; }};
}

}  // namespace rkv::policy
