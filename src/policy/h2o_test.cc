// Heavy hitters against plain sums kept by position.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "policy/attention_sums.h"
#include "policy/composed_state.h"
#include "support/forwarding_policy.h"
#include "support/policy_layer.h"
#include "support/test_head.h"

namespace rkv::policy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using List = std::vector<std::int32_t>;
using Sums = std::map<std::int32_t, double>;  // by position

constexpr TurnShape kShape = {
    .prompt_tokens = 100, .max_new_tokens = 50, .head_dim = 8, .group = 2, .kv_heads = 2};

const SlotSums& SumsOf(HeadState* state) {
  return static_cast<const AttentionSums&>(*static_cast<ComposedState&>(*state).evictor).slots();
}

// Notes what the prompt gives every position of each head.
class Spy final : public test::ForwardingPolicy {
 public:
  using ForwardingPolicy::ForwardingPolicy;
  Status Evict(const LayerPrefill& in, std::span<Rows> keep) const override {
    seen.assign(in.heads.size(), {});
    for (std::size_t h = 0; h < in.heads.size(); ++h) {
      for (std::int32_t row = 0; row < in.heads[h].view.rows; ++row) {
        seen[h][in.heads[h].view.positions[row]] =
            static_cast<double>(in.heads[h].column_mass[static_cast<std::size_t>(row)]);
      }
    }
    return inner().Evict(in, keep);
  }
  mutable std::vector<Sums> seen;
};

// The specification read word by word, for one head.
struct PlainH2o {
  std::size_t heavy, recent;
  Sums sums = {};

  void Prompt(const Sums& mass, std::int32_t first_new) {
    for (const auto& [position, sum] : mass) {
      if (position >= first_new || sums.contains(position)) {  // else it is dead
        sums[position] += sum;
      }
    }
    Evict();
  }
  void Evict() {
    while (sums.size() > heavy + recent) {
      auto least = sums.begin();
      auto it = sums.begin();
      for (std::size_t i = 0; i < sums.size() - recent; ++i, ++it) {
        least = it->second <= least->second ? it : least;
      }
      sums.erase(least);
    }
  }
};

List Keys(const Sums& sums) {
  List keys;
  for (const auto& [position, sum] : sums) {
    keys.push_back(position);
  }
  return keys;
}

// Steps through `tokens` and compares what is read and summed with the plain method.
void CheckSteps(test::PolicyLayer& layer, std::vector<PlainH2o>& plain, std::int32_t tokens,
                std::int32_t position) {
  for (std::int32_t i = 0; i < tokens; ++i, ++position) {
    layer.Append(2.0f);
    for (std::size_t h = 0; h < plain.size(); ++h) {
      plain[h].sums[position] = 0;
      const Rows read = layer.Select(h);
      const kv::SlotView slots = layer.slots(h);
      const attention::RowList rows = read.Of(0, slots.slots);
      const std::vector<double> logits = layer.Logits(h);
      List slot_of;
      List positions;
      for (std::int32_t j = 0; j < rows.count; ++j) {
        slot_of.push_back(rows.list == nullptr ? j : rows.list[j]);
        positions.push_back(slots.Position(slot_of.back()));
      }
      ASSERT_EQ(positions, Keys(plain[h].sums)) << "step " << i;
      ASSERT_EQ(read.estimate_bytes, 4.0 * rows.count);
      for (std::int32_t g = 0; g < layer.shape().group; ++g) {
        const double* row = logits.data() + static_cast<std::ptrdiff_t>(g) * slots.slots;
        double norm = 0;
        for (const std::int32_t slot : slot_of) {
          norm += std::exp(row[slot]);
        }
        for (const std::int32_t slot : slot_of) {
          plain[h].sums[slots.Position(slot)] += std::exp(row[slot]) / norm;
        }
      }
      plain[h].Evict();
      layer.Observe(h, read);
    }
  }
}

// The latest sums of the live slots, by position.
Sums LiveSums(test::PolicyLayer& layer, std::size_t h) {
  const SlotSums& slots = SumsOf(layer.state(h));
  Sums out;
  for (const std::int32_t slot : slots.live) {
    out[layer.slots(h).Position(slot)] =
        static_cast<double>(slots.sums[static_cast<std::size_t>(slot)]);
  }
  return out;
}

TEST(H2o, EqualsThePlainMethodOverTurns) {
  for (const std::int32_t group : {1, 2, 3, 8}) {
    for (const std::int32_t prompt : {1, 2, 19, 20, 21, 90}) {
      TurnShape shape = kShape;
      shape.group = group;
      shape.head_dim = group == 3 ? 64 : 8;
      auto made = std::make_unique<Spy>(test::MakePolicy("h2o:budget=20"));
      const Spy* spy = made.get();
      test::PolicyLayer layer(std::move(made), {.shape = shape, .seed = 7});
      std::vector<PlainH2o> plain(2, {.heavy = 10, .recent = 10});
      std::int32_t position = 0;
      for (const auto& [tokens, steps] : {std::pair(prompt, 25), {7, 10}, {1, 2}}) {
        const std::vector<Rows> keep = layer.Prompt(tokens, 2.0f);
        for (std::size_t h = 0; h < 2; ++h) {
          plain[h].Prompt(spy->seen[h], position);
          ASSERT_LE(layer.head(h).rows(), 20);
        }
        position += tokens;
        CheckSteps(layer, plain, steps, position);
        position += steps;
        for (std::size_t h = 0; h < 2; ++h) {
          const Sums sums = LiveSums(layer, h);
          ASSERT_EQ(Keys(sums), Keys(plain[h].sums));
          for (const auto& [at, sum] : sums) {
            EXPECT_NEAR(sum, plain[h].sums.at(at), 1e-4);
          }
        }
      }
    }
  }
}

// A head of `keys` (each its logarithm in channel 0) and the query that gives the keys back.
struct TraceHead {
  explicit TraceHead(const std::vector<float>& weights)
      : head(2, kv::Codec::kF32, static_cast<std::int32_t>(weights.size())) {
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const std::vector<float> row = {std::log(weights[i]), 0};
      head.SetRow(static_cast<std::int32_t>(i), row, row);
    }
  }
  test::TestHead head;
  std::vector<float> query = {1, 0};
};

TEST(H2o, TheSpecificationsTrace) {
  const auto policy = test::MakePolicy("h2o:heavy=1,recent=2");
  const TurnShape shape = policy->Plan({.prompt_tokens = 4, .max_new_tokens = 9, .head_dim = 2});
  kv::MemoryMeter meter;
  const TraceHead prompt({1, 1, 1, 1});
  const std::vector<float> mass = {1.9f, 1.1f, .6f, .4f};
  HeadPrefill head;
  head.view = prompt.head.view();
  head.column_mass = mass;
  LayerPrefill layer;
  layer.shape = shape;
  layer.heads = {&head, 1};
  std::vector<Rows> keep(1);
  ASSERT_TRUE(policy->Evict(layer, keep).ok());
  EXPECT_THAT(keep[0].list, ElementsAre(0, 2, 3));

  const auto state = policy->NewState({.turn = &shape, .meter = &meter});
  const TraceHead kept({.4f, .1f, .2f});
  ASSERT_TRUE(state->Build({.rows = kept.head.view(), .prefill = &head, .keep = keep.data()}).ok());
  const TraceHead next({.4f, .1f, .2f, .3f});  // the rows 0, 2, 3, 4
  ASSERT_TRUE(state->Append(next.head.view()).ok());
  Scratch scratch;
  HeadDecode step;
  step.shape = &shape;
  step.rows = next.head.view();
  step.state = state.get();
  step.query = {next.query.data(), 1};
  step.backend = &attention::RefBackend();
  step.scratch = &scratch;
  Rows read;
  ASSERT_TRUE(policy->Select(step, read).ok());
  EXPECT_TRUE(read.all);
  Rows stay;
  const float log_sum = 0;
  ASSERT_TRUE(policy->Observe(step, read, {&log_sum, 1}, stay).ok());
  EXPECT_THAT(stay.list, ElementsAre(0, 2, 3));  // the rows 0, 3, 4
  EXPECT_THAT(SumsOf(state.get()).sums,
              ElementsAre(testing::FloatNear(2.3f, 1e-6f), testing::FloatNear(.7f, 1e-6f),
                          testing::FloatNear(.6f, 1e-6f), testing::FloatNear(.3f, 1e-6f)));
  ASSERT_TRUE(state->Keep(kept.head.view(), stay.list).ok());
  EXPECT_EQ(SumsOf(state.get()).live_slots(), 3);
}

TEST(SlotSums, TiesKeepTheLowerSlotAndNanGoesFirst) {
  SlotSums slots;
  slots.Resize(7);
  slots.sums = {1, 3, 3, NAN, 3, 0, 0};
  slots.LeaveHeaviest(2, 2);
  EXPECT_THAT(slots.live, ElementsAre(1, 2, 5, 6));
  slots.sums = {1, NAN, 3, 3, 3, 0, 0};
  slots.LeaveHeaviest(1, 2);
  EXPECT_THAT(slots.live, ElementsAre(2, 5, 6));
}

TEST(SlotSums, CommutesWithAPermutationOfTheHeavyRows) {  // U5
  Rng rng(3);
  const std::vector<float> mass = test::NormalVector(rng, 40);
  SlotSums plain;
  plain.Resize(40);
  plain.sums = mass;
  plain.LeaveHeaviest(9, 5);
  List order(35);  // of the rows before the last 5
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1], order[rng.Below(i)]);
  }
  SlotSums mixed;
  mixed.Resize(40);
  mixed.sums = mass;
  for (std::size_t i = 0; i < order.size(); ++i) {
    mixed.sums[i] = mass[static_cast<std::size_t>(order[i])];
  }
  mixed.LeaveHeaviest(9, 5);
  List back;
  for (const std::int32_t slot : mixed.live) {
    back.push_back(slot < 35 ? order[static_cast<std::size_t>(slot)] : slot);
  }
  std::sort(back.begin(), back.end());
  EXPECT_EQ(back, plain.live);
}

TEST(SlotSums, FollowsTheSlots) {  // U7
  SlotSums slots;
  slots.Resize(5);
  slots.sums = {5, 1, 4, 2, 3};
  slots.LeaveHeaviest(2, 1);
  EXPECT_THAT(slots.live, ElementsAre(0, 2, 4));
  slots.Resize(6);
  EXPECT_THAT(slots.live, ElementsAre(0, 2, 4, 5));
  slots.Resize(4);  // a rewind
  EXPECT_THAT(slots.live, ElementsAre(0, 2));
  slots.Keep(List{1, 2, 3});
  EXPECT_THAT(slots.live, ElementsAre(1));
  EXPECT_THAT(slots.sums, ElementsAre(1, 4, 2));
}

TEST(AttentionSums, MetersItsBytes) {
  test::PolicyLayer layer("h2o:budget=20", {.shape = kShape});
  layer.Prompt(100);
  for (std::int32_t i = 0; i < 60; ++i) {
    EXPECT_GE(layer.meter().index_bytes(), 2u * 20 * 8);
    EXPECT_LE(layer.meter().index_bytes(), 2 * AttentionSums::Bytes(100 + i));
    layer.Step();
  }
}

TEST(H2o, CountsQueryHeadsListsEachAlone) {
  const test::TestHead head = [] {
    Rng rng(5);
    return test::TestHead::Random(rng, 8, kv::Codec::kF32, 12);
  }();
  Rng rng(6);
  const std::vector<float> query = test::NormalVector(rng, 16);
  const List view = {0, 2, 3, 5, 8, 11};
  Scratch scratch;
  HeadDecode in;
  in.rows = {head.view(), view.data(), 6};
  in.query = {query.data(), 2};
  in.backend = &attention::RefBackend();
  in.scratch = &scratch;
  Rows read;
  read.all = false;
  read.heads = {{0, 4}, {1, 4, 5}};
  const std::vector<float> log_sum = {0.5f, -0.25f};
  std::vector<float> sums(6);
  AddStepMass(in, read, log_sum, sums);
  std::vector<float> expected(6);
  for (const auto& [g, slot] : {std::pair(0, 0), {0, 4}, {1, 1}, {1, 4}, {1, 5}}) {
    const std::vector<float> key = head.Key(view[static_cast<std::size_t>(slot)]);
    const double dot = std::inner_product(key.begin(), key.end(), query.begin() + 8 * g, 0.0);
    expected[static_cast<std::size_t>(slot)] +=
        static_cast<float>(std::exp(dot - log_sum[static_cast<std::size_t>(g)]));
  }
  EXPECT_THAT(sums, testing::Pointwise(testing::FloatNear(1e-5f), expected));
}

TEST(H2o, ExplainsWhatAStepReads) {
  const auto explained = [](std::string_view spec) {
    const auto pairs = ExplainPolicy(*test::MakePolicy(spec), kShape);
    return std::map<std::string, double>(pairs.begin(), pairs.end());
  };
  const auto some = explained("h2o:budget=33");
  EXPECT_EQ(some.at("heavy"), 17);
  EXPECT_EQ(some.at("recent"), 16);
  EXPECT_EQ(some.at("rows_kept"), 33);
  EXPECT_EQ(some.at("max_rows"), 34);  // the token's own row
  EXPECT_EQ(some.at("estimation_traffic"), 34.0 / 8);
  EXPECT_EQ(some.at("total_traffic"), 34 + 34.0 / 8);
  EXPECT_EQ(explained("h2o:budget=149").at("max_rows"), 150);
  EXPECT_EQ(explained("h2o:budget=32,heavy=5").at("recent"), 27);
  EXPECT_EQ(explained("h2o:budget=32,recent=5").at("heavy"), 27);
  EXPECT_EQ(explained("h2o:budget=16,heavy=40").at("rows_kept"), 41);
}

TEST(H2o, ABudgetOfTheWholeLengthChangesNothing) {
  test::PolicyLayer layer("h2o:budget=149", {.shape = kShape});
  EXPECT_TRUE(layer.Prompt(100)[0].all);
  for (std::int32_t i = 0; i < 50; ++i) {
    EXPECT_TRUE(layer.Step()[0].all);
  }
  EXPECT_EQ(layer.head(0).rows(), 150);
  EXPECT_EQ(layer.Step()[0].list.size(), 150u);
}

TEST(H2o, RefusesValuesOutOfRange) {
  for (const auto* spec : {"h2o:heavy=0", "h2o:recent=0", "h2o:recent=-1", "h2o:heavy=x"}) {
    const auto made = MakePolicy(spec);
    ASSERT_FALSE(made) << spec;
    EXPECT_THAT(made.error().message(), HasSubstr("auto or a whole number from 1 to 16777216"));
  }
  EXPECT_THAT(test::MakePolicy("h2o")->spec(), HasSubstr("heavy=auto,recent=auto"));
}

}  // namespace
}  // namespace rkv::policy
