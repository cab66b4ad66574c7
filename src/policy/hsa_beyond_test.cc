// Beyond the paper: adaptive k, forced rows, completion. Policy specification 0.2.5, 2.6, 3.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "policy/choose_rows.h"
#include "policy/composed_state.h"
#include "policy/value_mean.h"
#include "support/selection.h"

namespace rkv::policy {
namespace {

using test::List;
using ::testing::HasSubstr;

constexpr TurnShape kShape = {
    .prompt_tokens = 600, .max_new_tokens = 8, .head_dim = 32, .group = 3};
const char* const kMethods[] = {"hsa:", "rocketkv:prompt_budget=300,",
                                "rocketkv-mt:prompt_budget=300,",
                                "evict=random,select=hsa,prompt_budget=300,"};

TEST(CutAtMass, SpecificationVectorOfTwilight) {
  const std::vector<float> u = {.5f, .3f, .1f, .06f, .04f};
  const auto cut = [&](double mass, const ForcedRows& forced, List rows) {
    CutAtMass(u, 1, 5, forced, mass, rows);
    return rows;
  };
  const List all = {0, 1, 2, 3, 4};
  EXPECT_EQ(cut(.85, {}, all), (List{0, 1, 2}));
  EXPECT_EQ(cut(.5, {}, all), (List{0}));
  EXPECT_EQ(cut(.51, {}, all), (List{0, 1}));
  EXPECT_EQ(cut(0, {}, all), (List{0}));
  EXPECT_EQ(cut(2, {}, all), all);
  EXPECT_EQ(cut(.85, {.last = 1}, all), (List{0, 1, 2, 4}));
  EXPECT_EQ(cut(.05, {.last = 2}, all), (List{3, 4}));
  EXPECT_EQ(cut(.85, {.first = 1, .last = 1}, {0, 3, 4}), (List{0, 3, 4}));
  List pairs = {0, 1, 2, 3};  // rows of a chunk are equal: the first ones stay
  CutAtMass(std::vector<float>{.2f, .3f}, 2, 4, {}, .7, pairs);
  EXPECT_EQ(pairs, (List{0, 2, 3}));
}

// The scores that hsa makes of the current query, by slot.
std::vector<double> SlotScores(test::PolicyLayer& layer, std::int32_t channels,
                               std::vector<float>* by_head = nullptr) {
  const auto& state = static_cast<const ComposedState&>(*layer.state(0));
  const kv::IndexView index = static_cast<const ChunkState&>(*state.selector).view();
  std::vector<float> u(static_cast<std::size_t>(index.chunks()));
  std::vector<float> heads(3 * u.size());
  Scratch scratch;
  attention::CpuBackend().chunk_scores({layer.query(0).data(), 3}, index, channels, u, heads.data(),
                                       scratch);
  std::vector<double> rows;
  for (std::int32_t slot = 0; slot < index.rows; ++slot) {
    rows.push_back(u[static_cast<std::size_t>(slot / index.chunk_rows)]);
  }
  if (by_head != nullptr) {
    *by_head = heads;
  }
  return rows;
}

TEST(HsaBeyond, ForcedRowsAreReadWithinK) {
  for (const std::string method : kMethods) {
    for (const auto& [first, last] : {std::pair(0, 5), {4, 0}, {4, 16}, {1, 39}, {0, 40}}) {
      for (const char* page : {"1", "3", "4"}) {
        test::PolicyLayer layer(method + "budget=80,topr=8,bypass=1,page_size=" + page +
                                    ",force_first=" + std::to_string(first) +
                                    ",force_last=" + std::to_string(last),
                                {.shape = kShape});
        layer.Prompt(600);
        const Rows read = layer.Step()[0];
        std::vector<double> scores = SlotScores(layer, 8);
        std::fill(scores.begin(), scores.begin() + first, 1e9);
        std::fill(scores.end() - last, scores.end(), 1e9);
        EXPECT_EQ(read.list, test::BestOf(scores, 40)) << method << first << ' ' << last << page;
      }
    }
  }
}

TEST(HsaBeyond, TopPReadsTheFewestRowsWithTheMass) {
  for (const std::string method : kMethods) {
    for (const double p : {0.05, 0.2, 0.5}) {
      test::PolicyLayer layer(
          method + "budget=240,topr=8,bypass=1,page_size=2,top_p=" + std::to_string(p),
          {.shape = kShape});
      layer.Prompt(600, 2.0f);
      const Rows read = layer.Step()[0];
      std::vector<double> scores = SlotScores(layer, 8);
      List expected;
      for (std::int32_t k = 1; k <= 120; ++k) {
        expected = test::BestOf(scores, k);
        double mass = 0;
        for (const std::int32_t row : expected) {
          mass += scores[static_cast<std::size_t>(row)];
        }
        if (mass >= 3 * p) {
          break;
        }
      }
      EXPECT_EQ(read.list, expected) << method << p;
    }
  }
}

TEST(HsaBeyond, CompletionSharesByTheEstimate) {
  for (const std::string method : kMethods) {
    test::PolicyLayer layer(method + "budget=80,topr=8,bypass=1,page_size=3,complete=mean",
                            {.shape = kShape});
    for (int turn = 0; turn < 2; ++turn) {
      layer.Prompt(600);
      layer.Step();
      const Rows read = layer.Step()[0];
      std::vector<float> heads;
      SlotScores(layer, 8, &heads);
      ASSERT_EQ(read.share.size(), 3u);
      for (std::size_t g = 0; g < 3; ++g) {
        double mass = 0;
        for (const std::int32_t row : read.list) {
          mass += heads[g * heads.size() / 3 + static_cast<std::size_t>(row / 3)];
        }
        EXPECT_NEAR(read.share[g], mass, 1e-5);
        EXPECT_LT(read.share[g], 1.0f);
      }
      double mean = 0;  // of the slots that the method works on
      std::vector<float> value(32);
      const kv::SlotView slots = layer.slots(0);
      for (std::int32_t slot = 0; slot < slots.slots; ++slot) {
        kv::DecodeRow(kv::Codec::kF32, slots.Value(slot), value, kv::Part::kValue);
        mean += value[5] / slots.slots;
      }
      EXPECT_NEAR(read.mean_value[5], mean, 1e-5);
    }
  }
}

TEST(HsaBeyond, IsOffByDefault) {
  test::PolicyLayer layer("hsa:budget=80", {.shape = kShape});
  layer.Prompt(600);
  const Rows read = layer.Step()[0];
  EXPECT_EQ(read.list.size(), 40u);
  EXPECT_TRUE(read.share.empty());
  const auto& state = static_cast<const ComposedState&>(*layer.state(0));
  EXPECT_EQ(dynamic_cast<const CompletedChunks*>(state.selector.get()), nullptr);
}

TEST(HsaBeyond, PropertiesOfEverySelector) {
  test::ExpectSelectorProperties("hsa:force_first=2,force_last=2,complete=mean", 1);
  test::ExpectSelectorProperties("hsa:top_p=0.3", 1, false);
}

TEST(HsaBeyond, ForcingMoreThanKIsAnError) {
  const auto message = [](std::string_view spec) {
    const auto policy = test::MakePolicy(spec);
    return policy->CheckShape(policy->Plan(kShape)).message();
  };
  EXPECT_THAT(message("hsa:budget=20,force_first=11"),
              HasSubstr("option 'force_first' is '11', allowed: a whole number from 0 to 10"));
  EXPECT_THAT(message("rocketkv:budget=20,force_first=4,force_last=7"),
              HasSubstr("option 'force_last' is '7', allowed: a whole number from 0 to 6"));
  EXPECT_EQ(message("hsa:budget=20,force_first=4,force_last=6"), "");
  EXPECT_FALSE(MakePolicy("hsa:top_p=1.1"));
  EXPECT_FALSE(MakePolicy("hsa:complete=median"));
}

}  // namespace
}  // namespace rkv::policy
