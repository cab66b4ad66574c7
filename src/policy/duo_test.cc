// DuoAttention: which heads keep everything under a budget, and windows that slide in the others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "policy/methods.h"
#include "support/evictor_checks.h"
#include "support/head_table_file.h"
#include "support/policy_layer.h"

namespace rkv::policy {
namespace {

using test::RowsList;
using test::Spelled;
using ::testing::HasSubstr;

// Ten layers of ten heads; the score of a head is its place, so that the last ones rank first.
HeadTable Table(std::int32_t layers, std::int32_t kv_heads) {
  HeadTable table = {
      .method = "duo", .model = "m", .layers = layers, .kv_heads = kv_heads, .scores = {}};
  for (std::int32_t i = 0; i < layers * kv_heads; ++i) {
    table.scores.push_back(static_cast<float>(i));
  }
  return table;
}

TurnShape Shape(std::int32_t prompt, std::int32_t layers, std::int32_t kv_heads) {
  return {.prompt_tokens = prompt,
          .max_new_tokens = 50,
          .head_dim = 16,
          .group = 2,
          .kv_heads = kv_heads,
          .layers = layers,
          .model = "m"};
}

std::map<std::string, double> Explained(const std::string& spec, const TurnShape& shape) {
  const auto pairs = ExplainPolicy(*test::MakePolicy(spec), shape);
  return {pairs.begin(), pairs.end()};
}

// Rows kept of `rows` by every head of every layer.
std::vector<std::int32_t> KeptRows(const std::string& spec, const TurnShape& first,
                                   std::int32_t rows) {
  const auto policy = test::MakePolicy(spec);
  const TurnShape shape = policy->Plan(first);
  EXPECT_TRUE(policy->CheckShape(shape).ok());
  std::vector<std::int32_t> kept;
  for (std::int32_t layer = 0; layer < shape.layers; ++layer) {
    std::vector<HeadPrefill> heads(static_cast<std::size_t>(shape.kv_heads));
    for (std::size_t h = 0; h < heads.size(); ++h) {
      heads[h].kv_head = static_cast<std::int32_t>(h);
      heads[h].view.rows = rows;
    }
    LayerPrefill in;
    in.shape = shape;
    in.layer = layer;
    in.heads = heads;
    std::vector<Rows> keep(heads.size());
    EXPECT_TRUE(policy->Evict(in, keep).ok());
    for (const Rows& head : keep) {
      test::ExpectValid(head, rows, 1, spec);
      kept.push_back(static_cast<std::int32_t>(Spelled(head, rows).size()));
    }
  }
  return kept;
}

TEST(Duo, TurnsTheBudgetIntoAShareOfRetrievalHeads) {
  const test::HeadTableFile file(Table(10, 10));
  const std::string spec = "duo:table=" + file.path() + ",budget=";
  // f = (1024 - 640) / (10000 - 640) = 0.041: four heads of a hundred.
  auto numbers = Explained(spec + "1024", Shape(10000, 10, 10));
  EXPECT_EQ(numbers.at("retrieval_heads"), 4);
  EXPECT_EQ(numbers.at("sinks"), 128);
  EXPECT_EQ(numbers.at("recent"), 512);
  EXPECT_EQ(numbers.at("rows_kept"), 1015);  // (4 * 10000 + 96 * 640) / 100, rounded up
  numbers = Explained(spec + "640", Shape(10000, 10, 10));
  EXPECT_EQ(numbers.at("retrieval_heads"), 0);
  EXPECT_EQ(numbers.at("recent"), 512);
  numbers = Explained(spec + "300", Shape(10000, 10, 10));
  EXPECT_EQ(numbers.at("sinks"), 128);
  EXPECT_EQ(numbers.at("recent"), 172);
  numbers = Explained(spec + "256", Shape(10000, 10, 10));
  EXPECT_EQ(numbers.at("sinks"), 51);
  EXPECT_EQ(numbers.at("recent"), 205);
  EXPECT_EQ(numbers.at("max_rows"), 256);  // windows slide
  numbers = Explained(spec + "10000", Shape(10000, 10, 10));
  EXPECT_EQ(numbers.at("retrieval_heads"), 100);
  EXPECT_EQ(numbers.at("rows_kept"), 10000);
}

TEST(Duo, TheMeanOverHeadsIsWithinTheBudget) {
  const test::HeadTableFile file(Table(5, 4));
  for (const int budget : {16, 255, 256, 257, 640, 641, 700, 1000, 1999, 2000, 2001, 3000}) {
    for (const std::int32_t prompt : {100, 640, 641, 2000}) {
      const std::string spec = "duo:table=" + file.path() + ",budget=" + std::to_string(budget);
      const TurnShape shape = Shape(prompt, 5, 4);
      const auto kept = KeptRows(spec, shape, prompt);
      std::int64_t sum = 0;
      for (const std::int32_t rows : kept) {
        sum += rows;
      }
      EXPECT_LE(sum, 20 * std::min(budget, prompt)) << spec << ' ' << prompt;
      EXPECT_EQ((sum + 19) / 20, Explained(spec, shape).at("rows_kept")) << spec << ' ' << prompt;
      // The heads that keep everything are those with the highest scores.
      EXPECT_TRUE(std::ranges::is_sorted(kept)) << spec << ' ' << prompt;
    }
  }
}

TEST(Duo, ExplicitNumbersInsteadOfTheBudget) {
  const test::HeadTableFile file(Table(2, 4));
  const auto kept = KeptRows("duo:table=" + file.path() + ",sinks=3,recent=5,fraction=0.25",
                             Shape(100, 2, 4), 100);
  EXPECT_EQ(kept, (std::vector<std::int32_t>{8, 8, 8, 8, 8, 8, 100, 100}));
  const auto all =
      KeptRows("duo:table=" + file.path() + ",sinks=3,recent=5,fraction=1", Shape(100, 2, 4), 100);
  EXPECT_EQ(*std::ranges::min_element(all), 100);
}

TEST(Duo, AllHeadsStreamingIsStreaming) {
  const test::HeadTableFile file(Table(1, 2));
  test::PolicyLayer duo("duo:table=" + file.path() + ",sinks=4,recent=28,budget=32,fraction=0",
                        {.shape = Shape(200, 1, 2)});
  test::PolicyLayer streaming("streaming:sinks=4,recent=28,budget=32", {.shape = Shape(200, 1, 2)});
  EXPECT_EQ(duo.shape().capacity, streaming.shape().capacity);
  EXPECT_EQ(duo.Prompt(200)[1].list, streaming.Prompt(200)[1].list);
  for (int i = 0; i < 60; ++i) {
    const Rows ours = duo.Step()[1];
    const Rows theirs = streaming.Step()[1];
    ASSERT_EQ(ours.all, theirs.all) << i;
    ASSERT_EQ(ours.list, theirs.list) << i;
    ASSERT_EQ(duo.slots(1).slots, streaming.slots(1).slots) << i;
  }
  EXPECT_EQ(duo.Prompt(20)[0].list, streaming.Prompt(20)[0].list);
}

TEST(Duo, HeadsOfBothKindsSideBySide) {
  const test::HeadTableFile file(Table(1, 2));
  test::PolicyLayer layer("duo:table=" + file.path() + ",sinks=2,recent=6,budget=16,fraction=0.5",
                          {.shape = Shape(100, 1, 2)});
  const auto keep = layer.Prompt(100);
  EXPECT_EQ(keep[0].list, (RowsList{0, 1, 94, 95, 96, 97, 98, 99}));
  EXPECT_TRUE(keep[1].all);
  for (int i = 1; i <= 40; ++i) {
    const auto read = layer.Step();
    EXPECT_EQ(Spelled(read[0], 8).size(), 8u);
    EXPECT_TRUE(read[1].all);
    EXPECT_EQ(layer.head(1).rows(), 100 + i);
    EXPECT_LE(layer.head(0).rows(), 11);
    // The sinks and the newest rows, whatever was dropped in between.
    const RowsList list = Spelled(read[0], 8);
    EXPECT_EQ(list[1], 1);
  }
  const auto& head = layer.head(0).view();
  EXPECT_EQ(head.positions[0], 0);
  EXPECT_EQ(head.positions[1], 1);
  EXPECT_EQ(head.positions[head.rows - 1], 139);
  layer.Prompt(30);
  EXPECT_EQ(layer.head(0).rows(), 8);
  EXPECT_EQ(layer.head(1).rows(), 170);
}

TEST(Duo, NeedsATableOfThisModel) {
  const auto made = MakePolicy("duo:budget=64");
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(made.error().message(), HasSubstr("needs option 'table'"));
  EXPECT_THAT(made.error().message(), HasSubstr("rkv calibrate duo -m MODEL -o FILE"));
  const auto missing = MakePolicy("duo:table=/nonexistent/t.json");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code(), Code::kNotFound);

  const test::HeadTableFile file(Table(2, 4));
  const auto policy = test::MakePolicy("duo:table=" + file.path());
  TurnShape shape = Shape(100, 2, 4);
  EXPECT_TRUE(policy->CheckShape(policy->Plan(shape)).ok());
  shape.model = "another";
  const Status status = policy->CheckShape(policy->Plan(shape));
  EXPECT_THAT(status.message(), HasSubstr("'another'"));
  EXPECT_FALSE(policy->CheckShape(policy->Plan(Shape(100, 3, 4))).ok());
}

TEST(Duo, RefusesWrongOptions) {
  const test::HeadTableFile file(Table(1, 1));
  for (const char* option : {"sinks=0", "recent=0", "fraction=1.5", "fraction=-0.5"}) {
    const auto made = MakePolicy("duo:table=" + file.path() + "," + option);
    ASSERT_FALSE(made) << option;
    EXPECT_THAT(made.error().message(), HasSubstr("allowed: "));
  }
}

}  // namespace
}  // namespace rkv::policy
