#include "attention/cpu/mass_columns.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "attention/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/cpu/mass_columns.cc"
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

// The key tile at `first`, of which `count` keys are packed.
struct TileRange {
  std::size_t first;
  std::size_t count;
};

// Scores of a block against the keys that its rows see. visible[i]: how many of the tile's keys row
// i sees; returns the most of them, without scores where it is 0.
HWY_INLINE std::size_t ScoreVisible(const QueryRows& rows, std::size_t first_row, std::size_t block,
                                    const TileRange& tile, const MassWork& work,
                                    std::size_t* visible) {
  std::size_t keys = 0;
  for (std::size_t i = 0; i < kBlockQueries; ++i) {
    const std::size_t row = std::min(block * kBlockQueries + i, rows.count - 1);
    visible[i] = std::min(tile.count, VisibleKeys(row, rows.group, first_row, tile.first));
    keys = std::max(keys, visible[i]);
  }
  if (keys > 0) {
    ScoreBlock(work.queries + block * kBlockQueries * rows.head_dim, work.keys, rows.head_dim, keys,
               work.scores);
  }
  return keys;
}

// First pass over one key tile.
HWY_INLINE void SumTile(const QueryRows& rows, std::size_t first_row, const TileRange& tile,
                        const MassWork& work) {
  for (std::size_t block = 0; block < rows.blocks(); ++block) {
    std::size_t visible[kBlockQueries];
    const std::size_t keys = ScoreVisible(rows, first_row, block, tile, work, visible);
    if (keys > 0) {
      float shrink[kBlockQueries];
      TakeTile(work.scores, visible, keys, work.states[block], shrink);
    }
  }
}

// The second pass' sums by column of one key tile.
struct TileMass {
  float all[kTileKeys];
  float near[kTileKeys];
};

// Which of a block's weights on a key tile are near: row i's on the columns from near_from[i] on.
enum class Nearness { kNone, kSome, kAll };

// Adds the weights of the first `valid` rows of a block on the columns [0, padded).
template <Nearness kNear>
HWY_INLINE void AddWeights(const float* scores, const BlockState& state, std::size_t valid,
                           std::size_t padded, const float* near_from, TileMass& mass) {
  const DPanel d;
  for (std::size_t j = 0; j < padded; j += hn::Lanes(d)) {
    const auto column = hn::Iota(d, static_cast<float>(j));
    auto sum = hn::Zero(d);
    auto near = hn::Zero(d);
    for (std::size_t i = 0; i < valid; ++i) {
      const auto score = hn::LoadU(d, scores + i * kTileKeys + j);
      // A rounding error may lift the greatest score above the log-sum.
      const auto exponent = hn::Min(hn::Sub(score, hn::Set(d, state.max[i])), hn::Zero(d));
      const auto weight = Exp2OfNegative(d, exponent);
      sum = hn::Add(sum, weight);
      if constexpr (kNear == Nearness::kSome) {
        const auto is_near = hn::Ge(column, hn::Set(d, near_from[i]));
        near = hn::Add(near, hn::IfThenElseZero(is_near, weight));
      }
    }
    hn::Store(hn::Add(hn::Load(d, mass.all + j), sum), d, mass.all + j);
    if constexpr (kNear != Nearness::kNone) {
      const auto part = kNear == Nearness::kAll ? sum : near;
      hn::Store(hn::Add(hn::Load(d, mass.near + j), part), d, mass.near + j);
    }
  }
}

// near_from[i] for the first `valid` rows of a block: the first column of the tile that is near row
// i, at most `keys`. Token t is near the rows behind first_row + t - band.
HWY_INLINE Nearness FindNear(const QueryRows& rows, std::int64_t behind, std::size_t block,
                             std::size_t valid, std::size_t keys, float* near_from) {
  const auto last = static_cast<std::int64_t>(keys);
  for (std::size_t i = 0; i < valid; ++i) {
    const auto token = static_cast<std::int64_t>((block * kBlockQueries + i) / rows.group);
    near_from[i] = static_cast<float>(std::clamp(behind + token + 1, std::int64_t{0}, last));
  }
  // Later tokens are near later rows only.
  if (near_from[0] >= static_cast<float>(last)) {
    return Nearness::kNone;
  }
  return near_from[valid - 1] <= 0.0f ? Nearness::kAll : Nearness::kSome;
}

// Second pass over one key tile: adds all rows' weights to `mass`.
HWY_INLINE void AddTile(const QueryRows& rows, std::size_t first_row, const TileRange& tile,
                        const MassColumns& columns, const MassWork& work, TileMass& mass) {
  const std::int64_t behind =
      static_cast<std::int64_t>(first_row) - static_cast<std::int64_t>(tile.first) - columns.band;
  for (std::size_t block = 0; block < rows.blocks(); ++block) {
    std::size_t visible[kBlockQueries];
    const std::size_t keys = ScoreVisible(rows, first_row, block, tile, work, visible);
    if (keys == 0) {
      continue;
    }
    const std::size_t padded = RoundUpToPanel(keys);
    for (std::size_t i = 0; i < kBlockQueries; ++i) {
      float* scores = work.scores + i * kTileKeys;
      std::fill(scores + visible[i], scores + padded, kMinusInfinity);
    }
    const std::size_t valid = std::min(kBlockQueries, rows.count - block * kBlockQueries);
    const BlockState& state = work.states[block];
    float near_from[kBlockQueries];
    const Nearness near = columns.near == nullptr
                              ? Nearness::kNone
                              : FindNear(rows, behind, block, valid, keys, near_from);
    if (near == Nearness::kNone) {
      AddWeights<Nearness::kNone>(work.scores, state, valid, padded, near_from, mass);
    } else if (near == Nearness::kSome) {
      AddWeights<Nearness::kSome>(work.scores, state, valid, padded, near_from, mass);
    } else {
      AddWeights<Nearness::kAll>(work.scores, state, valid, padded, near_from, mass);
    }
  }
}

// Both passes. The keys of a tile are expanded once for each.
template <kv::Codec C>
HWY_INLINE void MassOfRows(const QueryRows& rows, std::size_t first_row, const kv::HeadView& head,
                           const MassColumns& columns, const MassWork& work) {
  const std::size_t all_rows = first_row + rows.count / rows.group;
  for (std::size_t first = 0; first < all_rows; first += kTileKeys) {
    const TileRange tile{first, std::min(kTileKeys, all_rows - first)};
    PackKeys<C>(head, tile.first, tile.count, work.rows_f32, work.keys);
    SumTile(rows, first_row, tile, work);
  }
  for (std::size_t row = 0; row < rows.count; ++row) {
    BlockState& state = work.states[row / kBlockQueries];
    state.max[row % kBlockQueries] += std::log2(state.sum[row % kBlockQueries]);
  }
  for (std::size_t first = 0; first < columns.count; first += kTileKeys) {
    const TileRange tile{first, std::min(kTileKeys, columns.count - first)};
    PackKeys<C>(head, tile.first, tile.count, work.rows_f32, work.keys);
    HWY_ALIGN TileMass mass = {};
    AddTile(rows, first_row, tile, columns, work, mass);
    std::copy_n(mass.all, tile.count, columns.all + first);
    if (columns.near != nullptr) {
      std::copy_n(mass.near, tile.count, columns.near + first);
    }
  }
}

void MassOfColumnsImpl(const PrefillTile& tile, const kv::HeadView& head,
                       const MassColumns& columns, Scratch& scratch) {
  const auto head_dim = static_cast<std::size_t>(head.head_dim);
  const auto group = static_cast<std::size_t>(tile.group);
  const auto first_row = static_cast<std::size_t>(tile.first_row);
  const QueryRows rows{tile.q, tile.q_stride, group, head_dim,
                       static_cast<std::size_t>(tile.tokens) * group};
  Scratch::Frame frame(scratch);
  const MassWork work{
      frame.Array<float>(rows.blocks() * kBlockQueries * head_dim),
      frame.Array<BlockState>(rows.blocks()), frame.Array<float>(kBlockQueries * kTileKeys),
      frame.Array<float>(kTileKeys * head_dim), frame.Array<float>(PanelWidth() * head_dim)};
  PackQueries(rows, tile.scale * kLog2E, work.queries);
  std::for_each_n(work.states, rows.blocks(), [](BlockState& state) { state.Clear(); });
  switch (head.codec) {
    case kv::Codec::kF32:
      return MassOfRows<kv::Codec::kF32>(rows, first_row, head, columns, work);
    case kv::Codec::kF16:
      return MassOfRows<kv::Codec::kF16>(rows, first_row, head, columns, work);
    case kv::Codec::kBf16:
      return MassOfRows<kv::Codec::kBf16>(rows, first_row, head, columns, work);
    case kv::Codec::kQ8:
      return MassOfRows<kv::Codec::kQ8>(rows, first_row, head, columns, work);
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace rkv::attention::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rkv::attention::cpu {

HWY_EXPORT(MassOfColumnsImpl);

void MassOfColumns(const PrefillTile& tile, const kv::HeadView& head, const MassColumns& columns,
                   Scratch& scratch) {
  if (tile.tokens > 0 && tile.group > 0) {
    HWY_DYNAMIC_DISPATCH(MassOfColumnsImpl)(tile, head, columns, scratch);
    return;
  }
  std::fill_n(columns.all, columns.count, 0.0f);
  if (columns.near != nullptr) {
    std::fill_n(columns.near, columns.count, 0.0f);
  }
}

}  // namespace rkv::attention::cpu
#endif  // HWY_ONCE
