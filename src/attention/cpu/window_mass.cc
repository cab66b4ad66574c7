// Attention mass of the window queries, in two passes over key tiles: log-sum-exp of every query
// row, then the normalised weights summed by column.
#include <algorithm>
#include <cmath>

#include "attention/cpu/kernels.h"
#include "attention/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/cpu/window_mass.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "attention/cpu/online_softmax-inl.h"
#include "attention/cpu/panels-inl.h"
#include "attention/cpu/simd-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace rkv::attention::cpu {
namespace HWY_NAMESPACE {

struct MassWork {
  float* queries;      // packed blocks
  BlockState* states;  // [blocks]; after the first pass max holds log2 of the sum of 2^score
  float* scores;       // [kBlockQueries][kTileKeys]
  float* keys;         // panels of one key tile
  float* rows_f32;     // for PackKeys
};

// First pass over the key tile at `first`.
HWY_INLINE void SumTile(const QueryRows& rows, std::size_t window_row, std::size_t first,
                        const MassWork& work) {
  for (std::size_t block = 0; block < rows.blocks(); ++block) {
    std::size_t visible[kBlockQueries];
    std::size_t keys = 0;
    for (std::size_t i = 0; i < kBlockQueries; ++i) {
      const std::size_t row = std::min(block * kBlockQueries + i, rows.count - 1);
      visible[i] = VisibleKeys(row, rows.group, window_row, first);
      keys = std::max(keys, visible[i]);
    }
    if (keys > 0) {
      float shrink[kBlockQueries];
      ScoreBlock(work.queries + block * kBlockQueries * rows.head_dim, work.keys, rows.head_dim,
                 keys, work.scores);
      TakeTile(work.scores, visible, keys, work.states[block], shrink);
    }
  }
}

// Second pass: adds the weights of all query rows on `count` keys to mass. Every row sees them.
HWY_INLINE void AddTileMass(const QueryRows& rows, std::size_t count, const MassWork& work,
                            float* mass) {
  const DPanel d;
  const std::size_t N = hn::Lanes(d);
  HWY_ALIGN float tile_mass[kTileKeys] = {};
  for (std::size_t block = 0; block < rows.blocks(); ++block) {
    ScoreBlock(work.queries + block * kBlockQueries * rows.head_dim, work.keys, rows.head_dim,
               count, work.scores);
    const std::size_t valid = std::min(kBlockQueries, rows.count - block * kBlockQueries);
    for (std::size_t j = 0; j < count; j += N) {
      auto sum = hn::Load(d, tile_mass + j);
      for (std::size_t i = 0; i < valid; ++i) {
        const auto score = hn::LoadU(d, work.scores + i * kTileKeys + j);
        const auto log_sum = hn::Set(d, work.states[block].max[i]);
        // A rounding error may lift the greatest score above the log-sum.
        const auto exponent = hn::Min(hn::Sub(score, log_sum), hn::Zero(d));
        sum = hn::Add(sum, Exp2OfNegative(d, exponent));
      }
      hn::Store(sum, d, tile_mass + j);
    }
  }
  std::copy_n(tile_mass, count, mass);
}

template <kv::Codec C>
HWY_INLINE void MassWithCodec(const WindowQuery& window, const kv::HeadView& head,
                              std::span<float> mass, Scratch& scratch) {
  const auto head_dim = static_cast<std::size_t>(head.head_dim);
  const auto group = static_cast<std::size_t>(window.group);
  const auto tokens = static_cast<std::size_t>(window.tokens);
  const auto all_rows = static_cast<std::size_t>(head.rows);
  const QueryRows rows{window.q, window.q_stride, group, head_dim, tokens * group};
  Scratch::Frame frame(scratch);
  const MassWork work{
      frame.Array<float>(rows.blocks() * kBlockQueries * head_dim),
      frame.Array<BlockState>(rows.blocks()), frame.Array<float>(kBlockQueries * kTileKeys),
      frame.Array<float>(kTileKeys * head_dim), frame.Array<float>(PanelWidth() * head_dim)};
  PackQueries(rows, window.scale * kLog2E, work.queries);
  std::for_each_n(work.states, rows.blocks(), [](BlockState& state) { state.Clear(); });
  for (std::size_t first = 0; first < all_rows; first += kTileKeys) {
    PackKeys<C>(head, first, std::min(kTileKeys, all_rows - first), work.rows_f32, work.keys);
    SumTile(rows, all_rows - tokens, first, work);
  }
  for (std::size_t row = 0; row < rows.count; ++row) {
    BlockState& state = work.states[row / kBlockQueries];
    state.max[row % kBlockQueries] += std::log2(state.sum[row % kBlockQueries]);
  }
  for (std::size_t first = 0; first < mass.size(); first += kTileKeys) {
    const std::size_t count = std::min(kTileKeys, mass.size() - first);
    PackKeys<C>(head, first, count, work.rows_f32, work.keys);
    AddTileMass(rows, count, work, mass.data() + first);
  }
}

void WindowMassImpl(const WindowQuery& window, const kv::HeadView& head, std::span<float> mass,
                    Scratch& scratch) {
  switch (head.codec) {
    case kv::Codec::kF32:
      return MassWithCodec<kv::Codec::kF32>(window, head, mass, scratch);
    case kv::Codec::kF16:
      return MassWithCodec<kv::Codec::kF16>(window, head, mass, scratch);
    case kv::Codec::kBf16:
      return MassWithCodec<kv::Codec::kBf16>(window, head, mass, scratch);
    case kv::Codec::kQ8:
      return MassWithCodec<kv::Codec::kQ8>(window, head, mass, scratch);
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace rkv::attention::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rkv::attention::cpu {

HWY_EXPORT(WindowMassImpl);

void WindowMass(const WindowQuery& window, const kv::HeadView& head, std::span<float> mass,
                Scratch& scratch) {
  if (window.tokens > 0 && window.group > 0) {
    HWY_DYNAMIC_DISPATCH(WindowMassImpl)(window, head, mass, scratch);
  } else {
    std::fill(mass.begin(), mass.end(), 0.0f);
  }
}

}  // namespace rkv::attention::cpu
#endif  // HWY_ONCE
