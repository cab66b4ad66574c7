// RocketKV inside the engine: what stays, what is read, what it costs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "engine/prefill.h"
#include "engine/session_impl.h"
#include "policy/budget_split.h"
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

TEST(RocketKv, WithTwiceTheLengthAsBudgetGivesTheBitsOfFull) {
  for (const char* model : {"llama-f32-gqa3-llama3rope", "llama-q8_0", "qwen2-f32-gqa7"}) {
    const auto engine = OpenTiny(model);
    for (const std::size_t length : {1, 2, 31, 32, 33, 34, 63, 64, 65, 66, 200}) {
      const std::vector<Token> tokens = RandomTokens(length + 8, engine->model().vocab);
      const std::span<const Token> all(tokens);
      const auto full = NewSession(*engine, "full", 8);
      const auto expected = Trace(*engine, *full, all.first(length), all.last(8));
      for (const char* method : {"rocketkv", "hsa"}) {
        const std::size_t budget = std::max<std::size_t>(2 * (length + 8), 16);
        const auto session =
            NewSession(*engine, std::string(method) + ":budget=" + std::to_string(budget), 8);
        EXPECT_EQ(Trace(*engine, *session, all.first(length), all.last(8)), expected)
            << model << " " << method << " " << length;
      }
    }
  }
}

TEST(RocketKv, KeepsThePromptBudgetWithTheWindowAndEveryGeneratedRow) {
  const auto engine = OpenTiny("llama-f32-gqa3-llama3rope");
  for (const std::int32_t length : {150, 151, 400, 1000}) {
    const std::vector<Token> tokens =
        RandomTokens(static_cast<std::size_t>(length) + 6, engine->model().vocab);
    const std::span<const Token> all(tokens);
    const auto session = NewSession(*engine, "rocketkv:budget=64", 16);
    Trace(*engine, *session, all.first(static_cast<std::size_t>(length)), all.last(6));
    const policy::BudgetSplit split = policy::SplitBudget(
        {.budget = 64, .least_rows = 33},
        {.prompt_tokens = length, .max_new_tokens = 16, .head_dim = 64, .group = 3});
    for (std::int32_t layer = 0; layer < engine->model().layers; ++layer) {
      const std::vector<std::int32_t> kept = session->KeptPositions(layer, 0);
      // The last prompt token and the six after it come through decode.
      const std::int32_t prompt_rows = std::min(split.prompt_budget, length - 1);
      ASSERT_EQ(kept.size(), static_cast<std::size_t>(prompt_rows) + 7) << length;
      EXPECT_TRUE(std::ranges::is_sorted(kept));
      for (std::int32_t i = 0; i < 32 + 7; ++i) {  // window, last prompt token, generated
        EXPECT_EQ(kept[kept.size() - 1 - static_cast<std::size_t>(i)], length + 5 - i);
      }
    }
  }
}

TEST(RocketKv, ReadsItsBudgetAndSaysSo) {
  const auto engine = OpenTiny("llama-f32-gqa3-llama3rope");
  const std::vector<Token> tokens = RandomTokens(1500, engine->model().vocab);
  const std::span<const Token> all(tokens);
  const auto session = NewSession(*engine, "rocketkv:budget=64", 16);
  Trace(*engine, *session, all.first(1490), all.last(10));
  const SessionStats stats = session->stats();
  EXPECT_EQ(stats.generated_tokens, 10);
  EXPECT_EQ(stats.prompt_tokens, 1490);
  EXPECT_EQ(stats.dense_share, 0);
  EXPECT_GT(stats.tokens_read_per_step, 32);  // k alone
  EXPECT_LE(stats.tokens_read_per_step, 64 + 2);
  EXPECT_LT(stats.kv_bytes_kept, stats.kv_bytes_full / 2);
}

TEST(RocketKv, PeakMemoryIsWhatIsKeptPlusOneLayer) {
  const auto engine = OpenTiny("llama-f32-gqa3-llama3rope");
  const std::vector<Token> tokens = RandomTokens(3000, engine->model().vocab);
  const auto session = NewSession(*engine, "rocketkv:budget=128", 16);
  ASSERT_TRUE(test::Prefill(*engine, *session, tokens).ok());
  const SessionStats stats = session->stats();
  const double parts =
      static_cast<double>(stats.kv_bytes_kept + stats.kv_bytes_index + stats.kv_bytes_layer);
  EXPECT_GT(stats.kv_bytes_peak, stats.kv_bytes_kept + stats.kv_bytes_index);
  EXPECT_LE(static_cast<double>(stats.kv_bytes_peak), 1.05 * parts);
  EXPECT_EQ(stats.kv_bytes_layer, 2999u * 2 * 64 * 2);
  EXPECT_EQ(stats.kv_bytes_full, 3u * 3000 * 2 * 64 * 2);
}

// The whole engine over the plain kernels and over the fast ones: the same rows but for near ties,
// and on the same rows the same logits.
TEST(RocketKv, KeepsAndReadsTheRowsOfTheReferenceKernels) {
  for (const char* name : {"llama-f32-gqa3-llama3rope", "llama-f32-gqa4-hd80", "qwen2-f32-gqa7",
                           "llama-f32-mha", "llama-f32-gqa8", "llama-f32-hd128"}) {
    Result<std::unique_ptr<model::Model>> model = model::Model::Load(test::TinyModel(name));
    ASSERT_TRUE(model) << model.error().message();
    const std::vector<Token> tokens = RandomTokens(500, (*model)->params().vocab);
    const std::vector<Token> next = RandomTokens(8, (*model)->params().vocab, 3);
    test::Choices choices;
    test::Disagreement disagreement;
    test::ReplayedRun run{.backend = &attention::RefBackend(),
                          .piece_tokens = 128,
                          .policy = "rocketkv:budget=64",
                          .record = &choices};
    const test::ReplayedTrace expected = test::RunReplayed(**model, run, tokens, next);
    run.backend = &attention::CpuBackend();
    run.record = nullptr;
    run.replay = &choices;
    run.disagreement = &disagreement;
    const test::ReplayedTrace got = test::RunReplayed(**model, run, tokens, next);
    EXPECT_GT(disagreement.rows, 1000u) << name;
    EXPECT_LE(disagreement.share(), 0.002) << name;
    EXPECT_EQ(expected.kept, got.kept) << name;
    for (std::size_t i = 0; i < got.logits.size(); ++i) {
      EXPECT_LE(Nmse(expected.logits[i], got.logits[i]), 1e-8) << name << " step " << i;
    }
  }
}

TEST(RocketKv, CompetesAgainForTheFirstTurnsBudgetInLaterTurns) {
  const auto engine = OpenTiny("llama-f32-gqa3-llama3rope");
  const auto session = NewSession(*engine, "rocketkv:budget=64", 16);
  const std::vector<Token> tokens = RandomTokens(900, engine->model().vocab);
  ASSERT_TRUE(test::Prefill(*engine, *session, std::span(tokens).first(600)).ok());
  const std::size_t first = session->KeptPositions(0, 0).size();
  ASSERT_TRUE(session->Decode(7));
  ASSERT_TRUE(test::Prefill(*engine, *session, std::span(tokens).last(300)).ok());
  EXPECT_EQ(session->position(), 901);
  const std::vector<std::int32_t> kept = session->KeptPositions(0, 0);
  EXPECT_EQ(kept.size(), first);  // prompt budget plus the last prompt token
  EXPECT_EQ(kept.back(), 900);
  EXPECT_TRUE(std::ranges::is_sorted(kept));
}

// HSA evicts nothing, so a short first turn must not decide how a long later one is read.
TEST(Hsa, PlansAnewForALaterTurn) {
  const auto engine = OpenTiny("llama-f32-gqa3-llama3rope");
  const std::vector<Token> tokens = RandomTokens(1600, engine->model().vocab);
  const auto session = NewSession(*engine, "hsa:budget=64", 16);
  ASSERT_TRUE(test::Prefill(*engine, *session, std::span(tokens).first(20)).ok());
  ASSERT_TRUE(session->Decode(3));
  EXPECT_EQ(session->stats().dense_share, 1);
  ASSERT_TRUE(test::Prefill(*engine, *session, std::span(tokens).subspan(20)).ok());
  ASSERT_TRUE(session->Decode(4));
  EXPECT_EQ(session->stats().dense_share, 0.5);
  EXPECT_GT(session->stats().kv_bytes_index, 0u);
  ASSERT_TRUE(test::Prefill(*engine, *session, std::vector<Token>{7}).ok());  // no prefill at all
  EXPECT_TRUE(session->Decode(5));
  EXPECT_EQ(session->KeptPositions(0, 0).size(), 1604u);
}

TEST(RocketKv, WorksAtEveryLengthAroundItsBoundaries) {
  const auto engine = OpenTiny("llama-f32-gqa3-llama3rope");
  for (const std::int32_t length : {1, 2, 31, 32, 33, 34, 63, 64, 65, 127, 128, 129, 130}) {
    const auto session = NewSession(*engine, "rocketkv:budget=16,prompt_budget=48", 4);
    const std::vector<Token> tokens =
        RandomTokens(static_cast<std::size_t>(length), engine->model().vocab);
    ASSERT_TRUE(test::Prefill(*engine, *session, tokens).ok()) << length;
    for (int i = 0; i < 6; ++i) {  // two more than was announced
      ASSERT_TRUE(session->Decode(i)) << length;
    }
    EXPECT_EQ(session->KeptPositions(0, 0).size(),
              static_cast<std::size_t>(std::min(length - 1, 48) + 7))
        << length;
    for (const float x : session->logits()) {
      ASSERT_TRUE(std::isfinite(x)) << length;
    }
  }
}

}  // namespace
}  // namespace rkv
