#include "policy/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "policy/stages.h"
#include "support/random.h"

namespace rkv::policy {
namespace {

using ::testing::HasSubstr;

constexpr TurnShape kLong = {.prompt_tokens = 16256, .max_new_tokens = 128, .head_dim = 128};

std::unique_ptr<const Policy> Make(std::string_view spec) {
  Result<std::unique_ptr<const Policy>> made = MakePolicy(spec);
  EXPECT_TRUE(made) << spec << ": " << (made ? "" : made.error().message());
  return made ? *std::move(made) : nullptr;
}

std::string Error(std::string_view spec) {
  const Result<std::unique_ptr<const Policy>> made = MakePolicy(spec);
  EXPECT_FALSE(made) << spec;
  return made ? "" : made.error().message();
}

std::map<std::string, double> Explained(std::string_view spec, const TurnShape& shape) {
  const auto pairs = ExplainPolicy(*Make(spec), shape);
  return {pairs.begin(), pairs.end()};
}

// One layer with heads of `rows` rows whose mass is random.
class Layer {
 public:
  Layer(const TurnShape& shape, std::int32_t rows, std::int32_t window, std::size_t heads) {
    Rng rng(51);
    masses_.resize(heads);
    for (std::vector<float>& mass : masses_) {
      mass = test::UniformVector(rng, static_cast<std::size_t>(std::max(0, rows - window)));
      kv::HeadView view;
      view.rows = rows;
      view.head_dim = shape.head_dim;
      heads_.push_back({view, mass});
    }
    in_.shape = shape;
    in_.window = window;
    in_.heads = heads_;
  }

  std::vector<Rows> Evict(const Policy& policy) const {
    std::vector<Rows> keep(heads_.size());
    EXPECT_TRUE(policy.Evict(in_, keep).ok());
    return keep;
  }
  const std::vector<float>& mass(std::size_t head) const { return masses_[head]; }

 private:
  std::vector<std::vector<float>> masses_;
  std::vector<HeadPrefill> heads_;
  LayerPrefill in_;
};

TEST(KnownPolicies, EveryMethodIsMadeByItsNameAndParsesItsOwnSpec) {
  std::vector<std::string> names;
  for (const PolicyInfo& info : KnownPolicies()) {
    names.push_back(info.name);
    const auto policy = Make(info.name);
    EXPECT_EQ(policy->name(), info.name);
    EXPECT_EQ(Make(policy->spec())->spec(), policy->spec());
    for (const std::string& text : {info.keeps, info.reads, info.state, info.source}) {
      EXPECT_FALSE(text.empty()) << info.name;
    }
    for (const OptionInfo& option : info.options) {
      EXPECT_THAT(policy->spec(), HasSubstr(option.name + "="));
      EXPECT_FALSE(option.help.empty());
      if (option.default_value == "derived") {
        EXPECT_THAT(policy->spec(), HasSubstr(option.name + "=auto"));
        EXPECT_EQ(Make(info.name + ":" + option.name + "=auto")->spec(), policy->spec());
      } else {
        EXPECT_THAT(policy->spec(), HasSubstr(option.name + "=" + option.default_value));
      }
    }
  }
  EXPECT_THAT(names, ::testing::ElementsAre("full", "rocketkv", "hsa"));
}

TEST(MakePolicy, SpecSpellsEveryOptionOut) {
  EXPECT_EQ(Make("full")->spec(), "full");
  EXPECT_EQ(Make("rocketkv")->spec(),
            "rocketkv:budget=1024,window_size=32,kernel_size=63,prompt_budget=auto,split=auto,"
            "topk=auto,topr=auto,page_size=auto,bypass=1.6,last_token=decode");
  const std::string all =
      "rocketkv:budget=16,window_size=1,kernel_size=1,prompt_budget=2,split=0.1,topk=1,topr=1,"
      "page_size=1,bypass=2,last_token=prefill";
  EXPECT_EQ(Make(all)->spec(), all);
  EXPECT_EQ(Make("hsa:page_size=4,budget=256")->spec(),
            "hsa:budget=256,topk=auto,topr=auto,page_size=4,bypass=1.6,last_token=decode");
}

TEST(MakePolicy, UnknownNamesListTheNearestAndAll) {
  EXPECT_EQ(Error("rocketvk"),
            "unknown method 'rocketvk'; did you mean 'rocketkv'? known: full, rocketkv, hsa");
  EXPECT_EQ(Error(""), "unknown method ''; known: full, rocketkv, hsa");
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
        "rocketkv:window_size=64,prompt_budget=64", "hsa:budget=1", "hsa:topk=x"}) {
    EXPECT_THAT(Error(spec), HasSubstr("allowed: ")) << spec;
    EXPECT_THAT(Error(spec), ::testing::Not(HasSubstr("\n")));
  }
  EXPECT_THAT(Error("rocketkv:budget=15"), HasSubstr("a whole number from 16 to 16777216"));
  EXPECT_THAT(Error("rocketkv:prompt_budget=64,window_size=64"),
              HasSubstr("auto or a whole number from 65"));
  EXPECT_THAT(Error("rocketkv:budget=20,budget=30"), HasSubstr("given twice"));
  EXPECT_THAT(Error("rocketkv:"), HasSubstr("name=value"));
}

TEST(CheckShape, ChannelsMustExistInTheModel) {
  for (const std::string name : {"rocketkv", "hsa"}) {
    EXPECT_TRUE(Make(name)->CheckShape(kLong).ok());
    EXPECT_TRUE(Make(name + ":topr=128")->CheckShape(kLong).ok());
    const Status status = Make(name + ":topr=129")->CheckShape(kLong);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("option 'topr' is '129'"));
    EXPECT_THAT(status.message(), HasSubstr("1 to 128"));
  }
  EXPECT_TRUE(Make("full")->CheckShape(kLong).ok());
}

TEST(Full, KeepsAndReadsEverythingAndNeedsNothing) {
  const auto policy = Make("full");
  const Needs needs = policy->needs(kLong);
  EXPECT_EQ(needs.window, 0);
  EXPECT_EQ(needs.chunk_rows, 0);
  EXPECT_EQ(policy->RowsKept(kLong, kLong.prompt_tokens), kLong.prompt_tokens);
  for (const Rows& rows : Layer(kLong, 100, 0, 2).Evict(*policy)) {
    EXPECT_TRUE(rows.all);
  }
  Rows read;
  EXPECT_TRUE(policy->Select({}, read).ok());
  EXPECT_TRUE(read.all);
}

TEST(Hsa, EvictsNothing) {
  const auto policy = Make("hsa:budget=512");
  EXPECT_EQ(policy->needs(kLong).window, 0);
  EXPECT_EQ(policy->needs(kLong).chunk_rows, 6);
  EXPECT_EQ(policy->RowsKept(kLong, kLong.prompt_tokens), kLong.prompt_tokens);
  EXPECT_TRUE(Layer(kLong, 100, 0, 1).Evict(*policy)[0].all);
}

TEST(RocketKv, NeedsWindowAndIndex) {
  const Needs needs = Make("rocketkv:budget=512")->needs(kLong);
  EXPECT_EQ(needs.window, 32);
  EXPECT_EQ(needs.chunk_rows, 3);
  EXPECT_FALSE(needs.prefill_last_token);
  EXPECT_TRUE(Make("rocketkv:last_token=prefill")->needs(kLong).prefill_last_token);
  EXPECT_EQ(Make("rocketkv:window_size=128")->needs(kLong).window, 128);
  EXPECT_EQ(Make("rocketkv:page_size=7")->needs(kLong).chunk_rows, 7);
}

TEST(RocketKv, KeepsThePromptBudgetWithTheWindow) {
  const auto policy = Make("rocketkv:budget=512,last_token=prefill");
  const Layer layer(kLong, 16256, 32, 3);
  const std::vector<Rows> keep = layer.Evict(*policy);
  EXPECT_EQ(policy->RowsKept(kLong, kLong.prompt_tokens), 2768);
  for (std::size_t h = 0; h < keep.size(); ++h) {
    ASSERT_FALSE(keep[h].all);
    EXPECT_EQ(keep[h].list, SnapKvRows(layer.mass(h), 32, 63, 2768));
    EXPECT_EQ(keep[h].list.size(), 2768u);
    EXPECT_EQ(keep[h].list[2768 - 32], 16256 - 32);
    EXPECT_EQ(keep[h].list.back(), 16255);
  }
}

TEST(RocketKv, EvictsOnlyAboveThePromptBudget) {
  const auto policy = Make("rocketkv:budget=64,window_size=8,prompt_budget=50");
  for (const std::int32_t rows : {0, 1, 7, 8, 9, 49, 50, 51, 52, 300}) {
    const TurnShape shape = {.prompt_tokens = rows, .max_new_tokens = 16, .head_dim = 64};
    const Rows keep = Layer(shape, rows, std::min(8, rows), 1).Evict(*policy)[0];
    EXPECT_EQ(keep.all, rows <= 50) << rows;
    EXPECT_EQ(policy->RowsKept(shape, shape.prompt_tokens), std::min(rows, 50));
    if (!keep.all) {
      EXPECT_EQ(keep.list.size(), 50u);
      EXPECT_TRUE(std::is_sorted(keep.list.begin(), keep.list.end()));
    }
  }
}

TEST(RocketKv, ALaterTurnCompetesForTheFirstTurnsPromptBudget) {
  const auto policy = Make("rocketkv:budget=512");
  // Survivors, generated rows and a new prompt of 5 tokens, so that the window has 5 queries.
  const Layer layer(kLong, 2768 + 128 + 5, 5, 1);
  const Rows keep = layer.Evict(*policy)[0];
  EXPECT_EQ(keep.list, SnapKvRows(layer.mass(0), 5, 63, 2768));
  EXPECT_EQ(keep.list.size(), 2768u);
}

TEST(RocketKv, AShortFirstPromptDoesNotStarveLaterTurns) {
  // The budget of the first turn's formula is its 20 tokens, but k = 512 rows are read anyway.
  const TurnShape shape = {.prompt_tokens = 20, .max_new_tokens = 64, .head_dim = 64};
  const auto policy = Make("rocketkv:budget=1024");
  EXPECT_TRUE(Layer(shape, 512, 32, 1).Evict(*policy)[0].all);
  EXPECT_EQ(Layer(shape, 513, 32, 1).Evict(*policy)[0].list.size(), 512u);
  // A given budget is taken at its word, a small k still leaves room for the window.
  EXPECT_EQ(Layer(shape, 513, 32, 1).Evict(*Make("rocketkv:prompt_budget=40"))[0].list.size(), 40u);
  EXPECT_EQ(Layer(shape, 513, 32, 1).Evict(*Make("rocketkv:budget=16"))[0].list.size(), 33u);
}

TEST(DenseBypass, ABudgetOfTwiceTheLengthEvictsNothingAndBuildsNoIndex) {
  Rng rng(52);
  for (int i = 0; i < 300; ++i) {
    const TurnShape shape = {.prompt_tokens = test::IntBetween(rng, 0, 3000),
                             .max_new_tokens = test::IntBetween(rng, 0, 500),
                             .head_dim = 64};
    const std::int32_t length = shape.prompt_tokens + shape.max_new_tokens;
    for (const std::string name : {"rocketkv", "hsa"}) {
      const std::int32_t budget = std::max(16, 2 * length);
      const auto policy = Make(name + ":budget=" + std::to_string(budget));
      EXPECT_EQ(policy->needs(shape).chunk_rows, 0);
      EXPECT_EQ(policy->RowsKept(shape, shape.prompt_tokens), shape.prompt_tokens);
      const Layer layer(shape, shape.prompt_tokens, std::min(32, shape.prompt_tokens), 1);
      EXPECT_TRUE(layer.Evict(*policy)[0].all);
      HeadDecode step;
      step.shape = shape;
      step.view.rows = length;
      step.view.head_dim = 64;
      Rows read{.all = false, .list = {}};
      EXPECT_TRUE(policy->Select(step, read).ok());
      EXPECT_TRUE(read.all);
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
        const auto policy = Make(spec);
        const auto explained = Explained(spec, shape);
        const bool all = explained.at("max_rows") <= limit;
        EXPECT_EQ(explained.at("reads_all"), all ? 1.0 : 0.0) << spec << ' ' << rows;
        EXPECT_EQ(policy->needs(shape).chunk_rows, all ? 0 : 1) << spec << ' ' << rows;
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
