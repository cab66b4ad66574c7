// Every method, and every evictor with every selector, in the whole engine on tiny models.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "policy/policy.h"
#include "support/distribution.h"
#include "support/method_strings.h"
#include "support/tiny_engine.h"

namespace rkv {
namespace {

using test::AllMethods;
using test::NewSession;
using test::OpenTiny;
using test::RandomTokens;
using test::Trace;
using test::WithBudget;

constexpr const char* kModel = test::kMethodModel;

using Logits = std::vector<std::vector<float>>;

// Under a sanitizer the pairs take minutes: there two evictors stand for all, one that drops
// rows once and one that goes on dropping them.
bool PairIsRun(const std::string& method) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return method.starts_with("evict=snapkv,") || method.starts_with("evict=h2o,");
#else
  return method.starts_with("evict=");
#endif
}

// The methods alone, and with `compositions` pairs of evictor and selector too.
template <class Body>
void ForEachMethod(bool compositions, const Body& body) {
  for (const std::string& method : AllMethods()) {
    const bool pair = method.find("select=") != std::string::npos;
    if (!pair || (compositions && PairIsRun(method))) {
      SCOPED_TRACE(method);
      body(method);
    }
  }
}

// U1 and U2: nothing is lost where the budget covers all.
TEST(EveryMethod, WithTwiceTheLengthAsBudgetGivesTheBitsOfFull) {
  ForEachMethod(true, [](const std::string& given) {
    const auto engine = OpenTiny(kModel);
    for (const std::size_t length : {1, 33, 150}) {
      const std::vector<Token> tokens = RandomTokens(length + 8, engine->model().vocab);
      const std::span<const Token> all(tokens);
      const auto full = NewSession(*engine, "full", 8);
      const auto expected = Trace(*engine, *full, all.first(length), all.last(8));
      const auto budget = std::max<std::size_t>(2 * (length + 8), 700);
      const auto session =
          NewSession(*engine, WithBudget(given, static_cast<std::int32_t>(budget)), 8);
      EXPECT_EQ(Trace(*engine, *session, all.first(length), all.last(8)), expected) << length;
    }
  });
}

TEST(EveryMethod, ThreadsAndPiecesDoNotMatter) {
  ForEachMethod(false, [](const std::string& given) {
    std::vector<Logits> traces;
    for (const EngineOptions& options :
         {EngineOptions{.threads = 1, .piece_tokens = 1024}, EngineOptions{.threads = 2},
          EngineOptions{.threads = 2, .piece_tokens = 64}}) {
      EngineOptions exact = options;
      exact.compute = Compute::kF32;
      const auto engine = OpenTiny(kModel, exact);
      const std::vector<Token> tokens = RandomTokens(400, engine->model().vocab);
      const std::span<const Token> all(tokens);
      const auto session = NewSession(*engine, WithBudget(given, 64), 16);
      traces.push_back(Trace(*engine, *session, all.first(390), all.last(10)));
    }
    EXPECT_EQ(traces[0], traces[1]);
    for (std::size_t i = 0; i < traces[0].size(); ++i) {
      EXPECT_LE(test::Nmse(traces[0][i], traces[2][i]), 1e-6) << "pieces, step " << i;
    }
  });
}

TEST(EveryMethod, StaysNearItsBudgetAndSaysWhatItReads) {
  ForEachMethod(true, [](const std::string& given) {
    const auto engine = OpenTiny(kModel);
    const std::vector<Token> tokens = RandomTokens(1500, engine->model().vocab);
    const std::span<const Token> all(tokens);
    const std::string method = WithBudget(given, 128);
    const auto session = NewSession(*engine, method, 16);
    Trace(*engine, *session, all.first(1490), all.last(10));
    const SessionStats stats = session->stats();
    // Generated rows come on top for methods that only evict; windows and whole chunks round up.
    EXPECT_GT(stats.tokens_read_per_step, 0) << method;
    EXPECT_LE(stats.tokens_read_per_step, test::MostTraffic(method, 128, 10)) << method;
    const ModelInfo& model = engine->model();
    EXPECT_NEAR(stats.kv_bytes_read_per_step,
                stats.tokens_read_per_step * static_cast<double>(model.kv_bytes_per_token), 1.0);
    EXPECT_LE(stats.tokens_kept, 1500) << method;
    std::size_t held = 0;
    for (std::int32_t layer = 0; layer < model.layers; ++layer) {
      for (std::int32_t head = 0; head < model.kv_heads; ++head) {
        const std::vector<std::int32_t> kept = session->KeptPositions(layer, head);
        EXPECT_TRUE(std::ranges::is_sorted(kept));
        EXPECT_EQ(std::ranges::adjacent_find(kept), kept.end());
        EXPECT_LT(kept.back(), 1500);
        held += kept.size();
      }
    }
    EXPECT_DOUBLE_EQ(stats.tokens_kept,
                     static_cast<double>(held) / (model.layers * model.kv_heads));
  });
}

// U8: what the kernels and stores count is what the method's formula says.
TEST(EveryMethod, CountsWhatItsFormulaSays) {
  ForEachMethod(true, [](const std::string& given) {
    if (given.find("duo") != std::string::npos) {
      return;  // its table is of a model; src/policy/duo_test.cc counts
    }
    const auto engine = OpenTiny(kModel);
    const ModelInfo& model = engine->model();
    constexpr std::int32_t kPrompt = 1200;
    constexpr std::int32_t kAnswer = 16;
    const std::vector<Token> tokens = RandomTokens(kPrompt + kAnswer, model.vocab);
    const std::span<const Token> all(tokens);
    const std::string method = WithBudget(given, 128);
    const auto session = NewSession(*engine, method, kAnswer);
    Trace(*engine, *session, all.first(kPrompt), all.last(kAnswer));
    const Result<PolicyNumbers> told = ExplainPolicy(method, {.context = kPrompt + kAnswer,
                                                              .max_new_tokens = kAnswer,
                                                              .layers = model.layers,
                                                              .kv_heads = model.kv_heads,
                                                              .group = model.heads / model.kv_heads,
                                                              .head_dim = model.head_dim});
    ASSERT_TRUE(told) << told.error().message();
    const SessionStats stats = session->stats();
    const auto is = [&](const char* name) { return given.find(name) != std::string::npos; };
    // Those that evict while decoding drop rows in batches; fastgen takes the cheapest rule of each
    // head that the budget allows, at most all of it. Where layers or heads hold different numbers
    // of rows, a selector's formula is of the mean, and short ones read less than it.
    const bool in_batches = is("streaming") || is("h2o") || is("fastgen");
    const bool uneven = is("select=") && (is("pyramid") || is("squeeze") || is("catekv") ||
                                          is("adakv") || is("fastgen"));
    EXPECT_LE(stats.tokens_kept, told->rows_held + (in_batches ? 66 : 2));
    EXPECT_GE(stats.tokens_kept, is("fastgen") ? 0.8 * told->rows_held : told->rows_held - 2);
    // The prompt's last token comes after the eviction, and chunks round up.
    const double slack = 2 + 0.02 * told->rows_read;
    EXPECT_LE(stats.tokens_read_per_step, told->rows_read + slack + (uneven ? 4 : 0));
    EXPECT_GE(stats.tokens_read_per_step, (uneven ? 0.75 : 1) * told->rows_read - slack);
    const double row_bytes = told->bytes_read / told->rows_read;
    EXPECT_NEAR(stats.kv_bytes_read_per_step, stats.tokens_read_per_step * row_bytes,
                1e-6 * told->bytes_read);
    const auto heads = static_cast<double>(model.layers * model.kv_heads);
    EXPECT_NEAR(static_cast<double>(stats.kv_bytes_index), told->bytes_index,
                (in_batches || uneven ? 1.0 : 0.35) * told->bytes_index + 512 * heads);
  });
}

TEST(EveryMethod, TakesALaterPromptAndGoesOn) {
  ForEachMethod(true, [](const std::string& given) {
    const auto engine = OpenTiny(kModel);
    const std::vector<Token> tokens = RandomTokens(700, engine->model().vocab);
    const std::span<const Token> all(tokens);
    const auto session = NewSession(*engine, WithBudget(given, 64), 16);
    Trace(*engine, *session, all.first(500), all.subspan(500, 20));
    for (const std::size_t length : {1, 40}) {
      const Logits logits = Trace(*engine, *session, all.subspan(520, length), all.last(20));
      for (const std::vector<float>& row : logits) {
        EXPECT_TRUE(std::ranges::all_of(row, [](float x) { return std::isfinite(x); }));
      }
    }
    EXPECT_EQ(session->position(), 500 + 20 + 1 + 20 + 40 + 20);
  });
}

TEST(EveryMethod, ACancelledLaterPromptLeavesTheSessionOrSaysItIsLost) {
  ForEachMethod(false, [](const std::string& given) {
    const auto engine = OpenTiny(kModel);
    const std::vector<Token> tokens = RandomTokens(600, engine->model().vocab);
    const std::span<const Token> all(tokens);
    const auto session = NewSession(*engine, WithBudget(given, 64), 16);
    const auto twin = NewSession(*engine, WithBudget(given, 64), 16);
    Trace(*engine, *session, all.first(300), all.subspan(300, 5));
    Trace(*engine, *twin, all.first(300), all.subspan(300, 5));
    Session* raw = session.get();
    const Status status = engine->Prefill({&raw, 1}, all.subspan(305, 100),
                                          [](const PrefillProgress& at) { return at.layer < 1; });
    EXPECT_EQ(status.code(), Code::kCancelled);
    const Result<std::span<const float>> next = session->Decode(7);
    if (next) {
      const Result<std::span<const float>> expected = twin->Decode(7);
      ASSERT_TRUE(expected);
      EXPECT_TRUE(std::ranges::equal(*next, *expected));
    } else {
      EXPECT_EQ(next.error().code(), Code::kInvalidArgument);
      EXPECT_THAT(next.error().message(), testing::HasSubstr("lost rows"));
    }
  });
}

TEST(EveryMethod, SharesAPrefillWithFull) {
  ForEachMethod(false, [](const std::string& given) {
    const auto engine = OpenTiny(kModel);
    const std::vector<Token> tokens = RandomTokens(310, engine->model().vocab);
    const std::span<const Token> all(tokens);
    const auto full = NewSession(*engine, "full");
    const auto shared = NewSession(*engine, WithBudget(given, 64));
    const auto alone = NewSession(*engine, WithBudget(given, 64));
    Session* both[] = {full.get(), shared.get()};
    ASSERT_TRUE(engine->Prefill(both, all.first(300), {}).ok());
    ASSERT_TRUE(test::Prefill(*engine, *alone, all.first(300)).ok());
    for (const Token token : all.last(10)) {
      const auto a = shared->Decode(token);
      const auto b = alone->Decode(token);
      ASSERT_TRUE(a);
      ASSERT_TRUE(b);
      EXPECT_TRUE(std::ranges::equal(*a, *b));
    }
  });
}

TEST(EveryMethod, CanBeTimedOnRandomRows) {
  ForEachMethod(false, [](const std::string& given) {
    const auto engine = OpenTiny(kModel);
    const auto session = NewSession(*engine, WithBudget(given, 64));
    Session* raw = session.get();
    ASSERT_TRUE(engine->FillRandom({&raw, 1}, 700, 3).ok());
    for (Token token = 0; token < 5; ++token) {
      EXPECT_TRUE(session->Decode(token));
    }
    EXPECT_EQ(session->position(), 705);
  });
}

TEST(EveryMethod, PlansAtLeastTheBytesThatItHolds) {
  ForEachMethod(false, [](const std::string& given) {
    const auto engine = OpenTiny(kModel);
    const std::vector<Token> tokens = RandomTokens(900, engine->model().vocab);
    const SessionOptions options = {.policy = WithBudget(given, 64), .max_new_tokens = 16};
    const auto session = NewSession(*engine, options.policy, 16);
    ASSERT_TRUE(test::Prefill(*engine, *session, tokens).ok());
    const auto plan = engine->PlanPrompt(options, 900);
    ASSERT_TRUE(plan);
    const SessionStats stats = session->stats();
    // A head's rows come in blocks; heads of different lengths end in blocks of their own.
    const std::size_t block = std::size_t{64} * 2 * 64 * 2;
    const auto heads = static_cast<std::size_t>(engine->model().layers * engine->model().kv_heads);
    EXPECT_LE(stats.kv_bytes_kept, plan->kv_kept + heads * block);
    EXPECT_LE(stats.kv_bytes_index, plan->kv_index + heads * 4096);
  });
}

}  // namespace
}  // namespace rkv
