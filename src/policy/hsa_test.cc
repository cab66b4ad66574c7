// Selection by chunk scores: HSA's equations against plain loops.
#include "policy/hsa.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "policy/composed_state.h"
#include "policy/stages.h"
#include "support/policy_layer.h"

namespace rkv::policy {
namespace {

using List = std::vector<std::int32_t>;

TurnShape Shape(std::int32_t tokens, std::int32_t group) {
  return {.prompt_tokens = tokens, .max_new_tokens = 8, .head_dim = 32, .group = group};
}

TEST(Hsa, ReadsTheBestRowsByChunkScore) {
  for (const std::int32_t group : {1, 2, 3, 8}) {
    test::PolicyLayer layer("hsa:budget=80,page_size=3,topr=8", {.shape = Shape(300, group)});
    layer.Prompt(300);
    const Rows read = layer.Step()[0];
    ASSERT_FALSE(read.all);
    const auto& state = static_cast<const ComposedState&>(*layer.state(0));
    const kv::IndexView index = static_cast<const ChunkState&>(*state.selector).view();
    std::vector<float> u(101);
    Scratch scratch;
    attention::RefBackend().chunk_scores({layer.query(0).data(), group}, index, 8, u, nullptr,
                                         scratch);
    List expected;
    ExpandChunks(attention::RefBackend(), u, 3, 301, 40, expected, scratch);
    EXPECT_EQ(read.list, expected);
    EXPECT_EQ(read.estimate_bytes, 101.0 * 8 * 4);
  }
}

TEST(Hsa, WholeChannelsOfSingleRowsFindTheExactBest) {
  for (const std::int32_t group : {1, 2, 4, 7}) {
    test::PolicyLayer layer("hsa:budget=40,page_size=1,topr=32,bypass=1",
                            {.shape = Shape(200, group)});
    layer.Prompt(200);
    const Rows read = layer.Step()[0];
    ASSERT_FALSE(read.all);
    // Group-level Exact-TopK: softmax of every head, summed over the group, in double.
    const std::vector<double> logits = layer.Logits(0);
    std::vector<double> sum(201, 0.0);
    for (std::size_t g = 0; g < static_cast<std::size_t>(group); ++g) {
      double norm = 0;
      for (std::size_t row = 0; row < sum.size(); ++row) {
        norm += std::exp(logits[g * sum.size() + row]);
      }
      for (std::size_t row = 0; row < sum.size(); ++row) {
        sum[row] += std::exp(logits[g * sum.size() + row]) / norm;
      }
    }
    List order(sum.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
      return sum[static_cast<std::size_t>(a)] > sum[static_cast<std::size_t>(b)];
    });
    order.resize(20);
    std::sort(order.begin(), order.end());
    EXPECT_EQ(read.list, order);
  }
}

TEST(Hsa, ReadsAllWhileThatCostsNoMore) {
  // Of n rows the estimate costs (n / 2) 16 / 64 and k = 100: 1.6 times that is 266.4 of 266 rows.
  for (const auto& [rows, all] : {std::pair(265, true), std::pair(266, false)}) {
    test::PolicyLayer layer("hsa:budget=200,page_size=2,topr=32", {.shape = Shape(4000, 1)});
    layer.Prompt(rows);
    EXPECT_EQ(layer.Step()[0].all, all) << rows + 1;
  }
}

TEST(Hsa, AnIndexOfAViewIsThatOfTheSameRowsAlone) {
  test::PolicyLayer view("rocketkv-mt:budget=32,window_size=8", {.shape = Shape(500, 2)});
  test::PolicyLayer copy("rocketkv:budget=32,window_size=8", {.shape = Shape(500, 2)});
  view.Prompt(500);
  copy.Prompt(500);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(view.Step()[0].list, copy.Step()[0].list);
  }
}

}  // namespace
}  // namespace rkv::policy
