// Tiny random models of every supported shape against libllama: without compression and with all
// arithmetic in f32, logits agree to rounding.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "rkv/engine.h"
#include "support/distribution.h"
#include "support/llama_oracle.h"

namespace rkv {
namespace {

struct Case {
  std::string model;
  double max_nmse;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.model; }

// F32 weights: only the order of sums differs. Quantised ones: libllama rounds activations to the
// weights' partner type, which the f32 reference does not.
std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const auto& entry : std::filesystem::directory_iterator(RKV_TINY_MODELS)) {
    if (entry.path().extension() == ".gguf") {
      const std::string name = entry.path().stem().string();
      const bool f32 =
          name.find("-q") == std::string::npos && name.find("f16") == std::string::npos;
      cases.push_back({name, f32 ? 1e-6 : 2e-2});
    }
  }
  std::ranges::sort(cases, {}, &Case::model);
  return cases;
}

std::vector<Token> RandomPrompt(std::size_t count, std::int32_t vocab) {
  Rng rng(count * 77 + 5);
  std::vector<Token> prompt(count);
  for (Token& token : prompt) {
    token = static_cast<Token>(rng.Below(static_cast<std::uint64_t>(vocab)));
  }
  return prompt;
}

class TinyModels : public testing::TestWithParam<Case> {
 protected:
  // Prompt, then 16 teacher-forced tokens, compared after each.
  void Compare(std::size_t prompt_tokens) {
    constexpr std::size_t kSteps = 16;
    const std::string path = std::string(RKV_TINY_MODELS) + "/" + GetParam().model + ".gguf";
    EngineOptions options;
    options.model_path = path;
    options.compute = Compute::kF32;
    options.piece_tokens = 200;
    Result<std::unique_ptr<Engine>> engine = Engine::Open(options);
    ASSERT_TRUE(engine) << engine.error().message();
    test::LlamaOracle oracle(path, {.context = 2048, .f32_cache = true});
    ASSERT_TRUE(oracle.ok());
    ASSERT_EQ(oracle.vocab(), (*engine)->model().vocab);

    const std::vector<Token> tokens = RandomPrompt(prompt_tokens + kSteps, oracle.vocab());
    const std::span<const Token> prompt = std::span(tokens).first(prompt_tokens);
    Result<std::unique_ptr<Session>> session = (*engine)->NewSession({.policy = "full"});
    ASSERT_TRUE(session);
    Session* raw = session->get();
    const Status status = (*engine)->Prefill({&raw, 1}, prompt, {});
    ASSERT_TRUE(status.ok()) << status.message();
    ASSERT_TRUE(oracle.Feed(prompt));
    for (std::size_t i = 0; i < kSteps; ++i) {
      const double nmse = test::Nmse(oracle.logits(), raw->logits());
      ASSERT_LE(nmse, GetParam().max_nmse) << "after " << prompt_tokens + i << " tokens";
      const Token next = tokens[prompt_tokens + i];
      ASSERT_TRUE(raw->Decode(next));
      ASSERT_TRUE(oracle.Feed({&next, 1}));
    }
  }
};

TEST_P(TinyModels, LogitsEqualLibllamaAfterOneToken) { Compare(1); }
TEST_P(TinyModels, LogitsEqualLibllamaAfterAPieceAndABit) { Compare(201); }
TEST_P(TinyModels, LogitsEqualLibllamaAfterAThousandTokens) { Compare(1031); }

INSTANTIATE_TEST_SUITE_P(All, TinyModels, testing::ValuesIn(Cases()), [](const auto& param) {
  std::string name = param.param.model;
  std::ranges::replace(name, '-', '_');
  return name;
});

}  // namespace
}  // namespace rkv
