// Deterministic top-k: bisection for the k-th best key, then one pass that emits in index order.
#include <algorithm>
#include <cstring>
#include <limits>

#include "attention/cpu/kernels.h"
#include "attention/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/cpu/top_k.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace rkv::attention::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using DKey = hn::ScalableTag<std::int32_t>;

inline constexpr std::int32_t kLowestKey = std::numeric_limits<std::int32_t>::min();

// Integers in the order of the scores: NaN lowest, both zeros equal. keys is padded to whole
// vectors with kLowestKey. Returns the greatest key in *most, the least that is not NaN or padding
// in *least.
HWY_INLINE void MakeKeys(std::span<const float> scores, std::int32_t* keys, std::int32_t* least,
                         std::int32_t* most) {
  const DKey di;
  const hn::RebindToFloat<DKey> df;
  const std::size_t N = hn::Lanes(di);
  const auto lowest = hn::Set(di, kLowestKey);
  auto low = hn::Set(di, std::numeric_limits<std::int32_t>::max());
  auto high = lowest;
  const auto take = [&](const float* from, std::int32_t* to) HWY_ATTR {
    const auto score = hn::Add(hn::LoadU(df, from), hn::Zero(df));  // -0 becomes +0
    const auto bits = hn::BitCast(di, score);
    const auto flip = hn::And(hn::BroadcastSignBit(bits), hn::Set(di, 0x7fffffff));
    const auto is_nan = hn::RebindMask(di, hn::IsNaN(score));
    const auto ordered = hn::Xor(bits, flip);
    const auto key = hn::IfThenElse(is_nan, lowest, ordered);
    low = hn::Min(low, hn::IfThenElse(is_nan, hn::Set(di, std::numeric_limits<std::int32_t>::max()),
                                      ordered));
    high = hn::Max(high, key);
    hn::StoreU(key, di, to);
  };
  std::size_t i = 0;
  for (; i + N <= scores.size(); i += N) {
    take(scores.data() + i, keys + i);
  }
  if (i < scores.size()) {
    HWY_ALIGN float tail[hn::MaxLanes(DKey())];
    std::fill_n(tail, N, std::numeric_limits<float>::quiet_NaN());
    std::copy(scores.begin() + static_cast<std::ptrdiff_t>(i), scores.end(), tail);
    take(tail, keys + i);
  }
  *least = hn::GetLane(hn::MinOfLanes(di, low));
  *most = hn::GetLane(hn::MaxOfLanes(di, high));
}

// How many of the padded keys are greater than `bound`.
HWY_INLINE std::size_t CountAbove(const std::int32_t* keys, std::size_t padded,
                                  std::int32_t bound) {
  const DKey di;
  const std::size_t N = hn::Lanes(di);
  const auto limit = hn::Set(di, bound);
  auto count = hn::Zero(di);
  for (std::size_t i = 0; i < padded; i += N) {
    // A true lane is -1.
    count = hn::Sub(count, hn::VecFromMask(di, hn::Gt(hn::LoadU(di, keys + i), limit)));
  }
  return static_cast<std::size_t>(hn::GetLane(hn::SumOfLanes(di, count)));
}

// Finds a bound with at most k keys above it and at least k at or above it (NaN included when the
// numbers do not suffice); returns how many lie above. Stops early when exactly k do.
HWY_INLINE std::size_t FindBound(const std::int32_t* keys, std::size_t padded, std::size_t k,
                                 std::int32_t least, std::int32_t most, std::int32_t* bound) {
  const std::size_t numbers = CountAbove(keys, padded, kLowestKey);
  if (numbers <= k) {
    *bound = kLowestKey;
    return numbers;
  }
  // At most k keys lie above `high`, more than k above `low`.
  std::int64_t low = std::int64_t{least} - 1;
  std::int64_t high = most;
  std::size_t above = 0;  // of high
  while (high - low > 1 && above != k) {
    const std::int64_t middle = low + (high - low) / 2;
    const std::size_t count = CountAbove(keys, padded, static_cast<std::int32_t>(middle));
    if (count <= k) {
      high = middle;
      above = count;
    } else {
      low = middle;
    }
  }
  *bound = static_cast<std::int32_t>(high);
  return above;
}

// Writes the indices of all keys above `bound` and of the first `ties` that equal it: k in all.
// Without branches on the data: a mispredicted one would cost more than ten keys.
HWY_INLINE void Emit(const std::int32_t* keys, std::int32_t bound, std::size_t ties, std::size_t k,
                     std::int32_t* out) {
  std::size_t written = 0;
  std::int32_t i = 0;
  for (; written < k && ties > 0; ++i) {
    const bool tie = keys[i] == bound;
    out[written] = i;
    written += (keys[i] > bound) | tie;
    ties -= tie;
  }
  constexpr std::size_t kStep = 8;  // keys between two looks at the room that is left
  for (; written + kStep <= k; i += kStep) {
    for (std::int32_t j = i; j < i + static_cast<std::int32_t>(kStep); ++j) {
      out[written] = j;
      written += keys[j] > bound;
    }
  }
  for (; written < k; ++i) {
    out[written] = i;
    written += keys[i] > bound;
  }
}

void TopKImpl(std::span<const float> scores, std::size_t k, std::int32_t* out, Scratch& scratch) {
  const std::size_t N = hn::Lanes(DKey());
  const std::size_t padded = (scores.size() + N - 1) / N * N;
  Scratch::Frame frame(scratch);
  auto* keys = frame.Array<std::int32_t>(padded);
  std::int32_t least;
  std::int32_t most;
  MakeKeys(scores, keys, &least, &most);
  std::int32_t bound;
  const std::size_t above = FindBound(keys, padded, k, least, most, &bound);
  Emit(keys, bound, k - above, k, out);
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace rkv::attention::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rkv::attention::cpu {

HWY_EXPORT(TopKImpl);

std::int32_t TopK(std::span<const float> scores, std::int32_t k, std::int32_t* out,
                  Scratch& scratch) {
  const auto n = static_cast<std::int32_t>(scores.size());
  if (k >= n) {
    for (std::int32_t i = 0; i < n; ++i) {
      out[i] = i;
    }
    return n;
  }
  if (k <= 0) {
    return 0;
  }
  HWY_DYNAMIC_DISPATCH(TopKImpl)(scores, static_cast<std::size_t>(k), out, scratch);
  return k;
}

}  // namespace rkv::attention::cpu
#endif  // HWY_ONCE
