#include "attention/cpu/prefill_gemm.h"

#include <algorithm>

#include "attention/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/cpu/prefill_gemm.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "attention/cpu/encode-inl.h"
#include "attention/cpu/online_softmax-inl.h"
#include "attention/cpu/panels-inl.h"
#include "attention/cpu/simd-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace rkv::attention::cpu {
namespace HWY_NAMESPACE {

// Products of 384 x head_dim x 512 and 384 x 512 x head_dim: large enough for the matrix units,
// scores and weights of a block stay near the L2 cache. Always whole tiles of keys, so that few
// shapes have to be compiled.
inline constexpr std::size_t kGemmRows = 384;
inline constexpr std::size_t kGemmKeys = 512;

struct GemmWork {
  std::uint16_t* queries;  // [rows][head_dim], scaled
  std::uint16_t* keys;     // [kGemmKeys][head_dim]
  std::uint16_t* values;   // [kGemmKeys][head_dim]
  float* scores;           // [kGemmRows][kGemmKeys]
  std::uint16_t* weights;  // [kGemmRows][kGemmKeys]
  float* sums;             // [rows][head_dim], weighted values
  float* max;              // [rows]
  float* sum;              // [rows]
};

// Expands rows [first, first + count) to bf16; rows behind them are zero.
template <kv::Codec C>
HWY_INLINE void ExpandTile(const kv::HeadView& head, std::size_t first, std::size_t count,
                           float* row_f32, const GemmWork& work) {
  const auto head_dim = static_cast<std::size_t>(head.head_dim);
  for (std::size_t j = 0; j < count; ++j) {
    const auto row = static_cast<std::int32_t>(first + j);
    ExpandNumbers<C>(head.Key(row), head_dim, row_f32);
    EncodeBf16(row_f32, head_dim, work.keys + j * head_dim);
    ExpandNumbers<C, kv::Part::kValue>(head.Value(row), head_dim, row_f32);
    EncodeBf16(row_f32, head_dim, work.values + j * head_dim);
  }
  std::fill(work.keys + count * head_dim, work.keys + kGemmKeys * head_dim, std::uint16_t{0});
  std::fill(work.values + count * head_dim, work.values + kGemmKeys * head_dim, std::uint16_t{0});
}

// Online softmax of one row of scores, of which the first `visible` count: weights in bf16 to
// `weights`, earlier weighted values in `sums` rescaled.
HWY_INLINE void TakeRow(float* scores, std::size_t visible, std::size_t head_dim, float* max,
                        float* sum, float* sums, std::uint16_t* weights) {
  const DPanel d;
  std::fill(scores + visible, scores + kGemmKeys, kMinusInfinity);
  const float top = RowMax(scores, kGemmKeys, *max);
  if (top > *max) {
    const float shrink = hn::GetLane(Exp2OfNegative(d, hn::Sub(hn::Set(d, *max), hn::Set(d, top))));
    for (std::size_t x = 0; x < head_dim; ++x) {
      sums[x] *= shrink;
    }
    *sum *= shrink;
    *max = top;
  }
  *sum += RowWeights(scores, kGemmKeys, top);
  EncodeBf16(scores, kGemmKeys, weights);
}

// Query rows [first, first + count) against the expanded tile that starts at key `first_key`.
HWY_INLINE void AttendRows(const QueryRows& rows, std::size_t first_row, std::size_t first_key,
                           std::size_t first, std::size_t count, Bf16Product product,
                           const GemmWork& work) {
  const std::size_t head_dim = rows.head_dim;
  if (VisibleKeys(first + count - 1, rows.group, first_row, first_key) == 0) {
    return;  // wholly above the diagonal
  }
  const auto m = static_cast<std::int64_t>(count);
  const auto d = static_cast<std::int64_t>(head_dim);
  constexpr auto kKeys = static_cast<std::int64_t>(kGemmKeys);
  product({m, kKeys, d, d, d, kKeys, /*b_transposed=*/true, /*accumulate=*/false},
          work.queries + first * head_dim, work.keys, work.scores);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t row = first + i;
    const std::size_t seen = first_row + row / rows.group + 1;
    const std::size_t visible = seen <= first_key ? 0 : std::min(kGemmKeys, seen - first_key);
    TakeRow(work.scores + i * kGemmKeys, visible, head_dim, work.max + row, work.sum + row,
            work.sums + row * head_dim, work.weights + i * kGemmKeys);
  }
  product({m, d, kKeys, kKeys, d, d, /*b_transposed=*/false, /*accumulate=*/true}, work.weights,
          work.values, work.sums + first * head_dim);
}

template <kv::Codec C>
HWY_INLINE void GemmWithCodec(const PrefillTile& tile, const kv::HeadView& head,
                              Bf16Product product, Scratch& scratch) {
  const auto head_dim = static_cast<std::size_t>(head.head_dim);
  const auto group = static_cast<std::size_t>(tile.group);
  const auto tokens = static_cast<std::size_t>(tile.tokens);
  const auto first_row = static_cast<std::size_t>(tile.first_row);
  const QueryRows rows{tile.q, tile.q_stride, group, head_dim, tokens * group};
  Scratch::Frame frame(scratch);
  const GemmWork work{frame.Array<std::uint16_t>(rows.count * head_dim),
                      frame.Array<std::uint16_t>(kGemmKeys * head_dim),
                      frame.Array<std::uint16_t>(kGemmKeys * head_dim),
                      frame.Array<float>(kGemmRows * kGemmKeys),
                      frame.Array<std::uint16_t>(kGemmRows * kGemmKeys),
                      frame.Array<float>(rows.count * head_dim),
                      frame.Array<float>(rows.count),
                      frame.Array<float>(rows.count)};
  auto* row_f32 = frame.Array<float>(head_dim);
  for (std::size_t row = 0; row < rows.count; ++row) {
    const float factor = tile.scale * kLog2E;
    std::transform(rows.Row(row), rows.Row(row) + head_dim, row_f32,
                   [factor](float x) { return factor * x; });
    EncodeBf16(row_f32, head_dim, work.queries + row * head_dim);
  }
  std::fill_n(work.sums, rows.count * head_dim, 0.0f);
  std::fill_n(work.max, rows.count, kMinusInfinity);
  std::fill_n(work.sum, rows.count, 0.0f);
  for (std::size_t first = 0; first < first_row + tokens; first += kGemmKeys) {
    ExpandTile<C>(head, first, std::min(kGemmKeys, first_row + tokens - first), row_f32, work);
    for (std::size_t row = 0; row < rows.count; row += kGemmRows) {
      AttendRows(rows, first_row, first, row, std::min(kGemmRows, rows.count - row), product, work);
    }
  }
  for (std::size_t row = 0; row < rows.count; ++row) {
    const float inverse = 1.0f / work.sum[row];
    std::transform(work.sums + row * head_dim, work.sums + (row + 1) * head_dim,
                   tile.out + row / group * tile.out_stride + row % group * head_dim,
                   [inverse](float x) { return x * inverse; });
  }
}

void PrefillByGemmImpl(const PrefillTile& tile, const kv::HeadView& head, Bf16Product product,
                       Scratch& scratch) {
  switch (head.codec) {
    case kv::Codec::kF32:
      return GemmWithCodec<kv::Codec::kF32>(tile, head, product, scratch);
    case kv::Codec::kF16:
      return GemmWithCodec<kv::Codec::kF16>(tile, head, product, scratch);
    case kv::Codec::kBf16:
      return GemmWithCodec<kv::Codec::kBf16>(tile, head, product, scratch);
    case kv::Codec::kQ8:
      return GemmWithCodec<kv::Codec::kQ8>(tile, head, product, scratch);
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace rkv::attention::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rkv::attention::cpu {

HWY_EXPORT(PrefillByGemmImpl);

void PrefillByGemm(const PrefillTile& tile, const kv::HeadView& head, Bf16Product product,
                   Scratch& scratch) {
  HWY_DYNAMIC_DISPATCH(PrefillByGemmImpl)(tile, head, product, scratch);
}

}  // namespace rkv::attention::cpu
#endif  // HWY_ONCE
