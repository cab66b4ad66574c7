#include "engine/random_fill.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "base/rng.h"
#include "base/scratch.h"
#include "engine/head_scores.h"

namespace rkv::engine {
namespace {

std::size_t Size(std::int64_t n) { return static_cast<std::size_t>(n); }

// Rows that all heads draw from: few enough for a CPU's second-level cache.
constexpr std::int32_t kPatternRows = 1024;

class Filler {
 public:
  Filler(const Runtime& runtime, std::int32_t tokens, std::uint64_t seed, SessionState& session)
      : runtime_(runtime), params_(runtime.params()), seed_(seed), session_(session) {
    // As after a prefill: of the prompt, the last token may come behind the eviction.
    tokens_ = tokens;
    body_ = session.needs.prefill_last_token ? tokens : tokens - 1;
    window_ = std::min(session.needs.window, body_);
    MakePattern();
    for (std::int32_t p = 0; p < body_; ++p) {
      positions_.push_back(p);
    }
    // What the policy sees of a full head: rows of the pattern, in as many blocks as it takes.
    even_.assign(Size(body_), 1.0f);
    cosines_.assign(Size(params_.layers), 1.0f);
    unit_.assign(Size(params_.head_dim) * Size(params_.head_dim), 0.0f);
    for (std::size_t x = 0; x < Size(params_.head_dim); ++x) {
      unit_[x * Size(params_.head_dim) + x] = 1.0f;
    }
    session_.tokens.assign(Size(tokens_), 0);
    if (session_.needs.token_classes) {
      session_.classes.assign(Size(tokens_), policy::TokenClass::kWord);
    }
    full_blocks_.assign(Size((body_ + kv::kBlockRows - 1) / kv::kBlockRows), pattern_.data());
  }

  Status Run() {
    for (std::int32_t layer = 0; layer < params_.layers; ++layer) {
      std::vector<policy::Rows> keep(Size(params_.kv_heads));
      Status status = body_ > 0 ? Evict(layer, keep) : Status();
      if (status.ok()) {
        status = PlaceRows(layer, keep);
      }
      if (status.ok()) {
        status = FillRows(layer, keep);
      }
      if (!status.ok()) {
        return status;
      }
    }
    session_.position = tokens_;
    session_.logits.assign(Size(params_.vocab), 0.0f);
    return {};
  }

 private:
  Rng HeadRng(std::int32_t layer, std::int32_t head, std::uint64_t purpose) const {
    Rng rng(seed_);
    return Rng(rng.Next() + 2 * (Size(layer) * Size(params_.kv_heads) + Size(head)) + purpose);
  }

  void MakePattern() {
    const std::size_t d = Size(params_.head_dim);
    const kv::HeadView form{nullptr, nullptr, 0, params_.head_dim, runtime_.codec};
    row_bytes_ = form.row_bytes();
    pattern_.resize(Size(kPatternRows) * row_bytes_);
    Rng rng(seed_);
    std::vector<float> row(2 * d);
    for (std::int32_t r = 0; r < kPatternRows; ++r) {
      std::ranges::generate(row, [&] { return rng.Normal(); });
      std::byte* place = pattern_.data() + Size(r) * row_bytes_;
      runtime_.backend->store_rows(runtime_.codec, params_.head_dim, row.data(), row.data() + d, d,
                                   {&place, 1});
    }
  }

  // Lets the policy choose among `body_` rows by random queries.
  Status Evict(std::int32_t layer, std::span<policy::Rows> keep) {
    std::vector<policy::HeadPrefill> heads = Heads(layer);
    policy::LayerPrefill in;
    in.shape = session_.shape;
    in.layer = layer;
    in.turn_tokens = body_;
    in.heads = heads;
    in.earlier = kept_;
    in.residual_cosine = cosines_;
    in.classes = session_.classes;
    in.backend = runtime_.backend;
    const std::vector<std::vector<float>> scores = ScoreHeads(*session_.policy, in, *runtime_.pool);
    for (std::size_t h = 0; h < heads.size(); ++h) {
      heads[h].scores = scores[h];
    }
    Scratch scratch;
    in.scratch = &scratch;
    Status status = session_.policy->Evict(in, keep);
    kept_.emplace_back(keep.begin(), keep.end());
    return status;
  }

  // A finished layer as a policy sees it: rows of the pattern, random queries, even sums.
  std::vector<policy::HeadPrefill> Heads(std::int32_t layer) {
    const std::size_t width = Size(params_.group()) * Size(params_.head_dim);
    queries_.resize(Size(params_.kv_heads) * Size(window_) * width);
    std::vector<policy::HeadPrefill> heads(Size(params_.kv_heads));
    for (std::size_t h = 0; h < heads.size(); ++h) {
      Rng rng = HeadRng(layer, static_cast<std::int32_t>(h), 0);
      float* q = queries_.data() + h * Size(window_) * width;
      std::generate_n(q, Size(window_) * width, [&] { return rng.Normal(); });
      policy::HeadPrefill& head = heads[h];
      head.kv_head = static_cast<std::int32_t>(h);
      head.view = {full_blocks_.data(), positions_.data(), body_, params_.head_dim, runtime_.codec};
      head.window = {q, width, window_, params_.group(), params_.attention_scale};
      head.column_mass = even_;
      head.near_mass = even_;
      head.query_gram = unit_;
    }
    return heads;
  }

  // Room for the rows of one layer: what touches the pool.
  Status PlaceRows(std::int32_t layer, std::span<const policy::Rows> keep) {
    LayerCache& cache = session_.layers[Size(layer)];
    for (std::size_t h = 0; h < keep.size(); ++h) {
      const policy::Rows all;
      const bool park = session_.needs.park;
      if (Status status = PlaceHead(park ? all : keep[h], cache.heads[h]); !status.ok()) {
        return status;
      }
      cache.states[h] = session_.NewState(layer, static_cast<std::int32_t>(h));
      if (park && !keep[h].all) {
        cache.hot[h].Set(keep[h].list);
        for (std::int32_t row = body_; row < tokens_; ++row) {
          cache.hot[h].Add(row);
        }
      }
    }
    return {};
  }

  // Rows for the kept positions, then for the last token when it comes behind the eviction.
  Status PlaceHead(const policy::Rows& keep, kv::HeadStore& head) const {
    const std::span<const std::int32_t> list =
        keep.all ? std::span<const std::int32_t>(positions_) : std::span(keep.list);
    for (std::size_t first = 0; first < list.size();) {  // runs without a gap
      std::size_t end = first + 1;
      while (end < list.size() && list[end] == list[end - 1] + 1) {
        ++end;
      }
      if (auto row = head.Extend(static_cast<std::int32_t>(end - first), list[first]); !row) {
        return row.error();
      }
      first = end;
    }
    if (body_ < tokens_) {
      if (auto row = head.Extend(1, body_); !row) {
        return row.error();
      }
    }
    return {};
  }

  // Writes the rows of one layer and builds the states over them.
  Status FillRows(std::int32_t layer, std::span<const policy::Rows> keep) {
    LayerCache& cache = session_.layers[Size(layer)];
    const std::vector<policy::HeadPrefill> heads = Heads(layer);
    std::vector<Status> statuses(cache.heads.size());
    runtime_.pool->ParallelFor(params_.kv_heads, [&](std::int64_t task, const ThreadPool::Worker&) {
      const auto h = Size(task);
      Rng rng = HeadRng(layer, static_cast<std::int32_t>(h), 1);
      kv::HeadStore& head = cache.heads[h];
      for (std::int32_t row = 0; row < head.rows(); ++row) {
        std::memcpy(head.MutableRow(row), pattern_.data() + rng.Below(kPatternRows) * row_bytes_,
                    row_bytes_);
      }
      if (cache.states[h] != nullptr) {
        statuses[h] = cache.states[h]->Build({.rows = cache.Slots(h),
                                              .prefill = &heads[h],
                                              .keep = &keep[h],
                                              .spare_rows = session_.max_new_tokens + 1});
      }
    });
    for (const Status& status : statuses) {
      if (!status.ok()) {
        return status;
      }
    }
    return {};
  }

  const Runtime& runtime_;
  const model::HyperParams& params_;
  std::uint64_t seed_;
  SessionState& session_;
  std::int32_t tokens_ = 0;
  std::int32_t body_ = 0;    // tokens that the policy chooses among
  std::int32_t window_ = 0;  // the last of them whose mass would count
  std::size_t row_bytes_ = 0;
  std::vector<std::byte> pattern_;             // [kPatternRows] stored rows
  std::vector<std::int32_t> positions_;        // [body_]
  std::vector<const std::byte*> full_blocks_;  // blocks of pattern rows
  std::vector<float> queries_;                 // [kv_head][window][group][head_dim]
  std::vector<float> even_;                    // [body_] ones
  std::vector<float> unit_;                    // [head_dim][head_dim]
  std::vector<float> cosines_;                 // [layers] ones
  std::vector<std::vector<policy::Rows>> kept_;
};

static_assert(kPatternRows >= kv::kBlockRows, "a block of the full head lies in the pattern");

}  // namespace

Status FillRandom(const Runtime& runtime, std::int32_t tokens, std::uint64_t seed,
                  SessionState& session) {
  Status status = Filler(runtime, tokens, seed, session).Run();
  if (!status.ok()) {
    session.Clear();
  }
  return status;
}

}  // namespace rkv::engine
