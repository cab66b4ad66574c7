#include "policy/hit_variation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "policy/head_probe.h"
#include "support/policy_layer.h"

namespace rkv::policy {
namespace {

TEST(CountVariation, HasTheNumbersOfTheSpecification) {
  EXPECT_NEAR(CountVariation(std::vector<std::int32_t>{4, 0, 0, 4}), 1.155, 5e-4);
  EXPECT_EQ(CountVariation(std::vector<std::int32_t>{2, 2, 2, 2}), 0);
  EXPECT_NEAR(CountVariation(std::vector<std::int32_t>{3, 2, 1, 2}), 0.408, 5e-4);
  EXPECT_EQ(CountVariation(std::vector<std::int32_t>{0, 0, 0}), 0);
  EXPECT_EQ(CountVariation(std::vector<std::int32_t>{5}), 0);
  EXPECT_EQ(CountVariation({}), 0);
}

TEST(HitVariation, CountsQueriesThatHitAChunk) {
  // Two queries over five rows in chunks of two; the bound is the mean of least and most.
  const std::vector<float> weights = {0.9f, 0.0f, 0.1f, 0.0f, 0.0f,   //
                                      0.0f, 0.8f, 0.0f, 0.0f, 0.8f};  // chunks 0 and 2
  const HitRule rule = {.chunk = 2, .beta = 1.0, .reach = 0.5};
  EXPECT_DOUBLE_EQ(HitVariation(weights, 5, rule),
                   CountVariation(std::vector<std::int32_t>{2, 0, 1}));
  EXPECT_EQ(HitVariation({}, 0, rule), 0);
}

// A layer whose heads a probe measured.
std::vector<float> Measured(const char* method, std::int32_t rows, float key_scale) {
  std::vector<float> scores(2);
  test::PolicyLayer layer(
      *MakeHeadProbe(method, scores),
      {.shape = {
           .prompt_tokens = rows, .max_new_tokens = 1, .head_dim = 32, .group = 2, .kv_heads = 2}});
  for (const Rows& head : layer.Prompt(rows, key_scale)) {
    EXPECT_TRUE(head.all);
  }
  EXPECT_EQ(layer.needs().window, 64);
  EXPECT_TRUE(layer.Step()[0].all);
  return scores;
}

TEST(HeadProbe, MeasuresTheShareOfFarAttention) {
  // Even attention: of 512 rows, all but 32 and 64 are far.
  for (const float score : Measured("duo", 512, 0.0f)) {
    EXPECT_NEAR(score, 416.0 / 480.0, 0.01);
  }
  for (const std::int32_t rows : {1, 2, 63, 64, 65}) {
    EXPECT_EQ(Measured("duo", rows, 1.0f)[0], 0) << rows;
    EXPECT_EQ(Measured("catekv", rows, 1.0f)[1], 0) << rows;
  }
}

TEST(HeadProbe, MeasuresWhetherQueriesAgree) {
  for (const float score : Measured("catekv", 512, 2.0f)) {
    EXPECT_LT(score, 0);
    EXPECT_GT(score, -3);
  }
}

TEST(RegionWeights, AreASoftmaxOverTheRegionAlone) {
  std::vector<float> scores(1);
  test::PolicyLayer layer(
      *MakeHeadProbe("duo", scores),
      {.shape = {.prompt_tokens = 100, .head_dim = 16, .group = 3, .kv_heads = 1}});
  layer.Prompt(100);
  Rng rng(2);
  const std::vector<float> q = test::NormalVector(rng, 4 * 3 * 16);
  HeadPrefill head;
  head.view = layer.head(0).view();
  head.window = {q.data(), 48, 4, 3, 0.25f};
  LayerPrefill in;
  in.backend = &attention::CpuBackend();
  const std::vector<float> weights = RegionWeights(in, head, 10, 50);
  ASSERT_EQ(weights.size(), 160u);
  std::vector<float> key(16);
  for (std::size_t i = 0; i < 4; ++i) {
    std::vector<double> expected(40, 0.0);
    for (std::size_t g = 0; g < 3; ++g) {
      std::vector<double> e(40);
      double sum = 0;
      for (std::size_t j = 0; j < 40; ++j) {
        kv::DecodeRow(kv::Codec::kF32, head.view.Key(static_cast<std::int32_t>(10 + j)), key);
        double dot = 0;
        for (std::size_t x = 0; x < 16; ++x) {
          dot += static_cast<double>(key[x]) * q[(i * 3 + g) * 16 + x];
        }
        e[j] = std::exp(0.25 * dot);
        sum += e[j];
      }
      for (std::size_t j = 0; j < 40; ++j) {
        expected[j] += e[j] / sum / 3;
      }
    }
    for (std::size_t j = 0; j < 40; ++j) {
      EXPECT_NEAR(weights[i * 40 + j], expected[j], 1e-5);
    }
  }
  EXPECT_TRUE(RegionWeights(in, head, 10, 10).empty());
}

TEST(HeadProbe, KnowsItsMethods) {
  std::vector<float> scores(1);
  const auto made = MakeHeadProbe("douo", scores);
  ASSERT_FALSE(made);
  EXPECT_THAT(made.error().message(),
              ::testing::HasSubstr("did you mean 'duo'? known: duo, catekv"));
}

}  // namespace
}  // namespace rkv::policy
