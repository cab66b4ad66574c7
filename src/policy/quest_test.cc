// Quest. Policy specification 2.5.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/selection.h"

namespace rkv::policy {
namespace {

using test::List;
using ::testing::HasSubstr;
using Keys = std::vector<std::vector<float>>;

// z_h[b] for one head: per channel the better of the page's minimum and maximum; where `sign` is
// given, the side that its number picks. Divided by sqrt(d).
std::vector<double> Bounds(const Keys& keys, std::size_t page, const float* q,
                           const std::vector<float>* sign) {
  std::vector<double> z;
  for (std::size_t first = 0; first < keys.size(); first += page) {
    double sum = 0;
    for (std::size_t x = 0; x < keys[0].size(); ++x) {
      float low = keys[first][x];
      float high = low;
      for (std::size_t row = first; row < std::min(first + page, keys.size()); ++row) {
        low = std::min(low, keys[row][x]);
        high = std::max(high, keys[row][x]);
      }
      const double a = static_cast<double>(q[x]) * low;
      const double b = static_cast<double>(q[x]) * high;
      sum += sign == nullptr ? std::max(a, b) : ((*sign)[x] > 0 ? b : a);
    }
    z.push_back(sum / std::sqrt(static_cast<double>(keys[0].size())));
  }
  return z;
}

// Row scores: heads [first, first + count) of the bounds' softmax over rows.
std::vector<double> Scores(const Keys& keys, std::size_t page, const std::vector<float>& q,
                           std::size_t first, std::size_t count, bool group_sign) {
  const std::size_t d = keys[0].size();
  std::vector<float> sign(d, 0.0f);
  for (std::size_t i = 0; i < q.size(); ++i) {
    sign[i % d] += q[i];
  }
  std::vector<double> sum;
  for (std::size_t g = first; g < first + count; ++g) {
    const auto z = Bounds(keys, page, q.data() + g * d, group_sign ? &sign : nullptr);
    std::vector<double> rows(keys.size());
    for (std::size_t row = 0; row < rows.size(); ++row) {
      rows[row] = z[row / page];
    }
    test::AddSoftmax(rows, sum);
  }
  return sum;
}

// The last page and the best other rows, k in all.
List Expected(std::vector<double> scores, std::int32_t page, std::int32_t k) {
  const auto slots = static_cast<std::int32_t>(scores.size());
  const std::int32_t before = (slots - 1) / page * page;
  const std::int32_t last = std::min(slots - before, std::max({1, k / 2, k - before}));
  for (std::int32_t row = slots - last; row < slots; ++row) {
    scores[static_cast<std::size_t>(row)] = 1e9;
  }
  return test::BestOf(scores, k);
}

TEST(Quest, SpecificationVectorE1) {
  // Pages of 2: softmax sums .4835 .8793 .6372; the last row is always read.
  EXPECT_EQ(test::E1("quest:page_size=2,topk=2,bypass=1").Select().list, (List{2, 5}));
  // The bounds that the plain version of this file makes, times sqrt(4).
  const Keys keys = {{2, 0, 1, 0},  {0, 1, 0, 2},  {1, -1, 0, 0},
                     {3, 1, -1, 1}, {-1, 2, 0, 1}, {0, 0, 2, -1}};
  const std::vector<float> q = {2, -1, .5f, 1, 1, 1, .5f, -3};
  EXPECT_EQ(Bounds(keys, 2, q.data(), nullptr), (std::vector<double>{3.25, 4, 1}));
  EXPECT_EQ(Bounds(keys, 2, q.data() + 4, nullptr), (std::vector<double>{1.75, 2, 3}));
}

TEST(Quest, ReadsTheRowsOfTheBestPages) {
  for (const auto& [group, head_dim] : {std::pair(1, 64), {2, 128}, {3, 64}, {8, 80}, {7, 256}}) {
    for (const std::int32_t tokens : {199, 200, 201, 206}) {
      const TurnShape shape = {
          .prompt_tokens = tokens, .max_new_tokens = 4, .head_dim = head_dim, .group = group};
      for (const char* sides : {"two", "one"}) {
        test::PolicyLayer layer(
            std::string("quest:budget=64,page_size=7,topk=40,bypass=1,sides=") + sides,
            {.shape = shape});
        for (int turn = 0; turn < 2; ++turn) {
          layer.Prompt(tokens);
          const Rows read = layer.Step()[0];
          const Keys keys = test::KeysOf(layer.slots(0));
          EXPECT_EQ(read.list,
                    Expected(Scores(keys, 7, layer.query(0), 0, static_cast<std::size_t>(group),
                                    std::string_view(sides) == "one"),
                             7, 40))
              << group << ' ' << tokens << ' ' << sides;
        }
      }
    }
  }
}

TEST(Quest, EveryQueryHeadMayChooseItsOwnPages) {
  for (const std::int32_t group : {2, 3, 8}) {
    const TurnShape shape = {
        .prompt_tokens = 300, .max_new_tokens = 4, .head_dim = 64, .group = group};
    test::PolicyLayer layer("quest:budget=160,page_size=3,bypass=1,heads=query", {.shape = shape});
    layer.Prompt(300);
    const Rows read = layer.Step()[0];
    const Keys keys = test::KeysOf(layer.slots(0));
    ASSERT_EQ(read.heads.size(), static_cast<std::size_t>(group));
    for (std::size_t g = 0; g < read.heads.size(); ++g) {
      EXPECT_EQ(read.heads[g],
                Expected(Scores(keys, 3, layer.query(0), g, 1, false), 3, 80 / group));
    }
  }
}

TEST(Quest, PagesOfOneRowFindTheExactBest) {
  const TurnShape shape = {.prompt_tokens = 200, .head_dim = 64, .group = 3};
  test::PolicyLayer layer("quest:page_size=1,topk=90,heads=query,bypass=1", {.shape = shape});
  layer.Prompt(200);
  const Rows read = layer.Step()[0];
  for (std::int32_t g = 0; g < 3; ++g) {
    std::vector<double> exact = test::ExactMass(layer, g, 1);
    exact.back() = 1;  // the last page
    EXPECT_EQ(read.heads[static_cast<std::size_t>(g)], test::BestOf(exact, 30));
  }
}

TEST(Quest, BoundsHold) {  // specification (h)
  Rng rng(5);
  for (int i = 0; i < 20; ++i) {
    Keys keys;
    for (int row = 0; row < 30; ++row) {
      keys.push_back(test::NormalVector(rng, 16));
    }
    const std::vector<float> q = test::NormalVector(rng, 16);
    const std::vector<double> z = Bounds(keys, 4, q.data(), nullptr);
    for (std::size_t row = 0; row < keys.size(); ++row) {
      const double dot = std::inner_product(keys[row].begin(), keys[row].end(), q.begin(), 0.0);
      EXPECT_GE(z[row / 4] + 1e-6, dot / 4);
    }
  }
}

TEST(Quest, TheLastPageIsReadWithinTheBudget) {
  const TurnShape shape = {.prompt_tokens = 1000, .max_new_tokens = 8, .head_dim = 64, .group = 2};
  test::PolicyLayer layer("quest:page_size=32,topk=100,bypass=1", {.shape = shape});
  layer.Prompt(1000);
  for (std::int32_t slots = 1001; slots <= 1008; ++slots) {
    const List read = layer.Step()[0].list;
    ASSERT_EQ(read.size(), 100u);
    for (std::int32_t row = 992; row < slots; ++row) {
      EXPECT_TRUE(std::ranges::binary_search(read, row));
    }
  }
  // A page of more rows than half of k: its latest rows.
  test::PolicyLayer large("quest:page_size=400,topk=100,bypass=1", {.shape = shape});
  large.Prompt(1000);
  const List read = large.Step()[0].list;
  ASSERT_EQ(read.size(), 100u);
  EXPECT_EQ(read[50], 951);
}

TEST(Quest, PageLengthFollowsFromWhatIsRead) {
  const TurnShape shape = {
      .prompt_tokens = 16256, .max_new_tokens = 128, .head_dim = 128, .group = 4};
  const auto page = [&](std::string_view spec, std::int32_t group) {
    TurnShape of = shape;
    of.group = group;
    const auto policy = test::MakePolicy(spec);
    const auto pairs = policy->Explain(policy->Plan(of));
    const std::map<std::string, double> explained(pairs.begin(), pairs.end());
    EXPECT_NEAR(explained.at("total_traffic"), 512, 1);
    return explained.at("page_size");
  };
  EXPECT_EQ(page("quest:budget=512", 4), 64);  // c = 32
  EXPECT_EQ(page("quest:budget=512,sides=one", 4), 32);
  EXPECT_EQ(page("quest:budget=512", 1), 32);  // one query head needs one side
  EXPECT_EQ(page("quest:budget=512,sides=one,heads=query", 4), 64);
}

TEST(Quest, FirstLayersMayBeDense) {
  const TurnShape shape = {.prompt_tokens = 1000, .head_dim = 64, .group = 2, .layers = 10};
  for (const std::int32_t layer : {0, 1, 2, 9}) {
    test::PolicyLayer dense("quest:budget=64,dense_layers=2", {.shape = shape, .layer = layer});
    dense.Prompt(1000);
    const Rows read = dense.Step()[0];
    EXPECT_EQ(read.all, layer < 2);
    EXPECT_EQ(read.estimate_bytes > 0, layer >= 2);
    EXPECT_EQ(dense.state(0) == nullptr, layer < 2);
  }
  const auto policy = test::MakePolicy("quest:dense_layers=11");
  EXPECT_THAT(policy->CheckShape(policy->Plan(shape)).message(),
              HasSubstr("option 'dense_layers' is '11', allowed: a whole number from 0 to 10"));
}

TEST(Quest, PropertiesOfEverySelector) {
  test::ExpectSelectorProperties("quest", 1);
  test::ExpectSelectorProperties("quest:sides=one", 1);
  test::ExpectSelectorProperties("quest:heads=query", 1);
  test::ExpectSelectorProperties("quest:page_size=1", 0.01);
}

TEST(Quest, RefusesWhatItDoesNotKnow) {
  for (const char* spec : {"quest:sides=three", "quest:heads=all", "quest:page_size=0",
                           "quest:topk=0", "quest:dense_layers=-1"}) {
    EXPECT_FALSE(MakePolicy(spec)) << spec;
  }
}

}  // namespace
}  // namespace rkv::policy
