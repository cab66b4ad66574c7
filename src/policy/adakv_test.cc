// Ada-KV: heads that compete for a layer's rows, against plain loops.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "policy/methods.h"
#include "policy/scored_rows.h"
#include "policy/stages.h"
#include "support/evictor_checks.h"
#include "support/policy_layer.h"

namespace rkv::policy {
namespace {

using test::RowsList;
using test::Spelled;

std::string Spec(int budget, int window, int kernel, const std::string& floor) {
  return "adakv:budget=" + std::to_string(budget) + ",window_size=" + std::to_string(window) +
         ",kernel_size=" + std::to_string(kernel) + ",floor=" + floor;
}

// What Evict makes of given scores; every head has `scores[h].size()` rows and a window of two.
std::vector<Rows> EvictScores(const std::string& spec,
                              const std::vector<std::vector<float>>& scores, std::int32_t budget) {
  std::vector<HeadPrefill> heads(scores.size());
  for (std::size_t h = 0; h < heads.size(); ++h) {
    heads[h].kv_head = static_cast<std::int32_t>(h);
    heads[h].view.rows = static_cast<std::int32_t>(scores[h].size()) + 2;
    heads[h].window.tokens = 2;
    heads[h].scores = scores[h];
  }
  LayerPrefill in;
  in.shape.kv_heads = static_cast<std::int32_t>(heads.size());
  in.shape.prompt_budget = budget;
  in.heads = heads;
  std::vector<Rows> keep(heads.size());
  EXPECT_TRUE(test::MakePolicy(spec)->Evict(in, keep).ok());
  return keep;
}

// The best (head, row) pairs one after the other: first each head's floor, then whoever is best.
std::vector<RowsList> Plain(const test::PolicyLayer& layer, std::int32_t heads, std::int32_t rows,
                            std::int32_t window, std::int32_t kernel, double floor,
                            std::int32_t budget) {
  const std::int32_t w = std::min(window, rows);
  std::vector<RowsList> kept(static_cast<std::size_t>(heads));
  std::vector<ScoredRow> all;
  std::int64_t left = std::int64_t{heads} * budget;
  for (std::int32_t h = 0; h < heads; ++h) {
    const std::vector<float>& mass = layer.scores(static_cast<std::size_t>(h));
    std::vector<ScoredRow> own;
    for (std::int32_t j = 0; j < rows - w; ++j) {
      float best = 0;
      for (std::int32_t i = std::max(0, j - kernel / 2);
           i <= std::min(rows - w - 1, j + kernel / 2); ++i) {
        best = std::max(best, mass[static_cast<std::size_t>(i)]);
      }
      own.push_back({best, mass[static_cast<std::size_t>(j)], j, h});
    }
    std::ranges::sort(own, Before);
    const std::size_t sure = std::min(own.size(), static_cast<std::size_t>(floor * (budget - w)));
    RowsList& list = kept[static_cast<std::size_t>(h)];
    for (std::size_t i = 0; i < own.size(); ++i) {
      i < sure ? list.push_back(own[i].row) : all.push_back(own[i]);
    }
    for (std::int32_t j = rows - w; j < rows; ++j) {
      list.push_back(j);
    }
    left -= static_cast<std::int64_t>(list.size());
  }
  std::ranges::sort(all, Before);
  for (std::size_t i = 0; i < all.size() && static_cast<std::int64_t>(i) < left; ++i) {
    kept[static_cast<std::size_t>(all[i].head)].push_back(all[i].row);
  }
  for (RowsList& list : kept) {
    std::ranges::sort(list);
  }
  return kept;
}

TEST(AdaKv, SharesTheRowsOfTheSpecificationsExample) {
  const std::vector<std::vector<float>> scores = {{.5f, .3f, .1f, .05f}, {.04f, .03f, .02f, .01f}};
  const auto keep = EvictScores(Spec(16, 2, 1, "0.5"), scores, 4);
  EXPECT_EQ(keep[0].list, (RowsList{0, 1, 2, 4, 5}));
  EXPECT_EQ(keep[1].list, (RowsList{0, 4, 5}));
  const auto open = EvictScores(Spec(16, 2, 1, "0"), scores, 4);
  EXPECT_TRUE(open[0].all);  // takes its four rows, and no more rows were to give
  EXPECT_EQ(open[1].list, (RowsList{4, 5}));
  const auto even = EvictScores(Spec(16, 2, 1, "1"), scores, 4);
  EXPECT_EQ(even[0].list, (RowsList{0, 1, 4, 5}));
  EXPECT_EQ(even[1].list, (RowsList{0, 1, 4, 5}));
}

TEST(AdaKv, EqualHeadsGetEqualShares) {
  const std::vector<float> row = {.1f, .5f, .2f, .2f, .3f, .3f, .05f};
  for (std::int32_t budget = 2; budget < 9; ++budget) {
    const auto keep = EvictScores(Spec(16, 2, 3, "0.2"), {row, row, row}, budget);
    for (const Rows& head : keep) {
      EXPECT_EQ(head.list, SnapKvRows(row, 2, 3, budget)) << budget;
    }
  }
}

TEST(AdaKv, KeepsWhatPlainLoopsKeep) {
  for (const std::int32_t group : {1, 2, 3, 8}) {
    for (const std::int32_t rows : {1, 7, 8, 9, 39, 40, 41, 63, 64, 150}) {
      for (const auto& [floor, kernel] :
           {std::pair(0.0, 1), std::pair(0.2, 7), std::pair(1.0, 3)}) {
        const TurnShape shape = {.prompt_tokens = rows,
                                 .max_new_tokens = 4,
                                 .head_dim = group == 8 ? 256 : 32,
                                 .group = group,
                                 .kv_heads = 3};
        test::PolicyLayer layer(Spec(40, 8, kernel, std::to_string(floor)),
                                {.shape = shape, .seed = static_cast<std::uint64_t>(rows)});
        const auto keep = layer.Prompt(rows, 3.0f);
        const auto plain = Plain(layer, 3, rows, 8, kernel, floor, 40);
        for (std::size_t h = 0; h < 3; ++h) {
          EXPECT_EQ(Spelled(keep[h], rows), plain[h]) << group << ' ' << rows << ' ' << floor;
          test::ExpectValid(keep[h], rows, 8, std::to_string(rows));
        }
        EXPECT_EQ(test::Total(keep, rows), 3 * std::min(rows, 40));
      }
    }
  }
}

TEST(AdaKv, KeepsNoLessMassThanAnEvenSplit) {
  const TurnShape shape = {
      .prompt_tokens = 300, .max_new_tokens = 4, .head_dim = 64, .group = 2, .kv_heads = 4};
  for (std::uint64_t seed = 1; seed < 6; ++seed) {
    test::PolicyLayer layer(Spec(60, 16, 1, "0"), {.shape = shape, .seed = seed});
    const auto keep = layer.Prompt(300, 4.0f);
    double ours = 0, even = 0;
    for (std::size_t h = 0; h < 4; ++h) {
      const std::vector<float>& mass = layer.scores(h);
      const auto add = [&](const RowsList& list, double& sum) {
        for (const std::int32_t row : list) {
          sum += row < 284 ? mass[static_cast<std::size_t>(row)] : 0.0f;
        }
      };
      add(Spelled(keep[h], 300), ours);
      add(SnapKvRows(mass, 16, 1, 60), even);
    }
    EXPECT_GT(ours, even);
  }
}

TEST(AdaKv, MoreBudgetKeepsWhatLessKept) {
  const TurnShape shape = {
      .prompt_tokens = 200, .max_new_tokens = 4, .head_dim = 64, .group = 2, .kv_heads = 2};
  std::vector<RowsList> before(2);
  for (int budget = 16; budget < 220; budget += 17) {
    test::PolicyLayer layer(Spec(budget, 8, 5, "0.3"), {.shape = shape});
    const auto keep = layer.Prompt(200, 3.0f);
    for (std::size_t h = 0; h < 2; ++h) {
      const RowsList now = Spelled(keep[h], 200);
      EXPECT_TRUE(std::ranges::includes(now, before[h])) << budget;
      before[h] = now;
    }
  }
  EXPECT_EQ(before[0].size() + before[1].size(), 400u);
}

TEST(AdaKv, ALaterTurnSharesTheSameTotal) {
  const TurnShape shape = {
      .prompt_tokens = 200, .max_new_tokens = 8, .head_dim = 64, .group = 2, .kv_heads = 3};
  test::PolicyLayer layer(Spec(50, 8, 7, "0.2"), {.shape = shape});
  EXPECT_EQ(test::Total(layer.Prompt(200, 4.0f), 200), 150);
  for (int i = 0; i < 5; ++i) {
    for (const Rows& read : layer.Step()) {
      EXPECT_TRUE(read.all);  // generated rows are never evicted
    }
  }
  std::vector<std::int32_t> held;
  for (std::size_t h = 0; h < 3; ++h) {
    held.push_back(layer.head(h).rows() + 3);  // heads differ
  }
  const auto keep = layer.Prompt(3, 4.0f);
  std::int32_t total = 0;
  for (std::size_t h = 0; h < 3; ++h) {
    test::ExpectValid(keep[h], held[h], 3, "second turn");
    total += layer.head(h).rows();
  }
  EXPECT_EQ(total, 150);
}

TEST(AdaKv, MemoryPlanAndExplainKnowTheMean) {
  const auto policy = test::MakePolicy(Spec(50, 8, 7, "0.2"));
  const TurnShape shape = policy->Plan(
      {.prompt_tokens = 200, .max_new_tokens = 8, .head_dim = 64, .group = 2, .kv_heads = 3});
  EXPECT_EQ(policy->RowsKept(shape, 200), 50);
  EXPECT_EQ(policy->RowsKept(shape, 20), 20);
}

TEST(AdaKv, RefusesWrongOptions) {
  for (const char* spec : {"adakv:floor=1.5", "adakv:floor=-0.1", "adakv:kernel_size=2",
                           "adakv:window_size=0", "adakv:heads=query"}) {
    const auto made = MakePolicy(spec);
    ASSERT_FALSE(made) << spec;
    EXPECT_THAT(made.error().message(),
                ::testing::AnyOf(::testing::HasSubstr("allowed: "),
                                 ::testing::HasSubstr("no option 'heads'")));
  }
}

}  // namespace
}  // namespace rkv::policy
