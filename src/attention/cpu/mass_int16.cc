#include <algorithm>
#include <cmath>

#include "attention/cpu/int16_blocks.h"
#include "attention/cpu/int16_tile.h"
#include "attention/cpu/mass_columns.h"
#include "base/check.h"

namespace rkv::attention::cpu {

#if defined(__x86_64__)
namespace int16 {
namespace {

// A run of query rows and their softmax so far. Every lane has a maximum and a sum of its own, of
// the keys that fall to it, so that no step of the first pass sums over lanes.
struct MassRows {
  QueryRows queries;
  float* max;      // [row][kLanes]
  float* sum;      // [row][kLanes], relative to 2^max
  float* log_sum;  // [row] after the first pass: log2 of the sum over all keys of 2^score
};

// What both passes work on.
struct MassWork {
  const kv::HeadView& head;
  MassRows rows;
  std::size_t row_count;  // of queries
  std::size_t key_count;  // that the last token sees
  KeyTile tile;
  PackWork pack;
  std::int32_t* products;  // [kBlockRows][kTileKeys], then f32 scores in the same place

  std::size_t pairs() const { return static_cast<std::size_t>(head.head_dim) / 2; }
};

// The second pass' sums by column of one key tile.
struct TileMass {
  float all[kTileKeys];
  float near[kTileKeys];
};

// 2^x; less than -110 counts as -110, NaN stays. Relative error 3e-6 (minimax polynomial of degree
// 4, computed for this file): the weights of a row add up to 1 that well.
RKV_VNNI_INLINE __m512 Power(__m512 x) {
  x = _mm512_max_ps(_mm512_set1_ps(-110.0f), x);  // subnormal results would take microcode
  const __m512 fraction = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF);  // x - floor(x)
  __m512 p = _mm512_set1_ps(0.013534167911698657f);
  p = _mm512_fmadd_ps(p, fraction, _mm512_set1_ps(0.05201146061904796f));
  p = _mm512_fmadd_ps(p, fraction, _mm512_set1_ps(0.24144275688619407f));
  p = _mm512_fmadd_ps(p, fraction, _mm512_set1_ps(0.6930038344710632f));
  p = _mm512_fmadd_ps(p, fraction, _mm512_set1_ps(1.0000025933706653f));
  return _mm512_scalef_ps(p, x);  // times 2^floor(x)
}

// First pass: takes the scores of a block on one key tile into its rows' maxima and sums.
RKV_VNNI void SumBlock(const MassWork& work, const BlockView& block) {
  float* max = work.rows.max + block.index * kBlockRows * kLanes;
  float* sum = work.rows.sum + block.index * kBlockRows * kLanes;
  std::int32_t* products = work.products;
  __m512 top[kBlockRows];
  for (std::size_t i = 0; i < kBlockRows; ++i) {
    top[i] = _mm512_loadu_ps(max + i * kLanes);
  }
  ScoreKeys(block, work.tile, work.pairs(), products, top);
  const __m512 one = _mm512_set1_ps(1.0f);
  for (std::size_t i = 0; i < kBlockRows; ++i) {
    const __m512 old = _mm512_loadu_ps(max + i * kLanes);
    // Power(0) is not quite 1: over many tiles that would add up.
    const __m512 shrink = _mm512_mask_mov_ps(Power(_mm512_sub_ps(old, top[i])),
                                             _mm512_cmp_ps_mask(old, top[i], _CMP_EQ_OQ), one);
    __m512 low = _mm512_mul_ps(_mm512_loadu_ps(sum + i * kLanes), shrink);
    __m512 high = _mm512_setzero_ps();
    for (std::size_t j = 0; j < block.keys; j += 2 * kLanes) {
      const std::int32_t* at = products + i * kTileKeys + j;
      low = _mm512_add_ps(low, Power(_mm512_sub_ps(_mm512_loadu_ps(at), top[i])));
      high = _mm512_add_ps(high, Power(_mm512_sub_ps(_mm512_loadu_ps(at + kLanes), top[i])));
    }
    _mm512_storeu_ps(max + i * kLanes, top[i]);
    _mm512_storeu_ps(sum + i * kLanes, _mm512_add_ps(low, high));
  }
}

// Ends the first pass. Lanes that saw no key count next to nothing.
RKV_VNNI void FinishSums(std::size_t count, const MassRows& rows) {
  for (std::size_t row = 0; row < count; ++row) {
    const __m512 max = _mm512_loadu_ps(rows.max + row * kLanes);
    const float top = _mm512_reduce_max_ps(max);
    const __m512 sum = _mm512_mul_ps(_mm512_loadu_ps(rows.sum + row * kLanes),
                                     Power(_mm512_sub_ps(max, _mm512_set1_ps(top))));
    rows.log_sum[row] = top + std::log2(_mm512_reduce_add_ps(sum));
  }
}

// What of a block counts in the second pass.
struct BlockColumns {
  std::size_t valid;                  // rows; behind them none count
  std::size_t near_from[kBlockRows];  // the first column of the tile that is near row i
  const float* log_sum;               // [kBlockRows]
};

// Adds a block's weights on the keys [j, j + kPanelKeys) to the sums by column. kMasked: only what
// each row sees, and near only what is near the row; else all is seen, and all or none is near.
template <bool kMasked>
RKV_VNNI void WeighPanel(const MassWork& work, const BlockView& block, const BlockColumns& columns,
                         std::size_t j, TileMass& mass) {
  const bool near = j + kPanelKeys > columns.near_from[0];
  for (std::size_t v = j; v < j + kPanelKeys; v += kLanes) {
    const __m512 key_scale = _mm512_loadu_ps(work.tile.key_scales + v);
    __m512 sum = _mm512_setzero_ps();
    __m512 near_sum = _mm512_setzero_ps();
    for (std::size_t i = 0; i < columns.valid; ++i) {
      const __m512 product =
          _mm512_cvtepi32_ps(_mm512_loadu_si512(work.products + i * kTileKeys + v));
      const __m512 weight =
          Power(_mm512_fmsub_ps(_mm512_mul_ps(product, key_scale), _mm512_set1_ps(block.scales[i]),
                                _mm512_set1_ps(columns.log_sum[i])));
      if constexpr (kMasked) {
        const __mmask16 seen = VisibleLanes(block.visible[i], v);
        const auto is_near = static_cast<__mmask16>(seen & ~VisibleLanes(columns.near_from[i], v));
        sum = _mm512_mask_add_ps(sum, seen, sum, weight);
        near_sum = _mm512_mask_add_ps(near_sum, is_near, near_sum, weight);
      } else {
        sum = _mm512_add_ps(sum, weight);
      }
    }
    _mm512_storeu_ps(mass.all + v, _mm512_add_ps(_mm512_loadu_ps(mass.all + v), sum));
    if (near) {
      const __m512 part = kMasked ? near_sum : sum;
      _mm512_storeu_ps(mass.near + v, _mm512_add_ps(_mm512_loadu_ps(mass.near + v), part));
    }
  }
}

// Second pass: adds the weights of a block on one key tile to the sums by column.
RKV_VNNI void WeighBlock(const MassWork& work, const BlockView& block, const BlockColumns& columns,
                         TileMass& mass) {
  // Later rows are near later columns only.
  const std::size_t some_near = columns.near_from[0];
  const std::size_t all_near = columns.near_from[columns.valid - 1];
  for (std::size_t j = 0; j < block.keys; j += kPanelKeys) {
    MultiplyPanel<kVectors, 1, kBlockRows>(block.queries, work.tile.keys + j * work.pairs(),
                                           work.pairs(), work.products + j, SumIndices<kVectors>());
    const bool alike = j + kPanelKeys <= some_near || j >= all_near;
    if (j + kPanelKeys <= block.all_visible && alike) {
      WeighPanel<false>(work, block, columns, j, mass);
    } else {
      WeighPanel<true>(work, block, columns, j, mass);
    }
  }
}

// Of block `index` and the key tile at `first`. Without a band no column of the tile is near.
BlockColumns ColumnsOf(const MassWork& work, std::size_t index, std::size_t first,
                       std::size_t band) {
  BlockColumns out{};
  const std::size_t row = index * kBlockRows;
  out.valid = std::min(kBlockRows, work.row_count - row);
  out.log_sum = work.rows.log_sum + row;
  for (std::size_t i = 0; i < out.valid; ++i) {
    const std::size_t seen = work.rows.queries.seen[row + i];
    const std::size_t near = seen - std::min(seen, band);
    out.near_from[i] = band == 0 ? kTileKeys : near - std::min(near, first);
  }
  return out;
}

void SumRows(const MassWork& work) {
  for (std::size_t first = 0; first < work.key_count; first += kTileKeys) {
    PackTile(work.head, first, std::min(kTileKeys, work.key_count - first), work.pack, work.tile);
    for (std::size_t index = 0; index * kBlockRows < work.row_count; ++index) {
      const BlockView block = ViewBlock(work.rows.queries, index, first, work.pairs());
      if (block.keys > 0) {
        SumBlock(work, block);
      }
    }
  }
  FinishSums(work.row_count, work.rows);
}

void SumColumns(const MassWork& work, const MassColumns& columns) {
  for (std::size_t first = 0; first < columns.count; first += kTileKeys) {
    PackTile(work.head, first, std::min(kTileKeys, work.key_count - first), work.pack, work.tile);
    TileMass mass = {};
    for (std::size_t index = 0; index * kBlockRows < work.row_count; ++index) {
      const BlockView block = ViewBlock(work.rows.queries, index, first, work.pairs());
      if (block.keys > 0) {
        WeighBlock(work, block, ColumnsOf(work, index, first, columns.NearRows()), mass);
      }
    }
    const std::size_t count = std::min(kTileKeys, columns.count - first);
    std::copy_n(mass.all, count, columns.all + first);
    if (columns.near != nullptr) {
      std::copy_n(mass.near, count, columns.near + first);
    }
  }
}

}  // namespace
}  // namespace int16

void MassByInt16(const PrefillTile& tile, const kv::HeadView& head, const MassColumns& columns,
                 Scratch& scratch) {
  using namespace int16;  // NOLINT(google-build-using-namespace)
  const auto head_dim = static_cast<std::size_t>(head.head_dim);
  const std::size_t count =
      static_cast<std::size_t>(tile.tokens) * static_cast<std::size_t>(tile.group);
  const std::size_t padded = (count + kBlockRows - 1) / kBlockRows * kBlockRows;
  Scratch::Frame frame(scratch);
  const MassRows rows{MakeQueries(frame, padded, head_dim), frame.Array<float>(padded * kLanes),
                      frame.Array<float>(padded * kLanes), frame.Array<float>(padded)};
  std::fill_n(rows.max, padded * kLanes, kLeastMax);
  std::fill_n(rows.sum, padded * kLanes, 0.0f);
  const KeyTile keys{frame.Array<std::int32_t>(kTileKeys * head_dim / 2), nullptr,
                     frame.Array<float>(kTileKeys), nullptr, nullptr};
  const PackWork pack{frame.Array<float>(head_dim), frame.Array<std::int16_t>(kLanes * head_dim)};
  PackQueries(tile, padded, head_dim, pack.rounded, rows.queries);
  const MassWork work{head,
                      rows,
                      count,
                      static_cast<std::size_t>(tile.first_row + tile.tokens),
                      keys,
                      pack,
                      frame.Array<std::int32_t>(kBlockRows * kTileKeys)};
  SumRows(work);
  SumColumns(work, columns);
}

#else

void MassByInt16(const PrefillTile&, const kv::HeadView&, const MassColumns&, Scratch&) {
  Check(false, "sums in 16-bit integers need AVX-512 VNNI");
}

#endif

}  // namespace rkv::attention::cpu
