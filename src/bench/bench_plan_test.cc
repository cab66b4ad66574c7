#include "bench/bench_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/bench_stats.h"
#include "bench/machine.h"
#include "bench/token_feed.h"

namespace rkv::bench {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

std::vector<std::string> Names(const PlanLists& lists) {
  std::vector<std::string> names;
  for (const Cell& cell : PlanCells(lists)) {
    names.push_back(TestName(cell));
  }
  return names;
}

TEST(PlanCells, GoesThroughDepthsUpwards) {
  EXPECT_THAT(
      Names({{512, 64}, {128}, {4096, 0}}),
      ElementsAre("pp512", "pp64", "tg128", "pp512 @ d4096", "pp64 @ d4096", "tg128 @ d4096"));
}

TEST(PlanCells, LeavesOutZerosAndRepeats) {
  EXPECT_THAT(Names({{0}, {8, 8, 0}, {0, 0}}), ElementsAre("tg8"));
}

TEST(ContextFor, HasRoomForTheLongestTestAndAnAnswer) {
  EXPECT_EQ(ContextFor({{Phase::kPrompt, 512, 100}, {Phase::kDecode, 600, 0}}), 613);
  EXPECT_EQ(ContextFor({{Phase::kDecode, 600, 0}}), 602);  // one token before
}

TEST(SpreadOf, IsMedianAndEnds) {
  EXPECT_DOUBLE_EQ(SpreadOf({3, 1, 2}).median, 2);
  EXPECT_DOUBLE_EQ(SpreadOf({4, 1, 2, 3}).median, 2.5);
  EXPECT_DOUBLE_EQ(SpreadOf({4, 1, 2, 3}).min, 1);
  EXPECT_DOUBLE_EQ(SpreadOf({4, 1, 2, 3}).max, 4);
  EXPECT_DOUBLE_EQ(SpreadOf({}).median, 0);
}

TEST(TokenFeed, IsTheSameForTheSameSeed) {
  const TokenFeed a = TokenFeed::Random(50, 1000, 10, 7);
  const TokenFeed b = TokenFeed::Random(50, 1000, 10, 7);
  const std::vector<Token> ids(a.prompt(0, 1000).begin(), a.prompt(0, 1000).end());
  EXPECT_THAT(b.prompt(0, 1000), ::testing::ElementsAreArray(ids));
  EXPECT_THAT(ids, Each(::testing::AllOf(::testing::Ge(0), ::testing::Lt(50))));
  EXPECT_EQ(a.decoded(9), b.decoded(9));
  EXPECT_NE(TokenFeed::Random(50, 1000, 10, 8).prompt(0, 1000)[0], -1);
}

TEST(TokenFeed, RepeatsAText) {
  const std::vector<Token> text = {5, 6, 7};
  const TokenFeed feed = TokenFeed::Text(text, 8, 3, 1);
  EXPECT_THAT(feed.prompt(2, 4), ElementsAre(7, 5, 6, 7));
  EXPECT_THAT(text, ::testing::Contains(feed.decoded(2)));
}

TEST(ParseCpuName, ReadsTheModelName) {
  EXPECT_EQ(ParseCpuName("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nstepping\t: 2\n"),
            "Some CPU @ 2 GHz");
  EXPECT_EQ(ParseCpuName("nothing"), "");
}

}  // namespace
}  // namespace rkv::bench
