// Budgets of layers: PyramidKV's line, SqueezeAttention's clusters, and the evictors inside.
#include "policy/layer_allocator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "policy/methods.h"
#include "policy/squeeze.h"
#include "policy/stages.h"
#include "support/evictor_checks.h"
#include "support/policy_layer.h"

namespace rkv::policy {
namespace {

using test::Spelled;
using Budgets = std::vector<std::int32_t>;

// A pyramid with its budgets in the open.
class OpenPyramid {
 public:
  explicit OpenPyramid(const std::string& spec) : policy_(test::MakePolicy(spec)) {}
  // Rows that each layer keeps of a prompt that is longer than any budget.
  Budgets Of(TurnShape shape) const {
    shape = policy_->Plan(shape);
    Budgets budgets;
    for (std::int32_t l = 0; l < shape.layers; ++l) {
      std::vector<float> scores(2500);
      HeadPrefill head;
      head.view.rows = 2532;
      head.window.tokens = 32;
      head.scores = scores;
      LayerPrefill in;
      in.shape = shape;
      in.layer = l;
      in.heads = {&head, 1};
      std::vector<Rows> keep(1);
      EXPECT_TRUE(policy_->Evict(in, keep).ok());
      EXPECT_EQ(keep[0].budget, static_cast<std::int32_t>(keep[0].list.size()));
      budgets.push_back(keep[0].budget);
    }
    return budgets;
  }

 private:
  std::unique_ptr<const Policy> policy_;
};

TurnShape Long(std::int32_t layers, std::int32_t prompt = 10000) {
  return {.prompt_tokens = prompt, .max_new_tokens = 8, .head_dim = 64, .layers = layers};
}

TEST(RoundShares, KeepsTheSumAndTheOrder) {
  EXPECT_EQ(RoundShares(std::vector<double>{195, 147.5, 100, 52.5, 5}, 500),
            (Budgets{195, 148, 100, 52, 5}));
  EXPECT_EQ(RoundShares(std::vector<double>{1.5, 1.5, 1.5, 1.5}, 6), (Budgets{2, 2, 1, 1}));
  EXPECT_EQ(RoundShares(std::vector<double>{3}, 3), (Budgets{3}));
}

TEST(Pyramid, IsTheLineOfTheSpecificationWithAnExactTotal) {
  // b = 100 behind a window of 32: 195, 147.5, 100, 52.5, 5.
  EXPECT_EQ(OpenPyramid("pyramid:budget=132").Of(Long(5)), (Budgets{227, 180, 132, 84, 37}));
  EXPECT_EQ(OpenPyramid("pyramid:budget=132,beta=1").Of(Long(3)), (Budgets{132, 132, 132}));
  EXPECT_EQ(OpenPyramid("pyramid:budget=132").Of(Long(1)), (Budgets{132}));
}

TEST(Pyramid, TotalsAreExactAndNeverRise) {
  for (const std::int32_t layers : {1, 2, 7, 30}) {
    for (const int budget : {33, 34, 257, 1024}) {
      for (const char* beta : {"1", "1.7", "20"}) {
        for (const std::int32_t prompt : {20, 300, 1100, 5000}) {
          const std::string spec = "pyramid:budget=" + std::to_string(budget) + ",beta=" + beta;
          const Budgets budgets = OpenPyramid(spec).Of(Long(layers, prompt));
          EXPECT_EQ(std::accumulate(budgets.begin(), budgets.end(), 0), layers * budget) << spec;
          EXPECT_TRUE(std::ranges::is_sorted(budgets, std::greater<>())) << spec;
          EXPECT_GE(budgets.back(), 32) << spec;
          // No layer gets rows that the prompt does not have while another could use them.
          EXPECT_LE(budgets.front(), std::max(budget, prompt) + 1) << spec;
        }
      }
    }
  }
}

TEST(Pyramid, KeepsTheLayersShareAsTheInnerEvictorWould) {
  for (const std::int32_t layer : {0, 2, 4}) {
    const TurnShape shape = {.prompt_tokens = 400,
                             .max_new_tokens = 8,
                             .head_dim = 64,
                             .group = 2,
                             .kv_heads = 2,
                             .layers = 5};
    const Budgets budgets = {227, 180, 132, 84, 37};
    const std::int32_t budget = budgets[static_cast<std::size_t>(layer)];
    test::PolicyLayer snap("pyramid:budget=132", {.shape = shape, .layer = layer});
    const auto keep = snap.Prompt(400, 3.0f);
    EXPECT_EQ(keep[1].list, SnapKvRows(snap.scores(1), 32, 7, budget));
    EXPECT_EQ(snap.policy().RowsKept(snap.shape(), 400), 132);
    EXPECT_EQ(snap.policy().RowsKept(snap.shape(), 30), 30);

    test::PolicyLayer ada("pyramid:budget=132,inner=adakv,floor=0",
                          {.shape = shape, .layer = layer});
    EXPECT_EQ(test::Total(ada.Prompt(400, 3.0f), 400), 2 * budget);
    test::PolicyLayer chunks("pyramid:budget=132,inner=chunkkv,chunk_size=4",
                             {.shape = shape, .layer = layer});
    for (const Rows& rows : chunks.Prompt(400, 3.0f)) {
      test::ExpectValid(rows, 400, 32, "chunkkv");
    }
  }
}

TEST(Pyramid, QueryHeadsKeepTheirListsWhileDecoding) {
  const TurnShape shape = {
      .prompt_tokens = 400, .max_new_tokens = 8, .head_dim = 64, .group = 2, .layers = 5};
  test::PolicyLayer layer("pyramid:budget=132,heads=query", {.shape = shape, .layer = 1});
  const Rows kept = layer.Prompt(400, 3.0f)[0];
  ASSERT_EQ(kept.heads.size(), 2u);
  EXPECT_EQ(kept.heads[0].size(), 90u);
  const Rows read = layer.Step()[0];
  ASSERT_EQ(read.heads.size(), 2u);
  EXPECT_EQ(read.heads[0].size(), 91u);
  EXPECT_EQ(layer.Step()[0].heads[1].size(), 92u);
}

TEST(Pyramid, WindowsSlideWithinTheLayersShare) {
  const TurnShape shape = {
      .prompt_tokens = 400, .max_new_tokens = 90, .head_dim = 64, .group = 2, .layers = 5};
  for (const std::string inner : {"streaming", "h2o"}) {
    test::PolicyLayer layer("pyramid:budget=104,inner=" + inner, {.shape = shape, .layer = 4});
    const auto kept = static_cast<std::size_t>(layer.Prompt(400)[0].list.size());
    EXPECT_LT(kept, 20u) << inner;
    for (int i = 0; i < 30; ++i) {
      const Rows read = layer.Step()[0];
      EXPECT_LE(Spelled(read, layer.slots(0).slots).size(), kept + 1) << inner;
    }
    EXPECT_LT(layer.slots(0).slots, 40) << inner;
    layer.Prompt(20);
    EXPECT_EQ(layer.slots(0).slots, static_cast<std::int32_t>(kept)) << inner;
    const auto& policy = layer.policy();
    EXPECT_EQ(policy.RowsKept(layer.shape(), 400), 104) << inner;
    EXPECT_LE(layer.shape().capacity, 106) << inner;
  }
}

TEST(Pyramid, ALaterTurnKeepsTheLayersShareAgain) {
  const TurnShape shape = {
      .prompt_tokens = 400, .max_new_tokens = 8, .head_dim = 64, .group = 2, .layers = 5};
  test::PolicyLayer layer("pyramid:budget=132", {.shape = shape, .layer = 3});
  layer.Prompt(400);
  EXPECT_EQ(layer.head(0).rows(), 84);
  layer.Step();
  layer.Prompt(50);
  EXPECT_EQ(layer.head(0).rows(), 84);
}

TEST(Pyramid, ShowsTheOptionsOfTheInnerEvictor) {
  const auto policy = test::MakePolicy("pyramid:inner=adakv,floor=0.5,beta=2");
  EXPECT_EQ(policy->spec(),
            "pyramid:budget=1024,beta=2,inner=adakv,window_size=32,kernel_size=7,floor=0.5,"
            "last_token=decode");
  EXPECT_EQ(test::MakePolicy(policy->spec())->spec(), policy->spec());
  const auto pairs = ExplainPolicy(*test::MakePolicy("pyramid:budget=132"), Long(5));
  const std::map<std::string, double> numbers(pairs.begin(), pairs.end());
  EXPECT_EQ(numbers.at("first_layer_budget"), 227);
  EXPECT_EQ(numbers.at("last_layer_budget"), 37);
  EXPECT_EQ(numbers.at("rows_kept"), 132);
  for (const char* spec :
       {"pyramid:beta=0.5", "pyramid:inner=hsa", "pyramid:inner=chunkkv,floor=0", "squeeze:p3=0",
        "squeeze:p3=1.1", "squeeze:inner=x", "squeeze:inner=h2o"}) {
    EXPECT_FALSE(MakePolicy(spec)) << spec;
  }
}

// The least squared distances from the means of three clusters, trying every assignment.
double BestCost(const std::vector<float>& values) {
  double best = std::numeric_limits<double>::infinity();
  std::size_t ways = 1;
  for (std::size_t i = 0; i < values.size(); ++i) {
    ways *= 3;
  }
  for (std::size_t way = 0; way < ways; ++way) {
    double cost = 0;
    for (std::size_t cluster = 0; cluster < 3; ++cluster) {
      std::vector<double> own;
      for (std::size_t i = 0, code = way; i < values.size(); ++i, code /= 3) {
        if (code % 3 == cluster) {
          own.push_back(values[i]);
        }
      }
      const double mean = std::accumulate(own.begin(), own.end(), 0.0) /
                          static_cast<double>(std::max<std::size_t>(1, own.size()));
      for (const double x : own) {
        cost += (x - mean) * (x - mean);
      }
    }
    best = std::min(best, cost);
  }
  return best;
}

TEST(HighestOfThree, IsTheBestClusteringOfAll) {
  Rng rng(9);
  for (int round = 0; round < 30; ++round) {
    const auto values = test::NormalVector(rng, static_cast<std::size_t>(3 + round % 5));
    const double bound = HighestOfThree(values);
    std::vector<float> low, high;
    for (const float value : values) {
      (value >= bound ? high : low).push_back(value);
    }
    ASSERT_FALSE(high.empty());
    ASSERT_FALSE(low.empty());
    // With the high cluster fixed, the best split of the others in two reaches the best of all.
    std::ranges::sort(low);
    const auto spread = [](auto begin, auto end) {
      const double n = std::max<double>(1, static_cast<double>(end - begin));
      const double mean = std::accumulate(begin, end, 0.0) / n;
      return std::accumulate(begin, end, 0.0,
                             [&](double sum, float x) { return sum + (x - mean) * (x - mean); });
    };
    double cost = std::numeric_limits<double>::infinity();
    for (auto cut = low.begin(); cut <= low.end(); ++cut) {
      cost = std::min(cost, spread(low.begin(), cut) + spread(cut, low.end()));
    }
    EXPECT_NEAR(cost + spread(high.begin(), high.end()), BestCost(values), 1e-6);
  }
}

TEST(HighestOfThree, KnowsWhenThereAreNoClusters) {
  EXPECT_TRUE(std::isinf(HighestOfThree(std::vector<float>{})));
  EXPECT_TRUE(std::isinf(HighestOfThree(std::vector<float>{1, 2})));
  EXPECT_TRUE(std::isinf(HighestOfThree(std::vector<float>{.5f, .5f, .5f, .5f})));
  EXPECT_EQ(HighestOfThree(std::vector<float>{.5f, .9f, .5f, .9f}), .9f);
  EXPECT_EQ(HighestOfThree(std::vector<float>{.1f, .5f, .9f}), .9f);
}

TEST(SqueezeBudgets, SharesWhatTheQuietLayersGiveUp) {
  // L = 4, b = .4, p3 = .2 and two quiet layers: .6 for the others.
  EXPECT_EQ(SqueezeBudgets(std::vector<float>{.1f, .3f, .9f, .91f}, 4, 400, 200, 10000),
            (Budgets{600, 600, 200, 200}));
  EXPECT_EQ(SqueezeBudgets(std::vector<float>{.1f, .3f, .9f, .91f}, 4, 400, 400, 10000),
            (Budgets{400, 400, 400, 400}));
  // Not more than the prompt has: the quiet layers get what is left.
  EXPECT_EQ(SqueezeBudgets(std::vector<float>{.1f, .3f, .9f, .91f}, 4, 400, 200, 500),
            (Budgets{500, 500, 300, 300}));
  EXPECT_EQ(SqueezeBudgets({}, 3, 50, 20, 1000), (Budgets{50, 50, 50}));
  EXPECT_EQ(SqueezeBudgets(std::vector<float>{.1f, .9f}, 2, 50, 20, 1000), (Budgets{50, 50}));
}

TEST(SqueezeBudgets, TotalsAreExact) {
  Rng rng(4);
  for (int round = 0; round < 200; ++round) {
    const std::int32_t layers = test::IntBetween(rng, 1, 40);
    const auto cosine = test::NormalVector(rng, static_cast<std::size_t>(layers));
    const std::int32_t mean = test::IntBetween(rng, 33, 500);
    const Budgets budgets = SqueezeBudgets(cosine, layers, mean, std::max(33, mean / 3),
                                           test::IntBetween(rng, 10, 2000));
    EXPECT_EQ(std::accumulate(budgets.begin(), budgets.end(), 0), layers * mean);
    EXPECT_GE(*std::ranges::min_element(budgets), 33);
  }
}

TEST(Squeeze, LayersKeepWhatTheirCosineGivesThem) {
  const std::vector<float> cosine = {.1f, .3f, .9f, .91f};
  const auto policy = test::MakePolicy("squeeze:budget=100,p3=0.5");
  const TurnShape shape = policy->Plan({.prompt_tokens = 1000, .head_dim = 64, .layers = 4});
  EXPECT_TRUE(policy->needs(shape).all_layers);
  EXPECT_TRUE(policy->needs(shape).residual_cosine);
  EXPECT_EQ(policy->needs(shape).window, 32);
  EXPECT_EQ(policy->RowsKept(shape, 1000), 100);
  Rng rng(1);
  for (std::int32_t layer = 0; layer < 4; ++layer) {
    const auto scores = test::NormalVector(rng, 968);
    HeadPrefill head;
    head.view.rows = 1000;
    head.window.tokens = 32;
    head.scores = scores;
    LayerPrefill in;
    in.shape = shape;
    in.layer = layer;
    in.heads = {&head, 1};
    in.residual_cosine = cosine;
    std::vector<Rows> keep(1);
    ASSERT_TRUE(policy->Evict(in, keep).ok());
    EXPECT_EQ(keep[0].list, SnapKvRows(scores, 32, 7, layer < 2 ? 150 : 50)) << layer;
  }
}

TEST(Squeeze, SharesEvenlyWithoutCosines) {
  const TurnShape shape = {
      .prompt_tokens = 400, .max_new_tokens = 8, .head_dim = 64, .group = 2, .layers = 5};
  for (const char* inner : {"snapkv", "adakv", "chunkkv", "streaming"}) {
    test::PolicyLayer layer(std::string("squeeze:budget=132,inner=") + inner, {.shape = shape});
    const auto keep = layer.Prompt(400);
    test::ExpectValid(keep[0], 400, 32, inner);
    EXPECT_EQ(keep[0].list.size(), 132u) << inner;
    layer.Step();
    layer.Prompt(30);
    EXPECT_LE(layer.head(0).rows(), 132) << inner;
  }
}

}  // namespace
}  // namespace rkv::policy
