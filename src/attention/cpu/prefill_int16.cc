#include "attention/cpu/prefill_int16.h"

#include <algorithm>

#include "attention/cpu/int16_blocks.h"
#include "attention/cpu/int16_tile.h"
#include "base/check.h"

namespace rkv::attention::cpu {

#if defined(__x86_64__)
namespace int16 {
namespace {

// A run of query rows and what is known of their results so far; weights are relative to 2^max.
struct Rows {
  QueryRows queries;
  float* max;  // [block][kLanes]
  float* sum;  // [block][kLanes]
  float* acc;  // [row][head_dim]
};

struct BlockWork {
  std::int32_t* products;  // [kBlockRows][kTileKeys], then f32 scores in the same place
  std::int16_t* weights;   // [kBlockRows][kTileKeys], in the order of the packed values
};

// acc[i * stride + x] += factor[i] * (weights of a panel's keys times their values), for
// x < kCount * kLanes.
template <std::size_t kCount>
RKV_VNNI void AddValues(const std::int16_t* weights, const std::int32_t* values,
                        const float* factor, std::size_t stride, float* acc) {
  std::int32_t products[kBlockRows * kTileKeys];
  MultiplyPanel<kCount, kTileKeys / 2, 1>(reinterpret_cast<const std::int32_t*>(weights), values,
                                          kPanelPairs, products, SumIndices<kCount>());
  for (std::size_t i = 0; i < kBlockRows; ++i) {
    const __m512 f = _mm512_set1_ps(factor[i]);
    for (std::size_t v = 0; v < kCount; ++v) {
      const __m512 product =
          _mm512_cvtepi32_ps(_mm512_loadu_si512(products + i * kTileKeys + v * kLanes));
      float* to = acc + i * stride + v * kLanes;
      _mm512_storeu_ps(to, _mm512_fmadd_ps(product, f, _mm512_loadu_ps(to)));
    }
  }
}

RKV_VNNI void AddPanel(const std::int16_t* weights, const std::int32_t* values, const float* factor,
                       float* acc, std::size_t head_dim) {
  for (std::size_t x = 0; x < head_dim; x += kPanelKeys) {
    const std::int32_t* chunk = values + x * kPanelPairs;
    switch (std::min(kPanelKeys, head_dim - x) / kLanes) {
      case 1:
        AddValues<1>(weights, chunk, factor, head_dim, acc + x);
        break;
      case 2:
        AddValues<2>(weights, chunk, factor, head_dim, acc + x);
        break;
      case 3:
        AddValues<3>(weights, chunk, factor, head_dim, acc + x);
        break;
      default:
        AddValues<4>(weights, chunk, factor, head_dim, acc + x);
    }
  }
}

// Scores of a block against the first block.keys keys; max: of every row.
RKV_VNNI void ScoreBlock(const BlockView& block, const KeyTile& tile, std::size_t pairs,
                         std::int32_t* products, float* max) {
  __m512 top[kBlockRows];
  std::fill_n(top, kBlockRows, _mm512_set1_ps(kMinusInfinity));
  ScoreKeys(block, tile, pairs, products, top);
  for (std::size_t i = 0; i < kBlockRows; ++i) {
    max[i] = _mm512_reduce_max_ps(top[i]);
  }
}

// The inverse scales of values [j, j + 16), 0 for keys that the row does not see.
template <bool kMasked>
RKV_VNNI_INLINE __m512 Inverses(const KeyTile& tile, std::size_t visible, std::size_t j) {
  return kMasked ? _mm512_maskz_loadu_ps(VisibleLanes(visible, j), tile.value_inverses + j)
                 : _mm512_loadu_ps(tile.value_inverses + j);
}

// Turns scores of one query row against `padded` keys, relative to `max`, into integer weights.
// Returns the sum of 2^(score - max) without the values' scales, in units of kMaxWeight, over the
// first `visible`. kMasked: some of them are not.
template <bool kMasked>
RKV_VNNI float WeighRow(const float* scores, std::size_t visible, std::size_t padded, float max,
                        const KeyTile& tile, std::int16_t* weights) {
  // The difference is at most 0, exactly: so no weight exceeds kMaxWeight by more than rounding.
  const __m512 base = _mm512_set1_ps(max);
  __m512 sum[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
  for (std::size_t j = 0; j < padded; j += 2 * kLanes) {
    const __m512 low = Exp2(_mm512_sub_ps(_mm512_loadu_ps(scores + j), base), kMaxWeight);
    const __m512 high = Exp2(_mm512_sub_ps(_mm512_loadu_ps(scores + j + kLanes), base), kMaxWeight);
    sum[0] = _mm512_fmadd_ps(low, Inverses<kMasked>(tile, visible, j), sum[0]);
    sum[1] = _mm512_fmadd_ps(high, Inverses<kMasked>(tile, visible, j + kLanes), sum[1]);
    _mm512_storeu_si512(weights + j,
                        _mm512_packs_epi32(_mm512_cvtps_epi32(low), _mm512_cvtps_epi32(high)));
  }
  return _mm512_reduce_add_ps(_mm512_add_ps(sum[0], sum[1]));
}

// Takes the tile's maxima and sums of a block into its state. factor[i]: what this tile's weights
// count; earlier weighted values are multiplied by what they count now.
RKV_VNNI void TakeTile(const Rows& rows, std::size_t block, const float* tile_max,
                       const float* tile_sum, std::size_t head_dim, float* factor) {
  float* max = rows.max + block * kLanes;
  float* sum = rows.sum + block * kLanes;
  const __m512 old_max = _mm512_loadu_ps(max);
  const __m512 new_max = _mm512_max_ps(_mm512_loadu_ps(tile_max), old_max);
  const __m512 shrink = Exp2(_mm512_sub_ps(old_max, new_max), 1.0f);
  const __m512 grow = Exp2(_mm512_sub_ps(_mm512_loadu_ps(tile_max), new_max), 1.0f);
  const __m512 kept = _mm512_mask_mov_ps(shrink, _mm512_cmp_ps_mask(old_max, new_max, _CMP_EQ_OQ),
                                         _mm512_set1_ps(1.0f));
  _mm512_storeu_ps(max, new_max);
  _mm512_storeu_ps(factor, grow);
  _mm512_storeu_ps(sum, _mm512_fmadd_ps(_mm512_loadu_ps(tile_sum), grow,
                                        _mm512_mul_ps(_mm512_loadu_ps(sum), kept)));
  if (_mm512_cmp_ps_mask(kept, _mm512_set1_ps(1.0f), _CMP_NEQ_UQ) == 0) {
    return;
  }
  float by[kLanes];
  _mm512_storeu_ps(by, kept);
  for (std::size_t i = 0; i < kBlockRows; ++i) {
    float* acc = rows.acc + (block * kBlockRows + i) * head_dim;
    for (std::size_t x = 0; x < head_dim; x += kLanes) {
      _mm512_storeu_ps(acc + x, _mm512_mul_ps(_mm512_loadu_ps(acc + x), _mm512_set1_ps(by[i])));
    }
  }
}

// Attention of one block of query rows over the visible part of one key tile.
RKV_VNNI void AttendBlock(const Rows& rows, const KeyTile& tile, const BlockView& block,
                          std::size_t head_dim, const BlockWork& work) {
  const std::size_t padded = (block.keys + kPanelKeys - 1) / kPanelKeys * kPanelKeys;
  float max[kLanes];
  float sum[kLanes] = {};
  float factor[kLanes];
  std::fill_n(max, kLanes, kMinusInfinity);
  ScoreBlock(block, tile, head_dim / 2, work.products, max);
  for (std::size_t i = 0; i < kBlockRows; ++i) {
    // A row that sees nothing here has no maximum: any finite one makes all its weights 0.
    const float base = std::max(max[i], kLeastMax);
    const auto* scores = reinterpret_cast<const float*>(work.products + i * kTileKeys);
    std::int16_t* weights = work.weights + i * kTileKeys;
    sum[i] = block.visible[i] == padded
                 ? WeighRow<false>(scores, padded, padded, base, tile, weights)
                 : WeighRow<true>(scores, block.visible[i], padded, base, tile, weights);
  }
  TakeTile(rows, block.index, max, sum, head_dim, factor);
  for (std::size_t j = 0; j < block.keys; j += kPanelKeys) {
    AddPanel(work.weights + j, tile.values + j / 2 * head_dim, factor,
             rows.acc + block.index * kBlockRows * head_dim, head_dim);
  }
}

void WriteOutputs(const PrefillTile& tile, const Rows& rows, std::size_t head_dim) {
  const auto group = static_cast<std::size_t>(tile.group);
  for (std::size_t row = 0; row < static_cast<std::size_t>(tile.tokens) * group; ++row) {
    const float inverse = 1.0f / rows.sum[row / kBlockRows * kLanes + row % kBlockRows];
    const float* acc = rows.acc + row * head_dim;
    float* out = tile.out + row / group * tile.out_stride + row % group * head_dim;
    for (std::size_t x = 0; x < head_dim; ++x) {
      out[x] = acc[x] * inverse;
    }
  }
}

Rows MakeRows(Scratch::Frame& frame, std::size_t blocks, std::size_t head_dim) {
  const std::size_t padded = blocks * kBlockRows;
  const Rows rows{MakeQueries(frame, padded, head_dim), frame.Array<float>(blocks * kLanes),
                  frame.Array<float>(blocks * kLanes), frame.Array<float>(padded * head_dim)};
  std::fill_n(rows.max, blocks * kLanes, kLeastMax);
  std::fill_n(rows.sum, blocks * kLanes, 0.0f);
  std::fill_n(rows.acc, padded * head_dim, 0.0f);
  return rows;
}

}  // namespace
}  // namespace int16

bool HasInt16Prefill(std::int32_t head_dim) {
  static const bool has = __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") &&
                          __builtin_cpu_supports("avx512vl") &&
                          __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("fma");
  return has && head_dim % static_cast<std::int32_t>(int16::kLanes) == 0;
}

void PrefillByInt16(const PrefillTile& tile, const kv::HeadView& head, Scratch& scratch) {
  using namespace int16;  // NOLINT(google-build-using-namespace)
  const auto head_dim = static_cast<std::size_t>(head.head_dim);
  const auto group = static_cast<std::size_t>(tile.group);
  const std::size_t count = static_cast<std::size_t>(tile.tokens) * group;
  const std::size_t blocks = (count + kBlockRows - 1) / kBlockRows;
  Scratch::Frame frame(scratch);
  const Rows rows = MakeRows(frame, blocks, head_dim);
  const KeyTile keys{frame.Array<std::int32_t>(kTileKeys * head_dim / 2),
                     frame.Array<std::int32_t>(kTileKeys * head_dim / 2),
                     frame.Array<float>(kTileKeys), frame.Array<float>(kTileKeys),
                     frame.Array<float>(kTileKeys)};
  const BlockWork work{frame.Array<std::int32_t>(kBlockRows * kTileKeys),
                       frame.Array<std::int16_t>(kBlockRows * kTileKeys)};
  const PackWork pack{frame.Array<float>(head_dim), frame.Array<std::int16_t>(kLanes * head_dim)};
  PackQueries(tile, blocks * kBlockRows, head_dim, pack.rounded, rows.queries);
  const auto first_row = static_cast<std::size_t>(tile.first_row);
  const std::size_t all_rows = first_row + static_cast<std::size_t>(tile.tokens);
  for (std::size_t first = 0; first < all_rows; first += kTileKeys) {
    PackTile(head, first, std::min(kTileKeys, all_rows - first), pack, keys);
    for (std::size_t index = 0; index < blocks; ++index) {
      const BlockView block = ViewBlock(rows.queries, index, first, head_dim / 2);
      if (block.keys > 0) {
        AttendBlock(rows, keys, block, head_dim, work);
      }
    }
  }
  WriteOutputs(tile, rows, head_dim);
}

#else

bool HasInt16Prefill(std::int32_t) { return false; }

void PrefillByInt16(const PrefillTile&, const kv::HeadView&, Scratch&) {
  Check(false, "attention in 16-bit integers needs AVX-512 VNNI");
}

#endif

}  // namespace rkv::attention::cpu
