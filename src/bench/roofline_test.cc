#include "bench/roofline.h"

#include <gtest/gtest.h>

namespace rkv::bench {
namespace {

constexpr ExplainShape kLlama = {.layers = 32, .kv_heads = 8, .group = 4, .head_dim = 128};
constexpr double kRow = 131072;  // bytes of a token, f16

TEST(MethodKvBytes, OfFullAreThoseOfAllRows) {
  EXPECT_DOUBLE_EQ(*MethodKvBytes("full", kLlama, {32767, 1}), 4294967296.0);  // 4 GiB at 32K
  EXPECT_DOUBLE_EQ(*MethodKvBytes("full", kLlama, {100, 9}), 105 * kRow);      // the test's middle
}

// docs/methods/rocketkv.md: S 16384, t 512 gives capacity 2896, k 256, chunk 3, r 67.
TEST(MethodKvBytes, FollowTheEquationsOfRocketKv) {
  const double rows = 2896.0 / 3 * 67 / 256 + 256;
  EXPECT_NEAR(*MethodKvBytes("rocketkv:budget=512", kLlama, {16383, 1}), rows * kRow, 1);
  EXPECT_NEAR(*MethodKvBytes("rocketkv:kernel_size=63,budget=512", kLlama, {16383, 1}), rows * kRow,
              1);
}

// c2 = c = 32, chunk 6, r = int(128 * 6 / 32) = 24; the mean of 101 steps lacks 50 rows.
TEST(MethodKvBytes, OfHsaGrowWithTheTest) {
  EXPECT_NEAR(*MethodKvBytes("hsa:budget=512", kLlama, {16383, 1}),
              (16384.0 / 6 * 24 / 256 + 256) * kRow, 1);
  EXPECT_NEAR(*MethodKvBytes("hsa:budget=512", kLlama, {16283, 101}),
              ((16384.0 - 50) / 6 * 24 / 256 + 256) * kRow, 1);
}

// S 16384, t 512 as above: k 64 in place of 256.
TEST(MethodKvBytes, KnowOptionsThatOverrideTheBudget) {
  EXPECT_NEAR(*MethodKvBytes("rocketkv:budget=512,topk=64", kLlama, {16383, 1}),
              (2896.0 / 3 * 67 / 256 + 64) * kRow, 1);
}

TEST(MethodKvBytes, AreOfAllRowsWhenSelectionCannotPay) {
  EXPECT_DOUBLE_EQ(*MethodKvBytes("rocketkv", kLlama, {100, 1}), 101 * kRow);
}

TEST(MethodKvBytes, AreUnknownForWhatIsNoMethod) {
  EXPECT_FALSE(MethodKvBytes("q8_0", kLlama, {1000, 1}));
  EXPECT_FALSE(MethodKvBytes("rocketkv:budget=x", kLlama, {1000, 1}));
  EXPECT_FALSE(MethodKvBytes("full", kLlama, {0, 1}));
}

TEST(RooflineRate, IsBandwidthOverBytes) {
  EXPECT_DOUBLE_EQ(RooflineRate(2e9, 10), 5);
  EXPECT_DOUBLE_EQ(RooflineRate(0, 10), 0);
}

}  // namespace
}  // namespace rkv::bench
