// Random rows, as a selector and as an evictor.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/selection.h"

namespace rkv::policy {
namespace {

using test::List;

constexpr TurnShape kShape = {
    .prompt_tokens = 300, .max_new_tokens = 8, .head_dim = 8, .group = 2, .kv_heads = 2};

TEST(Random, ReadsTheCurrentRowAndOthersThatChange) {
  test::PolicyLayer layer("random:topk=40", {.shape = kShape});
  layer.Prompt(300);
  List before;
  for (std::int32_t slots = 301; slots < 304; ++slots) {
    const std::vector<Rows> read = layer.Step();
    EXPECT_EQ(read[0].list.size(), 40u);
    EXPECT_EQ(read[0].list.back(), slots - 1);
    EXPECT_EQ(read[0].estimate_bytes, 0);
    EXPECT_NE(read[0].list, read[1].list);
    EXPECT_NE(read[0].list, before);
    before = read[0].list;
  }
}

TEST(Random, IsTheSameForTheSameSeedAndLayer) {
  const auto read = [](std::string_view spec, std::int32_t layer) {
    test::PolicyLayer rows(spec, {.shape = kShape, .layer = layer});
    rows.Prompt(300);
    return rows.Step()[1].list;
  };
  EXPECT_EQ(read("random:topk=40", 0), read("random:topk=40", 0));
  EXPECT_NE(read("random:topk=40", 0), read("random:topk=40", 1));
  EXPECT_NE(read("random:topk=40", 0), read("random:topk=40,seed=1", 0));
  EXPECT_TRUE(std::ranges::includes(read("random:topk=90", 0), read("random:topk=40", 0)));  // U6
}

TEST(Random, EveryRowIsReadAboutEquallyOften) {
  test::PolicyLayer layer("random:topk=31,bypass=1", {.shape = kShape});
  layer.Prompt(100);
  std::vector<int> count(100, 0);
  for (int i = 0; i < 500; ++i) {
    layer.Append();
    for (const std::int32_t row : layer.Select(0).list) {
      if (row < 100) {
        count[static_cast<std::size_t>(row)] += 1;
      }
    }
  }
  // Of 100 + i rows 30: about 500 * 30 / 350 each; four standard deviations.
  const double mean = std::accumulate(count.begin(), count.end(), 0.0) / 100;
  EXPECT_NEAR(mean, 54, 8);
  for (const int times : count) {
    EXPECT_NEAR(times, mean, 4 * std::sqrt(mean));
  }
}

TEST(Random, EvictsToTheBudget) {
  for (const std::int32_t rows : {49, 50, 51, 300}) {
    test::PolicyLayer layer("evict=random,budget=50", {.shape = kShape});
    const std::vector<Rows> keep = layer.Prompt(rows);
    EXPECT_EQ(keep[0].all, rows <= 50);
    if (rows > 50) {
      test::ExpectValid(keep[0], 1, rows);
      EXPECT_EQ(keep[0].list.size(), 50u);
      EXPECT_NE(keep[0].list, keep[1].list);
    }
    EXPECT_TRUE(layer.Step()[0].all);
  }
}

TEST(Random, BothHalvesGoWithOthers) {
  const auto both = test::MakePolicy("evict=random,select=random,budget=64,seed=1,select_seed=2");
  EXPECT_THAT(both->spec(), ::testing::HasSubstr("seed=1"));
  EXPECT_THAT(both->spec(), ::testing::HasSubstr("select_seed=2"));
  EXPECT_EQ(test::MakePolicy(both->spec())->spec(), both->spec());
  EXPECT_EQ(test::MakePolicy("random")->spec().find("prompt_budget"), std::string::npos);
  for (const char* spec : {"evict=random,select=hsa", "evict=snapkv,select=random"}) {
    test::PolicyLayer layer(std::string(spec) + ",budget=36,prompt_budget=150,bypass=1",
                            {.shape = kShape});
    layer.Prompt(300);
    const Rows read = layer.Step()[0];
    test::ExpectValid(read, 1, layer.slots(0).slots);
    EXPECT_EQ(layer.slots(0).slots, 151);
  }
}

TEST(Random, PropertiesOfEverySelector) { test::ExpectSelectorProperties("random", 0); }

}  // namespace
}  // namespace rkv::policy
