// What holds for every method and every pair of an evictor and a selector: valid lists, reads
// within the budget, two equal runs, prompts of any length, nothing lost where the budget covers
// all.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/forwarding_policy.h"
#include "support/head_table_file.h"
#include "support/policy_layer.h"

namespace rkv::policy {
namespace {

using List = std::vector<std::int32_t>;

constexpr std::int32_t kPrompt = 300;
constexpr std::int32_t kAnswer = 80;
constexpr std::int32_t kLaterPrompt = 40;
constexpr std::int32_t kLaterAnswer = 20;
constexpr std::int32_t kAll = kPrompt + kAnswer + kLaterPrompt + kLaterAnswer;
// Twice what a conversation has, if every turn gives the answer that the first one planned.
constexpr std::int32_t kAmple = 2 * (kPrompt + kLaterPrompt + 2 * kAnswer);

TurnShape Shape(std::int32_t group) {
  return {.prompt_tokens = kPrompt,
          .max_new_tokens = kAnswer,
          .head_dim = 16,
          .group = group,
          .kv_heads = 2};
}

// "name:budget=32", as far as the method has a budget.
std::string WithBudget(const std::string& name, std::int32_t budget) {
  const char* const join = name.find('=') == std::string::npos ? ":" : ",";
  std::string spec = name + join + "budget=" + std::to_string(budget);
  return MakePolicy(spec) ? spec : name;
}

std::vector<std::string> Methods(std::int32_t budget) {
  std::vector<std::string> specs;
  for (const PolicyInfo& info : KnownPolicies()) {
    specs.push_back(WithBudget(test::WithTable(info.name), budget));
  }
  return specs;
}

std::vector<std::string> Pairs(std::int32_t budget) {
  std::vector<std::string> specs;
  for (const PolicyInfo& evictor : KnownPolicies()) {
    for (const PolicyInfo& selector : KnownPolicies()) {
      std::string table = test::WithTable(evictor.name).substr(evictor.name.size());
      std::ranges::replace(table, ':', ',');
      const std::string name = "evict=" + evictor.name + ",select=" + selector.name + table;
      if (MakePolicy(name)) {
        specs.push_back(WithBudget(name, budget));
      }
    }
  }
  return specs;
}

// Whether the method can run here; says why not.
bool Fits(const std::string& spec, const TurnShape& shape) {
  const auto policy = test::MakePolicy(spec);
  const Status status = policy->CheckShape(policy->Plan(shape));
  if (!status.ok()) {
    std::cout << "left out: " << spec << ": " << status.message() << '\n';
  }
  return status.ok();
}

bool IsValid(const List& list, std::int32_t slots) {
  return std::ranges::adjacent_find(list, std::greater_equal<>()) == list.end() &&
         (list.empty() || (list.front() >= 0 && list.back() < slots));
}

// U4: ascending, unique, slots that exist.
bool IsValid(const Rows& rows, std::int32_t slots, std::int32_t group) {
  return rows.all ||
         (IsValid(rows.list, slots) &&
          (rows.heads.empty() || rows.heads.size() == static_cast<std::size_t>(group)) &&
          std::ranges::all_of(rows.heads, [&](const List& head) { return IsValid(head, slots); }));
}

// Checks all that a method answers.
class Checked final : public test::ForwardingPolicy {
 public:
  using ForwardingPolicy::ForwardingPolicy;

  Status Evict(const LayerPrefill& in, std::span<Rows> keep) const override {
    Status status = inner().Evict(in, keep);
    for (std::size_t h = 0; h < keep.size(); ++h) {
      EXPECT_TRUE(IsValid(keep[h], in.heads[h].view.rows, in.shape.group)) << spec();
    }
    return status;
  }
  Status Select(const HeadDecode& in, Rows& read) const override {
    Status status = inner().Select(in, read);
    EXPECT_TRUE(IsValid(read, in.rows.slots, in.shape->group)) << spec();
    for (std::int32_t g = 0; g < in.shape->group; ++g) {
      EXPECT_GT(read.Of(g, in.rows.slots).count, 0) << spec();
    }
    return status;
  }
  Status Observe(const HeadDecode& in, const Rows& read, std::span<const float> log_sum,
                 Rows& keep) const override {
    Status status = inner().Observe(in, read, log_sum, keep);
    EXPECT_TRUE(IsValid(keep, in.rows.slots, in.shape->group)) << spec();
    return status;
  }
};

// One conversation: what was read at each step by each head.
struct Talk {
  Talk(const std::string& spec, const TurnShape& shape)
      : layer(std::make_unique<Checked>(test::MakePolicy(spec)), {.shape = shape}) {
    layer.classes().resize(kPrompt);
    for (std::size_t i = 0; i < kPrompt; ++i) {
      layer.classes()[i] = i % 100 == 0  ? TokenClass::kSpecial
                           : i % 17 == 5 ? TokenClass::kPunctuation
                                         : TokenClass::kWord;
    }
  }
  void Prompt(std::int32_t tokens) { keeps.push_back(layer.Prompt(tokens, 1.5f)); }
  void Steps(std::int32_t count) {
    for (std::int32_t i = 0; i < count; ++i) {
      layer.Append(1.5f);
      std::vector<Rows> step;
      double rows = 0;
      for (std::size_t h = 0; h < 2; ++h) {
        const std::int32_t slots = layer.slots(h).slots;
        step.push_back(layer.Select(h));
        rows += Traffic(step.back(), slots);
        everything = everything && step.back().Of(0, slots).count == slots;
        if (layer.needs().observes) {
          layer.Observe(h, step.back());
        }
      }
      most = std::max(most, rows / 2);
      reads.push_back(std::move(step));
    }
  }
  // In 16-bit rows' worth; the layer's rows have 32 bits, as has what Select counts of an index.
  double Traffic(const Rows& read, std::int32_t slots) const {
    double rows = 0;
    for (std::int32_t g = 0; g < (read.heads.empty() ? 1 : layer.shape().group); ++g) {
      rows += read.Of(g, slots).count;
    }
    return rows + read.estimate_bytes / (4.0 * layer.shape().head_dim * 2);
  }

  test::PolicyLayer layer;
  std::vector<std::vector<Rows>> keeps;
  std::vector<std::vector<Rows>> reads;
  double most = 0;         // rows' worth of a step, mean over heads
  bool everything = true;  // whether every step read all slots
};

std::unique_ptr<Talk> FirstTurn(const std::string& spec, const TurnShape& shape) {
  auto talk = std::make_unique<Talk>(spec, shape);
  talk->Prompt(kPrompt);
  talk->Steps(kAnswer);
  return talk;
}

bool Equal(const std::vector<std::vector<Rows>>& a, const std::vector<std::vector<Rows>>& b) {
  return std::ranges::equal(a, b, [](const auto& left, const auto& right) {
    return std::ranges::equal(left, right, [](const Rows& x, const Rows& y) {
      return x.all == y.all && x.list == y.list && x.heads == y.heads && x.share == y.share &&
             x.estimate_bytes == y.estimate_bytes;
    });
  });
}

void CheckConversation(const std::string& spec, std::int32_t group) {
  SCOPED_TRACE(spec + " group " + std::to_string(group));
  const TurnShape shape = Shape(group);
  if (!Fits(spec, shape)) {
    return;
  }
  const auto talk = FirstTurn(spec, shape);
  const auto again = FirstTurn(spec, shape);
  // What the method says that its last step moves. All rows are read up to `bypass` times that; a
  // head's rows may be an eighth more than it is to read until they are dropped.
  std::map<std::string, double> explained;
  for (const auto& [name, value] : talk->layer.policy().Explain(talk->layer.shape())) {
    explained[name] = value;
  }
  const bool selects = talk->layer.shape().selects;
  EXPECT_LE(talk->most, explained.at("total_traffic") * (selects ? 1.6 * 1.125 : 1.0) + 1.0);
  for (Talk* each : {talk.get(), again.get()}) {
    each->Prompt(kLaterPrompt);
    each->Steps(kLaterAnswer);
  }
  EXPECT_TRUE(Equal(talk->keeps, again->keeps));
  EXPECT_TRUE(Equal(talk->reads, again->reads));
}

TEST(Matrix, EveryMethodReadsValidRowsWithinItsBudgetAndTwiceTheSame) {
  for (const std::string& spec : Methods(32)) {
    for (const std::int32_t group : {1, 3, 4}) {
      CheckConversation(spec, group);
    }
  }
}

TEST(Matrix, EveryPairReadsValidRowsWithinItsBudgetAndTwiceTheSame) {
  std::int32_t group = 0;
  for (const std::string& spec : Pairs(32)) {
    group = group % 4 + 1;
    CheckConversation(spec, group);
  }
}

TEST(Matrix, PromptsOfAnyLength) {
  std::vector<std::string> specs = Methods(16);
  std::ranges::copy(Pairs(16), std::back_inserter(specs));
  for (const std::string& spec : specs) {
    const std::int32_t window =
        std::max(test::PolicyLayer(spec, {.shape = Shape(1)}).needs().window, 4);
    for (const std::int32_t tokens : {1, 2, window - 1, window, window + 1}) {
      TurnShape shape = Shape(2);
      shape.prompt_tokens = tokens;
      if (!Fits(spec, shape)) {
        continue;
      }
      SCOPED_TRACE(spec + " prompt " + std::to_string(tokens));
      Talk talk(spec, shape);
      talk.Prompt(tokens);
      talk.Steps(3);
      talk.Prompt(1);
      talk.Steps(3);
    }
  }
}

TEST(Matrix, ABudgetOfTwiceTheLengthReadsEverything) {  // U1
  std::vector<std::string> specs = Methods(kAmple);
  std::ranges::copy(Pairs(kAmple), std::back_inserter(specs));
  for (const std::string& spec : specs) {
    if (!Fits(spec, Shape(2))) {
      continue;
    }
    const auto talk = FirstTurn(spec, Shape(2));
    talk->Prompt(kLaterPrompt);
    talk->Steps(kLaterAnswer);
    EXPECT_TRUE(talk->everything) << spec;
    EXPECT_EQ(talk->layer.slots(0).slots, kAll) << spec;
  }
}

}  // namespace
}  // namespace rkv::policy
