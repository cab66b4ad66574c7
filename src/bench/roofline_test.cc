#include "bench/roofline.h"

#include <gtest/gtest.h>

namespace rkv::bench {
namespace {

constexpr CacheShape kLlama = {.layers = 32, .kv_heads = 8, .head_dim = 128, .bytes_per_number = 2};

TEST(FullKvBytes, AreThoseOfAllRows) {
  EXPECT_DOUBLE_EQ(KvBytesPerRow(kLlama), 128 * 1024);
  EXPECT_DOUBLE_EQ(FullKvBytes(kLlama, {32767, 1}), 4294967296.0);  // 4 GiB at 32K
  EXPECT_DOUBLE_EQ(FullKvBytes(kLlama, {100, 9}), 105 * 131072.0);  // the middle of the test
}

// docs/methods/rocketkv.md: S 16384, t 512 gives capacity 2896, k 256, chunk 3, r 67.
TEST(MethodKvBytes, FollowsTheEquationsOfRocketKv) {
  const double rows = 2896.0 / 3 * 67 / 256 + 256;
  EXPECT_NEAR(*MethodKvBytes("rocketkv:budget=512", kLlama, {16383, 1}), rows * 131072, 1);
  EXPECT_NEAR(*MethodKvBytes("rocketkv:kernel_size=63,budget=512", kLlama, {16383, 1}),
              rows * 131072, 1);
}

// c2 = c = 32, chunk 6, r = int(128 * 6 / 32) = 24.
TEST(MethodKvBytes, KeepsAllRowsForHsa) {
  EXPECT_NEAR(*MethodKvBytes("hsa:budget=512", kLlama, {16383, 1}),
              (16384.0 / 6 * 24 / 256 + 256) * 131072, 1);
}

TEST(MethodKvBytes, ReadsAllRowsWhenSelectionCannotPay) {
  EXPECT_DOUBLE_EQ(*MethodKvBytes("rocketkv", kLlama, {100, 1}), 101 * 131072.0);
  EXPECT_DOUBLE_EQ(*MethodKvBytes("full", kLlama, {100, 1}), 101 * 131072.0);
}

TEST(MethodKvBytes, KnowsWhatItDoesNotModel) {
  EXPECT_FALSE(MethodKvBytes("snapkv:budget=512", kLlama, {1000, 1}));
  EXPECT_FALSE(MethodKvBytes("rocketkv:budget=512,topk=64", kLlama, {1000, 1}));
  EXPECT_FALSE(MethodKvBytes("rocketkv:budget=x", kLlama, {1000, 1}));
}

TEST(RooflineRate, IsBandwidthOverBytes) {
  EXPECT_DOUBLE_EQ(RooflineRate(2e9, 10), 5);
  EXPECT_DOUBLE_EQ(RooflineRate(0, 10), 0);
}

}  // namespace
}  // namespace rkv::bench
