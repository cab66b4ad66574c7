// What benchmarks use: models of a shape, random rows, rewinding, bytes read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
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
constexpr const char* kMethods[] = {"full", "rocketkv:budget=64", "hsa:budget=64",
                                    "rocketkv:budget=64,last_token=prefill"};

using Trace = std::vector<std::vector<float>>;

Trace DecodeAll(Session& session, std::span<const Token> tokens) {
  Trace trace;
  for (const Token token : tokens) {
    const Result<std::span<const float>> logits = session.Decode(token);
    EXPECT_TRUE(logits) << (logits ? "" : logits.error().message());
    if (logits) {
      trace.emplace_back(logits->begin(), logits->end());
    }
  }
  return trace;
}

std::vector<std::vector<std::int32_t>> AllPositions(const Engine& engine, const Session& session) {
  std::vector<std::vector<std::int32_t>> all;
  for (std::int32_t l = 0; l < engine.model().layers; ++l) {
    for (std::int32_t h = 0; h < engine.model().kv_heads; ++h) {
      all.push_back(session.KeptPositions(l, h));
    }
  }
  return all;
}

TEST(Rewind, DecodesTheSameBitsAgain) {
  const auto f16 = OpenTiny(kModel);
  const auto q8 = OpenTiny(kModel, {.kv_type = KvType::kQ8});
  const std::vector<Token> tokens = RandomTokens(800, 300);
  for (const auto& [engine, method] : std::vector<std::pair<Engine*, const char*>>{
           {f16.get(), "full"},
           {f16.get(), "rocketkv:budget=64"},
           {f16.get(), "hsa:budget=64"},
           {f16.get(), "rocketkv:budget=64,last_token=prefill"},
           {q8.get(), "rocketkv:budget=64"},
           {q8.get(), "hsa:budget=64"}}) {
    for (const std::size_t kept : {0u, 1u, 7u, 59u}) {  // of the tokens behind the prompt
      const auto session = NewSession(*engine, method, 8);
      ASSERT_TRUE(test::Prefill(*engine, *session, std::span(tokens).first(700)).ok());
      DecodeAll(*session, std::span(tokens).subspan(700, kept));
      const auto positions = AllPositions(*engine, *session);
      // Over several chunks, and blocks of 64 rows, and more than the index has room for.
      const auto rest = std::span(tokens).subspan(700 + kept, 40);
      const Trace first = DecodeAll(*session, rest);
      const auto after = AllPositions(*engine, *session);
      ASSERT_TRUE(session->Rewind(static_cast<std::int32_t>(700 + kept)).ok());
      EXPECT_EQ(session->position(), static_cast<std::int32_t>(700 + kept));
      EXPECT_EQ(AllPositions(*engine, *session), positions) << method;
      DecodeAll(*session, std::span(tokens).first(10));  // others, to leave other rows behind
      ASSERT_TRUE(session->Rewind(static_cast<std::int32_t>(700 + kept)).ok());
      EXPECT_EQ(DecodeAll(*session, rest), first) << method << " " << kept;
      EXPECT_EQ(AllPositions(*engine, *session), after) << method;
    }
  }
}

TEST(Rewind, LeavesWhatALaterPromptNeeds) {
  const auto engine = OpenTiny(kModel);
  const std::vector<Token> tokens = RandomTokens(600, 300);
  for (const char* method : kMethods) {
    Trace logits;
    for (const bool detour : {false, true}) {
      const auto session = NewSession(*engine, method, 8);
      ASSERT_TRUE(test::Prefill(*engine, *session, std::span(tokens).first(400)).ok());
      DecodeAll(*session, std::span(tokens).subspan(400, 3));
      if (detour) {
        DecodeAll(*session, std::span(tokens).subspan(500, 20));
        ASSERT_TRUE(session->Rewind(403).ok());
      }
      ASSERT_TRUE(test::Prefill(*engine, *session, std::span(tokens).subspan(403, 90)).ok());
      logits.emplace_back(session->logits().begin(), session->logits().end());
      EXPECT_FALSE(session->Rewind(492).ok()) << "inside the last prompt";
    }
    EXPECT_EQ(logits[0], logits[1]) << method;
  }
}

TEST(Rewind, NamesTheRangeOfAPositionOutside) {
  const auto engine = OpenTiny(kModel);
  const auto session = NewSession(*engine, "full");
  EXPECT_TRUE(session->Rewind(0).ok());
  EXPECT_EQ(session->Rewind(1).code(), Code::kInvalidArgument);
  const std::vector<Token> tokens = RandomTokens(60, 300);
  ASSERT_TRUE(test::Prefill(*engine, *session, std::span(tokens).first(50)).ok());
  const Trace expected = DecodeAll(*session, std::span(tokens).subspan(50, 4));
  for (const std::int32_t bad : {-1, 0, 49, 55, INT32_MAX}) {
    const Status status = session->Rewind(bad);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.message(),
                AllOf(HasSubstr("50"), HasSubstr("54"), HasSubstr(std::to_string(bad))));
  }
  EXPECT_EQ(session->position(), 54);
  EXPECT_THAT(session->logits(), testing::ElementsAreArray(expected.back()));
  EXPECT_TRUE(session->Rewind(54).ok());
  EXPECT_TRUE(session->Rewind(50).ok());
  EXPECT_EQ(session->stats().generated_tokens, 4) << "they were decoded all the same";
}

TEST(FillRandom, LeavesAsMuchAsAPrompt) {
  const auto engine = OpenTiny(kModel);
  for (const char* method : kMethods) {
    for (const std::int32_t length : {1, 2, 30, 64, 65, 700, 1111}) {
      const auto real = NewSession(*engine, method);
      const auto filled = NewSession(*engine, method);
      const auto tokens = RandomTokens(static_cast<std::size_t>(length), 300);
      ASSERT_TRUE(test::Prefill(*engine, *real, tokens).ok());
      Session* raw = filled.get();
      ASSERT_TRUE(engine->FillRandom({&raw, 1}, length, 7).ok());
      EXPECT_EQ(filled->position(), length);
      EXPECT_EQ(filled->logits().size(), static_cast<std::size_t>(engine->model().vocab));
      const SessionStats a = real->stats();
      const SessionStats b = filled->stats();
      EXPECT_EQ(a.tokens_kept, b.tokens_kept) << method << " " << length;
      EXPECT_EQ(a.kv_bytes_kept, b.kv_bytes_kept) << method << " " << length;
      EXPECT_EQ(a.kv_bytes_index, b.kv_bytes_index) << method << " " << length;
      EXPECT_EQ(a.prompt_tokens, b.prompt_tokens);
      for (const std::vector<std::int32_t>& kept : AllPositions(*engine, *filled)) {
        EXPECT_TRUE(std::ranges::is_sorted(kept));
        EXPECT_EQ(kept.back(), length - 1);
      }
      for (int i = 0; i < 3; ++i) {
        ASSERT_TRUE(real->Decode(i + 1));
        const Result<std::span<const float>> logits = filled->Decode(i + 1);
        ASSERT_TRUE(logits) << logits.error().message();
        EXPECT_TRUE(std::ranges::all_of(*logits, [](float x) { return std::isfinite(x); }));
      }
      EXPECT_EQ(real->stats().kv_bytes_read_per_step, filled->stats().kv_bytes_read_per_step);
      EXPECT_EQ(real->stats().dense_share, filled->stats().dense_share);
    }
  }
}

TEST(FillRandom, GivesTheSameRowsForTheSameSeedAndAnyThreads) {
  const std::vector<Token> next = {1, 2, 3};
  for (const char* method : kMethods) {
    std::vector<Trace> traces;
    for (const int threads : {1, 2}) {
      const auto engine = OpenTiny("llama-q8_0", {.threads = threads});
      for (const std::uint64_t seed : {5u, 5u, 6u}) {
        const auto one = NewSession(*engine, method);
        const auto other = NewSession(*engine, "full");
        Session* both[] = {one.get(), other.get()};
        ASSERT_TRUE(engine->FillRandom(both, 500, seed).ok());
        EXPECT_EQ(other->KeptPositions(0, 0).size(), 500u);
        traces.push_back(DecodeAll(*one, next));
      }
    }
    EXPECT_EQ(traces[0], traces[1]) << method;
    EXPECT_NE(traces[0], traces[2]) << method;
    EXPECT_EQ(traces[0], traces[3]) << method;
  }
}

TEST(FillRandom, RefusesWhatAPrefillRefuses) {
  const auto engine = OpenTiny(kModel, {.context = 1000, .memory_limit = std::size_t{1} << 19});
  const auto session = NewSession(*engine, "full");
  Session* raw = session.get();
  EXPECT_EQ(engine->FillRandom({}, 10, 1).code(), Code::kInvalidArgument);
  EXPECT_EQ(engine->FillRandom({&raw, 1}, 0, 1).code(), Code::kInvalidArgument);
  EXPECT_EQ(engine->FillRandom({&raw, 1}, -3, 1).code(), Code::kInvalidArgument);
  EXPECT_THAT(engine->FillRandom({&raw, 1}, 1000, 1).message(), HasSubstr("holds 1000"));
  const Status status = engine->FillRandom({&raw, 1}, 999, 1);
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("524288"));
  EXPECT_EQ(session->stats().kv_bytes_kept, 0u);
  ASSERT_TRUE(engine->FillRandom({&raw, 1}, 100, 1).ok());
  EXPECT_THAT(engine->FillRandom({&raw, 1}, 100, 1).message(), HasSubstr("empty"));
}

TEST(BytesRead, CountRowsOfAllHeadsAndTheEstimate) {
  const auto engine = OpenTiny("llama-q8_0");
  const ModelInfo& model = engine->model();
  const double row_bytes = 2.0 * model.head_dim * 2;
  for (const char* method : kMethods) {
    const auto session = NewSession(*engine, method);
    ASSERT_TRUE(test::Prefill(*engine, *session, RandomTokens(700, model.vocab)).ok());
    EXPECT_EQ(session->stats().kv_bytes_read_per_step, 0);
    DecodeAll(*session, std::vector<Token>{1, 2, 3, 4});
    const SessionStats stats = session->stats();
    EXPECT_DOUBLE_EQ(stats.kv_bytes_read_per_step,
                     model.layers * model.kv_heads * row_bytes * stats.tokens_read_per_step);
    if (std::string(method) == "full") {
      EXPECT_DOUBLE_EQ(stats.tokens_read_per_step, 702.5);
    }
  }
}

TEST(BytesRead, CountQ8RowsAndTheirIndexInF16) {
  const auto engine = OpenTiny(kModel, {.kv_type = KvType::kQ8});
  const ModelInfo& model = engine->model();
  EXPECT_EQ(model.kv_bytes_per_token,
            static_cast<std::size_t>(model.layers * model.kv_heads * (80 + 68)));
  const double heads = model.layers * model.kv_heads;
  const auto full = NewSession(*engine, "full");
  const auto chosen = NewSession(*engine, "hsa:budget=64,topk=32");
  for (Session* session : {full.get(), chosen.get()}) {
    ASSERT_TRUE(test::Prefill(*engine, *session, RandomTokens(700, model.vocab)).ok());
    DecodeAll(*session, std::vector<Token>{1, 2, 3, 4});
  }
  EXPECT_DOUBLE_EQ(full->stats().kv_bytes_read_per_step, heads * 148 * 702.5);
  const SessionStats stats = chosen->stats();
  ASSERT_EQ(stats.dense_share, 0);
  // 701 to 704 rows are 176 chunks of 4, of which 22 channels are read.
  EXPECT_DOUBLE_EQ(stats.kv_bytes_read_per_step, heads * (148 * 32 + 176 * 22 * 2));
  EXPECT_DOUBLE_EQ(stats.tokens_read_per_step, 32 + 176 * 22 * 2 / 148.0);
}

TEST(Q8Rows, AgreeWithF32Rows) {
  for (const char* model : {kModel, "llama-q8_0", "qwen2-f32-gqa7"}) {
    const auto exact = OpenTiny(model, {.kv_type = KvType::kF32});
    const auto engine = OpenTiny(model, {.kv_type = KvType::kQ8});
    const std::vector<Token> tokens = RandomTokens(310, exact->model().vocab);
    const auto a = NewSession(*exact, "full");
    const auto b = NewSession(*engine, "full");
    const auto expected =
        test::Trace(*exact, *a, std::span(tokens).first(300), std::span(tokens).last(10));
    const auto got =
        test::Trace(*engine, *b, std::span(tokens).first(300), std::span(tokens).last(10));
    for (std::size_t i = 0; i < expected.size(); ++i) {
      // Random weights carry a rounding error far; a wrong scale gives numbers near 1.
      EXPECT_LE(test::Nmse(expected[i], got[i]), 2e-2) << model << " step " << i;
    }
    EXPECT_LT(b->stats().kv_bytes_full * 3, a->stats().kv_bytes_full);
  }
}

TEST(OpenShape, ComputesFiniteNumbersThroughAllLayers) {
  const Result<std::unique_ptr<Engine>> opened =
      Engine::OpenShape("smollm2-135m", {.threads = 2, .context = 4096});
  ASSERT_TRUE(opened) << opened.error().message();
  Engine& engine = **opened;
  const ModelInfo& model = engine.model();
  EXPECT_EQ(model.parameters, 134515008u);
  EXPECT_EQ(model.weight_types, "Q4_0");
  EXPECT_EQ(model.path, "");
  EXPECT_THAT(model.name, HasSubstr("smollm2-135m"));
  EXPECT_EQ(model.trained_context, 4096);
  EXPECT_GT(model.file_bytes, 134515008u / 2);
  const auto session = NewSession(engine, "rocketkv:budget=64");
  ASSERT_TRUE(test::Prefill(engine, *session, RandomTokens(150, model.vocab)).ok());
  DecodeAll(*session, std::vector<Token>{5, 6});
  const std::span<const float> logits = session->logits();
  EXPECT_TRUE(std::ranges::all_of(logits, [](float x) { return std::isfinite(x); }));
  const auto [low, high] = std::ranges::minmax(logits);
  EXPECT_GT(high - low, 1.0f);
  EXPECT_LT(high - low, 100.0f);
  GenerateOptions options;
  options.max_tokens = 3;
  const Result<GenerateResult> result = session->Generate(options, {});
  ASSERT_TRUE(result);
  EXPECT_EQ(result->tokens.size(), 3u);
  EXPECT_EQ(result->text, "");
}

TEST(OpenShape, HasNoText) {
  const Result<std::unique_ptr<Engine>> engine = Engine::OpenShape("smollm2-135m", {.threads = 1});
  ASSERT_TRUE(engine);
  EXPECT_EQ((*engine)->options().context, 131072);
  EXPECT_EQ((*engine)->Tokenize("hello", true, false).error().code(), Code::kUnsupported);
  const std::vector<ChatMessage> chat = {{"user", "hello"}};
  EXPECT_EQ((*engine)->TokenizeChat(chat, "").error().code(), Code::kUnsupported);
  EXPECT_EQ((*engine)->TokenizeChatTurn(chat, chat[0], "").error().code(), Code::kUnsupported);
  EXPECT_EQ((*engine)->TokenText(17), "");
}

TEST(OpenShape, RefusesUnknownShapesAndBadOptions) {
  const auto refused = [](const char* shape, const EngineOptions& options) {
    const Result<std::unique_ptr<Engine>> engine = Engine::OpenShape(shape, options);
    EXPECT_FALSE(engine);
    return engine ? Status() : engine.error();
  };
  const Status unknown = refused("llama-9b", {});
  EXPECT_EQ(unknown.code(), Code::kInvalidArgument);
  for (const std::string& name : KnownShapes()) {
    EXPECT_THAT(unknown.message(), HasSubstr(name));
  }
  EXPECT_EQ(refused("llama-8b", {.model_path = "x.gguf"}).code(), Code::kInvalidArgument);
  EXPECT_EQ(refused("llama-8b", {.threads = -1}).code(), Code::kInvalidArgument);
  EXPECT_EQ(refused("llama-8b", {.context = INT32_MAX}).code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace rkv
