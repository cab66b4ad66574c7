// ShadowKV. Policy specification 2.15.
#include "policy/shadowkv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "policy/composed_state.h"
#include "support/selection.h"

namespace rkv::policy {
namespace {

using test::List;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr TurnShape kShape = {
    .prompt_tokens = 300, .max_new_tokens = 8, .head_dim = 64, .group = 2};

const ShadowKvState& StateOf(test::PolicyLayer& layer) {
  return static_cast<const ShadowKvState&>(
      *static_cast<const ComposedState&>(*layer.state(0)).selector);
}

std::vector<double> MeanOf(const std::vector<std::vector<float>>& keys, std::size_t first,
                           std::size_t end) {
  std::vector<double> mean(keys[0].size(), 0.0);
  for (std::size_t row = first; row < end; ++row) {
    for (std::size_t x = 0; x < mean.size(); ++x) {
      mean[x] += static_cast<double>(keys[row][x]) / static_cast<double>(end - first);
    }
  }
  return mean;
}

// Least cosine of each whole chunk.
std::vector<double> LeastCosines(const std::vector<std::vector<float>>& keys, std::size_t page) {
  std::vector<double> out;
  for (std::size_t first = 0; first + page <= keys.size(); first += page) {
    const std::vector<double> mean = MeanOf(keys, first, first + page);
    const double mean_norm = std::inner_product(mean.begin(), mean.end(), mean.begin(), 0.0);
    double least = 2;
    for (std::size_t row = first; row < first + page; ++row) {
      const double dot = std::inner_product(mean.begin(), mean.end(), keys[row].begin(), 0.0);
      const double norm =
          std::inner_product(keys[row].begin(), keys[row].end(), keys[row].begin(), 0.0);
      least = std::min(least, dot / std::sqrt(norm * mean_norm));
    }
    out.push_back(-least);
  }
  return out;
}

// What a step must read: outliers, last rows, best chunks by the largest softmax of any head over
// the landmarks.
List Expected(test::PolicyLayer& layer, std::size_t page, std::int32_t k, std::int32_t local) {
  const auto keys = test::KeysOf(layer.slots(0));
  const std::vector<float>& q = layer.query(0);
  const std::size_t d = keys[0].size();
  const auto outliers = StateOf(layer).outliers();
  std::vector<double> rows(keys.size(), 5);
  std::vector<std::size_t> chunks;
  for (std::size_t chunk = 0; chunk * page < keys.size(); ++chunk) {
    if (!std::ranges::binary_search(outliers, static_cast<std::int32_t>(chunk))) {
      chunks.push_back(chunk);
    }
  }
  std::vector<double> best(chunks.size(), 0.0);
  for (std::size_t g = 0; g < q.size() / d; ++g) {
    std::vector<double> z;
    for (const std::size_t chunk : chunks) {
      const auto mean = MeanOf(keys, chunk * page, std::min(keys.size(), (chunk + 1) * page));
      z.push_back(std::inner_product(mean.begin(), mean.end(), q.data() + g * d, 0.0) /
                  std::sqrt(static_cast<double>(d)));
    }
    std::vector<double> soft;
    test::AddSoftmax(z, soft);
    std::ranges::transform(best, soft, best.begin(),
                           [](double a, double b) { return std::max(a, b); });
  }
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    for (std::size_t row = chunks[i] * page; row < std::min(keys.size(), (chunks[i] + 1) * page);
         ++row) {
      rows[row] = best[i];
    }
  }
  std::fill(rows.end() - local, rows.end(), 9);
  return test::BestOf(rows, k);
}

TEST(ShadowKv, ReadsOutliersTheLastRowsAndTheBestChunks) {
  for (const auto& [group, head_dim] : {std::pair(1, 64), {2, 128}, {3, 64}, {8, 80}}) {
    for (const std::int32_t page : {1, 5, 8}) {
      TurnShape shape = kShape;
      shape.group = group;
      shape.head_dim = head_dim;
      test::PolicyLayer layer(
          "shadowkv:budget=160,bypass=1,outliers=17,local=11,page_size=" + std::to_string(page),
          {.shape = shape});
      for (int turn = 0; turn < 2; ++turn) {
        layer.Prompt(300 + turn);
        const auto cosines =
            LeastCosines(test::KeysOf(layer.slots(0)), static_cast<std::size_t>(page));
        if (page > 1) {
          const List outliers = test::BestOf(cosines, 17 / page);
          EXPECT_EQ(List(StateOf(layer).outliers().begin(), StateOf(layer).outliers().end()),
                    outliers);
        } else {
          EXPECT_TRUE(StateOf(layer).outliers().empty());  // a key is its own mean
        }
        for (int i = 0; i < 3; ++i) {
          const Rows read = layer.Step()[0];
          EXPECT_EQ(read.list, Expected(layer, static_cast<std::size_t>(page), 80, 11))
              << group << ' ' << page << ' ' << turn;
        }
      }
    }
  }
}

TEST(OutlierChunks, AreThoseThatTheirMeanSaysLeastAbout) {
  test::TestHead head(4, kv::Codec::kF32, 9);
  const std::vector<float> value(4, 0.0f);
  const std::vector<std::vector<float>> keys = {{1, 0, 0, 0}, {1, 0, 0, 0},     // alike
                                                {1, 0, 0, 0}, {0, 1, 0, 0},     // cosine .707
                                                {1, 0, 0, 0}, {-1, .5f, 0, 0},  // pulls apart
                                                {2, 0, 0, 0}, {1, 0, 0, 0},     // one direction
                                                {0, 0, 9, 9}};                  // not a whole chunk
  for (std::int32_t row = 0; row < 9; ++row) {
    head.SetRow(row, keys[static_cast<std::size_t>(row)], value);
  }
  EXPECT_THAT(OutlierChunks(head.view(), 2, 1), ElementsAre(2));
  EXPECT_THAT(OutlierChunks(head.view(), 2, 2), ElementsAre(1, 2));
  EXPECT_THAT(OutlierChunks(head.view(), 2, 9), ElementsAre(1, 2));  // never one of equal keys
  EXPECT_TRUE(OutlierChunks(head.view(), 2, 0).empty());
  EXPECT_TRUE(OutlierChunks(head.view(), 1, 9).empty());
}

TEST(ShadowKvState, FollowsTheSlots) {  // U7
  test::PolicyLayer layer("shadowkv:budget=160,bypass=1,outliers=20,page_size=4",
                          {.shape = kShape});
  layer.Prompt(299);
  for (int i = 0; i < 7; ++i) {
    layer.Append();
  }
  HeadState& state = *static_cast<ComposedState*>(layer.state(0))->selector;
  const List outliers(StateOf(layer).outliers().begin(), StateOf(layer).outliers().end());
  ASSERT_EQ(outliers.size(), 5u);
  // Landmarks by channel, as numbers, against means made anew.
  const auto expect = [&] {
    const auto keys = test::KeysOf(layer.slots(0));
    const kv::IndexView view = StateOf(layer).landmarks();
    std::int32_t at = 0;
    for (std::size_t first = 0; first < keys.size(); first += 4) {
      if (std::ranges::binary_search(StateOf(layer).outliers(),
                                     static_cast<std::int32_t>(first / 4))) {
        continue;
      }
      const auto mean = MeanOf(keys, first, std::min(keys.size(), first + 4));
      for (std::int32_t x = 0; x < 64; ++x) {
        float number = 0;
        kv::DecodeRow(view.codec, view.Min(x) + static_cast<std::size_t>(at) * 4, {&number, 1});
        ASSERT_NEAR(number, mean[static_cast<std::size_t>(x)], 1e-6);
      }
      ++at;
    }
    EXPECT_EQ(view.rows, at);
  };
  expect();
  for (const std::int32_t slots : {303, 300, 298, outliers[4] * 4 + 1, 5}) {
    layer.head(0).Truncate(slots);
    state.Truncate(layer.slots(0));
    expect();
  }
  EXPECT_LT(StateOf(layer).outliers().size(), 5u);
  layer.Append();
  expect();
  const List kept = {0, 2, 5};
  layer.head(0).Keep(kept);
  ASSERT_TRUE(state.Keep(layer.slots(0), kept).ok());
  expect();
}

TEST(ShadowKv, KeepsTheKeysOfResidentRows) {
  test::PolicyLayer layer("shadowkv:budget=160,bypass=1,outliers=9,local=6,page_size=4,rank=32",
                          {.shape = kShape});
  EXPECT_EQ(layer.needs().key_rank, 32);
  layer.Prompt(301);
  List exact;
  layer.policy().ExactKeys(layer.shape(), *layer.state(0), 301, exact);
  List expected;
  for (const std::int32_t chunk : StateOf(layer).outliers()) {
    for (std::int32_t row = 4 * chunk; row < std::min(4 * chunk + 4, 295); ++row) {
      expected.push_back(row);
    }
  }
  ASSERT_EQ(StateOf(layer).outliers().size(), 2u);
  for (std::int32_t row = 295; row < 301; ++row) {
    expected.push_back(row);
  }
  EXPECT_EQ(exact, expected);
  EXPECT_EQ(test::PolicyLayer("shadowkv:rank=64,budget=64", {.shape = kShape}).needs().key_rank, 0);
}

TEST(ShadowKv, NumbersFollowFromTheBudget) {
  const TurnShape shape = {
      .prompt_tokens = 16256, .max_new_tokens = 128, .head_dim = 128, .group = 4, .kv_heads = 8};
  const auto policy = test::MakePolicy("shadowkv:budget=1024");
  const auto pairs = policy->Explain(policy->Plan(shape));
  const std::map<std::string, double> at(pairs.begin(), pairs.end());
  EXPECT_EQ(at.at("page_size"), 16);
  EXPECT_EQ(at.at("topk"), 512);
  EXPECT_EQ(at.at("local"), 64);
  EXPECT_EQ(at.at("outlier_chunks"), 4);
  EXPECT_EQ(at.at("rank"), 160);
  EXPECT_NEAR(at.at("total_traffic"), 1024, 1e-6);
}

TEST(ShadowKv, PropertiesOfEverySelector) {
  test::ExpectSelectorProperties("shadowkv", 1);
  test::ExpectSelectorProperties("shadowkv:page_size=3", 1);
}

TEST(ShadowKv, RefusesWhatDoesNotFit) {
  const auto message = [](std::string_view spec) {
    const auto policy = test::MakePolicy(spec);
    return policy->CheckShape(policy->Plan(kShape)).message();
  };
  EXPECT_THAT(message("shadowkv:rank=65"), HasSubstr("option 'rank' is '65'"));
  EXPECT_THAT(message("shadowkv:topk=9,local=10"), HasSubstr("option 'local' is '10'"));
  EXPECT_THAT(message("shadowkv:topk=9,local=4,outliers=6"), HasSubstr("option 'outliers' is '6'"));
  EXPECT_EQ(message("shadowkv"), "");
  EXPECT_FALSE(MakePolicy("shadowkv:page_size=0"));
}

}  // namespace
}  // namespace rkv::policy
