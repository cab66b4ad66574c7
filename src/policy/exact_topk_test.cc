// Exact-TopK. Policy specification 2.8.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/selection.h"

namespace rkv::policy {
namespace {

using test::List;

TEST(ExactTopK, SpecificationVectorE1) {
  EXPECT_EQ(test::E1("exact-topk:topk=3,bypass=1").Select().list, (List{0, 3, 5}));
  const Rows heads = test::E1("exact-topk:topk=3,heads=query,bypass=1").Select();
  ASSERT_EQ(heads.heads.size(), 2u);
  EXPECT_EQ(heads.heads[0], (List{0, 2, 3}));
  EXPECT_EQ(heads.heads[1], (List{0, 3, 5}));
}

TEST(ExactTopK, ReadsTheRowsOfLargestExactAttention) {
  for (const auto& [group, head_dim] : {std::pair(1, 64), {2, 128}, {3, 256}, {8, 80}, {7, 6}}) {
    const TurnShape shape = {
        .prompt_tokens = 200, .max_new_tokens = 4, .head_dim = head_dim, .group = group};
    test::PolicyLayer one("exact-topk:budget=40", {.shape = shape});
    test::PolicyLayer own("exact-topk:budget=40,heads=query", {.shape = shape});
    for (int turn = 0; turn < 2; ++turn) {
      one.Prompt(200);
      own.Prompt(200);
      const Rows read = one.Step()[0];
      EXPECT_EQ(read.list, test::BestOf(test::ExactMass(one, 0, group), 40));
      EXPECT_EQ(read.estimate_bytes, 0);
      const Rows heads = own.Step()[0];
      for (std::int32_t g = 0; g < group; ++g) {
        EXPECT_EQ(heads.heads[static_cast<std::size_t>(g)],
                  test::BestOf(test::ExactMass(own, g, 1), 40));
      }
    }
  }
}

TEST(ExactTopK, NoSetOfTheGroupHasMoreMass) {  // U3
  const TurnShape shape = {.prompt_tokens = 300, .head_dim = 64, .group = 3};
  const auto mass = [&](std::string_view spec) {
    test::PolicyLayer layer(spec, {.shape = shape});
    layer.Prompt(300);
    const Rows read = layer.Step()[0];
    const std::vector<double> exact = test::ExactMass(layer, 0, 3);
    return std::accumulate(
        read.list.begin(), read.list.end(), 0.0,
        [&](double sum, std::int32_t row) { return sum + exact[static_cast<std::size_t>(row)]; });
  };
  const double best = mass("exact-topk:topk=32");
  for (const char* other :
       {"hsa:topk=32,bypass=1,topr=16,page_size=2", "quest:topk=32,bypass=1,page_size=8",
        "random:topk=32", "sparq:topk=32,bypass=1,topr=8"}) {
    const double found = mass(other);
    EXPECT_GT(found, 0.0) << other;
    EXPECT_LT(found, best) << other;
  }
}

TEST(ExactTopK, LargerBudgetsReadTheSameRowsAndMore) {  // U6
  const TurnShape shape = {.prompt_tokens = 300, .head_dim = 64, .group = 2};
  List before;
  for (const std::int32_t k : {1, 16, 17, 100, 180}) {
    test::PolicyLayer layer("exact-topk:topk=" + std::to_string(k), {.shape = shape});
    layer.Prompt(300);
    const List read = layer.Step()[0].list;
    ASSERT_EQ(read.size(), static_cast<std::size_t>(k));
    EXPECT_TRUE(std::ranges::includes(read, before));
    before = read;
  }
}

TEST(ExactTopK, PropertiesOfEverySelector) {
  test::ExpectPermutes("exact-topk:topk=40");
  test::ExpectSelectorProperties("exact-topk", 0);
  test::ExpectSelectorProperties("exact-topk:heads=query", 0, false);
}

TEST(ExactTopK, WorksOnAViewOfTheRows) {
  const TurnShape shape = {.prompt_tokens = 300, .max_new_tokens = 4, .head_dim = 64, .group = 2};
  test::PolicyLayer layer("evict=random,select=exact-topk,budget=16,prompt_budget=120",
                          {.shape = shape});
  layer.Prompt(300);
  const Rows read = layer.Step()[0];
  EXPECT_EQ(layer.slots(0).slots, 121);
  EXPECT_EQ(read.list, test::BestOf(test::ExactMass(layer, 0, 2), 16));
}

}  // namespace
}  // namespace rkv::policy
