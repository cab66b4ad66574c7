// ChunkKV: runs of rows stay or go together, and neighbouring layers share the choice.
// Policy specification 2.14.
#include <algorithm>
#include <array>
#include <numeric>

#include "policy/methods.h"
#include "policy/scored_rows.h"
#include "policy/snapkv.h"

namespace rkv::policy {
namespace {

constexpr std::array<std::string_view, 2> kHeads = {"shared", "group"};

class ChunkKv final : public Evictor {
 public:
  void Options(OptionVisitor& options) override {
    options.Int("window_size", window_, kSnapKvWindow, kSnapKvWindowHelp);
    options.Int("chunk_size", chunk_, {.low = 1, .high = 4096}, "rows of a chunk");
    options.Int("reuse", reuse_, {.low = 1, .high = 1024},
                "layers in a row that keep what the first of them chose");
    std::size_t heads = shared_ ? 0 : 1;
    options.Choice("heads", heads, kHeads,
                   "whose attention decides: all heads of the layer together, or each group's "
                   "alone");
    shared_ = heads == 0;
  }

  Needs needs(const TurnShape&) const override { return {.window = window_}; }
  std::int32_t LeastRows() const override { return window_ + chunk_; }
  // Whole chunks: a last one that is cut may take the place of a full one and leaves fewer.
  std::int64_t RowsKept(const TurnShape& shape, std::int64_t rows) const override {
    const std::int64_t room = std::max(shape.prompt_budget - window_, 0);
    return rows <= shape.prompt_budget ? rows : std::min(window_ + room / chunk_ * chunk_, rows);
  }

  void Score(const LayerPrefill& layer, const HeadPrefill& in,
             std::vector<float>& scores) const override {
    if (Leader(layer, in) == nullptr) {
      Evictor::Score(layer, in, scores);
    }
  }

  Status Evict(const LayerPrefill& in, std::span<Rows> keep) const override {
    std::vector<float> sum;  // of the heads' scores where they decide together
    for (std::size_t h = 0; shared_ && h < in.heads.size(); ++h) {
      const std::span<const float> scores = in.heads[h].scores;
      sum.resize(std::max(sum.size(), scores.size()));
      std::transform(scores.begin(), scores.end(), sum.begin(), sum.begin(), std::plus<>());
    }
    for (std::size_t h = 0; h < in.heads.size(); ++h) {
      const HeadPrefill& head = in.heads[h];
      keep[h].all = head.view.rows <= in.shape.prompt_budget;
      if (keep[h].all) {
        continue;
      }
      if (const Rows* const leader = Leader(in, head)) {
        keep[h].list = leader->list;
        continue;
      }
      const auto prefix = static_cast<std::size_t>(head.prefix());
      const std::span<const float> scores =
          shared_ ? std::span<const float>(sum).first(prefix) : head.scores;
      keep[h].list = ChunkRows(scores, in.shape.prompt_budget - head.window.tokens);
      for (std::int32_t row = head.prefix(); row < head.view.rows; ++row) {
        keep[h].list.push_back(row);
      }
    }
    return {};
  }

 private:
  // What the first layer of this one's run kept of the same head, where that is a choice among as
  // many rows under the same budget: allocators may have given the layers different ones.
  const Rows* Leader(const LayerPrefill& in, const HeadPrefill& head) const {
    const auto first = static_cast<std::size_t>(in.layer - in.layer % reuse_);
    if (in.layer % reuse_ == 0 || first >= in.earlier.size()) {
      return nullptr;
    }
    const Rows& rows = in.earlier[first][static_cast<std::size_t>(head.kv_head)];
    const auto kept = static_cast<std::int32_t>(rows.list.size());
    const bool fits = !rows.all && kept > 0 && rows.list.back() == head.view.rows - 1 &&
                      kept <= in.shape.prompt_budget && kept > in.shape.prompt_budget - chunk_;
    return fits ? &rows : nullptr;
  }

  // At most `budget` rows in whole chunks, best first by their mean score (then the lower chunk);
  // the last chunk may be short. Ascending.
  std::vector<std::int32_t> ChunkRows(std::span<const float> scores, std::int32_t budget) const {
    const auto width = static_cast<std::size_t>(chunk_);
    std::vector<float> means;
    for (std::size_t begin = 0; begin < scores.size(); begin += width) {
      const auto rows = scores.subspan(begin, std::min(width, scores.size() - begin));
      means.push_back(static_cast<float>(std::accumulate(rows.begin(), rows.end(), 0.0) /
                                         static_cast<double>(rows.size())));
    }
    std::vector<ScoredRow> chunks = ScoreRows(means, 1, 0);
    std::ranges::sort(chunks, Before);
    std::vector<std::int32_t> kept;
    for (const ScoredRow& chunk : chunks) {
      const std::int32_t begin = chunk.row * chunk_;
      const std::int32_t end = std::min(begin + chunk_, static_cast<std::int32_t>(scores.size()));
      for (std::int32_t row = begin; row < end && end - begin <= budget; ++row) {
        kept.push_back(row);
      }
      budget -= end - begin <= budget ? end - begin : 0;
    }
    std::ranges::sort(kept);
    return kept;
  }

  std::int32_t window_ = 32;
  std::int32_t chunk_ = 10;
  std::int32_t reuse_ = 2;
  bool shared_ = true;
};

}  // namespace

Method ChunkKvMethod() {
  return {.info = {.name = "chunkkv",
                   .keeps = "at most budget rows per KV head: the last window_size tokens and the "
                            "chunks of chunk_size rows that they attend to most, one choice for "
                            "reuse layers",
                   .reads = "everything kept",
                   .state = "none",
                   .source = "ChunkKV, arXiv:2502.00299"},
          .make = [] { return Parts{.evictor = std::make_unique<ChunkKv>()}; }};
}

}  // namespace rkv::policy
