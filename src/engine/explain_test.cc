#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "rkv/engine.h"

namespace rkv {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr double kHeads = 32 * 8;
constexpr double kRow = 512;  // bytes: a key and a value of 128 f16 numbers

PolicyNumbers Explain(std::string_view policy, const ExplainShape& shape) {
  const Result<PolicyNumbers> numbers = ExplainPolicy(policy, shape);
  EXPECT_TRUE(numbers) << (numbers ? "" : numbers.error().message());
  return numbers ? *numbers : PolicyNumbers();
}

std::string Error(std::string_view policy, const ExplainShape& shape) {
  const Result<PolicyNumbers> numbers = ExplainPolicy(policy, shape);
  EXPECT_FALSE(numbers);
  return numbers ? "" : numbers.error().message();
}

TEST(ExplainPolicy, FullHoldsAndReadsEveryRow) {
  const PolicyNumbers full = Explain("full", {.context = 1000, .max_new_tokens = 101});
  EXPECT_EQ(full.policy, "full");
  EXPECT_EQ(full.rows_held, 1000);
  EXPECT_EQ(full.rows_read, 950);  // 900 rows in the first step, 1000 in the last
  EXPECT_EQ(full.bytes_held, kHeads * kRow * 1000);
  EXPECT_EQ(full.bytes_read, kHeads * kRow * 950);
  EXPECT_EQ(full.bytes_index, 0);
}

// docs/methods/rocketkv.md: S 16384, t 512 gives capacity 2896, k 256, chunk 3, r 67.
TEST(ExplainPolicy, GivesRocketKvsTableOfTheManual) {
  const PolicyNumbers rocket =
      Explain("rocketkv:budget=512", {.context = 16384, .max_new_tokens = 1});
  const std::map<std::string, double> numbers(rocket.numbers.begin(), rocket.numbers.end());
  EXPECT_THAT(rocket.policy, HasSubstr("rocketkv:budget=512,window_size=32"));
  EXPECT_EQ(numbers.at("capacity"), 2896);
  EXPECT_EQ(numbers.at("topk"), 256);
  EXPECT_EQ(rocket.rows_held, 2896);
  const double estimate = 2896.0 / 3 * 67 / 256;
  EXPECT_NEAR(rocket.rows_estimate, estimate, 1e-9);
  EXPECT_NEAR(rocket.rows_read, estimate + 256, 1e-9);
  EXPECT_NEAR(rocket.bytes_read, kHeads * kRow * (estimate + 256), 1);
  EXPECT_NEAR(rocket.bytes_index, kHeads * kRow * 2896 / 3, 0.1 * rocket.bytes_index);
}

TEST(ExplainPolicy, TakesTheMeanOverTheAnswersSteps) {
  const ExplainShape shape = {.context = 16384, .max_new_tokens = 1001};
  const PolicyNumbers hsa = Explain("hsa:budget=512", shape);
  const std::map<std::string, double> numbers(hsa.numbers.begin(), hsa.numbers.end());
  EXPECT_NEAR(hsa.rows_estimate, numbers.at("estimation_traffic") * (16384 - 500) / 16384, 1e-9);
  EXPECT_NEAR(hsa.rows_read - hsa.rows_estimate, 256, 1e-9);
}

TEST(ExplainPolicy, CountsBytesOfTheType) {
  const ExplainShape f32 = {.context = 100, .max_new_tokens = 1, .kv_type = KvType::kF32};
  const ExplainShape q8 = {.context = 100, .max_new_tokens = 1, .kv_type = KvType::kQ8};
  EXPECT_EQ(Explain("full", f32).bytes_held, kHeads * 2 * kRow * 100);
  // 256 numbers of a byte, a scale of 4 bytes for 16 numbers of a key and one for a value.
  EXPECT_EQ(Explain("full", q8).bytes_held, kHeads * (256 + 9 * 4) * 100);
}

TEST(ExplainPolicy, EveryMethodReadsNoMoreThanItHolds) {
  for (const PolicyDescription& method : DescribePolicies()) {
    if (method.name == "duo") {  // nothing to explain without a table of the model's heads
      EXPECT_THAT(Error("duo", {.context = 65536}), HasSubstr("needs option 'table'"));
      continue;
    }
    const PolicyNumbers numbers = Explain(method.name, {.context = 65536});
    EXPECT_FALSE(numbers.numbers.empty()) << method.name;
    EXPECT_GT(numbers.rows_read, 0) << method.name;
    EXPECT_LE(numbers.rows_read - numbers.rows_estimate, numbers.rows_held) << method.name;
    EXPECT_LE(numbers.rows_held, 65536) << method.name;
    EXPECT_EQ(Explain(numbers.policy, {.context = 65536}).policy, numbers.policy);
  }
}

TEST(ExplainPolicy, NamesWhatIsOutsideItsRange) {
  EXPECT_THAT(Error("full", {.context = 1}), AllOf(HasSubstr("context"), HasSubstr("got 1")));
  EXPECT_THAT(Error("full", {.context = 256}), HasSubstr("max_new_tokens must be from 1 to 255"));
  EXPECT_THAT(Error("full", {.max_new_tokens = 0}), HasSubstr("got 0"));
  EXPECT_THAT(Error("full", {.layers = 0}), HasSubstr("layers must be from 1 to 65536"));
  EXPECT_THAT(Error("full", {.kv_heads = -1}), HasSubstr("kv_heads"));
  EXPECT_THAT(Error("full", {.group = 0}), HasSubstr("group"));
  EXPECT_THAT(Error("full", {.head_dim = 65537}), HasSubstr("head_dim"));
  EXPECT_THAT(Error("nosuch", {}), HasSubstr("nosuch"));
  EXPECT_THAT(Error("rocketkv:topr=200", {}), HasSubstr("128"));
}

}  // namespace
}  // namespace rkv
