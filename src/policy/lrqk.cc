// LRQK: queries and keys are projected to a few numbers whose products approximate the logits; the
// best rows by these are read, and the last ones. Policy specification 2.17, arXiv:2510.23649.
#include "policy/lrqk.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>

#include "policy/budget_split.h"
#include "policy/choose_rows.h"
#include "policy/composed_state.h"
#include "policy/methods.h"
#include "policy/score_blocks.h"

namespace rkv::policy {
namespace {

constexpr std::array<std::string_view, 2> kSolvers = {"closed", "als"};
constexpr std::int32_t kMostLite = 64;

class Lrqk final : public Selector {
 public:
  void Options(OptionVisitor& options) override {
    options.Int("topk", top_k_, {.low = 1, .high = kMaxTokens, .automatic = true},
                "rows read for their score per step");
    options.Int("lite", lite_, {.low = 1, .high = kMaxTokens, .automatic = true},
                "last rows that every step reads");
    options.Int("topr", top_r_, {.low = 1, .high = 4096, .automatic = true},
                "numbers that a query and a key are projected to, at most the head dimension");
    options.Choice("solver", solver_, kSolvers,
                   "closed: the best projections; als: the paper's alternating least squares");
    options.Int("sweeps", sweeps_, {.low = 1, .high = 64}, "sweeps of als");
  }

  Status CheckShape(const TurnShape& shape) const override {
    const Status status = CheckAtMost("topr", top_r_, shape.head_dim, "the model's head dimension");
    return status.ok()
               ? CheckAtMost("lite", lite_, std::max(1, shape.budget / 2), "half the budget")
               : status;
  }
  Needs needs(const TurnShape&) const override {
    return {.query_gram = true, .scores_steps = true};
  }

  void Explain(const TurnShape& shape, Numbers& out) const override {
    out.emplace_back("topk", TopK(shape));
    out.emplace_back("lite", Lite(shape));
    out.emplace_back("c2", CompressionRatio(shape.capacity, shape.budget));
    out.emplace_back("topr", Rank(shape));
  }

  StepCost Cost(const TurnShape& shape, std::int32_t slots) const override {
    return {.estimate = static_cast<double>(slots) * Rank(shape) / (2.0 * shape.head_dim),
            .rows = static_cast<double>(TopK(shape) + Lite(shape))};
  }

  std::unique_ptr<HeadState> NewState(const StateShape& shape) const override {
    return std::make_unique<LrqkState>(shape, Rank(*shape.turn), solver_ == 0 ? 0 : sweeps_);
  }
  std::size_t StateBytes(const TurnShape& shape, kv::Codec codec,
                         std::int64_t rows) const override {
    return LrqkState::Bytes(shape.head_dim, codec, Rank(shape), rows);
  }

  // softmax(q_h k / sqrt d) of every head, summed over the group, of projected q and k.
  Status Select(const HeadDecode& in, Rows& read) const override {
    const auto& state = static_cast<const LrqkState&>(*in.state);
    const kv::IndexView codes = state.codes();
    Scratch::Frame frame(*in.scratch);
    const auto numbers = static_cast<std::size_t>(in.query.group * codes.head_dim);
    const std::span<float> query(frame.Array<float>(numbers), numbers);
    // chunk_scores divides by the root of as many numbers as it multiplies.
    state.Project(in.query, in.scale * std::sqrt(static_cast<float>(codes.head_dim)), query);
    HeadDecode projected = in;
    projected.query.q = query.data();
    const ChunkScores scores = ScoreChunks(projected, codes, codes.head_dim, false, frame, read);
    const std::int32_t lite = Lite(*in.shape);
    ReadChosen(in, scores, 1, {.k = TopK(*in.shape) + lite, .forced = {.last = lite}}, read);
    return {};
  }

 private:
  std::int32_t Lite(const TurnShape& shape) const {
    return lite_ > 0 ? lite_ : std::min(kMostLite, shape.budget / 4);
  }
  std::int32_t TopK(const TurnShape& shape) const {
    return top_k_ > 0 ? top_k_ : std::max(0, shape.budget / 2 - Lite(shape));
  }
  std::int32_t Rank(const TurnShape& shape) const {
    const double rank = shape.head_dim / CompressionRatio(shape.capacity, shape.budget);
    return top_r_ > 0 ? top_r_ : std::max(1, static_cast<std::int32_t>(std::lround(rank)));
  }

  std::int32_t top_k_ = 0;
  std::int32_t lite_ = 0;
  std::int32_t top_r_ = 0;
  std::size_t solver_ = 0;
  std::int32_t sweeps_ = 2;
};

}  // namespace

Method LrqkMethod() {
  return {.info = {.name = "lrqk",
                   .keeps = "everything",
                   .reads = "the topk rows whose projected keys meet the projected query best, and "
                            "the lite last ones",
                   .state = "topr numbers a row: topr/(2 head_dim) of the cache",
                   .source = "LRQK, arXiv:2510.23649"},
          .make = [] { return Parts{.selector = std::make_unique<Lrqk>()}; }};
}

}  // namespace rkv::policy
