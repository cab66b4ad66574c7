#include "policy/hsa.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "base/check.h"
#include "policy/budget_split.h"
#include "policy/choose_rows.h"
#include "policy/hsa_beyond.h"
#include "policy/methods.h"
#include "policy/score_blocks.h"
#include "policy/value_mean.h"

namespace rkv::policy {

HsaSplit SplitHsa(const HsaOptions& options, const TurnShape& shape) {
  Check(shape.budget > 0 && shape.head_dim > 0, "a split needs a budget and a head");
  HsaSplit split;
  split.c2 = CompressionRatio(shape.capacity, shape.budget);
  split.k = options.top_k > 0 ? options.top_k : shape.budget / 2;
  split.chunk_rows = options.chunk_rows;
  if (split.chunk_rows <= 0) {
    const double chunk = std::ceil(std::sqrt(split.c2));
    split.chunk_rows = chunk > split.c2 ? 1 : static_cast<std::int32_t>(chunk);
  }
  const double channels = static_cast<double>(shape.head_dim) * split.chunk_rows / split.c2;
  const double most = shape.head_dim;
  split.channels = options.top_r > 0 ? options.top_r
                                     : static_cast<std::int32_t>(std::clamp(channels, 1.0, most));
  return split;
}

double HsaEstimate(const HsaSplit& split, std::int32_t rows, std::int32_t head_dim) {
  return static_cast<double>(rows) / split.chunk_rows * split.channels / (2.0 * head_dim);
}

namespace {

class Hsa final : public Selector {
 public:
  void Options(OptionVisitor& options) override {
    options.Int("topk", options_.top_k, {.low = 1, .high = kMaxTokens, .automatic = true},
                "rows read exactly per step");
    options.Int("topr", options_.top_r, {.low = 1, .high = 4096, .automatic = true},
                "channels that the estimate reads, at most the head dimension");
    options.Int("page_size", options_.chunk_rows, {.low = 1, .high = kMaxTokens, .automatic = true},
                "rows of a chunk");
    beyond_.Show(options);
  }

  Status CheckShape(const TurnShape& shape) const override {
    const Status status =
        CheckAtMost("topr", options_.top_r, shape.head_dim, "the model's head dimension");
    return status.ok() ? beyond_.Check(SplitHsa(options_, shape).k) : status;
  }

  void Explain(const TurnShape& shape, Numbers& out) const override {
    const HsaSplit split = SplitHsa(options_, shape);
    out.emplace_back("topk", split.k);
    out.emplace_back("c2", split.c2);
    out.emplace_back("page_size", split.chunk_rows);
    out.emplace_back("topr", split.channels);
  }

  StepCost Cost(const TurnShape& shape, std::int32_t slots) const override {
    const HsaSplit split = SplitHsa(options_, shape);
    return {.estimate = HsaEstimate(split, slots, shape.head_dim),
            .rows = static_cast<double>(split.k)};
  }

  std::unique_ptr<HeadState> NewState(const StateShape& shape) const override {
    return NewChunks(shape, SplitHsa(options_, *shape.turn).chunk_rows, beyond_.completes());
  }
  std::size_t StateBytes(const TurnShape& shape, kv::Codec codec,
                         std::int64_t rows) const override {
    return ChunksBytes(shape, codec, SplitHsa(options_, shape).chunk_rows, beyond_.completes(),
                       rows);
  }

  Status Select(const HeadDecode& in, Rows& read) const override {
    const HsaSplit split = SplitHsa(options_, *in.shape);
    const kv::IndexView index = static_cast<const ChunkState&>(*in.state).view();
    Scratch::Frame frame(*in.scratch);
    const ChunkScores scores =
        ScoreChunks(in, index, split.channels, beyond_.completes(), frame, read);
    ReadChosen(in, scores, index.chunk_rows, beyond_.ChoiceOf(split.k, *in.state), read);
    return {};
  }

 private:
  HsaOptions options_;
  HsaBeyond beyond_;
};

}  // namespace

Method HsaMethod() {
  return {.info = {.name = "hsa",
                   .keeps = "everything",
                   .reads = "topk rows, chosen from chunk minima and maxima in topr channels",
                   .state = "minimum and maximum key of each chunk: 1/page_size of the cache",
                   .source = "RocketKV section 3.4 (stage 2 alone), arXiv:2502.14051"},
          .make = [] { return Parts{.selector = std::make_unique<Hsa>()}; }};
}

}  // namespace rkv::policy
