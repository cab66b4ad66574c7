// Errors, cancelling and generation of the public API.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "support/distribution.h"
#include "support/tiny_engine.h"

namespace rkv {
namespace {

using test::NewSession;
using test::OpenTiny;
using test::RandomTokens;
using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kModel = "llama-f32-gqa3-llama3rope";

TEST(Engine, RefusesOptionsOutsideTheirRange) {
  const struct {
    EngineOptions options;
    const char* says;
  } cases[] = {{{.threads = -1}, "threads"},
               {{.threads = 1025}, "1024"},
               {{.context = -5}, "-5"},
               {{.context = 100000}, "4096"},
               {{.piece_tokens = 0}, "65536"}};
  for (auto [options, says] : cases) {
    options.model_path = test::TinyModel(kModel);
    const Result<std::unique_ptr<Engine>> engine = Engine::Open(options);
    ASSERT_FALSE(engine);
    EXPECT_EQ(engine.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(engine.error().message(), HasSubstr(says));
  }
  EXPECT_EQ(Engine::Open({.model_path = "/no/such/file.gguf"}).error().code(), Code::kNotFound);
}

TEST(Engine, RepackedWeightsGiveTheSameLogitsButForRounding) {
  const auto packed = OpenTiny("llama-q4_1");
  const auto mapped = OpenTiny("llama-q4_1", {.repack = false});
  EXPECT_FALSE(mapped->options().repack);
  EXPECT_EQ(mapped->model().packed_bytes, 0u);
  const std::vector<Token> tokens = RandomTokens(60, packed->model().vocab);
  const std::span<const Token> all(tokens);
  const auto a = NewSession(*packed, "full");
  const auto b = NewSession(*mapped, "full");
  const auto with = test::Trace(*packed, *a, all.first(50), all.last(10));
  const auto without = test::Trace(*mapped, *b, all.first(50), all.last(10));
  for (std::size_t i = 0; i < with.size(); ++i) {
    EXPECT_LE(test::Nmse(with[i], without[i]), 1e-3) << i;
  }
}

TEST(Engine, WeightsStayAsTheyAreInTheReference) {
  const auto engine = OpenTiny("llama-q4_1", {.compute = Compute::kF32});
  EXPECT_FALSE(engine->options().repack);
  EXPECT_EQ(engine->model().packed_bytes, 0u);
}

TEST(Engine, RefusesPromptsThatDoNotFit) {
  const auto engine = OpenTiny(kModel, {.context = 100});
  const auto session = NewSession(*engine, "full");
  EXPECT_EQ(test::Prefill(*engine, *session, {}).code(), Code::kInvalidArgument);
  const std::vector<Token> tokens = RandomTokens(100, 300);
  const Status status = test::Prefill(*engine, *session, tokens);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("100 tokens"), HasSubstr("holds 100")));
  EXPECT_TRUE(test::Prefill(*engine, *session, std::span(tokens).first(99)).ok());
  EXPECT_TRUE(session->Decode(1));
  EXPECT_EQ(session->Decode(1).error().code(), Code::kResourceExhausted);
  EXPECT_EQ(session->position(), 100);
}

TEST(Engine, RefusesTokensOutsideTheVocabulary) {
  const auto engine = OpenTiny(kModel);
  const auto session = NewSession(*engine, "full");
  for (const Token bad : {-1, engine->model().vocab, 1 << 30}) {
    const std::vector<Token> tokens = {1, bad, 2};
    EXPECT_THAT(test::Prefill(*engine, *session, tokens).message(), HasSubstr(std::to_string(bad)));
  }
  ASSERT_TRUE(test::Prefill(*engine, *session, RandomTokens(5, 300)).ok());
  EXPECT_EQ(session->Decode(-1).error().code(), Code::kInvalidArgument);
}

TEST(Engine, StatesNeededAndAvailableBytesBeforeItAllocates) {
  const auto engine = OpenTiny(kModel, {.memory_limit = std::size_t{14} << 20});
  const auto session = NewSession(*engine, "full");
  const Status status = test::Prefill(*engine, *session, RandomTokens(4000, 300));
  ASSERT_EQ(status.code(), Code::kResourceExhausted) << status.message();
  EXPECT_THAT(status.message(), AllOf(HasSubstr("4000 tokens"), HasSubstr("14680064 bytes"),
                                      HasSubstr("largest prompt that fits")));
  const std::string& text = status.message();
  const std::int32_t fits = std::stoi(text.substr(text.find("fits has ") + 9));
  ASSERT_GT(fits, 0);
  const std::vector<Token> tokens = RandomTokens(static_cast<std::size_t>(fits) + 1, 300);
  EXPECT_FALSE(test::Prefill(*engine, *session, tokens).ok());
  EXPECT_TRUE(test::Prefill(*engine, *session, std::span(tokens).first(tokens.size() - 1)).ok());
}

TEST(Engine, CancelsAPromptAndLeavesTheSessionEmpty) {
  const auto engine = OpenTiny(kModel, {.piece_tokens = 64});
  const std::vector<Token> tokens = RandomTokens(300, 300);
  for (const char* policy : {"full", "rocketkv:budget=32"}) {
    const auto session = NewSession(*engine, policy);
    Session* raw = session.get();
    for (int calls = 0; calls < 20; ++calls) {
      int left = calls;
      const Status status =
          engine->Prefill({&raw, 1}, tokens, [&](const PrefillProgress&) { return left-- > 0; });
      ASSERT_EQ(status.code(), Code::kCancelled);
      EXPECT_EQ(session->position(), 0);
      EXPECT_EQ(session->stats().kv_bytes_kept, 0u);
    }
    const auto fresh = NewSession(*engine, policy);
    ASSERT_TRUE(test::Prefill(*engine, *session, tokens).ok());
    ASSERT_TRUE(test::Prefill(*engine, *fresh, tokens).ok());
    EXPECT_THAT(session->logits(), testing::ElementsAreArray(fresh->logits()));
  }
}

TEST(Engine, CancelInALaterTurnKeepsFullSessionsAndSaysWhichAreLost) {
  const auto engine = OpenTiny(kModel, {.piece_tokens = 64});
  const std::vector<Token> tokens = RandomTokens(600, 300);
  const auto stop_in_layer_1 = [](const PrefillProgress& p) { return p.layer == 0; };
  for (const bool evicts : {false, true}) {
    const auto session = NewSession(*engine, evicts ? "rocketkv:budget=32" : "full");
    Session* raw = session.get();
    ASSERT_TRUE(test::Prefill(*engine, *session, std::span(tokens).first(300)).ok());
    const std::vector<float> before(session->logits().begin(), session->logits().end());
    ASSERT_EQ(engine->Prefill({&raw, 1}, std::span(tokens).last(300), stop_in_layer_1).code(),
              Code::kCancelled);
    const Result<std::span<const float>> next = session->Decode(5);
    EXPECT_EQ(static_cast<bool>(next), !evicts);
    if (evicts) {
      EXPECT_EQ(next.error().code(), Code::kInvalidArgument);
      continue;
    }
    const auto fresh = NewSession(*engine, "full");
    ASSERT_TRUE(test::Prefill(*engine, *fresh, std::span(tokens).first(300)).ok());
    EXPECT_THAT(before, testing::ElementsAreArray(fresh->logits()));
    EXPECT_THAT(*next, testing::ElementsAreArray(*fresh->Decode(5)));
  }
}

TEST(Engine, ReportsProgressFromFirstToLastLayer) {
  const auto engine = OpenTiny(kModel, {.piece_tokens = 64});
  const auto session = NewSession(*engine, "full");
  Session* raw = session.get();
  std::vector<PrefillProgress> seen;
  ASSERT_TRUE(engine
                  ->Prefill({&raw, 1}, RandomTokens(300, 300),
                            [&](const PrefillProgress& p) {
                              seen.push_back(p);
                              return true;
                            })
                  .ok());
  ASSERT_FALSE(seen.empty());
  EXPECT_EQ(seen.front().layer, 0);
  EXPECT_EQ(seen.back().layer, engine->model().layers - 1);
  EXPECT_EQ(seen.back().tokens_done, seen.back().tokens);
  for (std::size_t i = 1; i < seen.size(); ++i) {
    EXPECT_GE(seen[i].layer * 1000 + seen[i].tokens_done,
              seen[i - 1].layer * 1000 + seen[i - 1].tokens_done);
  }
}

TEST(Engine, RefusesSessionsOfAnotherEngineOrGivenTwice) {
  const auto engine = OpenTiny(kModel);
  const auto other = OpenTiny(kModel);
  const auto session = NewSession(*engine, "full");
  Session* twice[] = {session.get(), session.get()};
  EXPECT_FALSE(other->Prefill({twice, 1}, RandomTokens(5, 300), {}).ok());
  EXPECT_FALSE(engine->Prefill(twice, RandomTokens(5, 300), {}).ok());
  EXPECT_FALSE(engine->Prefill({}, RandomTokens(5, 300), {}).ok());
}

TEST(Engine, CountsALaterTurnsRowsAgainstTheLimit) {
  const auto engine = OpenTiny(kModel, {.memory_limit = std::size_t{16} << 20});
  for (const char* policy : {"full", "hsa:budget=64"}) {
    const auto session = NewSession(*engine, policy);
    ASSERT_TRUE(test::Prefill(*engine, *session, RandomTokens(20, 300)).ok());
    const Status status = test::Prefill(*engine, *session, RandomTokens(4000, 300));
    EXPECT_EQ(status.code(), Code::kResourceExhausted) << policy;
    EXPECT_TRUE(session->Decode(1)) << policy;  // nothing was lost
  }
}

TEST(Engine, PlansOnlyPromptsThatFitTheContext) {
  const auto engine = OpenTiny(kModel);
  for (const std::int32_t tokens : {0, -1, 4097, INT32_MAX}) {
    const Result<MemoryPlan> plan = engine->PlanPrompt({.policy = "full"}, tokens);
    ASSERT_FALSE(plan) << tokens;
    EXPECT_EQ(plan.error().code(), Code::kInvalidArgument);
  }
  EXPECT_TRUE(engine->PlanPrompt({.policy = "full", .max_new_tokens = INT32_MAX}, 4096));
}

TEST(Engine, TakesTheLongestAnswerThereCanBe) {
  const auto engine = OpenTiny(kModel);
  for (const char* policy : {"full", "rocketkv:budget=64", "hsa:budget=64"}) {
    const auto session = NewSession(*engine, policy, INT32_MAX);
    EXPECT_TRUE(test::Prefill(*engine, *session, RandomTokens(300, 300)).ok()) << policy;
  }
}

TEST(Engine, RefusesToShareAPrefillThatDoesNotSuitBoth) {
  const auto engine = OpenTiny(kModel);
  for (const char* other : {"rocketkv:budget=32", "hsa:budget=32"}) {
    const auto a = NewSession(*engine, "rocketkv:budget=32,last_token=prefill");
    const auto b = NewSession(*engine, other);
    Session* both[] = {a.get(), b.get()};
    EXPECT_THAT(engine->Prefill(both, RandomTokens(300, 300), {}).message(),
                HasSubstr("last_token"));
  }
}

TEST(Session, WarnsOnceWhenALaterPromptMeetsDroppedRows) {
  const auto engine = OpenTiny(kModel);
  const std::vector<Token> tokens = RandomTokens(300, 300);
  const auto session = NewSession(*engine, "rocketkv:budget=32");
  ASSERT_TRUE(test::Prefill(*engine, *session, tokens).ok());
  ASSERT_TRUE(session->Decode(1));
  EXPECT_THAT(session->stats().warnings, testing::IsEmpty());  // one prompt needs no more rows
  for (int turn = 0; turn < 2; ++turn) {
    ASSERT_TRUE(test::Prefill(*engine, *session, std::span(tokens).first(10)).ok());
    EXPECT_THAT(session->stats().warnings,
                testing::ElementsAre(AllOf(HasSubstr("rocketkv dropped rows of earlier turns"),
                                           HasSubstr("keeps all rows"))));
  }
}

TEST(Session, DoesNotWarnWhileAllRowsAreThere) {
  const auto engine = OpenTiny(kModel);
  const std::vector<Token> tokens = RandomTokens(40, 300);
  for (const char* policy : {"full", "hsa:budget=16", "rocketkv:budget=1024"}) {
    const auto session = NewSession(*engine, policy);
    for (int turn = 0; turn < 3; ++turn) {
      ASSERT_TRUE(test::Prefill(*engine, *session, tokens).ok());
      ASSERT_TRUE(session->Decode(1));
    }
    ASSERT_TRUE(session->Rewind(session->position() - 1).ok());
    ASSERT_TRUE(test::Prefill(*engine, *session, tokens).ok());
    EXPECT_THAT(session->stats().warnings, testing::IsEmpty()) << policy;
  }
}

TEST(Session, HasNoRowsWhereThereIsNoHead) {
  const auto engine = OpenTiny(kModel);
  const auto session = NewSession(*engine, "full");
  ASSERT_TRUE(test::Prefill(*engine, *session, RandomTokens(5, 300)).ok());
  EXPECT_EQ(session->KeptPositions(0, 0).size(), 5u);
  EXPECT_TRUE(session->KeptPositions(-1, 0).empty());
  EXPECT_TRUE(session->KeptPositions(0, 1).empty());
  EXPECT_TRUE(session->KeptPositions(3, 0).empty());
}

TEST(Session, NeedsAPromptFirst) {
  const auto engine = OpenTiny(kModel);
  const auto session = NewSession(*engine, "full");
  EXPECT_EQ(session->Decode(1).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(session->Generate({}, {}).error().code(), Code::kInvalidArgument);
}

TEST(Session, GeneratesTheSameTextForTheSameSeed) {
  const auto engine = OpenTiny(kModel);
  const std::vector<Token> tokens = RandomTokens(50, 300);
  const auto generate = [&](std::uint64_t seed) {
    const auto session = NewSession(*engine, "rocketkv:budget=32", 30);
    EXPECT_TRUE(test::Prefill(*engine, *session, tokens).ok());
    GenerateOptions options;
    options.max_tokens = 30;
    options.ignore_eos = true;
    options.sampler.temperature = 1.5f;
    options.sampler.seed = seed;
    std::string streamed;
    const Result<GenerateResult> result = session->Generate(options, [&](const std::string& text) {
      streamed += text;
      return true;
    });
    EXPECT_TRUE(result);
    EXPECT_EQ(result->text, streamed);
    EXPECT_EQ(result->tokens.size(), 30u);
    EXPECT_EQ(result->stop_reason, StopReason::kMaxTokens);
    return result->tokens;
  };
  EXPECT_EQ(generate(42), generate(42));
  EXPECT_NE(generate(42), generate(43));
}

TEST(Session, StopsAtTheEndOfTheContext) {
  const auto engine = OpenTiny(kModel, {.context = 60});
  const auto session = NewSession(*engine, "full");
  ASSERT_TRUE(test::Prefill(*engine, *session, RandomTokens(50, 300)).ok());
  GenerateOptions options;
  options.ignore_eos = true;
  const Result<GenerateResult> result = session->Generate(options, {});
  ASSERT_TRUE(result);
  EXPECT_EQ(result->stop_reason, StopReason::kContextFull);
  EXPECT_EQ(result->tokens.size(), 10u);
}

TEST(Session, StopsRightBeforeAStopString) {
  const auto engine = OpenTiny(kModel);
  const std::vector<Token> tokens = RandomTokens(50, 300);
  GenerateOptions options;
  options.max_tokens = 40;
  options.ignore_eos = true;
  options.sampler.temperature = 0;
  const auto free_session = NewSession(*engine, "full");
  ASSERT_TRUE(test::Prefill(*engine, *free_session, tokens).ok());
  const Result<GenerateResult> whole = free_session->Generate(options, {});
  ASSERT_TRUE(whole);
  ASSERT_GE(whole->text.size(), 8u);
  options.stop = {whole->text.substr(whole->text.size() / 2, 3)};
  const auto session = NewSession(*engine, "full");
  ASSERT_TRUE(test::Prefill(*engine, *session, tokens).ok());
  const Result<GenerateResult> stopped = session->Generate(options, {});
  ASSERT_TRUE(stopped);
  EXPECT_EQ(stopped->stop_reason, StopReason::kStopString);
  EXPECT_EQ(stopped->text, whole->text.substr(0, whole->text.find(options.stop[0])));
}

TEST(Session, CancelsAnAnswerAndGoesOn) {
  const auto engine = OpenTiny(kModel);
  const auto session = NewSession(*engine, "full");
  ASSERT_TRUE(test::Prefill(*engine, *session, RandomTokens(20, 300)).ok());
  GenerateOptions options;
  options.ignore_eos = true;
  int calls = 0;
  const Result<GenerateResult> result =
      session->Generate(options, [&](const std::string&) { return ++calls < 3; });
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), Code::kCancelled);
  EXPECT_TRUE(session->Decode(1));
}

}  // namespace
}  // namespace rkv
