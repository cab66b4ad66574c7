#include "engine/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "base/rng.h"
#include "support/random.h"

namespace rkv::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Everything off: plain softmax.
SamplerOptions Plain() {
  return {.temperature = 1.0f,
          .top_k = 0,
          .top_p = 1.0f,
          .min_p = 0.0f,
          .repeat_penalty = 1.0f,
          .repeat_last_n = 64,
          .seed = 0};
}

std::map<Token, double> Probabilities(std::span<const float> logits, const SamplerOptions& options,
                                      std::span<const Token> recent = {}) {
  std::map<Token, double> out;
  const auto candidates = Distribution(logits, options, recent);
  EXPECT_TRUE(candidates);
  for (const Candidate& candidate : *candidates) {
    EXPECT_TRUE(out.emplace(candidate.token, candidate.probability).second);
  }
  return out;
}

std::vector<Token> Support(std::span<const float> logits, const SamplerOptions& options,
                           std::span<const Token> recent = {}) {
  std::vector<Token> out;
  for (const auto& [token, probability] : Probabilities(logits, options, recent)) {
    out.push_back(token);
  }
  return out;
}

// The same steps on a fully sorted list, in long double.
std::map<Token, double> Direct(std::span<const float> logits, const SamplerOptions& options) {
  std::vector<Token> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](Token a, Token b) { return logits[a] > logits[b]; });
  if (options.top_k > 0) {
    order.resize(std::min<std::size_t>(order.size(), options.top_k));
  }
  const auto softmax = [&](long double temperature) {
    std::vector<long double> p;
    long double sum = 0;
    for (const Token t : order) {
      p.push_back(std::exp((static_cast<long double>(logits[t]) - logits[order[0]]) / temperature));
      sum += p.back();
    }
    for (long double& x : p) {
      x /= sum;
    }
    return p;
  };
  if (options.top_p < 1.0f) {
    const auto p = softmax(1.0L);
    std::size_t keep = 0;
    for (long double sum = 0; keep < p.size() && sum < options.top_p; ++keep) {
      sum += p[keep];
    }
    order.resize(keep);
  }
  if (options.min_p > 0.0f) {
    const auto p = softmax(1.0L);
    const auto end =
        std::find_if(p.begin(), p.end(), [&](long double x) { return x < options.min_p * p[0]; });
    order.resize(static_cast<std::size_t>(end - p.begin()));
  }
  const auto p = softmax(options.temperature);
  std::map<Token, double> out;
  for (std::size_t i = 0; i < order.size(); ++i) {
    out[order[i]] = static_cast<double>(p[i]);
  }
  return out;
}

TEST(Distribution, IsTheSoftmaxWhenAllIsOff) {
  const std::vector<float> logits = {std::log(1.0f), std::log(2.0f), std::log(5.0f)};
  const auto p = Probabilities(logits, Plain());
  EXPECT_NEAR(p.at(0), 0.125, 1e-7);
  EXPECT_NEAR(p.at(1), 0.25, 1e-7);
  EXPECT_NEAR(p.at(2), 0.625, 1e-7);
}

TEST(Distribution, CutsByEachStep) {
  const std::vector<float> logits = {std::log(4.0f), std::log(1.0f), std::log(10.0f),
                                     std::log(5.0f)};  // probabilities .20 .05 .50 .25
  SamplerOptions options = Plain();
  options.top_k = 2;
  EXPECT_THAT(Support(logits, options), ElementsAre(2, 3));
  options.top_k = 4;
  options.top_p = 0.74f;
  EXPECT_THAT(Support(logits, options), ElementsAre(2, 3));
  options.top_p = 0.76f;
  EXPECT_THAT(Support(logits, options), ElementsAre(0, 2, 3));
  options.top_p = 1e-9f;
  EXPECT_THAT(Support(logits, options), ElementsAre(2));
  options.top_p = 1.0f;
  options.min_p = 0.41f;
  EXPECT_THAT(Support(logits, options), ElementsAre(2, 3));
  options.min_p = 1.0f;
  EXPECT_THAT(Support(logits, options), ElementsAre(2));
}

TEST(Distribution, CutsBeforeTheTemperature) {
  const std::vector<float> logits = {std::log(1.0f), std::log(3.0f)};
  SamplerOptions options = Plain();
  options.top_p = 0.7f;  // the best alone has 0.75, however flat the temperature makes it
  options.temperature = 100.0f;
  EXPECT_THAT(Support(logits, options), ElementsAre(1));
  options.top_p = 1.0f;
  options.temperature = 0.5f;  // squares the ratio
  EXPECT_NEAR(Probabilities(logits, options).at(1), 0.9, 1e-6);
}

TEST(Distribution, PenalisesRecentTokensOnceWhicheverSign) {
  const std::vector<float> logits = {2.0f, -2.0f, 1.0f, 0.0f};
  SamplerOptions options = Plain();
  options.repeat_penalty = 2.0f;
  const std::vector<Token> recent = {0, 1, 1, 3, -1, 4};
  const std::vector<float> expected = {1.0f, -4.0f, 1.0f, 0.0f};
  EXPECT_EQ(Probabilities(logits, options, recent), Probabilities(expected, Plain()));
  options.temperature = 0;
  EXPECT_THAT(Support(std::vector<float>{3.0f, 2.0f}, options, std::vector<Token>{0}),
              ElementsAre(1));
}

TEST(Distribution, EqualsADirectComputationOnALargeVocabulary) {
  Rng rng(3);
  for (const float scale : {0.5f, 3.0f}) {
    const std::vector<float> logits = test::NormalVector(rng, 5000, scale);
    for (const std::int32_t top_k : {0, 1, 40, 1000, 5000, 2147483647}) {
      for (const float top_p : {0.1f, 0.95f, 1.0f}) {
        for (const float min_p : {0.0f, 0.05f}) {
          SamplerOptions options = Plain();
          options.temperature = 0.8f;
          options.top_k = top_k;
          options.top_p = top_p;
          options.min_p = min_p;
          const auto expected = Direct(logits, options);
          const auto got = Probabilities(logits, options);
          ASSERT_EQ(got.size(), expected.size()) << top_k << " " << top_p << " " << min_p;
          for (const auto& [token, probability] : expected) {
            ASSERT_NEAR(got.at(token), probability, 1e-9) << token;
          }
        }
      }
    }
  }
}

TEST(Distribution, GivesTiesAtACutToTheSmallerId) {
  const std::vector<float> logits(1000, 1.0f);
  SamplerOptions options = Plain();
  options.top_k = 3;
  EXPECT_THAT(Support(logits, options), ElementsAre(0, 1, 2));
  options.top_k = 0;
  options.top_p = 0.0025f;
  EXPECT_THAT(Support(logits, options), ElementsAre(0, 1, 2));
}

TEST(Distribution, NeverOffersNanOrMinusInfinity) {
  const std::vector<float> logits = {kNan, 1.0f, -kInf, 1.0f, kNan};
  EXPECT_EQ(Probabilities(logits, Plain()), (std::map<Token, double>{{1, 0.5}, {3, 0.5}}));
  SamplerOptions greedy = Plain();
  greedy.temperature = 0;
  EXPECT_THAT(Support(logits, greedy), ElementsAre(1));
  EXPECT_THAT(Probabilities(std::vector<float>{0.0f, kInf, kInf}, Plain()).at(0), 0.0);
  EXPECT_THAT(Probabilities(std::vector<float>{0.0f, kInf, kInf}, Plain()).at(2), 0.5);
}

TEST(Distribution, RefusesLogitsWithoutANumber) {
  for (const float temperature : {0.0f, 1.0f}) {
    SamplerOptions options = Plain();
    options.temperature = temperature;
    for (const std::vector<float>& logits :
         {std::vector<float>{}, {kNan, kNan}, {-kInf}, {kNan, -kInf}}) {
      const auto candidates = Distribution(logits, options, {});
      ASSERT_FALSE(candidates);
      EXPECT_EQ(candidates.error().code(), Code::kInternal);
    }
  }
}

TEST(Distribution, StaysFiniteAtTheExtremesOfEveryRange) {
  Rng rng(5);
  std::vector<float> logits = test::NormalVector(rng, 500, 5.0f);
  logits[7] = 3e38f;
  logits[8] = -3e38f;
  const std::vector<Token> recent = {7, 8, 9};
  for (const float temperature : {1e-45f, 1e-30f, 100.0f}) {
    for (const float top_p : {1e-45f, 0.5f, 1.0f}) {
      for (const float min_p : {0.0f, 1e-45f, 1.0f}) {
        for (const float penalty : {1e-45f, 1e-30f, 10.0f}) {
          const SamplerOptions options = {.temperature = temperature,
                                          .top_k = 0,
                                          .top_p = top_p,
                                          .min_p = min_p,
                                          .repeat_penalty = penalty,
                                          .repeat_last_n = 64,
                                          .seed = 0};
          ASSERT_TRUE(Sampler::Validate(options).ok());
          double sum = 0;
          for (const auto& [token, probability] : Probabilities(logits, options, recent)) {
            ASSERT_TRUE(probability >= 0 && probability <= 1) << probability;
            sum += probability;
          }
          ASSERT_NEAR(sum, 1.0, 1e-12);
        }
      }
    }
  }
}

TEST(Sampler, GreedyTakesTheFirstOfEqualMaxima) {
  SamplerOptions options;
  options.temperature = 0;
  Sampler sampler(options);
  EXPECT_EQ(*sampler.Sample(std::vector<float>{1, 3, 2, 3}), 1);
  EXPECT_EQ(*sampler.Sample(std::vector<float>{-2, -1, -1}), 1);
}

TEST(Sampler, SameSeedGivesTheSameTokens) {
  Rng rng(9);
  const std::vector<float> logits = test::NormalVector(rng, 2000, 2.0f);
  const auto draw = [&](std::uint64_t seed) {
    SamplerOptions options;
    options.seed = seed;
    options.repeat_penalty = 1.3f;
    Sampler sampler(options);
    std::vector<Token> tokens;
    for (int i = 0; i < 100; ++i) {
      tokens.push_back(*sampler.Sample(logits));
      sampler.Accept(tokens.back());
    }
    return tokens;
  };
  EXPECT_EQ(draw(1), draw(1));
  EXPECT_NE(draw(1), draw(2));
}

// SplitMix64 with seed 0 begins 0xe220a8397b1dcdaf, 0x6e789e6aa1b965f4, 0x06c45d188009454f: 0.883,
// 0.432, 0.026 of the range.
TEST(Sampler, DrawsByTheGeneratorsNumbers) {
  Sampler sampler(Plain());
  const std::vector<float> quarters(4, 0.0f);
  EXPECT_EQ(*sampler.Sample(quarters), 3);
  EXPECT_EQ(*sampler.Sample(quarters), 1);
  EXPECT_EQ(*sampler.Sample(quarters), 0);
}

TEST(Sampler, DrawsAsOftenAsTheProbabilitiesSay) {
  const std::vector<float> logits = {std::log(1.0f), std::log(2.0f), std::log(5.0f), -kInf};
  Sampler sampler(Plain());
  std::vector<int> count(4);
  for (int i = 0; i < 80000; ++i) {
    ++count[static_cast<std::size_t>(*sampler.Sample(logits))];
  }
  EXPECT_NEAR(count[0], 10000, 500);  // 5 standard deviations
  EXPECT_NEAR(count[1], 20000, 620);
  EXPECT_NEAR(count[2], 50000, 690);
  EXPECT_EQ(count[3], 0);
}

TEST(Sampler, PenaltyLooksAtTheLastTokensOnly) {
  SamplerOptions options = Plain();
  options.temperature = 0;
  options.repeat_penalty = 2.0f;
  options.repeat_last_n = 2;
  Sampler sampler(options);
  const std::vector<float> logits = {4.0f, 3.0f, 2.5f};
  EXPECT_EQ(*sampler.Sample(logits), 0);
  sampler.Accept(0);
  EXPECT_EQ(*sampler.Sample(logits), 1);
  sampler.Accept(0);  // twice in the window, still penalised once
  sampler.Accept(1);
  EXPECT_EQ(*sampler.Sample(logits), 2);
  sampler.Accept(2);  // pushes the last 0 out
  EXPECT_EQ(*sampler.Sample(logits), 0);
}

TEST(Sampler, WindowOfZeroPenalisesNothing) {
  SamplerOptions options = Plain();
  options.temperature = 0;
  options.repeat_penalty = 10.0f;
  options.repeat_last_n = 0;
  Sampler sampler(options);
  sampler.Accept(0);
  EXPECT_EQ(*sampler.Sample(std::vector<float>{2.0f, 1.0f}), 0);
}

TEST(Sampler, ValidateNamesOptionValueAndRange) {
  struct Case {
    void (*set)(SamplerOptions&);
    const char* name;
    const char* value;
  };
  const std::vector<Case> cases = {
      {[](SamplerOptions& o) { o.temperature = 999999.0f; }, "temperature", "999999"},
      {[](SamplerOptions& o) { o.temperature = -1.0f; }, "temperature", "-1"},
      {[](SamplerOptions& o) { o.temperature = kNan; }, "temperature", "nan"},
      {[](SamplerOptions& o) { o.temperature = kInf; }, "temperature", "inf"},
      {[](SamplerOptions& o) { o.top_k = -5; }, "top_k", "-5"},
      {[](SamplerOptions& o) { o.top_p = -1.0f; }, "top_p", "-1"},
      {[](SamplerOptions& o) { o.top_p = 0.0f; }, "top_p", "0"},
      {[](SamplerOptions& o) { o.top_p = 2.0f; }, "top_p", "2"},
      {[](SamplerOptions& o) { o.top_p = kNan; }, "top_p", "nan"},
      {[](SamplerOptions& o) { o.min_p = -0.5f; }, "min_p", "-0.5"},
      {[](SamplerOptions& o) { o.min_p = 1.5f; }, "min_p", "1.5"},
      {[](SamplerOptions& o) { o.min_p = kNan; }, "min_p", "nan"},
      {[](SamplerOptions& o) { o.repeat_penalty = 0.0f; }, "repeat_penalty", "0"},
      {[](SamplerOptions& o) { o.repeat_penalty = 11.0f; }, "repeat_penalty", "11"},
      {[](SamplerOptions& o) { o.repeat_penalty = kNan; }, "repeat_penalty", "nan"},
      {[](SamplerOptions& o) { o.repeat_last_n = -1; }, "repeat_last_n", "-1"},
      {[](SamplerOptions& o) { o.repeat_last_n = 1000001; }, "repeat_last_n", "1000001"},
  };
  for (const Case& c : cases) {
    SamplerOptions options;
    c.set(options);
    const Status status = Sampler::Validate(options);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << c.name << " " << c.value;
    EXPECT_THAT(status.message(), HasSubstr(std::string(c.name) + " must be in "));
    EXPECT_THAT(status.message(), testing::EndsWith(std::string("got ") + c.value));
  }
  EXPECT_TRUE(Sampler::Validate(SamplerOptions{}).ok());
}

}  // namespace
}  // namespace rkv::engine
