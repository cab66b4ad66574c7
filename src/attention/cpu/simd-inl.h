// Vector helpers shared by the kernels: loading stored numbers, exponentials, sums of four vectors.
#if defined(RKV_ATTENTION_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RKV_ATTENTION_CPU_SIMD_INL_H_
#undef RKV_ATTENTION_CPU_SIMD_INL_H_
#else
#define RKV_ATTENTION_CPU_SIMD_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kv/codec.h"

HWY_BEFORE_NAMESPACE();
namespace rkv::attention::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// f16 bits, one in each u32 lane, to f32 without F16C. Exact, subnormals and infinities included.
template <class D, class VU>
HWY_INLINE hn::Vec<D> WidenF16(D d, VU half) {
  const hn::RebindToUnsigned<D> du;
  const auto magnitude = hn::ShiftLeft<13>(hn::And(half, hn::Set(du, 0x7fffu)));
  const auto sign = hn::ShiftLeft<16>(hn::And(half, hn::Set(du, 0x8000u)));
  // Rebias the exponent by multiplication: that also normalises subnormals.
  const auto finite = hn::BitCast(du, hn::Mul(hn::BitCast(d, magnitude), hn::Set(d, 0x1p112f)));
  const auto special = hn::Or(magnitude, hn::Set(du, 0x7f800000u));
  const hn::RebindToSigned<D> di;
  const auto is_special = hn::Gt(hn::BitCast(di, magnitude), hn::Set(di, 0x0f7fffff));
  return hn::BitCast(d,
                     hn::Or(sign, hn::IfThenElse(hn::RebindMask(du, is_special), special, finite)));
}

// Lanes(d) numbers in codec C at `data`, as f32. Of kQ8 the integers, without their scale.
template <kv::Codec C, class D>
HWY_INLINE hn::Vec<D> LoadNumbers(D d, const std::byte* data) {
  if constexpr (C == kv::Codec::kF32) {
    return hn::LoadU(d, reinterpret_cast<const float*>(data));
  } else if constexpr (C == kv::Codec::kQ8) {
    const hn::Rebind<std::int8_t, D> di8;
    const hn::RebindToSigned<D> di32;
    const auto integers = hn::LoadU(di8, reinterpret_cast<const std::int8_t*>(data));
    return hn::ConvertTo(d, hn::PromoteTo(di32, integers));
  } else {
#if HWY_TARGET <= HWY_AVX2  // has F16C
    if constexpr (C == kv::Codec::kF16) {
      const hn::Rebind<hwy::float16_t, D> df16;
      return hn::PromoteTo(d, hn::LoadU(df16, reinterpret_cast<const hwy::float16_t*>(data)));
    }
#endif
    const hn::Rebind<std::uint16_t, D> du16;
    const hn::RebindToUnsigned<D> du;
    const auto bits =
        hn::PromoteTo(du, hn::LoadU(du16, reinterpret_cast<const std::uint16_t*>(data)));
    if constexpr (C == kv::Codec::kF16) {
      return WidenF16(d, bits);
    }
    return hn::BitCast(d, hn::ShiftLeft<16>(bits));
  }
}

// kQ8: the scale at index `group` of a stored key or value of `width` numbers.
HWY_INLINE float ScaleAt(const std::byte* stored, std::size_t width, std::size_t group) {
  float scale;
  std::memcpy(&scale, stored + kv::ScaleOffset(static_cast<std::int32_t>(width)) + 4 * group, 4);
  return scale;
}

// Lanes(d) numbers of a stored key of `width` numbers from number x on, as f32.
// REQUIRES: x a multiple of Lanes(d), so that they share a scale.
template <kv::Codec C, class D>
HWY_INLINE hn::Vec<D> LoadKey(D d, const std::byte* key, std::size_t width, std::size_t x) {
  static_assert(hn::MaxLanes(D()) <= kv::kKeyGroup, "a vector has one scale");
  const hn::Vec<D> numbers = LoadNumbers<C>(d, key + x * kv::CodecBytes(C));
  if constexpr (C == kv::Codec::kQ8) {
    return hn::Mul(numbers, hn::Set(d, ScaleAt(key, width, x / kv::kKeyGroup)));
  } else {
    return numbers;
  }
}

// The same of a value.
template <kv::Codec C, class D>
HWY_INLINE hn::Vec<D> LoadValue(D d, const std::byte* value, std::size_t width, std::size_t x) {
  const hn::Vec<D> numbers = LoadNumbers<C>(d, value + x * kv::CodecBytes(C));
  if constexpr (C == kv::Codec::kQ8) {
    return hn::Mul(numbers, hn::Set(d, ScaleAt(value, width, 0)));
  } else {
    return numbers;
  }
}

// 2^(n + r) for |r| <= 1/2, where `shifted` = n + 1.5 * 2^23. Relative error 1e-7 (minimax
// polynomial of degree 5, computed for this file).
template <class D, class V>
HWY_INLINE V ScaledPower(D d, V shifted, V r) {
  const hn::RebindToSigned<D> di;
  V p = hn::Set(d, 0.001326472731307149f);
  p = hn::MulAdd(p, r, hn::Set(d, 0.009671512991189957f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.05550733581185341f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.24022242426872253f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.6931470036506653f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  // The low bits of `shifted` are n in two's complement; the shift drops the others.
  const auto exponent = hn::ShiftLeft<23>(hn::BitCast(di, shifted));
  return hn::BitCast(d, hn::Add(hn::BitCast(di, p), exponent));
}

inline constexpr float kRoundShift = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer

// exp(x) for x <= 0; exactly 0 below -87, so also for -infinity; NaN for NaN. Relative error 2e-7.
template <class D, class V>
HWY_INLINE V ExpOfNegative(D d, V x) {
  const V log2e = hn::Set(d, 1.44269502162933349609f);
  const V log2e_low = hn::Set(d, 1.92596299112661746887e-8f);
  const V shift = hn::Set(d, kRoundShift);
  const V shifted = hn::MulAdd(x, log2e, shift);
  const V n = hn::Sub(shifted, shift);
  const V r = hn::MulAdd(x, log2e_low, hn::MulSub(x, log2e, n));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.0f)), ScaledPower(d, shifted, r));
}

// 2^x for x <= 0; exactly 0 below -126, so also for -infinity; NaN for NaN. Relative error 1e-7.
template <class D, class V>
HWY_INLINE V Exp2OfNegative(D d, V x) {
  const V shift = hn::Set(d, kRoundShift);
  const V shifted = hn::Add(x, shift);
  const V r = hn::Sub(x, hn::Sub(shifted, shift));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -126.0f)), ScaledPower(d, shifted, r));
}

// The sums of the lanes of v[0..3], times `scale`, to out[0..3], one after the other.
template <class D, class V>
HWY_INLINE void StoreFourPlainSums(D d, const V (&v)[4], float scale, float* out) {
  for (int i = 0; i < 4; ++i) {
    out[i] = scale * hn::GetLane(hn::SumOfLanes(d, v[i]));
  }
}

#if HWY_TARGET == HWY_SCALAR
template <class D, class V>
HWY_INLINE void StoreFourSums(D d, const V (&v)[4], float scale, float* out) {
  StoreFourPlainSums(d, v, scale, out);
}
#else
// Adds the 128-bit blocks of v.
template <class D, class V>
HWY_INLINE auto SumOfBlocks(D /*d*/, V v) {
  if constexpr (hn::MaxLanes(D()) <= 4) {
    return v;
  } else {
    const hn::Half<D> dh;
    return SumOfBlocks(dh, hn::Add(hn::LowerHalf(dh, v), hn::UpperHalf(dh, v)));
  }
}

// As StoreFourPlainSums, but transposed: four sums cost little more than one.
template <class D, class V>
HWY_INLINE void StoreFourSums(D d, const V (&v)[4], float scale, float* out) {
  if constexpr (hn::MaxLanes(D()) >= 4) {
    const V even = hn::Add(hn::InterleaveLower(d, v[0], v[2]), hn::InterleaveUpper(d, v[0], v[2]));
    const V odd = hn::Add(hn::InterleaveLower(d, v[1], v[3]), hn::InterleaveUpper(d, v[1], v[3]));
    const V sums = hn::Add(hn::InterleaveLower(d, even, odd), hn::InterleaveUpper(d, even, odd));
    const hn::FixedTag<float, 4> d4;
    hn::StoreU(hn::Mul(SumOfBlocks(d, sums), hn::Set(d4, scale)), d4, out);
  } else {
    StoreFourPlainSums(d, v, scale, out);
  }
}
#endif

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace rkv::attention::cpu
HWY_AFTER_NAMESPACE();

#endif  // RKV_ATTENTION_CPU_SIMD_INL_H_
