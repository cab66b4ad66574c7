// SparQ. Policy specification 2.6.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "policy/composed_state.h"
#include "policy/value_mean.h"
#include "support/selection.h"

namespace rkv::policy {
namespace {

using test::List;
using ::testing::HasSubstr;

// Estimated softmax of every head: [group][slots].
std::vector<std::vector<double>> Estimates(const test::PolicyLayer& layer, std::int32_t channels) {
  const auto keys = test::KeysOf(layer.slots(0));
  const std::vector<float>& q = layer.query(0);
  const std::size_t d = keys[0].size();
  std::vector<double> loud(d, 0.0);
  for (std::size_t i = 0; i < q.size(); ++i) {
    loud[i % d] += std::fabs(q[i]);
  }
  const List chosen = test::BestOf(loud, channels);
  std::vector<std::vector<double>> out;
  for (std::size_t g = 0; g < q.size() / d; ++g) {
    double part = 0;
    double all = 0;
    for (std::size_t x = 0; x < d; ++x) {
      all += std::fabs(q[g * d + x]);
    }
    for (const std::int32_t x : chosen) {
      part += std::fabs(q[g * d + static_cast<std::size_t>(x)]);
    }
    std::vector<double> z;
    for (const auto& key : keys) {
      double dot = 0;
      for (const std::int32_t x : chosen) {
        dot += static_cast<double>(q[g * d + static_cast<std::size_t>(x)]) *
               key[static_cast<std::size_t>(x)];
      }
      z.push_back(dot / std::sqrt(static_cast<double>(d) * part / all));
    }
    test::AddSoftmax(z, out.emplace_back());
  }
  return out;
}

std::vector<double> MeanValue(const kv::SlotView& rows) {
  std::vector<double> mean(static_cast<std::size_t>(rows.head.head_dim), 0.0);
  std::vector<float> value(mean.size());
  for (std::int32_t slot = 0; slot < rows.slots; ++slot) {
    kv::DecodeRow(rows.head.codec, rows.Value(slot), value, kv::Part::kValue);
    for (std::size_t x = 0; x < mean.size(); ++x) {
      mean[x] += static_cast<double>(value[x]) / rows.slots;
    }
  }
  return mean;
}

void ExpectMean(const float* mean, const kv::SlotView& rows) {
  const std::vector<double> expected = MeanValue(rows);
  for (std::size_t x = 0; x < expected.size(); ++x) {
    EXPECT_NEAR(mean[x], expected[x], 1e-6);
  }
}

TEST(SparQ, SpecificationVectorE1) {
  const Rows plain = test::E1("sparq:topk=3,topr=2,bypass=1").Select();
  EXPECT_EQ(plain.list, (List{0, 3, 5}));
  EXPECT_TRUE(plain.share.empty());  // auto: a group of two
  EXPECT_EQ(plain.mean_value, nullptr);
  auto step = test::E1("sparq:topk=3,topr=2,realloc=on,bypass=1");
  const Rows read = step.Select();
  EXPECT_EQ(read.list, (List{0, 3, 5}));
  ASSERT_EQ(read.share.size(), 2u);
  EXPECT_NEAR(read.share[0], .9203, 5e-5);
  EXPECT_NEAR(read.share[1], .8392, 5e-5);
  EXPECT_EQ(read.mean_value[0], 2.5f);  // row j has the value (j, j, j, j)
}

TEST(SparQ, ReadsTheBestRowsOfTheLoudestChannels) {
  for (const auto& [group, head_dim] : {std::pair(1, 64), {2, 128}, {3, 256}, {8, 80}, {7, 6}}) {
    for (const std::int32_t local : {0, 1, 5, 40}) {
      const TurnShape shape = {
          .prompt_tokens = 200, .max_new_tokens = 4, .head_dim = head_dim, .group = group};
      test::PolicyLayer layer(
          "sparq:topk=40,topr=5,bypass=1,realloc=on,local=" + std::to_string(local),
          {.shape = shape});
      for (int turn = 0; turn < 2; ++turn) {
        layer.Prompt(200);
        layer.Step();
        const Rows read = layer.Step()[0];
        const auto estimates = Estimates(layer, 5);
        std::vector<double> u(estimates[0].size(), 0.0);
        for (const auto& head : estimates) {
          std::ranges::transform(u, head, u.begin(), std::plus<>());
        }
        std::fill(u.end() - local, u.end(), 1e9);
        EXPECT_EQ(read.list, test::BestOf(u, 40)) << group << ' ' << local;
        for (std::size_t g = 0; g < estimates.size(); ++g) {
          double alpha = 0;
          for (const std::int32_t row : read.list) {
            alpha += estimates[g][static_cast<std::size_t>(row)];
          }
          EXPECT_NEAR(read.share[g], alpha, 1e-5);
          EXPECT_LE(read.share[g], 1.0f);
        }
        ExpectMean(read.mean_value, layer.slots(0));
      }
    }
  }
}

TEST(SparQ, AllChannelsFindTheExactBest) {
  for (const std::int32_t group : {1, 3, 8}) {
    const TurnShape shape = {.prompt_tokens = 300, .head_dim = 64, .group = group};
    test::PolicyLayer layer("sparq:topk=40,topr=64,bypass=1", {.shape = shape});
    layer.Prompt(300);
    const List read = layer.Step()[0].list;
    EXPECT_EQ(read, test::BestOf(test::ExactMass(layer, 0, group), 40));
  }
}

TEST(SparQ, ChoosesWhatHsaChoosesFromChunksOfOneRow) {
  const TurnShape shape = {.prompt_tokens = 300, .head_dim = 64, .group = 4};
  test::PolicyLayer sparq("sparq:topk=40,topr=9,bypass=1", {.shape = shape});
  test::PolicyLayer hsa("hsa:topk=40,topr=9,page_size=1,bypass=1", {.shape = shape});
  sparq.Prompt(300);
  hsa.Prompt(300);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(sparq.Step()[0].list, hsa.Step()[0].list);
  }
}

TEST(SparQ, ReallocatesByDefaultOnlyForSingleHeads) {
  for (const auto& [realloc, group, expected] :
       {std::tuple("auto", 1, true), {"auto", 2, false}, {"on", 2, true}, {"off", 1, false}}) {
    const TurnShape shape = {.prompt_tokens = 300, .head_dim = 64, .group = group};
    test::PolicyLayer layer(std::string("sparq:topk=40,topr=9,bypass=1,realloc=") + realloc,
                            {.shape = shape});
    layer.Prompt(300);
    EXPECT_EQ(layer.Step()[0].share.size(), expected ? static_cast<std::size_t>(group) : 0u);
  }
}

TEST(SparQ, ChannelsFollowFromTheBudget) {
  const TurnShape shape = {.prompt_tokens = 16256, .max_new_tokens = 128, .head_dim = 128};
  for (const auto& [budget, channels] : {std::pair(512, 4), {128, 1}, {64, 1}, {100000, 128}}) {
    const auto policy = test::MakePolicy("sparq:budget=" + std::to_string(budget));
    const auto pairs = policy->Explain(policy->Plan(shape));
    EXPECT_EQ((std::map<std::string, double>(pairs.begin(), pairs.end()).at("topr")), channels);
  }
}

TEST(ValueMean, FollowsTheSlots) {  // U7
  const TurnShape shape = {.prompt_tokens = 300, .head_dim = 64, .group = 1};
  test::PolicyLayer layer("sparq:topk=40,bypass=1", {.shape = shape});
  layer.Prompt(300);
  for (int i = 0; i < 5; ++i) {
    layer.Append();
  }
  HeadState& state = *static_cast<ComposedState*>(layer.state(0))->selector;
  const float* mean = static_cast<const CompletedChunks&>(state).mean_value();
  const std::vector<float> appended(mean, mean + 64);
  CompletedChunks rebuilt(
      {.turn = &layer.shape(), .codec = kv::Codec::kF32, .meter = &layer.meter()}, 64, 1);
  ASSERT_TRUE(rebuilt.Build({.rows = layer.slots(0)}).ok());
  EXPECT_EQ(appended, std::vector<float>(rebuilt.mean_value(), rebuilt.mean_value() + 64));
  layer.head(0).Truncate(301);
  state.Truncate(layer.slots(0));
  ExpectMean(mean, layer.slots(0));
  const List kept = {0, 7, 100, 300};
  layer.head(0).Keep(kept);
  ASSERT_TRUE(state.Keep(layer.slots(0), kept).ok());
  ExpectMean(mean, layer.slots(0));
  layer.head(0).Truncate(0);
  state.Truncate(layer.slots(0));
  EXPECT_EQ(mean[0], 0.0f);
}

TEST(ValueMean, MemoryIsCounted) {
  kv::MemoryMeter meter;
  {
    ValueMean mean(64, meter);
    EXPECT_EQ(meter.index_bytes(), ValueMean::Bytes(64));
  }
  EXPECT_EQ(meter.index_bytes(), 0u);
}

TEST(SparQ, PropertiesOfEverySelector) {
  test::ExpectPermutes("sparq:topk=40,topr=6,bypass=1");
  test::ExpectSelectorProperties("sparq", 0.001);
  test::ExpectSelectorProperties("sparq:realloc=on,local=3", 0.001);
}

TEST(SparQ, RefusesWhatDoesNotFit) {
  const TurnShape shape = {.prompt_tokens = 300, .head_dim = 64, .group = 1};
  const auto message = [&](std::string_view spec) {
    const auto policy = test::MakePolicy(spec);
    return policy->CheckShape(policy->Plan(shape)).message();
  };
  EXPECT_THAT(message("sparq:topr=65"), HasSubstr("option 'topr' is '65'"));
  EXPECT_THAT(message("sparq:topk=9,local=10"),
              HasSubstr("option 'local' is '10', allowed: a whole number from 0 to 9, topk"));
  EXPECT_FALSE(MakePolicy("sparq:realloc=maybe"));
}

}  // namespace
}  // namespace rkv::policy
