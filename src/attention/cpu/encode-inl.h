// f32 to bf16, for storing rows and for matrix products.
#if defined(RKV_ATTENTION_CPU_ENCODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RKV_ATTENTION_CPU_ENCODE_INL_H_
#undef RKV_ATTENTION_CPU_ENCODE_INL_H_
#else
#define RKV_ATTENTION_CPU_ENCODE_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "base/half.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace rkv::attention::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Round to nearest even, NaN as in base/half.h.
HWY_INLINE void EncodeBf16(const float* from, std::size_t n, std::uint16_t* to) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Rebind<std::uint16_t, decltype(d)> du16;
  const std::size_t N = hn::Lanes(d);
  std::size_t x = 0;
  for (; x + N <= n; x += N) {
    const auto f = hn::LoadU(d, from + x);
    const auto bits = hn::BitCast(du, f);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
    const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fffu)));
    const auto quiet = hn::Or(bits, hn::Set(du, 0x400000u));
    const auto chosen = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(f)), quiet, rounded);
    hn::StoreU(hn::DemoteTo(du16, hn::BitCast(di, hn::ShiftRight<16>(chosen))), du16, to + x);
  }
  for (; x < n; ++x) {
    to[x] = F32ToBf16(from[x]);
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace rkv::attention::cpu
HWY_AFTER_NAMESPACE();

#endif  // RKV_ATTENTION_CPU_ENCODE_INL_H_
