// ShadowKV: chunks are chosen by their mean key; chunks that a mean says little about and the last
// rows are always read; the other keys are of low rank. Policy specification 2.15,
// arXiv:2410.21465.
#include "policy/shadowkv.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "policy/budget_split.h"
#include "policy/choose_rows.h"
#include "policy/methods.h"
#include "policy/score_blocks.h"

namespace rkv::policy {
namespace {

constexpr std::int32_t kRank = 160;
constexpr std::int32_t kLocalChunks = 4;
// Outliers and local rows take at most this part each of what is read: the paper's 384 outlier rows
// beside 2048 chosen ones are about that.
constexpr std::int32_t kResidentPart = 8;
constexpr float kAlways = 2;  // above any softmax

class ShadowKv final : public Selector {
 public:
  void Options(OptionVisitor& options) override {
    options.Int("page_size", page_rows_, {.low = 1, .high = kMaxTokens, .automatic = true},
                "rows of a chunk");
    options.Int("topk", top_k_, {.low = 1, .high = kMaxTokens, .automatic = true},
                "rows read per step: local, outlying and chosen ones");
    options.Int("local", local_, {.low = 1, .high = kMaxTokens, .automatic = true},
                "last rows that every step reads, of topk");
    options.Int("outliers", outliers_, {.low = 1, .high = kMaxTokens, .automatic = true},
                "rows of topk for chunks whose keys are least like their mean");
    options.Int("rank", rank_, {.low = 1, .high = kMaxTokens, .automatic = true},
                "directions that the keys of a layer are left, all KV heads together");
  }

  Status CheckShape(const TurnShape& shape) const override {
    const std::int32_t width = shape.kv_heads * shape.head_dim;
    Status status = CheckAtMost("rank", rank_, width, "the numbers in a layer's keys of a token");
    status = status.ok() ? CheckAtMost("local", local_, TopK(shape), "topk") : status;
    return status.ok() ? CheckAtMost("outliers", outliers_, TopK(shape) - Local(shape),
                                     "what local leaves of topk")
                       : status;
  }
  Needs needs(const TurnShape& shape) const override {
    const std::int32_t rank = Rank(shape);
    return {.key_rank = rank < shape.kv_heads * shape.head_dim ? rank : 0, .scores_steps = true};
  }

  void Explain(const TurnShape& shape, Numbers& out) const override {
    out.emplace_back("topk", TopK(shape));
    out.emplace_back("c2", CompressionRatio(shape.capacity, shape.budget));
    out.emplace_back("page_size", PageRows(shape));
    out.emplace_back("local", Local(shape));
    out.emplace_back("outlier_chunks", Outliers(shape));
    out.emplace_back("rank", Rank(shape));
  }

  StepCost Cost(const TurnShape& shape, std::int32_t slots) const override {
    return {.estimate = static_cast<double>(slots) / PageRows(shape) / 2,
            .rows = static_cast<double>(TopK(shape))};
  }

  std::unique_ptr<HeadState> NewState(const StateShape& shape) const override {
    return std::make_unique<ShadowKvState>(shape, PageRows(*shape.turn), Outliers(*shape.turn));
  }
  std::size_t StateBytes(const TurnShape& shape, kv::Codec codec,
                         std::int64_t rows) const override {
    return ShadowKvState::Bytes(shape.head_dim, codec, PageRows(shape), rows);
  }

  Status Select(const HeadDecode& in, Rows& read) const override {
    const auto& state = static_cast<const ShadowKvState&>(*in.state);
    const std::int32_t page = state.chunk_rows();
    const auto chunks = static_cast<std::size_t>((in.rows.slots + page - 1) / page);
    Scratch::Frame frame(*in.scratch);
    const std::span<float> u(frame.Array<float>(chunks), chunks);
    ScoreLandmarks(in, state, u, frame, read);
    read.all = false;
    ChooseRows(in, u, page, TopK(*in.shape), {.last = Local(*in.shape)}, read.list);
    return {};
  }

  void ExactKeys(const TurnShape& shape, const HeadState& state, std::int32_t slots,
                 std::vector<std::int32_t>& exact) const override {
    const auto& chunks = static_cast<const ShadowKvState&>(state);
    const std::int32_t local = std::max(0, slots - Local(shape));
    for (const std::int32_t chunk : chunks.outliers()) {
      const std::int32_t first = chunk * chunks.chunk_rows();
      for (std::int32_t slot = first; slot < std::min(first + chunks.chunk_rows(), local); ++slot) {
        exact.push_back(slot);
      }
    }
    for (std::int32_t slot = local; slot < slots; ++slot) {
      exact.push_back(slot);
    }
  }

 private:
  // u[b] = max over heads of softmax_b(q_h . mean key / sqrt d); outliers are above all.
  void ScoreLandmarks(const HeadDecode& in, const ShadowKvState& state, std::span<float> u,
                      Scratch::Frame& frame, Rows& read) const {
    const kv::IndexView landmarks = state.landmarks();
    HeadDecode by_chunk = in;
    by_chunk.rows.slots = landmarks.rows;
    const ChunkScores scores =
        ScoreChunks(by_chunk, landmarks, landmarks.head_dim, true, frame, read);
    std::size_t at = 0;
    for (std::size_t chunk = 0; chunk < u.size(); ++chunk) {
      u[chunk] = kAlways;
      if (std::ranges::binary_search(state.outliers(), static_cast<std::int32_t>(chunk))) {
        continue;
      }
      u[chunk] = 0;
      for (std::size_t g = 0; g < static_cast<std::size_t>(in.query.group); ++g) {
        u[chunk] = std::max(u[chunk], scores.by_head[g * scores.u.size() + at]);
      }
      ++at;
    }
  }

  std::int32_t PageRows(const TurnShape& shape) const {
    const double c2 = CompressionRatio(shape.capacity, shape.budget);
    return page_rows_ > 0 ? page_rows_ : static_cast<std::int32_t>(std::ceil(c2));
  }
  std::int32_t TopK(const TurnShape& shape) const { return top_k_ > 0 ? top_k_ : shape.budget / 2; }
  std::int32_t Local(const TurnShape& shape) const {
    return local_ > 0 ? local_
                      : std::clamp(TopK(shape) / kResidentPart, 1, kLocalChunks * PageRows(shape));
  }
  // Chunks.
  std::int32_t Outliers(const TurnShape& shape) const {
    return (outliers_ > 0 ? outliers_ : TopK(shape) / kResidentPart) / PageRows(shape);
  }
  std::int32_t Rank(const TurnShape& shape) const {
    return rank_ > 0 ? rank_ : std::min(kRank, shape.kv_heads * shape.head_dim);
  }

  std::int32_t page_rows_ = 0;
  std::int32_t top_k_ = 0;
  std::int32_t local_ = 0;
  std::int32_t outliers_ = 0;
  std::int32_t rank_ = 0;
};

}  // namespace

Method ShadowKvMethod() {
  return {.info = {.name = "shadowkv",
                   .keeps = "everything, the keys of a layer in rank directions but for local and "
                            "outlying rows",
                   .reads = "topk rows: the last ones, chunks of outliers, and those chunks whose "
                            "mean key meets the query best",
                   .state = "mean key of each chunk: 1/(2 page_size) of the cache",
                   .source = "ShadowKV, arXiv:2410.21465"},
          .make = [] { return Parts{.selector = std::make_unique<ShadowKv>()}; }};
}

}  // namespace rkv::policy
