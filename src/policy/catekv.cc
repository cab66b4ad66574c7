// CateKV: heads whose last queries all look at the same places keep a few chunks, the others
// everything. Policy specification 2.16.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "policy/head_classes.h"
#include "policy/head_table.h"
#include "policy/hit_variation.h"
#include "policy/methods.h"
#include "policy/scored_rows.h"

namespace rkv::policy {
namespace {

constexpr std::string_view kName = "catekv";
constexpr std::int32_t kInit = 64;              // I
constexpr std::int32_t kRecent = 256;           // R
constexpr std::int32_t kMostConsistent = 2048;  // B_c at most

// What a consistent head keeps, B_c rows: the first, the last and chunks of those between.
struct Consistent {
  std::int32_t rows, init, recent;
};

class CateKv final : public Evictor {
 public:
  void Options(OptionVisitor& options) override {
    options.Int("window_size", window_, {.low = 1, .high = 4096},
                "last prompt tokens whose attention decides");
    options.Int("chunk_size", rule_.chunk, {.low = 1, .high = 4096}, "rows of a chunk");
    options.Int("capacity", capacity_, {.low = 16, .high = kMaxTokens, .automatic = true},
                "rows that a consistent head keeps");
    options.Number("fraction", fraction_, {.low = 0, .high = 1, .automatic = true},
                   "part of all KV heads that are adaptive and keep everything");
    options.Number("beta", rule_.beta, {.low = 0.5, .high = 1},
                   "quantile of the weights that counts as their maximum");
    options.Number("reach", rule_.reach, {.low = 0, .high = 1},
                   "part of the way from least to most where a weight begins to be a hit");
    options.Text("table", path_,
                 "file of the heads' scores, made by rkv calibrate catekv; none: every prompt "
                 "decides for itself");
  }

  Status Load() override {
    if (path_.empty()) {
      return {};
    }
    return LoadRanks(path_, kName, table_, ranks_);
  }
  Status CheckShape(const TurnShape& shape) const override {
    return path_.empty() ? Status() : CheckHeadTable(table_, shape);
  }
  Needs needs(const TurnShape&) const override {
    return {.window = window_, .all_layers = path_.empty()};
  }
  std::int32_t LeastRows() const override { return rule_.chunk + 2; }

  std::int64_t RowsKept(const TurnShape& shape, std::int64_t rows) const override {
    return MeanRows(Heads(shape), AdaptiveHeads(shape), rows,
                    std::min<std::int64_t>(rows, Few(shape).rows));
  }
  void Explain(const TurnShape& shape, Numbers& out) const override {
    out.emplace_back("consistent_rows", Few(shape).rows);
    out.emplace_back("adaptive_heads", AdaptiveHeads(shape));
  }

  // The score of each chunk between the first and the last rows, then minus the variation.
  void Score(const LayerPrefill& layer, const HeadPrefill& in,
             std::vector<float>& scores) const override {
    const Consistent few = Few(layer.shape);
    const std::int32_t end = in.view.rows - few.recent;
    const std::int32_t rows = std::max(0, end - few.init);
    // Queries behind the region alone: to the others some of it is the future.
    HeadPrefill head = in;
    head.window.tokens = std::min(in.window.tokens, few.recent);
    head.window.q +=
        static_cast<std::size_t>(in.window.tokens - head.window.tokens) * in.window.q_stride;
    const std::vector<float> weights = RegionWeights(layer, head, few.init, end);
    scores.assign(static_cast<std::size_t>((rows + rule_.chunk - 1) / rule_.chunk), 0.0f);
    for (std::size_t first = 0; first < weights.size(); first += static_cast<std::size_t>(rows)) {
      AddChunkMaxima(std::span(weights).subspan(first, static_cast<std::size_t>(rows)), scores);
    }
    scores.push_back(path_.empty() ? -static_cast<float>(HitVariation(weights, rows, rule_))
                                   : 0.0f);
  }

  Status Evict(const LayerPrefill& in, std::span<Rows> keep) const override {
    const Consistent few = Few(in.shape);
    const std::vector<bool> adaptive = Adaptive(in);
    for (std::size_t h = 0; h < in.heads.size(); ++h) {
      const HeadPrefill& head = in.heads[h];
      keep[h].all = adaptive[h] || head.view.rows <= few.rows;
      if (!keep[h].all) {
        keep[h].list = FewRows(head, few);
      }
    }
    return {};
  }

 private:
  static std::int32_t Heads(const TurnShape& shape) { return shape.layers * shape.kv_heads; }

  Consistent Few(const TurnShape& shape) const {
    const std::int32_t least = kInit + kRecent + rule_.chunk;
    const std::int32_t derived =
        std::min({kMostConsistent, std::max(least, shape.prompt_budget / 4), shape.prompt_budget});
    const std::int32_t rows = std::max(capacity_ > 0 ? capacity_ : derived, LeastRows());
    // Where that is less than the first and the last rows would take, both shrink alike.
    const double part = std::min(1.0, static_cast<double>(rows - rule_.chunk) / (kInit + kRecent));
    return {rows, static_cast<std::int32_t>(part * kInit),
            std::max(1, static_cast<std::int32_t>(part * kRecent))};
  }

  std::int32_t AdaptiveHeads(const TurnShape& shape) const {
    return fraction_ >= 0
               ? static_cast<std::int32_t>(std::lround(fraction_ * Heads(shape)))
               : FullHeads(Heads(shape), shape.prompt_budget, shape.prompt_tokens, Few(shape).rows);
  }

  void AddChunkMaxima(std::span<const float> weights, std::span<float> scores) const {
    const auto width = static_cast<std::size_t>(rule_.chunk);
    for (std::size_t b = 0; b < scores.size(); ++b) {
      const auto chunk = weights.subspan(b * width, std::min(width, weights.size() - b * width));
      scores[b] += *std::ranges::max_element(chunk);
    }
  }

  // Which heads of the layer are adaptive: by the table, by the variations of all layers' heads,
  // or of this layer's where the others are not known.
  std::vector<bool> Adaptive(const LayerPrefill& in) const {
    HeadTable measured;
    std::int32_t most = AdaptiveHeads(in.shape);
    std::size_t first = static_cast<std::size_t>(in.layer) * in.heads.size();
    if (path_.empty() && !in.all_scores.empty()) {
      for (const std::vector<std::vector<float>>& layer : in.all_scores) {
        for (const std::vector<float>& scores : layer) {
          measured.scores.push_back(scores.back());
        }
      }
    } else if (path_.empty()) {
      first = 0;
      most = most * static_cast<std::int32_t>(in.heads.size()) / Heads(in.shape);
      for (const HeadPrefill& head : in.heads) {
        measured.scores.push_back(head.scores.back());
      }
    }
    const std::vector<std::int32_t> ranks = path_.empty() ? measured.Ranks() : ranks_;
    std::vector<bool> adaptive;
    for (std::size_t h = 0; h < in.heads.size(); ++h) {
      adaptive.push_back(ranks[first + h] < most);
    }
    return adaptive;
  }

  std::vector<std::int32_t> FewRows(const HeadPrefill& head, const Consistent& few) const {
    const std::int32_t end = head.view.rows - few.recent;
    std::vector<ScoredRow> chunks = ScoreRows(head.scores.first(head.scores.size() - 1), 1, 0);
    const auto count = std::min(
        chunks.size(), static_cast<std::size_t>((few.rows - few.init - few.recent) / rule_.chunk));
    BestFirst(chunks, count);
    std::vector<std::int32_t> rows;
    const auto add = [&rows](std::int32_t begin, std::int32_t stop) {
      for (std::int32_t row = begin; row < stop; ++row) {
        rows.push_back(row);
      }
    };
    add(0, few.init);
    for (std::size_t i = 0; i < count; ++i) {
      const std::int32_t begin = few.init + chunks[i].row * rule_.chunk;
      add(begin, std::min(begin + rule_.chunk, end));
    }
    add(end, head.view.rows);
    std::ranges::sort(rows);
    return rows;
  }

  std::int32_t window_ = 64;
  HitRule rule_;
  std::int32_t capacity_ = 0;  // 0: from the budget
  double fraction_ = -1;       // below 0: from the budget
  std::string path_;
  HeadTable table_;
  std::vector<std::int32_t> ranks_;  // [layers][kv_heads], with a table
};

}  // namespace

Method CateKvMethod() {
  return {.info = {.name = std::string(kName),
                   .keeps = "everything in heads whose queries look at changing places; in the "
                            "others the first and the last rows and the chunks they agree on; "
                            "budget rows on average",
                   .reads = "everything kept",
                   .state = "none; without a table the prefill holds all layers' full K/V",
                   .source = "CateKV, ICML 2025, PMLR 267"},
          .make = [] { return Parts{.evictor = std::make_unique<CateKv>()}; }};
}

}  // namespace rkv::policy
