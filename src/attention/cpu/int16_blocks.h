// What the kernels in 16-bit integers share beyond packed tiles: blocks of query rows, their
// products with key panels.
#ifndef RKV_ATTENTION_CPU_INT16_BLOCKS_H_
#define RKV_ATTENTION_CPU_INT16_BLOCKS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#include "attention/backend.h"
#include "attention/cpu/int16_tile.h"
#include "base/scratch.h"

#if defined(__x86_64__)

namespace rkv::attention::cpu::int16 {

inline constexpr float kLog2E = 1.44269504088896341f;
inline constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
// Below every score: so that the first tile needs no case of its own.
inline constexpr float kLeastMax = -1e30f;

// Packed query rows, in whole blocks.
struct QueryRows {
  std::int32_t* queries;  // [block][head_dim / 2][kBlockRows], pairs of channels
  float* scales;          // [row] score in powers of two = integer * this * key scale
  std::size_t* seen;      // [row] keys that the row sees
};

inline QueryRows MakeQueries(Scratch::Frame& frame, std::size_t rows, std::size_t head_dim) {
  return {frame.Array<std::int32_t>(rows * head_dim / 2), frame.Array<float>(rows),
          frame.Array<std::size_t>(rows)};
}

// One block and what it sees of a key tile.
struct BlockView {
  std::size_t index;
  const std::int32_t* queries;
  const float* scales;
  std::size_t visible[kBlockRows];  // keys that a row sees
  std::size_t keys;                 // the most of them
  std::size_t all_visible;          // the least of them
};

// sum[i * kCount + v] += pair a[i * kRowStep] times vector v of the column. Folds, not loops: g++
// 12 keeps an array in registers only where every index is a constant from the start.
template <std::size_t kCount, std::size_t kRowStep, std::size_t... kV, std::size_t... kI>
RKV_VNNI_INLINE void MultiplyColumn(const std::int32_t* a, const std::int32_t* column,
                                    std::index_sequence<kV...> /*vectors*/,
                                    std::index_sequence<kI...> /*sums*/, __m512i* sum) {
  const __m512i columns[] = {_mm512_loadu_si512(column + kV * kLanes)...};
  ((sum[kI] = _mm512_dpwssd_epi32(sum[kI], columns[kI % kCount],
                                  _mm512_set1_epi32(a[kI / kCount * kRowStep]))),
   ...);
}

// products[i * kTileKeys + x] = sum over k < depth of pair a[i * kRowStep + k * kStep] times pair
// panel[k * width + x], for the rows i of a block and x < width = kCount * kLanes.
template <std::size_t kCount, std::size_t kRowStep, std::size_t kStep, std::size_t... kI>
RKV_VNNI_INLINE void MultiplyPanel(const std::int32_t* a, const std::int32_t* panel,
                                   std::size_t depth, std::int32_t* products,
                                   std::index_sequence<kI...> sums) {
  // A depth that g++ 12 knows makes it copy every sum in every step.
  asm("" : "+r"(depth));
  __m512i sum[sizeof...(kI)];
  ((sum[kI] = _mm512_setzero_si512()), ...);
  for (std::size_t k = 0; k < depth; ++k) {
    MultiplyColumn<kCount, kRowStep>(a + k * kStep, panel + k * kCount * kLanes,
                                     std::make_index_sequence<kCount>(), sums, sum);
  }
  (_mm512_storeu_si512(products + kI / kCount * kTileKeys + kI % kCount * kLanes, sum[kI]), ...);
}

template <std::size_t kCount>
using SumIndices = std::make_index_sequence<kBlockRows * kCount>;

// The first `visible` - `j` of 16 lanes.
RKV_VNNI_INLINE __mmask16 VisibleLanes(std::size_t visible, std::size_t j) {
  const std::size_t lanes = visible > j ? std::min(kLanes, visible - j) : 0;
  return static_cast<__mmask16>((1u << lanes) - 1);
}

// Turns a block's products with the keys [j, j + kPanelKeys) into scores in powers of two, with
// the values' scales where the tile has values, and takes them into the maxima. kMasked: keys
// behind a row's visible ones get -infinity.
template <bool kMasked>
RKV_VNNI inline void ScorePanel(const BlockView& block, const KeyTile& tile, std::size_t j,
                                std::int32_t* products, __m512* max) {
  for (std::size_t v = 0; v < kPanelKeys; v += kLanes) {
    const __m512 key_scale = _mm512_loadu_ps(tile.key_scales + j + v);
    const __m512 value_log =
        tile.value_logs != nullptr ? _mm512_loadu_ps(tile.value_logs + j + v) : _mm512_setzero_ps();
    for (std::size_t i = 0; i < kBlockRows; ++i) {
      std::int32_t* at = products + i * kTileKeys + j + v;
      const __m512 product = _mm512_cvtepi32_ps(_mm512_loadu_si512(at));
      __m512 score = _mm512_fmadd_ps(_mm512_mul_ps(product, key_scale),
                                     _mm512_set1_ps(block.scales[i]), value_log);
      if constexpr (kMasked) {
        score = _mm512_mask_blend_ps(VisibleLanes(block.visible[i], j + v),
                                     _mm512_set1_ps(kMinusInfinity), score);
      }
      _mm512_storeu_ps(at, score);
      max[i] = _mm512_max_ps(score, max[i]);  // a NaN in `score` is passed over
    }
  }
}

// Turns a block and the first block.keys keys of a tile into scores, one panel after the other, and
// takes them into the maxima, by lane.
RKV_VNNI inline void ScoreKeys(const BlockView& block, const KeyTile& tile, std::size_t pairs,
                               std::int32_t* products, __m512* max) {
  for (std::size_t j = 0; j < block.keys; j += kPanelKeys) {
    MultiplyPanel<kVectors, 1, kBlockRows>(block.queries, tile.keys + j * pairs, pairs,
                                           products + j, SumIndices<kVectors>());
    if (j + kPanelKeys <= block.all_visible) {
      ScorePanel<false>(block, tile, j, products, max);
    } else {
      ScorePanel<true>(block, tile, j, products, max);
    }
  }
}

// Block `index` of rows and what it sees of the key tile at `first`.
inline BlockView ViewBlock(const QueryRows& rows, std::size_t index, std::size_t first,
                           std::size_t pairs) {
  BlockView block{};
  block.index = index;
  block.queries = rows.queries + index * kBlockRows * pairs;
  block.scales = rows.scales + index * kBlockRows;
  block.all_visible = kTileKeys;
  for (std::size_t i = 0; i < kBlockRows; ++i) {
    const std::size_t seen = rows.seen[index * kBlockRows + i];
    block.visible[i] = seen <= first ? 0 : std::min(kTileKeys, seen - first);
    block.keys = std::max(block.keys, block.visible[i]);
    block.all_visible = std::min(block.all_visible, block.visible[i]);
  }
  return block;
}

inline const float* QueryRow(const PrefillTile& tile, std::size_t row, std::size_t head_dim) {
  const auto group = static_cast<std::size_t>(tile.group);
  return tile.q + row / group * tile.q_stride + row % group * head_dim;
}

// Rows behind the last repeat it; nobody reads their results.
inline void PackQueries(const PrefillTile& tile, std::size_t count, std::size_t head_dim,
                        std::int16_t* row_i16, const QueryRows& rows) {
  const auto group = static_cast<std::size_t>(tile.group);
  const std::size_t last = static_cast<std::size_t>(tile.tokens) * group - 1;
  for (std::size_t row = 0; row < count; ++row) {
    const std::size_t source = std::min(row, last);
    const float scale = RoundRow(QueryRow(tile, source, head_dim), head_dim, row_i16);
    rows.scales[row] = scale * tile.scale * kLog2E;
    rows.seen[row] = static_cast<std::size_t>(tile.first_row) + source / group + 1;
    std::int32_t* to =
        rows.queries + row / kBlockRows * kBlockRows * (head_dim / 2) + row % kBlockRows;
    for (std::size_t c = 0; c < head_dim / 2; ++c) {
      std::memcpy(to + c * kBlockRows, row_i16 + 2 * c, sizeof *to);
    }
  }
}

}  // namespace rkv::attention::cpu::int16

#endif

#endif  // RKV_ATTENTION_CPU_INT16_BLOCKS_H_
