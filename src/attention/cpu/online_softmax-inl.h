// Online softmax of a block of query rows, one key tile after the other, in powers of two.
#if defined(RKV_ATTENTION_CPU_ONLINE_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RKV_ATTENTION_CPU_ONLINE_SOFTMAX_INL_H_
#undef RKV_ATTENTION_CPU_ONLINE_SOFTMAX_INL_H_
#else
#define RKV_ATTENTION_CPU_ONLINE_SOFTMAX_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <limits>

#include "attention/cpu/panels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rkv::attention::cpu {
namespace HWY_NAMESPACE {

inline constexpr float kLog2E = 1.44269504088896341f;
inline constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Keys of the tile at `first_key` that stacked query row `row` may see, when token i sees rows
// [0, first_row + i].
HWY_INLINE std::size_t VisibleKeys(std::size_t row, std::size_t group, std::size_t first_row,
                                   std::size_t first_key) {
  const std::size_t rows = first_row + row / group + 1;
  return rows <= first_key ? 0 : std::min(kTileKeys, rows - first_key);
}

// The greater of `max` and the first `padded` scores.
HWY_INLINE float RowMax(const float* scores, std::size_t padded, float max) {
  const DPanel d;
  const std::size_t N = hn::Lanes(d);
  auto low = hn::Set(d, max);
  auto high = low;
  for (std::size_t j = 0; j < padded; j += 2 * N) {
    low = hn::Max(low, hn::LoadU(d, scores + j));
    high = hn::Max(high, hn::LoadU(d, scores + j + N));
  }
  return hn::GetLane(hn::MaxOfLanes(d, hn::Max(low, high)));
}

// Replaces scores by 2^(score - max) and returns their sum.
HWY_INLINE float RowWeights(float* scores, std::size_t padded, float max) {
  const DPanel d;
  const std::size_t N = hn::Lanes(d);
  const auto top = hn::Set(d, max);
  auto sum_low = hn::Zero(d);
  auto sum_high = hn::Zero(d);
  for (std::size_t j = 0; j < padded; j += 2 * N) {
    const auto low = Exp2OfNegative(d, hn::Sub(hn::LoadU(d, scores + j), top));
    const auto high = Exp2OfNegative(d, hn::Sub(hn::LoadU(d, scores + j + N), top));
    hn::StoreU(low, d, scores + j);
    hn::StoreU(high, d, scores + j + N);
    sum_low = hn::Add(sum_low, low);
    sum_high = hn::Add(sum_high, high);
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(sum_low, sum_high)));
}

// Running softmax of one block: weights are relative to 2^max.
struct BlockState {
  float max[kBlockQueries];
  float sum[kBlockQueries];

  void Clear() {
    std::fill_n(max, kBlockQueries, kMinusInfinity);
    std::fill_n(sum, kBlockQueries, 0.0f);
  }
};

// Takes one tile's scores of a block into its state. scores: [kBlockQueries][kTileKeys], of which
// row i counts up to visible[i]; weights replace them, exactly 0 behind visible[i], up to the panel
// that holds `keys`. shrink[i]: by what earlier weighted sums of row i are to be multiplied.
// REQUIRES: visible[i] > 0 for the first tile a row sees, visible[i] <= keys.
HWY_INLINE void TakeTile(float* scores, const std::size_t* visible, std::size_t keys,
                         BlockState& state, float* shrink) {
  const DPanel d;
  const std::size_t padded = RoundUpToPanel(keys);
  for (std::size_t i = 0; i < kBlockQueries; ++i) {
    float* row = scores + i * kTileKeys;
    std::fill(row + visible[i], row + padded, kMinusInfinity);
    const float max = RowMax(row, padded, state.max[i]);
    shrink[i] = hn::GetLane(Exp2OfNegative(d, hn::Sub(hn::Set(d, state.max[i]), hn::Set(d, max))));
    state.max[i] = max;
    state.sum[i] = state.sum[i] * shrink[i] + RowWeights(row, padded, max);
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace rkv::attention::cpu
HWY_AFTER_NAMESPACE();

#endif  // RKV_ATTENTION_CPU_ONLINE_SOFTMAX_INL_H_
