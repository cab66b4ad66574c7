#include "engine/random_fill.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "base/scratch.h"

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
    full_blocks_.assign(Size((body_ + kv::kBlockRows - 1) / kv::kBlockRows), pattern_.data());
  }

  Status Run() {
    for (std::int32_t layer = 0; layer < params_.layers; ++layer) {
      std::vector<policy::Rows> keep(Size(params_.kv_heads));
      Status status = body_ > 0 ? Evict(layer, keep) : Status();
      if (status.ok()) {
        status = PlaceRows(layer, keep);
      }
      if (!status.ok()) {
        return status;
      }
      FillRows(layer);
    }
    session_.position = tokens_;
    session_.tokens.assign(Size(tokens_), 0);
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

  // Lets the policy choose among `body_` rows with random mass before the window.
  Status Evict(std::int32_t layer, std::span<policy::Rows> keep) {
    const std::int64_t before = window_ > 0 ? body_ - window_ : 0;
    mass_.resize(Size(params_.kv_heads) * Size(before));
    runtime_.pool->ParallelFor(params_.kv_heads, [&](std::int64_t h, const ThreadPool::Worker&) {
      Rng rng = HeadRng(layer, static_cast<std::int32_t>(h), 0);
      std::generate_n(mass_.begin() + h * before, before, [&] { return rng.Uniform(); });
    });
    std::vector<policy::HeadPrefill> heads(keep.size());
    for (std::size_t h = 0; h < heads.size(); ++h) {
      heads[h].view = {full_blocks_.data(), positions_.data(), body_, params_.head_dim,
                       runtime_.codec};
      heads[h].mass = std::span(mass_).subspan(h * Size(before), Size(before));
    }
    Scratch scratch;
    policy::LayerPrefill in;
    in.shape = session_.shape;
    in.layer = layer;
    in.window = window_;
    in.heads = heads;
    in.backend = runtime_.backend;
    in.scratch = &scratch;
    return session_.policy->Evict(in, keep);
  }

  // Room for the rows of one layer, and for its indexes: what touches pool and meter.
  Status PlaceRows(std::int32_t layer, std::span<const policy::Rows> keep) {
    LayerCache& cache = session_.layers[Size(layer)];
    for (std::size_t h = 0; h < keep.size(); ++h) {
      if (Status status = PlaceHead(keep[h], cache.heads[h]); !status.ok()) {
        return status;
      }
      if (!cache.indexes.empty()) {
        // As much as a prefill reserves; Append below then needs no memory.
        kv::HeadView none = cache.heads[h].view();
        const std::int32_t behind = tokens_ - body_;
        const std::int32_t spare = none.rows - behind + session_.max_new_tokens + 1;
        none.rows = 0;
        if (Status status = cache.indexes[h].Rebuild(none, spare); !status.ok()) {
          return status;
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

  // Writes the rows of one layer and takes them into the indexes, which have room for them.
  void FillRows(std::int32_t layer) {
    LayerCache& cache = session_.layers[Size(layer)];
    std::vector<Status> statuses(cache.heads.size());
    runtime_.pool->ParallelFor(params_.kv_heads, [&](std::int64_t h, const ThreadPool::Worker&) {
      Rng rng = HeadRng(layer, static_cast<std::int32_t>(h), 1);
      kv::HeadStore& head = cache.heads[Size(h)];
      for (std::int32_t row = 0; row < head.rows(); ++row) {
        std::memcpy(head.MutableRow(row), pattern_.data() + rng.Below(kPatternRows) * row_bytes_,
                    row_bytes_);
      }
      if (!cache.indexes.empty()) {
        statuses[Size(h)] = cache.indexes[Size(h)].Append(head.view());
      }
    });
    Check(std::ranges::all_of(statuses, [](const Status& status) { return status.ok(); }),
          "an index has room for the rows that it was made for");
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
  std::vector<float> mass_;                    // [kv_head][rows before the window]
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
