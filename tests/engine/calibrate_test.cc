// Engine::CalibrateHeads on tiny models.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "engine/pass_key_texts.h"
#include "support/tiny_engine.h"

namespace rkv {
namespace {

using test::OpenTiny;

TEST(PassKeyTexts, HideKeysAndAskForThem) {
  const auto texts = engine::PassKeyTexts(3, 1400);
  ASSERT_EQ(texts.size(), 3u);
  EXPECT_EQ(texts, engine::PassKeyTexts(3, 1400));
  EXPECT_NE(texts[0], texts[1]);
  for (const std::string& text : texts) {
    std::size_t questions = 0;
    for (std::size_t at = text.find("What is"); at != std::string::npos;
         at = text.find("What is", at + 1)) {
      ++questions;
    }
    EXPECT_EQ(questions, 5u);
    // The key of the last question is hidden in the text before.
    const std::string key = text.substr(text.size() - 6, 5);
    EXPECT_LT(text.find(key), text.find("What is"));
    const auto words = std::count(text.begin(), text.end(), ' ');
    EXPECT_GT(words, 1400);
    EXPECT_LT(words, 1700);
  }
}

TEST(CalibrateHeads, MakesATableThatTheMethodTakes) {
  const auto engine = OpenTiny("llama-q8_0");
  for (const char* method : {"duo", "catekv"}) {
    const auto heads = engine->CalibrateHeads(method, {}, {});
    ASSERT_TRUE(heads) << heads.error().message();
    EXPECT_EQ(heads->method, method);
    EXPECT_EQ(heads->layers, engine->model().layers);
    EXPECT_EQ(heads->kv_heads, engine->model().kv_heads);
    EXPECT_EQ(heads->scores.size(),
              static_cast<std::size_t>(heads->layers) * static_cast<std::size_t>(heads->kv_heads));
    EXPECT_NE(*std::ranges::min_element(heads->scores), *std::ranges::max_element(heads->scores));
    EXPECT_EQ(engine->CalibrateHeads(method, {}, {})->json, heads->json);
  }
}

TEST(CalibrateHeads, ItsTableServesThatModelOnly) {
  const auto engine = OpenTiny("llama-q8_0");
  const auto heads = engine->CalibrateHeads("duo", {}, {});
  ASSERT_TRUE(heads);
  for (const float share : heads->scores) {
    EXPECT_GE(share, 0.0f);
    EXPECT_LE(share, 1.0f);
  }
  const std::string path = ::testing::TempDir() + "rkv_calibrate_test.json";
  std::ofstream(path) << heads->json;
  const std::string spec = "duo:budget=32,table=" + path;
  const auto session = test::NewSession(*engine, spec);
  const auto tokens = test::RandomTokens(200, engine->model().vocab);
  ASSERT_TRUE(test::Prefill(*engine, *session, tokens).ok());
  EXPECT_LE(session->stats().tokens_kept, 33);
  for (int i = 0; i < 30; ++i) {
    ASSERT_TRUE(session->Decode(tokens[static_cast<std::size_t>(i)]));
  }
  EXPECT_LE(session->stats().tokens_read_per_step, 33);
  const auto other = OpenTiny("qwen2-f32-gqa7");
  const auto refused = test::NewSession(*other, spec);
  const Status status = test::Prefill(*other, *refused, test::RandomTokens(50, 100));
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), ::testing::HasSubstr("head table is of model"));
  std::remove(path.c_str());
}

TEST(CalibrateHeads, Errors) {
  const auto engine = OpenTiny("llama-q8_0");
  const auto unknown = engine->CalibrateHeads("snapkv", {}, {});
  ASSERT_FALSE(unknown);
  EXPECT_THAT(unknown.error().message(), ::testing::HasSubstr("known: duo, catekv"));
  const auto cancelled =
      engine->CalibrateHeads("duo", {}, [](const PrefillProgress&) { return false; });
  ASSERT_FALSE(cancelled);
  EXPECT_EQ(cancelled.error().code(), Code::kCancelled);
  const std::vector<std::string> invalid = {"\xff"};
  EXPECT_FALSE(engine->CalibrateHeads("duo", invalid, {}));
}

}  // namespace
}  // namespace rkv
