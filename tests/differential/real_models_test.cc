// Real models against libllama: how far from the f32 reference our default path and libllama are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "rkv/engine.h"
#include "support/distribution.h"
#include "support/llama_oracle.h"

namespace rkv {
namespace {

constexpr std::size_t kSteps = 64;

// Logits after the prompt and after each of kSteps teacher-forced tokens.
using Trace = std::vector<std::vector<float>>;

std::string ReadText(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::string FindSmolLm2() {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(
           ".deps/venv/lib", std::filesystem::directory_options::skip_permission_denied)) {
    if (entry.path().filename() == "SmolLM2-135M-Instruct.Q4_1.gguf") {
      return entry.path().string();
    }
  }
  return "";
}

std::string FindQwen() {
  const std::string path = ".deps/models/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf";
  return std::filesystem::exists(path) ? path : "";
}

// Sums over positions. A near tie is a different first token whose probability in the reference is
// within 0.01 of the best: any rounding may swap those.
struct Measure {
  double kl = 0;
  double agreement = 0;
  double near_ties = 0;
  double positions = 0;

  void Add(const Measure& other) {
    kl += other.kl;
    agreement += other.agreement;
    near_ties += other.near_ties;
    positions += other.positions;
  }
  double mean_kl() const { return kl / positions; }
  double mean_agreement() const { return agreement / positions; }
  double mean_agreement_or_tie() const { return (agreement + near_ties) / positions; }
};

Measure Compare(const Trace& reference, const Trace& other) {
  Measure m;
  for (std::size_t i = 0; i < reference.size(); ++i) {
    m.kl += test::KlDivergence(reference[i], other[i]);
    const std::size_t best = test::ArgMax(reference[i]);
    const std::size_t theirs = test::ArgMax(other[i]);
    m.agreement += best == theirs ? 1 : 0;
    const double z = test::LogSumExp(reference[i]);
    const double gap = std::exp(reference[i][best] - z) - std::exp(reference[i][theirs] - z);
    m.near_ties += best != theirs && gap <= 0.01 ? 1 : 0;
    m.positions += 1;
  }
  return m;
}

void Print(const std::string& what, const Measure& llama, const Measure& ours) {
  const auto show = [](const char* who, const Measure& m) {
    std::cout << who << " KL " << m.mean_kl() << ", top-1 " << m.mean_agreement()
              << ", near ties counted " << m.mean_agreement_or_tie();
  };
  std::cout << what << ": to the f32 reference, ";
  show("libllama", llama);
  show("; ours", ours);
  std::cout << "; KL ratio " << ours.mean_kl() / llama.mean_kl() << "\n";
}

Trace Ours(Engine& engine, std::span<const Token> tokens) {
  Result<std::unique_ptr<Session>> session = engine.NewSession({.policy = "full"});
  Session* raw = session->get();
  Trace trace;
  const Status status = engine.Prefill({&raw, 1}, tokens.first(tokens.size() - kSteps), {});
  EXPECT_TRUE(status.ok()) << status.message();
  trace.emplace_back(raw->logits().begin(), raw->logits().end());
  for (const Token token : tokens.last(kSteps)) {
    const Result<std::span<const float>> logits = raw->Decode(token);
    EXPECT_TRUE(logits);
    trace.emplace_back(logits->begin(), logits->end());
  }
  return trace;
}

Trace Theirs(const std::string& path, std::span<const Token> tokens) {
  test::LlamaOracle oracle(path, {.context = static_cast<std::int32_t>(tokens.size()) + 32});
  Trace trace;
  EXPECT_TRUE(oracle.ok() && oracle.Feed(tokens.first(tokens.size() - kSteps)));
  trace.emplace_back(oracle.logits().begin(), oracle.logits().end());
  for (const Token token : tokens.last(kSteps)) {
    EXPECT_TRUE(oracle.Feed({&token, 1}));
    trace.emplace_back(oracle.logits().begin(), oracle.logits().end());
  }
  return trace;
}

void ExpectAsCloseAsLibllama(const std::string& path) {
  EngineOptions options;
  options.model_path = path;
  Result<std::unique_ptr<Engine>> engine = Engine::Open(options);
  ASSERT_TRUE(engine) << engine.error().message();
  options.compute = Compute::kF32;
  Result<std::unique_ptr<Engine>> exact = Engine::Open(options);
  ASSERT_TRUE(exact) << exact.error().message();
  const std::string text = ReadText("examples/chronicle.txt") + ReadText("docs/architecture.md");
  Result<std::vector<Token>> all = (*engine)->Tokenize(text, true, false);
  ASSERT_TRUE(all);
  Measure llama_sum;
  Measure our_sum;
  for (const std::size_t prompt : {1, 31, 512, 3000}) {
    ASSERT_GE(all->size(), prompt + kSteps);
    const std::span<const Token> tokens = std::span(*all).first(prompt + kSteps);
    const Trace reference = Ours(**exact, tokens);
    const Measure llama = Compare(reference, Theirs(path, tokens));
    const Measure ours = Compare(reference, Ours(**engine, tokens));
    Print("prompt " + std::to_string(prompt), llama, ours);
    llama_sum.Add(llama);
    our_sum.Add(ours);
  }
  Print("all prompts", llama_sum, our_sum);
  EXPECT_LE(llama_sum.mean_kl(), 5e-3);
  EXPECT_GE(llama_sum.mean_agreement_or_tie(), 0.97);
  EXPECT_GE(our_sum.mean_agreement_or_tie(), 0.97);
  EXPECT_LE(our_sum.mean_kl(), 1.2 * llama_sum.mean_kl());
}

TEST(RealModels, SmolLm2IsAsCloseToTheReferenceAsLibllama) {
  const std::string path = FindSmolLm2();
  if (path.empty()) {
    GTEST_SKIP() << "the default model is not installed: run scripts/setup";
  }
  ExpectAsCloseAsLibllama(path);
}

TEST(RealModels, QwenIsAsCloseToTheReferenceAsLibllama) {
  const std::string path = FindQwen();
  if (path.empty()) {
    GTEST_SKIP() << "Qwen2.5-Coder-0.5B is not installed: run scripts/setup --qwen";
  }
  ExpectAsCloseAsLibllama(path);
}

}  // namespace
}  // namespace rkv
