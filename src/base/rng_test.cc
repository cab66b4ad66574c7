#include "base/rng.h"

#include <gtest/gtest.h>

#include <cmath>

namespace rkv {
namespace {

TEST(Rng, GivesThePublishedSplitMix64Sequence) {
  Rng rng(1234567);
  EXPECT_EQ(rng.Next(), 6457827717110365317u);
  EXPECT_EQ(rng.Next(), 3203168211198807973u);
  EXPECT_EQ(rng.Next(), 9817491932198370423u);
}

TEST(Rng, ACopyContinuesTheSequence) {
  Rng rng(5);
  (void)rng.Next();
  Rng copy = rng;
  EXPECT_EQ(copy.Next(), rng.Next());
}

TEST(Rng, UniformAndBelowStayInRangeAndSpread) {
  Rng rng(6);
  double sum = 0;
  int counts[7] = {};
  for (int i = 0; i < 70000; ++i) {
    const float u = rng.Uniform();
    ASSERT_GE(u, 0.0f);
    ASSERT_LT(u, 1.0f);
    sum += u;
    ++counts[rng.Below(7)];
  }
  EXPECT_NEAR(sum / 70000, 0.5, 0.01);
  for (const int count : counts) {
    EXPECT_NEAR(count, 10000, 500);
  }
  EXPECT_EQ(rng.Below(1), 0u);
}

TEST(Rng, NormalHasMeanZeroAndVarianceOne) {
  Rng rng(7);
  double sum = 0;
  double squares = 0;
  constexpr int kCount = 100000;
  for (int i = 0; i < kCount; ++i) {
    const double x = rng.Normal();
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / kCount, 0.0, 0.02);
  EXPECT_NEAR(squares / kCount, 1.0, 0.02);
}

}  // namespace
}  // namespace rkv
