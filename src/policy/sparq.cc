// SparQ: scores of all rows from the loudest channels of the query; what is not read counts by the
// mean value. Policy specification 2.6, arXiv:2312.04985.
#include <algorithm>
#include <array>
#include <memory>

#include "policy/budget_split.h"
#include "policy/choose_rows.h"
#include "policy/methods.h"
#include "policy/score_blocks.h"
#include "policy/value_mean.h"

namespace rkv::policy {
namespace {

constexpr std::array<std::string_view, 3> kRealloc = {"auto", "on", "off"};

class SparQ final : public Selector {
 public:
  void Options(OptionVisitor& options) override {
    options.Int("topk", top_k_, {.low = 1, .high = kMaxTokens, .automatic = true},
                "rows read exactly per step");
    options.Int("topr", top_r_, {.low = 1, .high = 4096, .automatic = true},
                "channels that the estimate reads, at most the head dimension");
    options.Int("local", local_, {.low = 0, .high = kMaxTokens},
                "last rows that every step reads, of topk");
    options.Choice(
        "realloc", realloc_, kRealloc,
        "rows that are not read count by their mean value and estimated attention; auto: "
        "where a KV head serves one query head");
  }

  Status CheckShape(const TurnShape& shape) const override {
    const Status status = CheckAtMost("topr", top_r_, shape.head_dim, "the model's head dimension");
    return status.ok() ? CheckUpTo("local", local_, TopK(shape), "topk") : status;
  }

  void Explain(const TurnShape& shape, Numbers& out) const override {
    out.emplace_back("topk", TopK(shape));
    out.emplace_back("c2", CompressionRatio(shape.capacity, shape.budget));
    out.emplace_back("topr", Channels(shape));
    out.emplace_back("realloc", Completes(shape) ? 1 : 0);
  }

  StepCost Cost(const TurnShape& shape, std::int32_t slots) const override {
    return {.estimate = static_cast<double>(slots) * Channels(shape) / (2.0 * shape.head_dim),
            .rows = static_cast<double>(TopK(shape))};
  }

  // Chunks of one row: the second, channel-major copy of the keys.
  std::unique_ptr<HeadState> NewState(const StateShape& shape) const override {
    return NewChunks(shape, 1, Completes(*shape.turn));
  }
  std::size_t StateBytes(const TurnShape& shape, kv::Codec codec,
                         std::int64_t rows) const override {
    return ChunksBytes(shape, codec, 1, Completes(shape), rows);
  }

  Status Select(const HeadDecode& in, Rows& read) const override {
    const bool completes = Completes(*in.shape);
    const kv::IndexView keys = static_cast<const ChunkState&>(*in.state).view();
    Scratch::Frame frame(*in.scratch);
    const ChunkScores scores = ScoreChunks(in, keys, Channels(*in.shape), completes, frame, read);
    Choice choice = {.k = TopK(*in.shape), .forced = {.last = local_}};
    if (completes) {
      choice.mean_value = static_cast<const CompletedChunks&>(*in.state).mean_value();
    }
    ReadChosen(in, scores, 1, choice, read);
    return {};
  }

 private:
  std::int32_t TopK(const TurnShape& shape) const { return top_k_ > 0 ? top_k_ : shape.budget / 2; }
  std::int32_t Channels(const TurnShape& shape) const {
    const double r = shape.head_dim / CompressionRatio(shape.capacity, shape.budget);
    return top_r_ > 0 ? top_r_ : std::max(1, static_cast<std::int32_t>(r));
  }
  bool Completes(const TurnShape& shape) const {
    return realloc_ == 1 || (realloc_ == 0 && shape.group == 1);
  }

  std::int32_t top_k_ = 0;
  std::int32_t top_r_ = 0;
  std::int32_t local_ = 0;
  std::size_t realloc_ = 0;
};

}  // namespace

Method SparQMethod() {
  return {.info = {.name = "sparq",
                   .keeps = "everything",
                   .reads = "topk rows, chosen from all keys' numbers in the query's topr loudest "
                            "channels",
                   .state = "the keys once more, by channel: half of the cache",
                   .source = "SparQ, arXiv:2312.04985"},
          .make = [] { return Parts{.selector = std::make_unique<SparQ>()}; }};
}

}  // namespace rkv::policy
