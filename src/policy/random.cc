// Random rows: the floor that a method must be above. No source.
#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "base/rng.h"
#include "policy/methods.h"
#include "policy/score_blocks.h"

namespace rkv::policy {
namespace {

constexpr IntRange kSeed{.low = 0, .high = std::numeric_limits<std::int32_t>::max()};
constexpr std::string_view kSeedHelp = "another seed, other rows";

// Scores that depend on seed, step, layer and head alone, so that a larger k adds rows to those of
// a smaller one.
void Draw(std::int32_t seed, std::int32_t step, std::int32_t layer, std::int32_t head,
          std::span<float> scores) {
  Rng rng(static_cast<std::uint64_t>(seed));
  for (const std::int32_t number : {step, layer, head}) {
    rng = Rng(rng.Next() ^ static_cast<std::uint32_t>(number));
  }
  std::ranges::generate(scores, [&] { return rng.Uniform(); });
}

// Reads random slots and the current token's.
class RandomSelector final : public Selector {
 public:
  void Options(OptionVisitor& options) override {
    options.Int("topk", top_k_, {.low = 1, .high = kMaxTokens, .automatic = true},
                "rows read per step");
    options.Int("seed", seed_, kSeed, kSeedHelp);
  }
  void Explain(const TurnShape& shape, Numbers& out) const override {
    out.emplace_back("topk", TopK(shape));
  }
  StepCost Cost(const TurnShape& shape, std::int32_t /*slots*/) const override {
    return {.rows = static_cast<double>(TopK(shape))};
  }

  Status Select(const HeadDecode& in, Rows& read) const override {
    Scratch::Frame frame(*in.scratch);
    const auto slots = static_cast<std::size_t>(in.rows.slots);
    const std::span<float> scores(frame.Array<float>(slots), slots);
    Draw(seed_, in.position, in.layer, in.kv_head, scores);
    scores.back() = 2.0f;
    ReadBest(in, scores, TopK(*in.shape), read);
    return {};
  }

 private:
  std::int32_t TopK(const TurnShape& shape) const { return top_k_ > 0 ? top_k_ : shape.budget; }

  std::int32_t top_k_ = 0;
  std::int32_t seed_ = 0;
};

// Keeps random rows of a prompt.
class RandomEvictor final : public Evictor {
 public:
  void Options(OptionVisitor& options) override { options.Int("seed", seed_, kSeed, kSeedHelp); }

  Status Evict(const LayerPrefill& in, std::span<Rows> keep) const override {
    for (std::size_t h = 0; h < in.heads.size(); ++h) {
      const std::int32_t rows = in.heads[h].view.rows;
      const std::int32_t budget = in.shape.prompt_budget;
      keep[h].all = rows <= budget;
      if (keep[h].all) {
        continue;
      }
      std::vector<float> scores(static_cast<std::size_t>(rows));
      Draw(seed_, -rows, in.layer, in.heads[h].kv_head, scores);
      keep[h].list.resize(static_cast<std::size_t>(budget));
      in.backend->top_k(scores, budget, keep[h].list.data(), *in.scratch);
    }
    return {};
  }

 private:
  std::int32_t seed_ = 0;
};

}  // namespace

Method RandomMethod() {
  return {.info = {.name = "random",
                   .keeps = "everything; as evict=random, budget random rows per KV head",
                   .reads = "topk rows at random, and always the current one",
                   .state = "none",
                   .source = "a floor for comparisons"},
          .make = [] { return Parts{.selector = std::make_unique<RandomSelector>()}; },
          .halves =
              [] {
                return Parts{.evictor = std::make_unique<RandomEvictor>(),
                             .selector = std::make_unique<RandomSelector>()};
              }};
}

}  // namespace rkv::policy
