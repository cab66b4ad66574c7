// FastGen's steps against plain ones kept by position, and its budget.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "policy/fastgen_rules.h"
#include "support/forwarding_policy.h"
#include "support/policy_layer.h"
#include "support/prompt_attention.h"
#include "support/test_head.h"

namespace rkv::policy {
namespace {

using test::Attention;
using test::ClassAt;
using test::Classes;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using List = std::vector<std::int32_t>;

constexpr TurnShape kShape = {
    .prompt_tokens = 120, .max_new_tokens = 40, .head_dim = 8, .group = 2, .kv_heads = 3};

// Slots of `rows` spelled out.
List Spelled(const Rows& rows, std::int32_t slots) {
  List list = rows.list;
  if (rows.all) {
    list.resize(static_cast<std::size_t>(slots));
    std::iota(list.begin(), list.end(), 0);
  }
  return list;
}

// Notes what the prompt gives every position of each head, and the rules chosen.
class Spy final : public test::ForwardingPolicy {
 public:
  using ForwardingPolicy::ForwardingPolicy;
  Status Evict(const LayerPrefill& in, std::span<Rows> keep) const override {
    mass.assign(in.heads.size(), {});
    for (std::size_t h = 0; h < in.heads.size(); ++h) {
      for (std::int32_t row = 0; row < in.heads[h].view.rows; ++row) {
        mass[h][in.heads[h].view.positions[row]] =
            static_cast<double>(in.heads[h].column_mass[static_cast<std::size_t>(row)]);
      }
    }
    return inner().Evict(in, keep);
  }
  mutable std::vector<std::map<std::int32_t, double>> mass;
};

// One head while decoding, by position, as the specification words it.
struct PlainHead {
  FastGenRule rule = kEverything;
  std::int32_t sinks = 4, local = 0, frequent = 0;
  std::map<std::int32_t, double> sums = {};

  void Evict(std::int32_t now) {
    if (rule == kEverything) {
      return;
    }
    std::vector<std::pair<double, std::int32_t>> words;  // by average
    for (const auto& [p, sum] : sums) {
      const bool special = p < sinks || ClassAt(p) == TokenClass::kSpecial;
      const bool mark = rule >= kPunctuation && ClassAt(p) == TokenClass::kPunctuation;
      const bool near = rule == kLocal && p > now - local;
      if (!special && !mark && !near) {
        words.emplace_back(sum / (now - p + 1), p);
      }
    }
    std::ranges::sort(words);
    const std::size_t most = rule >= kFrequent ? static_cast<std::size_t>(frequent) : 0;
    for (std::size_t i = 0; i + most < words.size(); ++i) {
      sums.erase(words[i].second);
    }
  }
};

std::unique_ptr<Spy> MakeSpy(const std::string& spec) {
  return std::make_unique<Spy>(test::MakePolicy(spec));
}

// Positions of the slots that head h reads, and the step's attention added to `plain`.
List ReadAndAdd(test::PolicyLayer& layer, std::size_t h, const Rows& read, PlainHead& plain) {
  const kv::SlotView slots = layer.slots(h);
  const List list = Spelled(read, slots.slots);
  const std::vector<double> logits = layer.Logits(h);
  List positions;
  for (const std::int32_t slot : list) {
    positions.push_back(slots.Position(slot));
  }
  for (std::int32_t g = 0; g < layer.shape().group; ++g) {
    const double* row = logits.data() + static_cast<std::ptrdiff_t>(g) * slots.slots;
    double norm = 0;
    for (const std::int32_t slot : list) {
      norm += std::exp(row[slot]);
    }
    for (const std::int32_t slot : list) {
      plain.sums[slots.Position(slot)] += std::exp(row[slot]) / norm;
    }
  }
  return positions;
}

TEST(FastGen, EveryRuleDecodesAsItsPlainVersion) {
  std::map<FastGenRule, int> met;
  for (const char* threshold : {"0", "0.15", "0.3", "0.55", "0.65", "0.75", "2"}) {
    auto made = MakeSpy("fastgen:frequent=0.1,local=0.1,threshold=" + std::string(threshold));
    const Spy* spy = made.get();
    test::PolicyLayer layer(std::move(made), {.shape = kShape, .seed = 5});
    std::vector<PlainHead> plain(3);
    std::int32_t now = 0;
    for (const std::int32_t tokens : {120, 9}) {  // profiled anew in the second turn
      layer.classes() = Classes(now + tokens);
      const std::vector<Rows> keep = layer.Prompt(tokens, 2.0f);
      for (std::size_t h = 0; h < 3; ++h) {
        PlainHead& head = plain[h];
        head.rule = static_cast<FastGenRule>(keep[h].rule);
        head.local = head.frequent = 12;
        ++met[head.rule];
        std::map<std::int32_t, double> left;
        for (std::int32_t row = 0; row < layer.head(h).rows(); ++row) {
          const std::int32_t p = layer.slots(h).Position(row);
          ASSERT_TRUE(p >= now || head.sums.contains(p)) << "a dead row came back";
          left[p] = head.sums[p] + spy->mass[h].at(p);
        }
        head.sums = std::move(left);
      }
      now += tokens;
      for (std::int32_t i = 0; i < 30; ++i, ++now) {
        layer.Append(2.0f);
        layer.classes() = Classes(now + 1);
        for (std::size_t h = 0; h < 3; ++h) {
          plain[h].sums[now] = 0;
          List expected;
          for (const auto& [p, sum] : plain[h].sums) {
            expected.push_back(p);
          }
          const Rows read = layer.Select(h);
          ASSERT_EQ(ReadAndAdd(layer, h, read, plain[h]), expected)
              << threshold << " rule " << plain[h].rule << " step " << i;
          ASSERT_EQ(read.estimate_bytes, 4.0 * static_cast<double>(expected.size()));
          plain[h].Evict(now);
          layer.Observe(h, read);
        }
      }
    }
  }
  EXPECT_EQ(met.size(), kFastGenRules) << "some rule was never chosen";
}

TEST(FastGen, ThresholdsOfNothingAndEverything) {
  for (const std::int32_t tokens : {1, 3, 4, 5, 120}) {
    test::PolicyLayer none("fastgen:threshold=0", {.shape = kShape});
    test::PolicyLayer all("fastgen:threshold=2", {.shape = kShape});
    none.classes() = all.classes() = Classes(tokens);
    for (const Rows& keep : none.Prompt(tokens)) {
      EXPECT_EQ(keep.rule, kSpecialRows);
      for (const std::int32_t row : Spelled(keep, tokens)) {
        EXPECT_TRUE(row < 4 || ClassAt(row) == TokenClass::kSpecial);
      }
    }
    for (const Rows& keep : all.Prompt(tokens)) {
      EXPECT_EQ(keep.rule, kEverything);
      EXPECT_TRUE(keep.all);
    }
  }
}

TEST(FastGen, TheBudgetHoldsAtTheEndOfTheAnswer) {
  for (const std::int32_t budget : {16, 24, 40, 64, 100, 130, 159, 160}) {
    for (std::uint64_t seed = 1; seed < 6; ++seed) {
      const std::string spec = "fastgen:budget=" + std::to_string(budget);
      test::PolicyLayer layer(spec, {.shape = kShape, .seed = seed});
      const std::vector<Rows> keep = layer.Prompt(120, 3.0f);
      std::int64_t kept = 0;
      for (const Rows& head : keep) {
        kept += static_cast<std::int64_t>(Spelled(head, 120).size());
        EXPECT_TRUE(budget < 160 || head.rule == kEverything);
      }
      EXPECT_LE(kept, 3 * budget);
      EXPECT_GE(kept, 3 * budget / 3);  // what jumps lose
      std::int64_t read = 0;
      for (std::int32_t i = 0; i < 40; ++i) {
        read = 0;
        const std::vector<Rows> step = layer.Step(3.0f);
        for (std::size_t h = 0; h < 3; ++h) {
          read += step[h].Of(0, layer.slots(h).slots).count;
        }
      }
      EXPECT_LE(read, 3 * (budget + 1)) << budget;
    }
  }
}

TEST(FastGen, LayersPassOnWhatTheyLeave) {
  const auto policy = test::MakePolicy("fastgen:budget=40");
  const TurnShape shape = policy->Plan(kShape);
  const Attention attention(120, 2, policy->needs(shape).band, 9);
  const test::TestHead rows(2, kv::Codec::kF32, 120);
  HeadPrefill head;
  head.view = rows.view();
  head.column_mass = attention.column;
  head.near_mass = attention.near;
  std::vector<HeadPrefill> heads(3, head);
  std::vector<std::vector<Rows>> earlier;
  std::int64_t kept = 0;
  for (std::int32_t layer = 0; layer < 12; ++layer) {
    LayerPrefill in;
    in.shape = shape;
    in.layer = layer;
    in.turn_tokens = 120;
    in.heads = heads;
    in.earlier = earlier;
    std::vector<Rows> keep(3);
    ASSERT_TRUE(policy->Evict(in, keep).ok());
    for (const Rows& one : keep) {
      const std::int64_t count = one.Of(0, 120).count;
      kept += one.rule == kEverything ? count + 40 : one.rule == kLocal ? 40 : count;
    }
    earlier.push_back(std::move(keep));
    EXPECT_LE(kept, 3 * 40 * (layer + 1));
  }
  EXPECT_GE(kept, 3 * 40 * 12 - 3 * 160);
}

TEST(FastGen, ExplainsItsCounts) {
  const auto explained = [](std::string_view spec) {
    const auto pairs = ExplainPolicy(*test::MakePolicy(spec), kShape);
    return std::map<std::string, double>(pairs.begin(), pairs.end());
  };
  EXPECT_EQ(explained("fastgen:budget=40").at("local"), 20);
  EXPECT_EQ(explained("fastgen:budget=40").at("frequent"), 20);
  EXPECT_EQ(explained("fastgen:budget=40").at("max_rows"), 41);
  EXPECT_EQ(explained("fastgen:budget=40").at("total_traffic"), 41 + 41.0 / 8);
  EXPECT_EQ(explained("fastgen:budget=1000").at("local"), 36);  // 0.3 of the prompt
  EXPECT_EQ(explained("fastgen:budget=1000").at("max_rows"), 160);
  EXPECT_EQ(explained("fastgen:budget=40,local=0.5").at("local"), 60);
  EXPECT_EQ(explained("fastgen:budget=40,threshold=0.9").at("local"), 36);
  EXPECT_EQ(explained("fastgen:budget=40,threshold=0.9").at("max_rows"), 160);  // at most
}

TEST(FastGen, RefusesValuesOutOfRange) {
  for (const auto& [spec, range] : {std::pair("fastgen:threshold=2.1", "0 to 2"),
                                    {"fastgen:threshold=-0.1", "0 to 2"},
                                    {"fastgen:frequent=1.1", "0 to 1"},
                                    {"fastgen:local=x", "0 to 1"},
                                    {"fastgen:sinks=-1", "0 to 4096"}}) {
    const auto made = MakePolicy(spec);
    ASSERT_FALSE(made) << spec;
    EXPECT_THAT(made.error().message(), HasSubstr(range));
  }
  EXPECT_THAT(test::MakePolicy("fastgen")->spec(),
              HasSubstr("threshold=auto,frequent=auto,local=auto,sinks=4"));
}

}  // namespace
}  // namespace rkv::policy
