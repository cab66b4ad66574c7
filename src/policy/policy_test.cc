#include "policy/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "policy/composed_state.h"
#include "policy/stages.h"
#include "support/head_table_file.h"
#include "support/policy_layer.h"
#include "support/random.h"

namespace rkv::policy {
namespace {

using ::testing::HasSubstr;

constexpr TurnShape kLong = {.prompt_tokens = 16256, .max_new_tokens = 128, .head_dim = 128};

const auto Make = test::MakePolicy;

std::string Error(std::string_view spec) {
  const Result<std::unique_ptr<const Policy>> made = MakePolicy(spec);
  EXPECT_FALSE(made) << spec;
  return made ? "" : made.error().message();
}

std::map<std::string, double> Explained(std::string_view spec, const TurnShape& shape) {
  const auto pairs = ExplainPolicy(*Make(spec), shape);
  return {pairs.begin(), pairs.end()};
}

// What `spec` plans for a shape, and what the engine must prepare for it.
TurnShape Planned(const Policy& policy, const TurnShape& shape) { return policy.Plan(shape); }
Needs NeedsOf(const Policy& policy, const TurnShape& shape) {
  return policy.needs(Planned(policy, shape));
}
std::int64_t KeptOf(const Policy& policy, const TurnShape& shape) {
  return policy.RowsKept(Planned(policy, shape), shape.prompt_tokens);
}

// A layer whose heads got a prompt of `rows` tokens although `shape` planned for another.
struct Evicted {
  Evicted(std::string_view spec, const TurnShape& shape, std::int32_t rows)
      : layer(spec, {.shape = shape}), keep(layer.Prompt(rows)) {}
  test::PolicyLayer layer;
  std::vector<Rows> keep;
};

TEST(KnownPolicies, EveryMethodIsMadeByItsNameAndParsesItsOwnSpec) {
  for (const PolicyInfo& info : KnownPolicies()) {
    const std::string given = test::WithTable(info.name);
    const std::string join = given == info.name ? ":" : ",";
    const auto policy = Make(given);
    EXPECT_EQ(policy->name(), info.name == "auto" ? "rocketkv" : info.name);
    EXPECT_EQ(Make(policy->spec())->spec(), policy->spec());
    for (const std::string& text : {info.keeps, info.reads, info.state, info.source}) {
      EXPECT_FALSE(text.empty()) << info.name;
    }
    for (const OptionInfo& option : info.options) {
      if (option.default_value.empty()) {
        continue;  // none
      }
      EXPECT_FALSE(option.help.empty());
      EXPECT_THAT(policy->spec(), HasSubstr(option.name + "=" + option.default_value));
      EXPECT_EQ(Make(given + join + option.name + "=" + option.default_value)->spec(),
                policy->spec());
    }
  }
}

TEST(MakePolicy, AutoIsWhatTheSessionIsFor) {
  EXPECT_EQ(Make("auto:budget=64")->spec(), Make("rocketkv:budget=64")->spec());
  const auto chat = MakePolicy("auto:budget=64", true);
  ASSERT_TRUE(chat);
  EXPECT_EQ((*chat)->spec(), Make("rocketkv-mt:budget=64")->spec());
}

TEST(MakePolicy, SpecSpellsEveryOptionOut) {
  EXPECT_EQ(Make("full")->spec(), "full");
  EXPECT_EQ(Make("rocketkv")->spec(),
            "rocketkv:budget=1024,window_size=32,kernel_size=63,prompt_budget=auto,split=auto,"
            "topk=auto,topr=auto,page_size=auto,top_p=1,force_first=0,force_last=0,complete=no,"
            "bypass=1.6,last_token=decode");
  const std::string all =
      "rocketkv:budget=16,window_size=1,kernel_size=1,prompt_budget=2,split=0.1,topk=1,topr=1,"
      "page_size=1,top_p=0.5,force_first=1,force_last=0,complete=mean,bypass=2,last_token=prefill";
  EXPECT_EQ(Make(all)->spec(), all);
  EXPECT_EQ(Make("hsa:page_size=4,budget=256")->spec(),
            "hsa:budget=256,topk=auto,topr=auto,page_size=4,top_p=1,force_first=0,force_last=0,"
            "complete=no,bypass=1.6,last_token=decode");
}

TEST(MakePolicy, UnknownNamesListTheNearestAndAll) {
  EXPECT_THAT(
      Error("rocketvk"),
      HasSubstr("unknown method 'rocketvk'; did you mean 'rocketkv'? known: full, rocketkv"));
  EXPECT_THAT(Error(""), HasSubstr("unknown method ''; known: full, rocketkv"));
  EXPECT_THAT(Error("rocketkv:bugdet=5"),
              HasSubstr("has no option 'bugdet'; did you mean 'budget'?"));
  EXPECT_THAT(Error("hsa:window_size=5"), HasSubstr("method 'hsa' has no option 'window_size'"));
  EXPECT_EQ(Error("full:budget=5"), "method 'full' has no option 'budget', it takes none");
}

TEST(MakePolicy, RefusesValuesOutOfRange) {
  for (const char* spec :
       {"rocketkv:budget=15", "rocketkv:budget=16777217", "rocketkv:budget=auto",
        "rocketkv:window_size=0", "rocketkv:window_size=4097", "rocketkv:kernel_size=4",
        "rocketkv:kernel_size=-1", "rocketkv:prompt_budget=32", "rocketkv:split=1.5",
        "rocketkv:topk=0", "rocketkv:topr=0", "rocketkv:page_size=0", "rocketkv:last_token=no",
        "rocketkv:window_size=64,prompt_budget=64", "hsa:budget=1", "hsa:topk=x",
        "hsa:bypass=0.5"}) {
    EXPECT_THAT(Error(spec), HasSubstr("allowed: ")) << spec;
    EXPECT_THAT(Error(spec), ::testing::Not(HasSubstr("\n")));
  }
  EXPECT_THAT(Error("rocketkv:budget=15"), HasSubstr("a whole number from 16 to 16777216"));
  EXPECT_THAT(Error("rocketkv:prompt_budget=64,window_size=64"),
              HasSubstr("auto or a whole number from 65"));
  EXPECT_THAT(Error("rocketkv:budget=20,budget=30"), HasSubstr("given twice"));
  EXPECT_THAT(Error("rocketkv:"), HasSubstr("name=value"));
}

TEST(Composed, AnyEvictorGoesWithAnySelector) {
  const auto policy = Make("evict=snapkv,select=hsa,budget=512");
  EXPECT_EQ(policy->name(), "compose");
  EXPECT_THAT(policy->spec(), HasSubstr("evict=snapkv,select=hsa,budget=512,window_size=32,"));
  EXPECT_EQ(Make(policy->spec())->spec(), policy->spec());
  EXPECT_EQ(Make("compose:evict=snapkv,select=hsa,budget=512")->spec(), policy->spec());
  EXPECT_EQ(Make("select=hsa,budget=512")->Explain(Make("select=hsa,budget=512")->Plan(kLong)),
            Make("hsa:budget=512")->Explain(Make("hsa:budget=512")->Plan(kLong)));
}

TEST(Composed, RocketKvIsSnapKvAndHsaUnderItsSplit) {
  const auto composed =
      Explained("evict=snapkv,select=hsa,budget=512,kernel_size=63,split=auto", kLong);
  EXPECT_EQ(composed, Explained("rocketkv:budget=512", kLong));
  EXPECT_EQ(Explained("evict=snapkv,select=hsa,budget=512", kLong).at("alpha"), 0.5);
}

TEST(Composed, NamesWhatItDoesNotKnow) {
  EXPECT_THAT(Error("evict=snapvk,select=hsa"),
              HasSubstr("option 'evict' is 'snapvk', which is none of its methods; did you mean "
                        "'snapkv'?"));
  EXPECT_THAT(Error("evict=hsa"), HasSubstr("option 'evict' is 'hsa'"));
  EXPECT_THAT(Error("evict=snapkv,select=snapkv"), HasSubstr("option 'select' is 'snapkv'"));
  EXPECT_THAT(Error("budget=5"), HasSubstr("begins with evict=METHOD or select=METHOD"));
  EXPECT_THAT(Error("evict=snapkv,select=hsa,bugdet=5"), HasSubstr("did you mean 'budget'?"));
}

TEST(CheckShape, ChannelsMustExistInTheModel) {
  const auto check = [](const std::string& spec) {
    const auto policy = Make(spec);
    return policy->CheckShape(policy->Plan(kLong));
  };
  for (const std::string name : {"rocketkv", "hsa"}) {
    EXPECT_TRUE(check(name).ok());
    EXPECT_TRUE(check(name + ":topr=128").ok());
    const Status status = check(name + ":topr=129");
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("option 'topr' is '129'"));
    EXPECT_THAT(status.message(), HasSubstr("1 to 128"));
  }
  EXPECT_TRUE(check("full").ok());
}

TEST(CheckShape, AWindowThatWasAskedForFitsThePrompt) {
  const auto check = [](const std::string& spec, std::int32_t tokens) {
    const auto policy = Make(spec);
    TurnShape shape = kLong;
    shape.prompt_tokens = tokens;
    return policy->CheckShape(policy->Plan(shape)).message();
  };
  for (const std::string name : {"snapkv", "rocketkv", "adakv", "evict=snapkv,select=hsa"}) {
    const std::string given =
        name + (name.find('=') == std::string::npos ? ":" : ",") + "window_size=64";
    EXPECT_EQ(check(given, 64), "") << given;
    EXPECT_EQ(check(given, 63),
              "option 'window_size' is '64', allowed: a whole number from 1 to 63, the tokens of "
              "the prompt");
    EXPECT_EQ(check(given, 1), "") << "one token is no prompt to choose among";
    EXPECT_EQ(check(name, 5), "") << "the default gives way";
    EXPECT_EQ(check(Make(name)->spec(), 5), "") << "also when it is spelled out";
  }
}

TEST(CheckShape, ABudgetHoldsWhatTheMethodKeepsAnyway) {
  const auto check = [](const std::string& spec) {
    const auto policy = Make(spec);
    return policy->CheckShape(policy->Plan(kLong)).message();
  };
  EXPECT_EQ(check("snapkv:budget=33"), "");
  EXPECT_THAT(check("snapkv:budget=32"), HasSubstr("option 'budget' is '32', allowed: a whole "
                                                   "number from 33"));
  EXPECT_EQ(check("streaming:budget=16"), "");
  EXPECT_THAT(check("streaming:budget=16,sinks=16"), HasSubstr("number from 17"));
  EXPECT_EQ(check("rocketkv:budget=16"), "") << "the second stage reads no more than the budget";
}

TEST(Full, KeepsAndReadsEverythingAndNeedsNothing) {
  test::PolicyLayer layer("full", {.shape = kLong});
  EXPECT_EQ(layer.needs().window, 0);
  EXPECT_FALSE(layer.needs().scores_steps);
  EXPECT_EQ(KeptOf(layer.policy(), kLong), kLong.prompt_tokens);
  EXPECT_TRUE(layer.Prompt(100)[0].all);
  EXPECT_TRUE(layer.Step()[0].all);
  EXPECT_EQ(layer.state(0), nullptr);
}

TEST(Hsa, EvictsNothing) {
  Evicted evicted("hsa:budget=512", kLong, 100);
  EXPECT_EQ(evicted.layer.needs().window, 0);
  EXPECT_TRUE(evicted.layer.needs().scores_steps);
  EXPECT_EQ(Explained("hsa:budget=512", kLong).at("page_size"), 6);
  EXPECT_EQ(KeptOf(evicted.layer.policy(), kLong), kLong.prompt_tokens);
  EXPECT_TRUE(evicted.keep[0].all);
}

TEST(RocketKv, NeedsWindowAndIndex) {
  const Needs needs = NeedsOf(*Make("rocketkv:budget=512"), kLong);
  EXPECT_EQ(needs.window, 32);
  EXPECT_TRUE(needs.scores_steps);
  EXPECT_FALSE(needs.park);
  EXPECT_FALSE(needs.prefill_last_token);
  EXPECT_TRUE(NeedsOf(*Make("rocketkv:last_token=prefill"), kLong).prefill_last_token);
  EXPECT_EQ(NeedsOf(*Make("rocketkv:window_size=128"), kLong).window, 128);
  test::PolicyLayer layer("rocketkv:budget=512,page_size=7", {.shape = kLong});
  layer.Prompt(3000);
  const auto& state = dynamic_cast<const ComposedState&>(*layer.state(0));
  EXPECT_EQ(dynamic_cast<const ChunkState&>(*state.selector).view().chunk_rows, 7);
}

TEST(RocketKv, KeepsThePromptBudgetWithTheWindow) {
  TurnShape shape = kLong;
  shape.kv_heads = 3;
  const Evicted evicted("rocketkv:budget=512,last_token=prefill", shape, 16256);
  EXPECT_EQ(KeptOf(evicted.layer.policy(), kLong), 2768);
  for (std::size_t h = 0; h < 3; ++h) {
    const Rows& keep = evicted.keep[h];
    ASSERT_FALSE(keep.all);
    EXPECT_EQ(keep.list, SnapKvRows(evicted.layer.scores(h), 32, 63, 2768));
    EXPECT_EQ(keep.list.size(), 2768u);
    EXPECT_EQ(keep.list[2768 - 32], 16256 - 32);
    EXPECT_EQ(keep.list.back(), 16255);
  }
}

TEST(RocketKv, EvictsOnlyAboveThePromptBudget) {
  for (const std::int32_t rows : {1, 7, 8, 9, 49, 50, 51, 52, 300}) {
    const TurnShape shape = {.prompt_tokens = rows, .max_new_tokens = 16, .head_dim = 64};
    const Evicted evicted("rocketkv:budget=64,window_size=8,prompt_budget=50", shape, rows);
    const Rows& keep = evicted.keep[0];
    EXPECT_EQ(keep.all, rows <= 50) << rows;
    EXPECT_EQ(KeptOf(evicted.layer.policy(), shape), std::min(rows, 50));
    if (!keep.all) {
      EXPECT_EQ(keep.list.size(), 50u);
      EXPECT_TRUE(std::is_sorted(keep.list.begin(), keep.list.end()));
    }
  }
}

TEST(RocketKv, ALaterTurnCompetesForTheFirstTurnsPromptBudget) {
  // Survivors, generated rows and a new prompt of 5 tokens, so that the window has 5 queries.
  Evicted evicted("rocketkv:budget=512", kLong, 2768 + 128);
  EXPECT_EQ(evicted.keep[0].list.size(), 2768u);
  for (int i = 0; i < 128; ++i) {
    evicted.layer.Append();
  }
  const Rows keep = evicted.layer.Prompt(5)[0];
  EXPECT_EQ(keep.list, SnapKvRows(evicted.layer.scores(0), 5, 63, 2768));
  EXPECT_EQ(keep.list.size(), 2768u);
}

TEST(RocketKv, AShortFirstPromptDoesNotStarveLaterTurns) {
  // The budget of the first turn's formula is its 20 tokens, but k = 512 rows are read anyway.
  const TurnShape shape = {.prompt_tokens = 20, .max_new_tokens = 64, .head_dim = 64};
  EXPECT_TRUE(Evicted("rocketkv:budget=1024", shape, 512).keep[0].all);
  EXPECT_EQ(Evicted("rocketkv:budget=1024", shape, 513).keep[0].list.size(), 512u);
  // A given budget is taken at its word, a small k still leaves room for the window.
  EXPECT_EQ(Evicted("rocketkv:prompt_budget=40", shape, 513).keep[0].list.size(), 40u);
  EXPECT_EQ(Evicted("rocketkv:budget=16", shape, 513).keep[0].list.size(), 33u);
}

TEST(RocketKvMt, KeepsAllRowsAndViewsThoseOfRocketKv) {
  const TurnShape shape = {.prompt_tokens = 900, .max_new_tokens = 16, .head_dim = 64, .group = 2};
  Evicted plain("rocketkv:budget=64,window_size=128", shape, 900);
  Evicted multi("rocketkv-mt:budget=64", shape, 900);
  EXPECT_TRUE(multi.layer.needs().park);
  EXPECT_EQ(multi.keep[0].list, plain.keep[0].list);
  EXPECT_EQ(multi.layer.head(0).rows(), 900);
  EXPECT_EQ(multi.layer.slots(0).slots, plain.layer.head(0).rows());
  EXPECT_EQ(KeptOf(multi.layer.policy(), shape), 900);
  for (int i = 0; i < 20; ++i) {  // the first turn reads what rocketkv reads
    const Rows a = plain.layer.Step()[0];
    const Rows b = multi.layer.Step()[0];
    ASSERT_EQ(a.all, b.all);
    ASSERT_EQ(a.list, b.list);
    ASSERT_EQ(a.estimate_bytes, b.estimate_bytes);
  }
  // A later turn chooses among all rows again.
  const Rows again = multi.layer.Prompt(40)[0];
  EXPECT_EQ(multi.layer.head(0).rows(), 960);
  EXPECT_FALSE(std::ranges::includes(plain.keep[0].list, again.list));
}

TEST(DenseBypass, ABudgetOfTwiceTheLengthEvictsNothingAndBuildsNoIndex) {
  Rng rng(52);
  for (int i = 0; i < 300; ++i) {
    const TurnShape shape = {.prompt_tokens = test::IntBetween(rng, 1, 400),
                             .max_new_tokens = test::IntBetween(rng, 1, 500),
                             .head_dim = 8};
    const std::int32_t length = shape.prompt_tokens + shape.max_new_tokens;
    for (const std::string name : {"rocketkv", "hsa", "rocketkv-mt"}) {
      const std::int32_t budget = std::max(16, 2 * length);
      Evicted evicted(name + ":budget=" + std::to_string(budget), shape, shape.prompt_tokens);
      EXPECT_FALSE(evicted.layer.shape().selects);
      EXPECT_EQ(evicted.layer.state(0), nullptr);
      EXPECT_EQ(KeptOf(evicted.layer.policy(), shape), shape.prompt_tokens);
      EXPECT_TRUE(evicted.keep[0].all);
      EXPECT_TRUE(evicted.layer.Step()[0].all);
    }
  }
}

TEST(DenseBypass, NoIndexExactlyWhenTheLastStepStillReadsAll) {
  for (const std::int32_t rows : {1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 1000}) {
    const TurnShape shape = {.prompt_tokens = rows, .max_new_tokens = 0, .head_dim = 64};
    for (const std::string name : {"rocketkv", "hsa"}) {
      // Exact scores of every row cost half of it, so k = 16 rows save nothing up to 32 rows, and
      // less than a fifth of what they read up to 53.
      for (const auto& [bypass, limit] : {std::pair("1", 32), std::pair("1.25", 53)}) {
        const std::string spec = name + ":budget=32,page_size=1,topr=64,bypass=" + bypass;
        const auto explained = Explained(spec, shape);
        const bool all = explained.at("max_rows") <= limit;
        EXPECT_EQ(explained.at("reads_all"), all ? 1.0 : 0.0) << spec << ' ' << rows;
        EXPECT_EQ(test::PolicyLayer(spec, {.shape = shape}).state(0) == nullptr, all)
            << spec << ' ' << rows;
      }
    }
  }
}

TEST(ExplainPolicy, NamesTheDerivedNumbers) {
  const auto rocket = Explained("rocketkv:budget=512", kLong);
  EXPECT_EQ(rocket.at("c"), 32.0);
  EXPECT_EQ(rocket.at("alpha"), 0.5);
  EXPECT_EQ(rocket.at("capacity"), 2896);
  EXPECT_EQ(rocket.at("prompt_budget"), 2768);
  EXPECT_EQ(rocket.at("rows_kept"), 2768);
  EXPECT_EQ(rocket.at("max_rows"), 2896);
  EXPECT_EQ(rocket.at("topk"), 256);
  EXPECT_NEAR(rocket.at("c2"), 5.656, 1e-3);
  EXPECT_EQ(rocket.at("page_size"), 3);
  EXPECT_EQ(rocket.at("topr"), 67);
  EXPECT_NEAR(rocket.at("estimation_traffic"), 252.6, 0.06);
  EXPECT_NEAR(rocket.at("total_traffic"), 508.6, 0.06);
  EXPECT_EQ(rocket.at("reads_all"), 0.0);
  const auto hsa = Explained("hsa:budget=512", kLong);
  EXPECT_EQ(hsa.at("page_size"), 6);
  EXPECT_EQ(hsa.at("topr"), 24);
  EXPECT_EQ(hsa.at("rows_kept"), 16256);
  EXPECT_LE(hsa.at("total_traffic"), 512.0);
  const auto dense = Explained("rocketkv:budget=100000", kLong);
  EXPECT_EQ(dense.at("total_traffic"), 16384.0);
  EXPECT_EQ(dense.at("estimation_traffic"), 0.0);
  EXPECT_EQ(Explained("full", kLong).at("total_traffic"), 16384.0);
}

}  // namespace
}  // namespace rkv::policy
