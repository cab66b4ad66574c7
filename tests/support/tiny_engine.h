// Engines on tiny models and shorthands for tests that run whole prompts.
#ifndef RKV_TESTS_SUPPORT_TINY_ENGINE_H_
#define RKV_TESTS_SUPPORT_TINY_ENGINE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "rkv/engine.h"

namespace rkv::test {

inline std::string TinyModel(const std::string& name) {
  return std::string(RKV_TINY_MODELS) + "/" + name + ".gguf";
}

inline std::unique_ptr<Engine> OpenTiny(const std::string& name, EngineOptions options = {}) {
  options.model_path = TinyModel(name);
  if (options.threads == 0) {
    options.threads = 2;
  }
  Result<std::unique_ptr<Engine>> engine = Engine::Open(options);
  EXPECT_TRUE(engine) << (engine ? "" : engine.error().message());
  return engine ? std::move(*engine) : nullptr;
}

// The same for the same arguments.
inline std::vector<Token> RandomTokens(std::size_t count, std::int32_t vocab,
                                       std::uint64_t seed = 1) {
  Rng rng(seed);
  std::vector<Token> tokens(count);
  for (Token& token : tokens) {
    token = static_cast<Token>(rng.Below(static_cast<std::uint64_t>(vocab)));
  }
  return tokens;
}

inline std::unique_ptr<Session> NewSession(Engine& engine, const std::string& policy,
                                           std::int32_t max_new_tokens = 16) {
  Result<std::unique_ptr<Session>> session =
      engine.NewSession({.policy = policy, .max_new_tokens = max_new_tokens});
  EXPECT_TRUE(session) << (session ? "" : session.error().message());
  return session ? std::move(*session) : nullptr;
}

inline Status Prefill(Engine& engine, Session& session, std::span<const Token> prompt) {
  Session* raw = &session;
  return engine.Prefill({&raw, 1}, prompt, {});
}

// Logits after the prompt and after each of the tokens that follow.
inline std::vector<std::vector<float>> Trace(Engine& engine, Session& session,
                                             std::span<const Token> prompt,
                                             std::span<const Token> next) {
  std::vector<std::vector<float>> trace;
  const Status status = Prefill(engine, session, prompt);
  EXPECT_TRUE(status.ok()) << status.message();
  trace.emplace_back(session.logits().begin(), session.logits().end());
  for (const Token token : next) {
    const Result<std::span<const float>> logits = session.Decode(token);
    EXPECT_TRUE(logits) << (logits ? "" : logits.error().message());
    if (logits) {
      trace.emplace_back(logits->begin(), logits->end());
    }
  }
  return trace;
}

}  // namespace rkv::test

#endif  // RKV_TESTS_SUPPORT_TINY_ENGINE_H_
