#include "model/ops.h"

#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/half.h"
#include "base/rng.h"

namespace rkv::model {
namespace {

// Runs `check` for every instruction set that was compiled and that this CPU has.
template <class Check>
void OnEveryTarget(const Check& check) {
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    check();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

std::vector<std::size_t> Sizes() {
  std::vector<std::size_t> sizes = {1536};
  for (std::size_t n = 1; n <= 130; ++n) {
    sizes.push_back(n);
  }
  return sizes;
}

std::vector<float> Random(std::size_t n, std::uint64_t seed, float scale) {
  Rng rng(seed);
  std::vector<float> out(n);
  for (float& value : out) {
    value = scale * rng.Normal();
  }
  return out;
}

TEST(RmsNorm, EqualsThePlainLoop) {
  OnEveryTarget([] {
    for (const std::size_t n : Sizes()) {
      const std::vector<float> x = Random(n, n, 3.0f);
      const std::vector<float> weight = Random(n, n + 1, 1.0f);
      double sum = 0;
      for (const float value : x) {
        sum += static_cast<double>(value) * value;
      }
      const double scale = 1.0 / std::sqrt(sum / static_cast<double>(n) + 1e-5);
      std::vector<float> out(n);
      RmsNorm(x, weight, 1e-5f, out);
      std::vector<float> in_place = x;
      RmsNorm(in_place, weight, 1e-5f, in_place);
      EXPECT_EQ(out, in_place);
      for (std::size_t i = 0; i < n; ++i) {
        const double expected = x[i] * scale * weight[i];
        EXPECT_NEAR(out[i], expected, 3e-7 * std::abs(expected)) << n << " " << i;
      }
    }
  });
}

TEST(RmsNorm, HoldsOutliersAndZeros) {
  OnEveryTarget([] {
    std::vector<float> x(1000, 1e-3f);
    x[7] = 3e4f;
    const std::vector<float> ones(1000, 1.0f);
    RmsNorm(x, ones, 1e-6f, x);
    EXPECT_NEAR(x[7], std::sqrt(1000.0), 1e-4);
    std::vector<float> zeros(5, 0.0f);
    RmsNorm(zeros, std::span(ones).first(5), 1e-6f, zeros);
    EXPECT_EQ(zeros, std::vector<float>(5, 0.0f));
  });
}

double PlainSilu(double x) { return x / (1.0 + std::exp(-x)); }

TEST(SiluMul, EqualsThePlainLoop) {
  OnEveryTarget([] {
    for (const std::size_t n : Sizes()) {
      std::vector<float> gate = Random(n, n, 8.0f);
      const std::vector<float> before = gate;
      const std::vector<float> up = Random(n, n + 1, 1.0f);
      SiluMul(gate, up);
      for (std::size_t i = 0; i < n; ++i) {
        const double expected = PlainSilu(before[i]) * up[i];
        EXPECT_NEAR(gate[i], expected, 1e-6 * std::abs(expected)) << before[i];
      }
    }
  });
}

TEST(SiluMul, HoldsForHugeValues) {
  OnEveryTarget([] {
    const float max = std::numeric_limits<float>::max();
    std::vector<float> gate = {max, -max, 1e4f, -1e4f, 88.0f, -88.0f, -87.0f, 104.0f, 0.0f, -0.0f};
    const std::vector<float> before = gate;
    SiluMul(gate, std::vector<float>(gate.size(), 1.0f));
    for (std::size_t i = 0; i < gate.size(); ++i) {
      const double expected = PlainSilu(before[i]);
      // Below the smallest normal number only the magnitude counts.
      EXPECT_NEAR(gate[i], expected, 1e-6 * std::abs(expected) + 1e-37) << before[i];
    }
  });
}

TEST(AddTo, EqualsThePlainLoop) {
  OnEveryTarget([] {
    for (const std::size_t n : Sizes()) {
      std::vector<float> x = Random(n, n, 1.0f);
      const std::vector<float> y = Random(n, n + 1, 1.0f);
      std::vector<float> expected = x;
      for (std::size_t i = 0; i < n; ++i) {
        expected[i] += y[i];
      }
      AddTo(x, y);
      EXPECT_EQ(x, expected);
    }
  });
}

TEST(RoundToBf16, EqualsTheScalarConversion) {
  OnEveryTarget([] {
    for (const std::size_t n : Sizes()) {
      std::vector<float> x = Random(n, n, 100.0f);
      x[0] = 1.00390625f;  // half way: to even
      x[n / 2] = std::numeric_limits<float>::quiet_NaN();
      x[n - 1] = -std::numeric_limits<float>::infinity();
      std::vector<std::uint16_t> out(n);
      RoundToBf16(x, out);
      for (std::size_t i = 0; i < n; ++i) {
        EXPECT_EQ(out[i], F32ToBf16(x[i])) << x[i];
      }
    }
  });
}

}  // namespace
}  // namespace rkv::model
