// What a prompt gives must not depend on how it was computed: pieces, threads, shared prefill,
// turns.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/distribution.h"
#include "support/replayed_session.h"
#include "support/tiny_engine.h"

namespace rkv {
namespace {

using test::NewSession;
using test::Nmse;
using test::OpenTiny;
using test::RandomTokens;
using test::Trace;

constexpr const char* kRocket = "rocketkv:budget=64";
const std::vector<std::string> kModels = {"llama-f32-gqa3-llama3rope", "llama-f32-gqa4-hd80",
                                          "llama-q4_1", "qwen2-f32-gqa7"};

class Prompt : public testing::TestWithParam<std::string> {};

TEST_P(Prompt, GivesTheSameBitsWithOneAndTwoThreads) {
  const auto one = OpenTiny(GetParam(), {.threads = 1});
  const auto two = OpenTiny(GetParam(), {.threads = 2});
  const std::vector<Token> tokens = RandomTokens(400, one->model().vocab);
  const std::span<const Token> all(tokens);
  for (const char* policy : {"full", kRocket}) {
    const auto a = NewSession(*one, policy);
    const auto b = NewSession(*two, policy);
    EXPECT_EQ(Trace(*one, *a, all.first(390), all.last(10)),
              Trace(*two, *b, all.first(390), all.last(10)))
        << policy;
  }
}

// The pieces change only how many rows a GEMM has, which may change the order of its sums. In f32,
// as rounding activations to a quantised type would magnify that; on the same rows, as near ties
// may fall either way.
TEST_P(Prompt, DependsOnThePieceSizeOnlyByRounding) {
  Result<std::unique_ptr<model::Model>> model = model::Model::Load(test::TinyModel(GetParam()));
  ASSERT_TRUE(model) << model.error().message();
  const std::vector<Token> tokens = RandomTokens(310, (*model)->params().vocab);
  const std::span<const Token> all(tokens);
  for (const char* policy : {"full", kRocket}) {
    test::Choices choices;
    test::Disagreement disagreement;
    test::ReplayedRun run{
        .backend = &attention::CpuBackend(), .policy = policy, .record = &choices};
    const auto expected = test::RunReplayed(**model, run, all.first(300), all.last(10)).logits;
    run.record = nullptr;
    run.replay = &choices;
    run.disagreement = &disagreement;
    for (const std::int32_t piece : {1, 7, 64, 299}) {
      run.piece_tokens = piece;
      const auto got = test::RunReplayed(**model, run, all.first(300), all.last(10)).logits;
      ASSERT_EQ(got.size(), expected.size());
      for (std::size_t i = 0; i < got.size(); ++i) {
        EXPECT_LE(Nmse(expected[i], got[i]), 1e-8) << policy << " piece " << piece << " step " << i;
      }
    }
    EXPECT_LE(disagreement.share(), 0.002) << policy;
  }
}

TEST_P(Prompt, SharedByTwoPoliciesEqualsEachAlone) {
  const auto engine = OpenTiny(GetParam());
  const std::vector<Token> tokens = RandomTokens(300, engine->model().vocab);
  for (const std::vector<std::string>& policies :
       {std::vector<std::string>{kRocket, "full"}, {"full", kRocket, "hsa:budget=64"}}) {
    std::vector<std::unique_ptr<Session>> shared;
    std::vector<Session*> raw;
    for (const std::string& policy : policies) {
      shared.push_back(NewSession(*engine, policy));
      raw.push_back(shared.back().get());
    }
    ASSERT_TRUE(engine->Prefill(raw, tokens, {}).ok());
    for (std::size_t i = 0; i < policies.size(); ++i) {
      const auto alone = NewSession(*engine, policies[i]);
      ASSERT_TRUE(test::Prefill(*engine, *alone, tokens).ok());
      for (const Token token : RandomTokens(5, engine->model().vocab, 9)) {
        ASSERT_TRUE(alone->Decode(token) && shared[i]->Decode(token));
      }
      EXPECT_THAT(shared[i]->logits(), testing::ElementsAreArray(alone->logits())) << policies[i];
      EXPECT_EQ(shared[i]->KeptPositions(1, 0), alone->KeptPositions(1, 0)) << policies[i];
      EXPECT_EQ(shared[i]->stats().kv_bytes_kept, alone->stats().kv_bytes_kept);
    }
  }
}

TEST_P(Prompt, InTwoTurnsEqualsOnePromptUnderFull) {
  const auto engine = OpenTiny(GetParam());
  const std::vector<Token> tokens = RandomTokens(260, engine->model().vocab);
  const std::span<const Token> all(tokens);
  const auto once = NewSession(*engine, "full");
  ASSERT_TRUE(test::Prefill(*engine, *once, all).ok());
  for (const std::size_t first : {std::size_t{1}, std::size_t{100}, std::size_t{259}}) {
    const auto twice = NewSession(*engine, "full");
    ASSERT_TRUE(test::Prefill(*engine, *twice, all.first(first)).ok());
    ASSERT_TRUE(test::Prefill(*engine, *twice, all.subspan(first)).ok());
    EXPECT_EQ(twice->position(), 260);
    EXPECT_LE(Nmse(once->logits(), twice->logits()), 1e-3)
        << first;  // decode of q4_1 differs from GEMM
  }
}

TEST_P(Prompt, WithTheLastTokenPrefilledAgreesWithTheDecodedOne) {
  const auto engine = OpenTiny(GetParam());
  const std::vector<Token> tokens = RandomTokens(200, engine->model().vocab);
  const auto decoded = NewSession(*engine, "rocketkv:budget=400,last_token=decode");
  const auto prefilled = NewSession(*engine, "rocketkv:budget=400,last_token=prefill");
  ASSERT_TRUE(test::Prefill(*engine, *decoded, tokens).ok());
  ASSERT_TRUE(test::Prefill(*engine, *prefilled, tokens).ok());
  EXPECT_EQ(prefilled->position(), 200);
  EXPECT_LE(Nmse(decoded->logits(), prefilled->logits()), 1e-3);
}

INSTANTIATE_TEST_SUITE_P(Models, Prompt, testing::ValuesIn(kModels), [](const auto& param) {
  std::string name = param.param;
  std::ranges::replace(name, '-', '_');
  return name;
});

}  // namespace
}  // namespace rkv
