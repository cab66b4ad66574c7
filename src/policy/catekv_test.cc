// CateKV: chunks that a consistent head keeps, and which heads are consistent.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "policy/hit_variation.h"
#include "policy/methods.h"
#include "support/evictor_checks.h"
#include "support/head_table_file.h"
#include "support/policy_layer.h"

namespace rkv::policy {
namespace {

using test::RowsList;
using test::Spelled;
using ::testing::HasSubstr;

TurnShape Shape(std::int32_t rows, std::int32_t group, std::int32_t kv_heads = 2,
                std::int32_t layers = 1) {
  return {.prompt_tokens = rows,
          .max_new_tokens = 8,
          .head_dim = group == 8 ? 128 : 32,
          .group = group,
          .kv_heads = kv_heads,
          .layers = layers,
          .model = "m"};
}

std::map<std::string, double> Explained(const std::string& spec, const TurnShape& shape) {
  const auto pairs = ExplainPolicy(*test::MakePolicy(spec), shape);
  return {pairs.begin(), pairs.end()};
}

// The first and the last rows and the best chunks of `scores` (without the variation behind them).
RowsList Plain(const std::vector<float>& scores, std::int32_t rows, std::int32_t init,
               std::int32_t recent, std::int32_t chunk, std::int32_t capacity) {
  std::vector<std::pair<float, std::int32_t>> chunks;
  for (std::size_t b = 0; b + 1 < scores.size(); ++b) {
    chunks.emplace_back(-scores[b], static_cast<std::int32_t>(b));
  }
  std::ranges::sort(chunks);
  RowsList kept;
  for (std::int32_t row = 0; row < init; ++row) {
    kept.push_back(row);
  }
  const auto count = static_cast<std::size_t>((capacity - init - recent) / chunk);
  for (std::size_t i = 0; i < std::min(count, chunks.size()); ++i) {
    for (std::int32_t row = init + chunks[i].second * chunk;
         row < std::min(init + (chunks[i].second + 1) * chunk, rows - recent); ++row) {
      kept.push_back(row);
    }
  }
  for (std::int32_t row = rows - recent; row < rows; ++row) {
    kept.push_back(row);
  }
  std::ranges::sort(kept);
  return kept;
}

TEST(CateKv, TurnsTheBudgetIntoTwoClasses) {
  // B_c = max(64 + 256 + 8, t / 4), at most 2048; a = (t - B_c) / (n - B_c).
  auto numbers = Explained("catekv:budget=1024", Shape(10328, 2, 10, 10));
  EXPECT_EQ(numbers.at("consistent_rows"), 328);
  EXPECT_EQ(numbers.at("adaptive_heads"), 6);  // 696 / 10000 of 100
  EXPECT_EQ(numbers.at("rows_kept"), 928);
  numbers = Explained("catekv:budget=4096", Shape(10000, 2, 10, 10));
  EXPECT_EQ(numbers.at("consistent_rows"), 1024);
  numbers = Explained("catekv:budget=16384", Shape(100000, 2, 10, 10));
  EXPECT_EQ(numbers.at("consistent_rows"), 2048);
  numbers = Explained("catekv:budget=100", Shape(10000, 2, 10, 10));
  EXPECT_EQ(numbers.at("consistent_rows"), 100);
  EXPECT_EQ(numbers.at("adaptive_heads"), 0);
  numbers = Explained("catekv:budget=10000", Shape(10000, 2, 10, 10));
  EXPECT_EQ(numbers.at("adaptive_heads"), 100);
}

TEST(CateKv, ConsistentHeadsKeepWhatPlainLoopsKeep) {
  for (const std::int32_t group : {1, 3, 8}) {
    for (const std::int32_t rows : {1, 79, 80, 81, 87, 88, 89, 300}) {
      test::PolicyLayer layer("catekv:budget=80,window_size=16,chunk_size=8",
                              {.shape = Shape(rows, group)});
      const auto keep = layer.Prompt(rows, 2.0f);
      for (std::size_t h = 0; h < 2; ++h) {
        EXPECT_EQ(keep[h].all, rows <= 80) << rows;
        test::ExpectValid(keep[h], rows, 1, std::to_string(rows));
        if (!keep[h].all) {  // (80 - 8) / 320 of 64 and 256
          EXPECT_EQ(keep[h].list, Plain(layer.scores(h), rows, 14, 57, 8, 80)) << rows;
          EXPECT_LE(keep[h].list.size(), 80u);
        }
      }
      EXPECT_TRUE(layer.Step()[0].all);
    }
  }
}

TEST(CateKv, ScoresChunksByEachQuerysBestRow) {
  test::PolicyLayer layer("catekv:budget=80,window_size=4,chunk_size=8", {.shape = Shape(200, 2)});
  layer.Prompt(200, 2.0f);
  // 129 rows between the first 14 and the last 57: 17 chunks, the last of one row.
  ASSERT_EQ(layer.scores(0).size(), 18u);
  double sum = 0;
  for (std::size_t b = 0; b < 17; ++b) {
    EXPECT_GT(layer.scores(0)[b], 0.0f);
    sum += layer.scores(0)[b];
  }
  EXPECT_LE(sum, 4.0);  // maxima of four softmaxes
  EXPECT_LE(layer.scores(0)[17], 0.0f);
}

TEST(CateKv, TheLeastVaryingHeadsOfAllLayersKeepEverything) {
  const auto policy = test::MakePolicy("catekv:budget=400,fraction=0.5");
  const TurnShape shape = policy->Plan(Shape(1000, 2, 2, 3));
  EXPECT_TRUE(policy->needs(shape).all_layers);
  // Minus variations of six heads; the first layer has none of the best three.
  const std::vector<std::vector<float>> ends = {{-3, -4}, {-1, -5}, {-0.5f, -2}};
  std::vector<std::vector<std::vector<float>>> all;
  for (const auto& layer : ends) {
    all.emplace_back();
    for (const float end : layer) {
      std::vector<float> scores(85, 1.0f);  // 1000 - 64 - 256 rows in chunks of 8
      scores.push_back(end);
      all.back().push_back(scores);
    }
  }
  std::vector<bool> kept;
  for (std::int32_t l = 0; l < 3; ++l) {
    std::vector<HeadPrefill> heads(2);
    for (std::size_t h = 0; h < 2; ++h) {
      heads[h].kv_head = static_cast<std::int32_t>(h);
      heads[h].view.rows = 1000;
      heads[h].scores = all[static_cast<std::size_t>(l)][h];
    }
    LayerPrefill in;
    in.shape = shape;
    in.layer = l;
    in.heads = heads;
    in.all_scores = all;
    std::vector<Rows> keep(2);
    ASSERT_TRUE(policy->Evict(in, keep).ok());
    for (const Rows& rows : keep) {
      kept.push_back(rows.all);
    }
  }
  EXPECT_EQ(kept, (std::vector<bool>{false, false, true, false, true, true}));
}

TEST(CateKv, ATableDecidesBeforeThePrompt) {
  const test::HeadTableFile file(
      {.method = "catekv", .model = "m", .layers = 1, .kv_heads = 2, .scores = {-0.5f, -2.0f}});
  const std::string spec = "catekv:budget=80,fraction=0.5,table=" + file.path();
  test::PolicyLayer layer(spec, {.shape = Shape(300, 2)});
  EXPECT_FALSE(layer.needs().all_layers);
  const auto keep = layer.Prompt(300, 2.0f);
  EXPECT_TRUE(keep[0].all);
  EXPECT_FALSE(keep[1].all);
  const auto& policy = layer.policy();
  EXPECT_TRUE(policy.CheckShape(layer.shape()).ok());
  EXPECT_FALSE(policy.CheckShape(policy.Plan(Shape(300, 2, 3))).ok());
  EXPECT_FALSE(MakePolicy("catekv:table=/nonexistent"));
}

TEST(CateKv, AllHeadsAdaptiveKeepEverything) {
  test::PolicyLayer layer("catekv:budget=80,fraction=1", {.shape = Shape(300, 2)});
  for (const Rows& rows : layer.Prompt(300)) {
    EXPECT_TRUE(rows.all);
  }
}

TEST(CateKv, ALaterTurnKeepsTheBudgetAgain) {
  test::PolicyLayer layer("catekv:budget=80,window_size=16", {.shape = Shape(300, 2)});
  layer.Prompt(300, 2.0f);
  layer.Step();
  const std::int32_t held = layer.head(0).rows() + 30;
  const auto keep = layer.Prompt(30, 2.0f);
  test::ExpectValid(keep[0], held, 1, "second turn");
  EXPECT_LE(layer.head(0).rows(), 80);
}

TEST(CateKv, RefusesWrongOptions) {
  for (const char* spec : {"catekv:chunk_size=0", "catekv:beta=0.4", "catekv:reach=1.1",
                           "catekv:capacity=3", "catekv:fraction=2", "catekv:window_size=0"}) {
    const auto made = MakePolicy(spec);
    ASSERT_FALSE(made) << spec;
    EXPECT_THAT(made.error().message(), HasSubstr("allowed: "));
  }
}

}  // namespace
}  // namespace rkv::policy
