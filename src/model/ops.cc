#include "model/ops.h"

#include <cmath>
#include <cstddef>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "model/ops.cc"
#include <hwy/foreach_target.h>
// After foreach_target: it includes this file once per instruction set.
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace rkv::model::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;

// Sum of squares in f64: the terms of a wide row differ by many orders of magnitude.
double SumOfSquares(const float* HWY_RESTRICT x, std::size_t n) {
  const hn::ScalableTag<double> d64;
  const hn::Rebind<float, decltype(d64)> d32;
  const std::size_t N = hn::Lanes(d64);
  auto sum0 = hn::Zero(d64);
  auto sum1 = hn::Zero(d64);
  std::size_t i = 0;
  for (; i + 2 * N <= n; i += 2 * N) {
    const auto a = hn::PromoteTo(d64, hn::LoadU(d32, x + i));
    const auto b = hn::PromoteTo(d64, hn::LoadU(d32, x + i + N));
    sum0 = hn::MulAdd(a, a, sum0);
    sum1 = hn::MulAdd(b, b, sum1);
  }
  double sum = hn::GetLane(hn::SumOfLanes(d64, hn::Add(sum0, sum1)));
  for (; i < n; ++i) {
    sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  }
  return sum;
}

void RmsNorm(const float* x, const float* weight, float eps, std::size_t n, float* out) {
  const double mean = SumOfSquares(x, n) / static_cast<double>(n);
  const auto scale = static_cast<float>(1.0 / std::sqrt(mean + static_cast<double>(eps)));
  const F32 d;
  const std::size_t N = hn::Lanes(d);
  const auto scales = hn::Set(d, scale);
  std::size_t i = 0;
  for (; i + N <= n; i += N) {
    const auto scaled = hn::Mul(hn::LoadU(d, x + i), scales);
    hn::StoreU(hn::Mul(scaled, hn::LoadU(d, weight + i)), d, out + i);
  }
  for (; i < n; ++i) {
    out[i] = x[i] * scale * weight[i];
  }
}

// x * sigmoid(x), with e^-|x| so that nothing overflows.
template <class V>
HWY_INLINE V Silu(F32 d, V x) {
  const auto one = hn::Set(d, 1.0f);
  const auto e = hn::Exp(d, hn::Neg(hn::Abs(x)));
  const auto numerator = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), e, one);
  return hn::Mul(x, hn::Div(numerator, hn::Add(one, e)));
}

void SiluMul(float* HWY_RESTRICT gate, const float* HWY_RESTRICT up, std::size_t n) {
  const F32 d;
  const std::size_t N = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + N <= n; i += N) {
    const auto silu = Silu(d, hn::LoadU(d, gate + i));
    hn::StoreU(hn::Mul(silu, hn::LoadU(d, up + i)), d, gate + i);
  }
  for (; i < n; ++i) {
    gate[i] = hn::GetLane(Silu(d, hn::Set(d, gate[i]))) * up[i];
  }
}

void AddTo(float* x, const float* y, std::size_t n) {
  const F32 d;
  const std::size_t N = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + N <= n; i += N) {
    hn::StoreU(hn::Add(hn::LoadU(d, x + i), hn::LoadU(d, y + i)), d, x + i);
  }
  for (; i < n; ++i) {
    x[i] += y[i];
  }
}

// Round to nearest even; NaN stays NaN.
void RoundToBf16(const float* HWY_RESTRICT x, std::size_t n, std::uint16_t* HWY_RESTRICT out) {
  const F32 d;
  const hn::RebindToUnsigned<F32> d32;
  const hn::Rebind<std::uint16_t, F32> d16;
  const std::size_t N = hn::Lanes(d32);
  const auto round = [&](auto values) HWY_ATTR {
    const auto bits = hn::BitCast(d32, values);
    const auto high = hn::ShiftRight<16>(bits);
    const auto odd = hn::And(high, hn::Set(d32, 1));
    const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(d32, 0x7fff))));
    const auto magnitude = hn::And(bits, hn::Set(d32, 0x7fffffff));
    const auto is_nan = hn::Gt(magnitude, hn::Set(d32, 0x7f800000));
    return hn::IfThenElse(is_nan, hn::Or(high, hn::Set(d32, 0x40)), rounded);
  };
  std::size_t i = 0;
  for (; i + N <= n; i += N) {
    hn::StoreU(hn::TruncateTo(d16, round(hn::LoadU(d, x + i))), d16, out + i);
  }
  for (; i < n; ++i) {
    out[i] = static_cast<std::uint16_t>(hn::GetLane(round(hn::Set(d, x[i]))));
  }
}

}  // namespace rkv::model::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rkv::model {

HWY_EXPORT(RmsNorm);
HWY_EXPORT(SiluMul);
HWY_EXPORT(AddTo);
HWY_EXPORT(RoundToBf16);

void RmsNorm(std::span<const float> x, std::span<const float> weight, float eps,
             std::span<float> out) {
  HWY_DYNAMIC_DISPATCH(RmsNorm)(x.data(), weight.data(), eps, x.size(), out.data());
}

void SiluMul(std::span<float> gate, std::span<const float> up) {
  HWY_DYNAMIC_DISPATCH(SiluMul)(gate.data(), up.data(), gate.size());
}

void AddTo(std::span<float> x, std::span<const float> y) {
  HWY_DYNAMIC_DISPATCH(AddTo)(x.data(), y.data(), x.size());
}

void RoundToBf16(std::span<const float> x, std::span<std::uint16_t> out) {
  HWY_DYNAMIC_DISPATCH(RoundToBf16)(x.data(), x.size(), out.data());
}

}  // namespace rkv::model
#endif  // HWY_ONCE
