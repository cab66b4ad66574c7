#include "policy/rocketkv_split.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/random.h"

namespace rkv::policy {
namespace {

struct Row {
  std::int32_t tokens, budget, new_tokens, capacity;
  double c, alpha;
  std::int32_t prompt_budget, k;
  double c2;
  std::int32_t chunk_rows, channels;
  double estimate;
};

// The check values of policy specification 2.1, head dimension 128.
constexpr Row kTable[] = {
    {16384, 512, 128, 2896, 32, 0.5, 2768, 256, 5.656, 3, 67, 252.6},
    {65536, 1024, 128, 6382, 64, 0.56, 6254, 512, 6.232, 3, 61, 506.9},
    {131072, 256, 128, 1296, 512, 0.74, 1168, 128, 5.0625, 3, 75, 126.6},
    {8192, 2048, 128, 5256, 4, 0.32, 5128, 1024, 2.566, 2, 99, 1016},
    {4096, 4096, 128, 4096, 1, 0.2, 3968, 2048, 1, 1, 128, 2048},
    {1000, 256, 512, 1000, 3.906, 0.3179, 488, 128, 3.906, 2, 65, 126.9},
    {32800, 256, 32, 1617, 128.1, 0.6201, 1585, 128, 6.316, 3, 60, 126.3},
};

TEST(SplitBudget, GivesTheCheckValuesOfTheSpecification) {
  for (const Row& row : kTable) {
    SCOPED_TRACE(testing::Message() << "S = " << row.tokens << ", t = " << row.budget);
    const TurnShape shape = {.prompt_tokens = row.tokens - row.new_tokens,
                             .max_new_tokens = row.new_tokens,
                             .head_dim = 128};
    const RocketKvSplit split = SplitBudget({.budget = row.budget}, shape);
    EXPECT_NEAR(split.c, row.c, 0.05);
    EXPECT_NEAR(split.alpha, row.alpha, 5e-5);
    EXPECT_EQ(split.capacity, row.capacity);
    EXPECT_EQ(split.prompt_budget, row.prompt_budget);
    EXPECT_EQ(split.k, row.k);
    EXPECT_NEAR(split.c2, row.c2, 1e-3);
    EXPECT_EQ(split.chunk_rows, row.chunk_rows);
    EXPECT_EQ(split.channels, row.channels);
    EXPECT_NEAR(HsaTraffic(split, split.capacity, 128) - split.k, row.estimate,
                row.estimate > 1000 ? 0.5 : 0.06);
  }
}

TEST(SplitBudgetHsa, GivesTheChunksAndChannelsOfTheSpecification) {
  struct Expected {
    std::int32_t tokens, budget, chunk_rows, channels;
  };
  // Section 1: for d = 128, c = 32 gives (6, 24), c = 128 gives (12, 12); c = 1.5 rounds chunks
  // down.
  for (const Expected& e : {Expected{16384, 512, 6, 24},
                            {65536, 512, 12, 12},
                            {1536, 1024, 1, 85},
                            {512, 512, 1, 128},
                            {100, 512, 1, 128},
                            {2048, 512, 2, 64}}) {
    const TurnShape shape = {.prompt_tokens = e.tokens - 10, .max_new_tokens = 10, .head_dim = 128};
    const RocketKvSplit split = SplitBudgetHsa({.budget = e.budget}, shape);
    EXPECT_EQ(split.chunk_rows, e.chunk_rows) << e.tokens;
    EXPECT_EQ(split.channels, e.channels) << e.tokens;
    EXPECT_EQ(split.k, e.budget / 2);
    EXPECT_EQ(split.capacity, e.tokens);
    EXPECT_EQ(split.prompt_budget, e.tokens - 10);
  }
}

TEST(SplitBudget, TheWindowFitsWhenTheAnswerIsShort) {
  // cap = 2 m = 16 would leave 8 rows of the prompt for a window of 32.
  const TurnShape shape = {.prompt_tokens = 100000, .max_new_tokens = 8, .head_dim = 64};
  const RocketKvSplit split = SplitBudget({.budget = 16, .split = 1.0}, shape);
  EXPECT_EQ(split.prompt_budget, 33);
  EXPECT_EQ(split.capacity, 41);
}

TEST(SplitBudget, AGivenOptionReplacesTheDerivedOneAndTheRestFollows) {
  const TurnShape shape = {.prompt_tokens = 16256, .max_new_tokens = 128, .head_dim = 128};
  RocketKvOptions options{.budget = 512};
  options.prompt_budget = 1920;  // capacity 2048, c2 = 4
  RocketKvSplit split = SplitBudget(options, shape);
  EXPECT_EQ(split.prompt_budget, 1920);
  EXPECT_EQ(split.capacity, 2048);
  EXPECT_DOUBLE_EQ(split.c2, 4.0);
  EXPECT_EQ(split.chunk_rows, 2);
  EXPECT_EQ(split.channels, 64);
  options.chunk_rows = 4;
  EXPECT_EQ(SplitBudget(options, shape).channels, 128);
  options.chunk_rows = 100;  // 3200 channels do not exist
  EXPECT_EQ(SplitBudget(options, shape).channels, 128);
  options.top_r = 7;
  options.top_k = 300;
  split = SplitBudget(options, shape);
  EXPECT_EQ(split.channels, 7);
  EXPECT_EQ(split.k, 300);
  EXPECT_EQ(split.chunk_rows, 100);
  options.split = 1.0;
  options.prompt_budget = 0;
  EXPECT_EQ(SplitBudget(options, shape).capacity, 512);
  options.split = 0.0;
  EXPECT_EQ(SplitBudget(options, shape).capacity, 16384);
}

TEST(SplitBudget, HoldsItsBoundsOnAnyShape) {
  Rng rng(31);
  for (int i = 0; i < 20000; ++i) {
    const std::int32_t most = std::int32_t{1} << test::IntBetween(rng, 0, 20);
    const TurnShape shape = {.prompt_tokens = test::IntBetween(rng, 0, most),
                             .max_new_tokens = test::IntBetween(rng, 0, 2048),
                             .head_dim = 8 * test::IntBetween(rng, 1, 32)};
    const RocketKvOptions options{.budget = test::IntBetween(rng, 16, 1 << 14)};
    const RocketKvSplit split = SplitBudget(options, shape);
    ASSERT_GE(split.alpha, 0.2);
    ASSERT_LE(split.alpha, 0.8);
    ASSERT_LE(split.prompt_budget, shape.prompt_tokens);
    ASSERT_GE(split.prompt_budget, std::min(shape.prompt_tokens, 33));
    ASSERT_EQ(split.capacity, split.prompt_budget + shape.max_new_tokens);
    ASSERT_GE(split.chunk_rows, 1);
    ASSERT_GE(split.channels, 1);
    ASSERT_LE(split.channels, shape.head_dim);
    // The estimate costs at most its half of the budget wherever a channel is not the whole cost.
    if (split.channels > 1) {
      ASSERT_LE(HsaTraffic(split, split.capacity, shape.head_dim) - split.k,
                options.budget / 2.0 + 1e-6);
    }
    if (options.budget >= 2 * (shape.prompt_tokens + shape.max_new_tokens)) {
      ASSERT_EQ(split.prompt_budget, shape.prompt_tokens) << "nothing to evict";
      ASSERT_GE(split.k, split.capacity);
    }
  }
}

TEST(HsaTraffic, CountsOneSideOfEachChannelAndTheRowsRead) {
  const RocketKvSplit split{.k = 100, .chunk_rows = 4, .channels = 32};
  EXPECT_DOUBLE_EQ(HsaTraffic(split, 4000, 64), 1000.0 * 32 / 128 + 100);
  EXPECT_DOUBLE_EQ(HsaTraffic(split, 0, 64), 100.0);
}

}  // namespace
}  // namespace rkv::policy
