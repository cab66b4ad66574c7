#include "policy/budget_split.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "policy/hsa.h"
#include "support/random.h"

namespace rkv::policy {
namespace {

// Both stages of RocketKV for a shape: the split, then what HSA makes of the capacity it leaves.
struct Both {
  BudgetSplit first;
  HsaSplit second;
};

Both Split(SplitOptions options, const TurnShape& shape, const HsaOptions& hsa = {}) {
  options.least_rows = 33;
  Both both{.first = SplitBudget(options, shape), .second = {}};
  TurnShape planned = shape;
  planned.budget = options.budget;
  planned.capacity = both.first.capacity;
  both.second = SplitHsa(hsa, planned);
  return both;
}

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
    const auto [first, second] = Split({.budget = row.budget}, shape);
    EXPECT_NEAR(first.c, row.c, 0.05);
    EXPECT_NEAR(first.alpha, row.alpha, 5e-5);
    EXPECT_EQ(first.capacity, row.capacity);
    EXPECT_EQ(first.prompt_budget, row.prompt_budget);
    EXPECT_EQ(second.k, row.k);
    EXPECT_NEAR(second.c2, row.c2, 1e-3);
    EXPECT_EQ(second.chunk_rows, row.chunk_rows);
    EXPECT_EQ(second.channels, row.channels);
    EXPECT_NEAR(HsaEstimate(second, first.capacity, 128), row.estimate,
                row.estimate > 1000 ? 0.5 : 0.06);
  }
}

TEST(SplitHsa, AloneGivesTheChunksAndChannelsOfTheSpecification) {
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
    const TurnShape shape = {.prompt_tokens = e.tokens - 10,
                             .max_new_tokens = 10,
                             .head_dim = 128,
                             .budget = e.budget,
                             .capacity = e.tokens};
    const HsaSplit split = SplitHsa({}, shape);
    EXPECT_EQ(split.chunk_rows, e.chunk_rows) << e.tokens;
    EXPECT_EQ(split.channels, e.channels) << e.tokens;
    EXPECT_EQ(split.k, e.budget / 2);
  }
}

TEST(SplitBudget, TheWindowFitsWhenTheAnswerIsShort) {
  // cap = 2 m = 16 would leave 8 rows of the prompt for a window of 32.
  const TurnShape shape = {.prompt_tokens = 100000, .max_new_tokens = 8, .head_dim = 64};
  const BudgetSplit split = Split({.budget = 16, .alpha = 1.0}, shape).first;
  EXPECT_EQ(split.prompt_budget, 33);
  EXPECT_EQ(split.capacity, 41);
}

TEST(SplitBudget, AGivenOptionReplacesTheDerivedOneAndTheRestFollows) {
  const TurnShape shape = {.prompt_tokens = 16256, .max_new_tokens = 128, .head_dim = 128};
  SplitOptions options{.budget = 512};
  options.prompt_budget = 1920;  // capacity 2048, c2 = 4
  Both split = Split(options, shape);
  EXPECT_EQ(split.first.prompt_budget, 1920);
  EXPECT_EQ(split.first.capacity, 2048);
  EXPECT_DOUBLE_EQ(split.second.c2, 4.0);
  EXPECT_EQ(split.second.chunk_rows, 2);
  EXPECT_EQ(split.second.channels, 64);
  EXPECT_EQ(Split(options, shape, {.chunk_rows = 4}).second.channels, 128);
  // 3200 channels do not exist.
  EXPECT_EQ(Split(options, shape, {.chunk_rows = 100}).second.channels, 128);
  split = Split(options, shape, {.top_k = 300, .top_r = 7, .chunk_rows = 100});
  EXPECT_EQ(split.second.channels, 7);
  EXPECT_EQ(split.second.k, 300);
  EXPECT_EQ(split.second.chunk_rows, 100);
  options.alpha = 1.0;
  options.prompt_budget = 0;
  EXPECT_EQ(Split(options, shape).first.capacity, 512);
  options.alpha = 0.0;
  EXPECT_EQ(Split(options, shape).first.capacity, 16384);
}

TEST(SplitBudget, HoldsItsBoundsOnAnyShape) {
  Rng rng(31);
  for (int i = 0; i < 20000; ++i) {
    const std::int32_t most = std::int32_t{1} << test::IntBetween(rng, 0, 20);
    const TurnShape shape = {.prompt_tokens = test::IntBetween(rng, 0, most),
                             .max_new_tokens = test::IntBetween(rng, 0, 2048),
                             .head_dim = 8 * test::IntBetween(rng, 1, 32)};
    const SplitOptions options{.budget = test::IntBetween(rng, 16, 1 << 14)};
    const auto [first, split] = Split(options, shape);
    ASSERT_GE(first.alpha, 0.2);
    ASSERT_LE(first.alpha, 0.8);
    ASSERT_LE(first.prompt_budget, shape.prompt_tokens);
    ASSERT_GE(first.prompt_budget, std::min(shape.prompt_tokens, 33));
    ASSERT_EQ(first.capacity, first.prompt_budget + shape.max_new_tokens);
    ASSERT_GE(split.chunk_rows, 1);
    ASSERT_GE(split.channels, 1);
    ASSERT_LE(split.channels, shape.head_dim);
    // The estimate costs at most its half of the budget wherever a channel is not the whole cost.
    if (split.channels > 1) {
      ASSERT_LE(HsaEstimate(split, first.capacity, shape.head_dim), options.budget / 2.0 + 1e-6);
    }
    if (options.budget >= 2 * (shape.prompt_tokens + shape.max_new_tokens)) {
      ASSERT_EQ(first.prompt_budget, shape.prompt_tokens) << "nothing to evict";
      ASSERT_GE(split.k, first.capacity);
    }
  }
}

TEST(HsaEstimate, CountsOneSideOfEachChannel) {
  const HsaSplit split{.k = 100, .chunk_rows = 4, .channels = 32};
  EXPECT_DOUBLE_EQ(HsaEstimate(split, 4000, 64), 1000.0 * 32 / 128);
  EXPECT_DOUBLE_EQ(HsaEstimate(split, 0, 64), 0.0);
}

}  // namespace
}  // namespace rkv::policy
