// ChunkKV: whole chunks by mean score, shared by heads and layers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "policy/methods.h"
#include "policy/stages.h"
#include "support/evictor_checks.h"
#include "support/policy_layer.h"

namespace rkv::policy {
namespace {

using test::RowsList;
using test::Spelled;

TurnShape Shape(std::int32_t rows, std::int32_t group, std::int32_t kv_heads) {
  return {.prompt_tokens = rows,
          .max_new_tokens = 4,
          .head_dim = group == 8 ? 128 : 32,
          .group = group,
          .kv_heads = kv_heads,
          .layers = 4};
}

std::string Spec(int budget, int chunk, const std::string& more = "") {
  return "chunkkv:budget=" + std::to_string(budget) +
         ",window_size=8,chunk_size=" + std::to_string(chunk) + more;
}

// Takes chunk after chunk, the best mean first, while it fits.
RowsList Plain(const std::vector<float>& mass, std::int32_t rows, std::int32_t chunk,
               std::int32_t budget) {
  const std::int32_t window = std::min(rows, 8);
  const std::int32_t prefix = rows - window;
  std::vector<std::pair<double, std::int32_t>> chunks;  // minus the mean, chunk
  for (std::int32_t begin = 0; begin < prefix; begin += chunk) {
    const std::int32_t end = std::min(prefix, begin + chunk);
    const double sum = std::accumulate(mass.begin() + begin, mass.begin() + end, 0.0);
    chunks.emplace_back(-static_cast<double>(static_cast<float>(sum / (end - begin))), begin);
  }
  std::ranges::sort(chunks);
  RowsList kept;
  std::int32_t left = budget - window;
  for (const auto& [score, begin] : chunks) {
    const std::int32_t end = std::min(prefix, begin + chunk);
    if (end - begin <= left) {
      left -= end - begin;
      for (std::int32_t row = begin; row < end; ++row) {
        kept.push_back(row);
      }
    }
  }
  for (std::int32_t row = prefix; row < rows; ++row) {
    kept.push_back(row);
  }
  std::ranges::sort(kept);
  return kept;
}

TEST(ChunkKv, KeepsWhatPlainLoopsKeep) {
  for (const bool shared : {true, false}) {
    for (const std::int32_t group : {1, 8}) {
      for (const std::int32_t chunk : {1, 3, 10}) {
        for (const std::int32_t rows : {1, 8, 9, 40, 41, 48, 118, 119}) {
          test::PolicyLayer layer(Spec(40, chunk, shared ? "" : ",heads=group"),
                                  {.shape = Shape(rows, group, 3)});
          const auto keep = layer.Prompt(rows, 3.0f);
          std::vector<float> sum(layer.scores(0).size());
          for (std::size_t h = 0; h < 3; ++h) {
            for (std::size_t i = 0; i < sum.size(); ++i) {
              sum[i] += layer.scores(h)[i];
            }
          }
          for (std::size_t h = 0; h < 3; ++h) {
            const std::string what = std::to_string(chunk) + " of " + std::to_string(rows);
            EXPECT_EQ(keep[h].all, rows <= 40) << what;
            test::ExpectValid(keep[h], rows, 8, what);
            if (!keep[h].all) {
              EXPECT_EQ(keep[h].list, Plain(shared ? sum : layer.scores(h), rows, chunk, 40))
                  << what;
              EXPECT_LE(keep[h].list.size(), 40u) << what;
              EXPECT_GT(keep[h].list.size(), 40u - static_cast<std::size_t>(chunk)) << what;
            }
          }
        }
      }
    }
  }
}

TEST(ChunkKv, KeepsWholeChunksOnly) {
  test::PolicyLayer layer(Spec(60, 7), {.shape = Shape(200, 2, 2)});
  const RowsList kept = layer.Prompt(200, 3.0f)[0].list;
  for (const std::int32_t row : kept) {
    if (row >= 192) {
      continue;
    }
    const std::int32_t begin = row / 7 * 7;
    for (std::int32_t other = begin; other < std::min(begin + 7, 192); ++other) {
      EXPECT_TRUE(std::ranges::binary_search(kept, other)) << row << ' ' << other;
    }
  }
}

TEST(ChunkKv, ChunksOfOneRowAreSnapKvWithoutPooling) {
  for (const std::int32_t group : {1, 4}) {
    test::PolicyLayer layer(Spec(50, 1, ",heads=group"), {.shape = Shape(300, group, 2)});
    const auto keep = layer.Prompt(300, 2.0f);
    for (std::size_t h = 0; h < 2; ++h) {
      EXPECT_EQ(keep[h].list, SnapKvRows(layer.scores(h), 8, 1, 50));
    }
  }
}

// Evicts `layers` layers of random scores under these budgets, each told of those before it.
std::vector<std::vector<Rows>> Layers(const std::string& spec, std::int32_t rows,
                                      const std::vector<std::int32_t>& budgets,
                                      std::vector<std::vector<float>>* scores) {
  const auto policy = test::MakePolicy(spec);
  Rng rng(3);
  std::vector<std::vector<Rows>> earlier;
  for (std::size_t l = 0; l < budgets.size(); ++l) {
    scores->push_back(test::NormalVector(rng, static_cast<std::size_t>(rows - 8)));
    HeadPrefill head;
    head.view.rows = rows;
    head.window.tokens = 8;
    head.scores = scores->back();
    LayerPrefill in;
    in.shape.prompt_budget = budgets[l];
    in.layer = static_cast<std::int32_t>(l);
    in.heads = {&head, 1};
    in.earlier = earlier;
    std::vector<Rows> keep(1);
    EXPECT_TRUE(policy->Evict(in, keep).ok());
    earlier.push_back(std::move(keep));
  }
  return earlier;
}

TEST(ChunkKv, LayersCopyTheFirstOfTheirRun) {
  for (const std::int32_t reuse : {1, 2, 3}) {
    std::vector<std::vector<float>> scores;
    const auto keep =
        Layers(Spec(40, 5, ",reuse=" + std::to_string(reuse)), 120, {40, 40, 40, 40, 40}, &scores);
    for (std::size_t l = 0; l < 5; ++l) {
      const std::size_t first = l - l % static_cast<std::size_t>(reuse);
      EXPECT_EQ(keep[l][0].list, Plain(scores[first], 120, 5, 40)) << reuse << ' ' << l;
    }
  }
}

TEST(ChunkKv, ALayerWithAnotherBudgetChoosesItself) {
  std::vector<std::vector<float>> scores;
  const auto keep = Layers(Spec(40, 5), 120, {60, 40, 40, 60}, &scores);
  EXPECT_EQ(keep[1][0].list, Plain(scores[1], 120, 5, 40));
  EXPECT_EQ(keep[3][0].list, Plain(scores[3], 120, 5, 60));
}

TEST(ChunkKv, ALaterTurnKeepsTheBudgetAgain) {
  test::PolicyLayer layer(Spec(50, 10), {.shape = Shape(200, 2, 2)});
  layer.Prompt(200, 3.0f);
  const std::int32_t first = layer.head(0).rows();
  EXPECT_LE(first, 50);
  EXPECT_GT(first, 40);
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(layer.Step()[0].all);
  }
  const auto keep = layer.Prompt(20, 3.0f);
  test::ExpectValid(keep[0], first + 25, 8, "second turn");
  EXPECT_EQ(keep[0].list, keep[1].list);
  EXPECT_LE(layer.head(0).rows(), 50);
  EXPECT_GT(layer.head(0).rows(), 40);
}

TEST(ChunkKv, RefusesWrongOptions) {
  for (const char* spec : {"chunkkv:chunk_size=0", "chunkkv:reuse=0", "chunkkv:heads=query",
                           "chunkkv:window_size=0", "chunkkv:chunk_size=5000"}) {
    const auto made = MakePolicy(spec);
    ASSERT_FALSE(made) << spec;
    EXPECT_THAT(made.error().message(), ::testing::HasSubstr("allowed: "));
  }
}

}  // namespace
}  // namespace rkv::policy
