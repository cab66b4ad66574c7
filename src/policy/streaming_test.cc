// The sliding window against a plain one over positions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "policy/rows.h"
#include "policy/sliding_window.h"
#include "support/policy_layer.h"

namespace rkv::policy {
namespace {

using ::testing::HasSubstr;
using List = std::vector<std::int32_t>;

constexpr TurnShape kShape = {
    .prompt_tokens = 100, .max_new_tokens = 50, .head_dim = 8, .group = 2, .kv_heads = 2};

Rows Filled(const SlidingWindow& window, std::int32_t slots) {
  Rows out;
  window.Fill(slots, out);
  return out;
}

// Positions of what a head reads.
List Positions(const test::PolicyLayer& layer, const Rows& read) {
  const kv::SlotView slots = layer.slots(0);
  const attention::RowList rows = read.Of(0, slots.slots);
  List out;
  for (std::int32_t i = 0; i < rows.count; ++i) {
    out.push_back(slots.Position(rows.list == nullptr ? i : rows.list[i]));
  }
  return out;
}

// The first `sinks` and the last `recent` of `tokens` positions.
List Plain(std::int32_t tokens, std::int32_t sinks, std::int32_t recent) {
  List out;
  for (std::int32_t p = 0; p < tokens; ++p) {
    if (p < sinks || p >= tokens - recent) {
      out.push_back(p);
    }
  }
  return out;
}

std::map<std::string, double> Explained(std::string_view spec, const TurnShape& shape) {
  const auto pairs = ExplainPolicy(*test::MakePolicy(spec), shape);
  return {pairs.begin(), pairs.end()};
}

TEST(SlidingWindow, TheSpecificationsExample) {
  EXPECT_EQ(Filled({.sinks = 2, .recent = 3}, 10).list, (List{0, 1, 7, 8, 9}));
  EXPECT_TRUE(Filled({.sinks = 2, .recent = 10}, 10).all);
  for (std::int32_t slots = 0; slots < 8; ++slots) {
    const Rows rows = Filled({.sinks = 2, .recent = 3}, slots);
    EXPECT_EQ(rows.all, slots <= 5);
    EXPECT_TRUE(rows.all || rows.list == Plain(slots, 2, 3)) << slots;
  }
  EXPECT_EQ(Filled({.sinks = 0, .recent = 1}, 4).list, List{3});
}

TEST(SlidingWindow, DropsInBatches) {
  const SlidingWindow window = {.sinks = 4, .recent = 36};  // an eighth: 5
  for (const std::int32_t slots : {0, 40, 41, 45, 46, 47}) {
    Rows keep;
    window.Drop(slots, keep);
    EXPECT_EQ(keep.all, slots <= 45) << slots;
    EXPECT_TRUE(keep.all || keep.list == Plain(slots, 4, 36)) << slots;
  }
  EXPECT_FALSE(WorthDropping(100000, 64));
  EXPECT_TRUE(WorthDropping(100000, 65));
  EXPECT_FALSE(WorthDropping(0, 0));
}

TEST(Streaming, KeepsAndReadsExactlyTheWindow) {
  struct Case {
    std::string spec;
    std::int32_t sinks, recent;
  };
  for (const Case& c : {Case{"streaming:budget=24", 4, 20},
                        {"streaming:budget=16,sinks=0", 0, 16},
                        {"streaming:budget=40,sinks=7,recent=9", 7, 9},
                        {"streaming:budget=16,sinks=20", 20, 1}}) {
    const std::int32_t whole = c.sinks + c.recent;
    for (const std::int32_t tokens : {1, 2, whole - 1, whole, whole + 1, 2 * whole, 100}) {
      test::PolicyLayer layer(c.spec, {.shape = kShape});
      const Rows keep = layer.Prompt(tokens)[0];
      EXPECT_EQ(keep.all, tokens <= whole);
      EXPECT_EQ(Positions(layer, Rows()), Plain(tokens, c.sinks, c.recent));
      for (std::int32_t i = 1; i <= 60; ++i) {
        layer.Append();
        const Rows read = layer.Select(0);
        ASSERT_EQ(Positions(layer, read), Plain(tokens + i, c.sinks, c.recent)) << c.spec;
        ASSERT_EQ(read.estimate_bytes, 0);
        Rows dropped;
        ASSERT_TRUE(layer.policy().Observe(layer.StepOf(0), read, {}, dropped).ok());
        if (!dropped.all) {
          layer.head(0).Keep(dropped.list);
          layer.head(1).Keep(dropped.list);
        }
        ASSERT_LE(layer.head(0).rows(), whole + std::max(whole / 8, 1)) << c.spec;
      }
    }
  }
}

TEST(Streaming, AllHeadsAndTurnsAlike) {
  test::PolicyLayer layer("streaming:budget=24", {.shape = kShape});
  std::int32_t tokens = 0;
  for (const std::int32_t prompt : {30, 1, 40, 5}) {  // later prompts find dead slots
    const std::vector<Rows> keep = layer.Prompt(prompt);
    tokens += prompt;
    EXPECT_EQ(Positions(layer, Rows()), Plain(tokens, 4, 20));
    EXPECT_EQ(keep[0].list, keep[1].list);
    for (std::int32_t i = 0; i < 2; ++i) {
      ++tokens;
      EXPECT_EQ(layer.Step()[1].list.size(), 24u);
    }
  }
}

TEST(Streaming, ARewindBringsBackWhatIsNotDroppedYet) {
  test::PolicyLayer layer("streaming:budget=32", {.shape = kShape});
  layer.Prompt(60);
  layer.Step();
  layer.Step();
  EXPECT_EQ(layer.head(0).rows(), 34);
  layer.head(0).Truncate(33);
  EXPECT_EQ(Positions(layer, layer.Select(0)), Plain(61, 4, 28));
}

TEST(Streaming, ASelectorReadsWithinTheWindow) {
  TurnShape shape = kShape;
  shape.prompt_tokens = 600;
  test::PolicyLayer layer("evict=streaming,select=hsa,budget=32,bypass=1", {.shape = shape});
  EXPECT_EQ(layer.shape().capacity, layer.shape().prompt_budget);  // the answer adds nothing
  layer.Prompt(600);
  for (std::int32_t i = 1; i < 80; ++i) {
    const std::int32_t before = layer.head(0).rows() + 1;
    layer.Append();
    const Rows read = layer.Select(0);
    ASSERT_FALSE(read.all);
    ASSERT_FALSE(read.list.empty());
    ASSERT_LE(read.list.size(), 16u);
    const List live = Filled({.sinks = 4, .recent = layer.shape().prompt_budget - 4}, before).list;
    EXPECT_TRUE(live.empty() || std::ranges::includes(live, read.list));
  }
}

TEST(Streaming, ASelectionOfDeadSlotsAloneReadsTheLiveOnes) {
  Rows live;
  Rows read;
  live.all = read.all = false;
  live.list = {0, 5, 6};
  read.list = {2, 3};
  Intersect(live, read);
  EXPECT_EQ(read.list, live.list);
  read.list = {3, 5};
  Intersect(live, read);
  EXPECT_EQ(read.list, List{5});
}

TEST(Streaming, ExplainsWhatAStepReads) {
  const auto some = Explained("streaming:budget=64", kShape);
  EXPECT_EQ(some.at("sinks"), 4);
  EXPECT_EQ(some.at("recent"), 60);
  for (const char* name : {"rows_kept", "max_rows", "total_traffic"}) {
    EXPECT_EQ(some.at(name), 64) << name;
  }
  // Room for the prompt but not for the answer; then for both.
  EXPECT_EQ(Explained("streaming:budget=120", kShape).at("rows_kept"), 100);
  EXPECT_EQ(Explained("streaming:budget=120", kShape).at("total_traffic"), 120);
  EXPECT_EQ(Explained("streaming:budget=300", kShape).at("total_traffic"), 150);
  EXPECT_EQ(Explained("streaming:budget=16,sinks=3,recent=9", kShape).at("total_traffic"), 12);
}

TEST(Streaming, ABudgetOfTheWholeLengthChangesNothing) {
  test::PolicyLayer layer("streaming:budget=150", {.shape = kShape});
  EXPECT_TRUE(layer.Prompt(100)[0].all);
  for (std::int32_t i = 0; i < 50; ++i) {
    EXPECT_TRUE(layer.Step()[0].all);
  }
  EXPECT_EQ(layer.head(0).rows(), 150);
  EXPECT_EQ(layer.Step()[0].list.size(), 150u);
}

TEST(Streaming, RefusesValuesOutOfRange) {
  for (const auto& [spec, range] : {std::pair("streaming:sinks=-1", "from 0 to 4096"),
                                    {"streaming:sinks=x", "from 0 to 4096"},
                                    {"streaming:recent=0", "auto or a whole number from 1"},
                                    {"streaming:budget=8", "from 16"}}) {
    const auto made = MakePolicy(spec);
    ASSERT_FALSE(made) << spec;
    EXPECT_THAT(made.error().message(), HasSubstr(range));
  }
  EXPECT_THAT(test::MakePolicy("streaming")->spec(), HasSubstr("sinks=4,recent=auto"));
}

}  // namespace
}  // namespace rkv::policy
