#include <algorithm>
#include <cstring>
#include <limits>

#include "attention/cpu/kernels.h"
#include "attention/cpu/targets.h"
#include "base/half.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/cpu/store_rows.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "attention/cpu/encode-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace rkv::attention::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Round to nearest even, NaN as in base/half.h.
HWY_INLINE void EncodeF16(const float* from, std::size_t n, std::uint16_t* to) {
  std::size_t x = 0;
#if HWY_TARGET <= HWY_AVX2  // F16C rounds to nearest even; elsewhere Highway's emulation truncates
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const hn::Rebind<hwy::float16_t, decltype(d)> df16;
  const std::size_t N = hn::Lanes(d);
  for (; x + N <= n; x += N) {
    const auto f = hn::LoadU(d, from + x);
    // F16C keeps payload bits of a NaN, base/half.h does not.
    const auto sign = hn::And(hn::BitCast(du, f), hn::Set(du, 0x80000000u));
    const auto nan = hn::BitCast(d, hn::Or(sign, hn::Set(du, 0x7fc00000u)));
    const auto clean = hn::IfThenElse(hn::IsNaN(f), nan, f);
    hn::StoreU(hn::DemoteTo(df16, clean), df16, reinterpret_cast<hwy::float16_t*>(to + x));
  }
#endif
  for (; x < n; ++x) {
    to[x] = F32ToF16(from[x]);
  }
}

// `n` numbers that share a scale, which it returns; kv::EncodeRow does the same operations number
// by number. REQUIRES: n a multiple of kv::kKeyGroup.
HWY_INLINE float EncodeGroup(const float* from, std::size_t n, std::byte* to) {
  const hn::CappedTag<float, kv::kKeyGroup> d;
  const hn::Rebind<std::int8_t, decltype(d)> di8;
  const std::size_t N = hn::Lanes(d);
  auto most = hn::Zero(d);
  bool finite = true;
  for (std::size_t x = 0; x < n; x += N) {
    const auto f = hn::LoadU(d, from + x);
    most = hn::Max(most, hn::Abs(f));
    finite = finite && hn::AllTrue(d, hn::IsFinite(f));
  }
  if (!finite) {
    std::fill(to, to + n, std::byte{0});
    return std::numeric_limits<float>::quiet_NaN();
  }
  const float scale = kv::Q8Scale(hn::GetLane(hn::MaxOfLanes(d, most)));
  const auto inverse = hn::Set(d, kv::Q8Inverse(scale));
  for (std::size_t x = 0; x < n; x += N) {
    const auto integers = hn::NearestInt(hn::Mul(hn::LoadU(d, from + x), inverse));
    hn::StoreU(hn::DemoteTo(di8, integers), di8, reinterpret_cast<std::int8_t*>(to + x));
  }
  return scale;
}

HWY_INLINE void EncodeQ8(const float* from, std::size_t n, std::byte* to, kv::Part part) {
  if (n % kv::kKeyGroup != 0) {
    kv::EncodeRow(kv::Codec::kQ8, {from, n}, to, part);
    return;
  }
  const auto width = static_cast<std::int32_t>(n);
  const auto group = static_cast<std::size_t>(kv::ScaleGroup(part, width));
  std::byte* scales = to + kv::ScaleOffset(width);
  for (std::size_t x = 0; x < n; x += group, scales += sizeof(float)) {
    const float scale = EncodeGroup(from + x, group, to + x);
    std::memcpy(scales, &scale, sizeof scale);
  }
}

HWY_INLINE void Encode(kv::Codec codec, kv::Part part, const float* from, std::size_t n,
                       std::byte* to) {
  switch (codec) {
    case kv::Codec::kF32:
      std::memcpy(to, from, n * sizeof(float));
      break;
    case kv::Codec::kF16:
      EncodeF16(from, n, reinterpret_cast<std::uint16_t*>(to));
      break;
    case kv::Codec::kBf16:
      EncodeBf16(from, n, reinterpret_cast<std::uint16_t*>(to));
      break;
    case kv::Codec::kQ8:
      EncodeQ8(from, n, to, part);
      break;
  }
}

void StoreRowsImpl(kv::Codec codec, std::size_t width, const float* keys, const float* values,
                   std::size_t stride, std::span<std::byte* const> rows) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    Encode(codec, kv::Part::kKey, keys + i * stride, width, rows[i]);
    Encode(codec, kv::Part::kValue, values + i * stride, width,
           rows[i] + kv::StoredBytes(codec, static_cast<std::int32_t>(width)));
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace rkv::attention::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rkv::attention::cpu {

HWY_EXPORT(StoreRowsImpl);

void StoreRows(kv::Codec codec, std::int32_t head_dim, const float* keys, const float* values,
               std::size_t stride, std::span<std::byte* const> rows) {
  HWY_DYNAMIC_DISPATCH(StoreRowsImpl)
  (codec, static_cast<std::size_t>(head_dim), keys, values, stride, rows);
}

}  // namespace rkv::attention::cpu
#endif  // HWY_ONCE
