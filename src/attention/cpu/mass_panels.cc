#include <algorithm>
#include <cmath>
#include <cstdint>

#include "attention/cpu/mass_columns.h"
#include "attention/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/cpu/mass_panels.cc"
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
  QueryRows rows;
  std::size_t first_row;  // the first token's
  float* queries;         // packed blocks
  BlockState* states;     // [blocks]; after the first pass max holds log2 of the sum of 2^score
  float* scores;          // [kBlockQueries][kTileKeys]
  float* keys;            // panels of one key tile
  float* rows_f32;        // for PackKeys
};

// The key tile at `first`, of which `count` keys are packed.
struct TileRange {
  std::size_t first;
  std::size_t count;
};

// Scores of a block against the keys that its rows see. visible[i]: how many of the tile's keys row
// i sees; returns the most of them, without scores where it is 0.
HWY_INLINE std::size_t ScoreVisible(const MassWork& work, const TileRange& tile, std::size_t block,
                                    std::size_t* visible) {
  const QueryRows& rows = work.rows;
  std::size_t keys = 0;
  for (std::size_t i = 0; i < kBlockQueries; ++i) {
    const std::size_t row = std::min(block * kBlockQueries + i, rows.count - 1);
    visible[i] = std::min(tile.count, VisibleKeys(row, rows.group, work.first_row, tile.first));
    keys = std::max(keys, visible[i]);
  }
  if (keys > 0) {
    ScoreBlock(work.queries + block * kBlockQueries * rows.head_dim, work.keys, rows.head_dim, keys,
               work.scores);
  }
  return keys;
}

// First pass over one key tile.
HWY_INLINE void SumTile(const MassWork& work, const TileRange& tile) {
  for (std::size_t block = 0; block < work.rows.blocks(); ++block) {
    std::size_t visible[kBlockQueries];
    const std::size_t keys = ScoreVisible(work, tile, block, visible);
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

// Which of a block's weights on a key tile are near.
enum class Nearness { kNone, kSome, kAll };

// A block's scores on the columns [0, padded) of a key tile.
struct BlockScores {
  const float* scores;
  const BlockState& state;
  std::size_t valid;  // rows; behind them none count
  std::size_t padded;
  float near_from[kBlockQueries];  // the first column that is near row i, of the columns it sees
};

// Adds a block's weights to the sums by column.
template <Nearness kNear>
HWY_INLINE void AddWeights(const BlockScores& block, TileMass& mass) {
  const DPanel d;
  for (std::size_t j = 0; j < block.padded; j += hn::Lanes(d)) {
    const auto column = hn::Iota(d, static_cast<float>(j));
    auto sum = hn::Zero(d);
    auto near = hn::Zero(d);
    for (std::size_t i = 0; i < block.valid; ++i) {
      const auto score = hn::LoadU(d, block.scores + i * kTileKeys + j);
      // A rounding error may lift the greatest score above the log-sum.
      const auto exponent = hn::Min(hn::Sub(score, hn::Set(d, block.state.max[i])), hn::Zero(d));
      const auto weight = Exp2OfNegative(d, exponent);
      sum = hn::Add(sum, weight);
      if constexpr (kNear == Nearness::kSome) {
        const auto is_near = hn::Ge(column, hn::Set(d, block.near_from[i]));
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

// Fills block.near_from for a band of `band` rows; `index`: of the block.
HWY_INLINE Nearness FindNear(const MassWork& work, const TileRange& tile, std::size_t index,
                             std::size_t band, BlockScores& block) {
  for (std::size_t i = 0; i < block.valid; ++i) {
    const std::size_t token = (index * kBlockQueries + i) / work.rows.group;
    const std::size_t seen = work.first_row + token + 1;
    const std::size_t near = seen - std::min(seen, band);
    block.near_from[i] = static_cast<float>(std::min(kTileKeys, near - std::min(near, tile.first)));
  }
  // Later tokens are near later rows only.
  if (block.near_from[0] >= static_cast<float>(block.padded)) {
    return Nearness::kNone;
  }
  return block.near_from[block.valid - 1] <= 0.0f ? Nearness::kAll : Nearness::kSome;
}

// Second pass over one key tile: adds all rows' weights to `mass`.
HWY_INLINE void AddTile(const MassWork& work, const TileRange& tile, const MassColumns& columns,
                        TileMass& mass) {
  const std::size_t band = columns.NearRows();
  for (std::size_t index = 0; index < work.rows.blocks(); ++index) {
    std::size_t visible[kBlockQueries];
    const std::size_t keys = ScoreVisible(work, tile, index, visible);
    if (keys == 0) {
      continue;
    }
    const std::size_t valid = std::min(kBlockQueries, work.rows.count - index * kBlockQueries);
    BlockScores block{work.scores, work.states[index], valid, RoundUpToPanel(keys), {}};
    for (std::size_t i = 0; i < valid; ++i) {
      float* scores = work.scores + i * kTileKeys;
      std::fill(scores + visible[i], scores + block.padded, kMinusInfinity);
    }
    const Nearness near = band == 0 ? Nearness::kNone : FindNear(work, tile, index, band, block);
    if (near == Nearness::kNone) {
      AddWeights<Nearness::kNone>(block, mass);
    } else if (near == Nearness::kSome) {
      AddWeights<Nearness::kSome>(block, mass);
    } else {
      AddWeights<Nearness::kAll>(block, mass);
    }
  }
}

// Both passes. The keys of a tile are expanded once for each.
template <kv::Codec C>
HWY_INLINE void MassOfRows(const MassWork& work, const kv::HeadView& head,
                           const MassColumns& columns) {
  const std::size_t all_rows = work.first_row + work.rows.count / work.rows.group;
  for (std::size_t first = 0; first < all_rows; first += kTileKeys) {
    const TileRange tile{first, std::min(kTileKeys, all_rows - first)};
    PackKeys<C>(head, tile.first, tile.count, work.rows_f32, work.keys);
    SumTile(work, tile);
  }
  for (std::size_t row = 0; row < work.rows.count; ++row) {
    BlockState& state = work.states[row / kBlockQueries];
    state.max[row % kBlockQueries] += std::log2(state.sum[row % kBlockQueries]);
  }
  for (std::size_t first = 0; first < columns.count; first += kTileKeys) {
    const TileRange tile{first, std::min(kTileKeys, columns.count - first)};
    PackKeys<C>(head, tile.first, tile.count, work.rows_f32, work.keys);
    HWY_ALIGN TileMass mass = {};
    AddTile(work, tile, columns, mass);
    std::copy_n(mass.all, tile.count, columns.all + first);
    if (columns.near != nullptr) {
      std::copy_n(mass.near, tile.count, columns.near + first);
    }
  }
}

void MassByPanelsImpl(const PrefillTile& tile, const kv::HeadView& head, const MassColumns& columns,
                      Scratch& scratch) {
  const auto head_dim = static_cast<std::size_t>(head.head_dim);
  const auto group = static_cast<std::size_t>(tile.group);
  const QueryRows rows{tile.q, tile.q_stride, group, head_dim,
                       static_cast<std::size_t>(tile.tokens) * group};
  Scratch::Frame frame(scratch);
  const MassWork work{rows,
                      static_cast<std::size_t>(tile.first_row),
                      frame.Array<float>(rows.blocks() * kBlockQueries * head_dim),
                      frame.Array<BlockState>(rows.blocks()),
                      frame.Array<float>(kBlockQueries * kTileKeys),
                      frame.Array<float>(kTileKeys * head_dim),
                      frame.Array<float>(PanelWidth() * head_dim)};
  PackQueries(rows, tile.scale * kLog2E, work.queries);
  std::for_each_n(work.states, rows.blocks(), [](BlockState& state) { state.Clear(); });
  switch (head.codec) {
    case kv::Codec::kF32:
      return MassOfRows<kv::Codec::kF32>(work, head, columns);
    case kv::Codec::kF16:
      return MassOfRows<kv::Codec::kF16>(work, head, columns);
    case kv::Codec::kBf16:
      return MassOfRows<kv::Codec::kBf16>(work, head, columns);
    case kv::Codec::kQ8:
      return MassOfRows<kv::Codec::kQ8>(work, head, columns);
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace rkv::attention::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rkv::attention::cpu {

HWY_EXPORT(MassByPanelsImpl);

void MassByPanels(const PrefillTile& tile, const kv::HeadView& head, const MassColumns& columns,
                  Scratch& scratch) {
  HWY_DYNAMIC_DISPATCH(MassByPanelsImpl)(tile, head, columns, scratch);
}

}  // namespace rkv::attention::cpu
#endif  // HWY_ONCE
