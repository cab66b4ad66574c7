// A session of a tiny model in f32 whose policy records its choices or follows recorded ones.
#ifndef RKV_TESTS_SUPPORT_REPLAYED_SESSION_H_
#define RKV_TESTS_SUPPORT_REPLAYED_SESSION_H_

#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/prefill.h"
#include "engine/session_impl.h"
#include "support/replay_policy.h"
#include "support/tiny_engine.h"

namespace rkv::test {

struct ReplayedRun {
  const attention::Backend* backend = nullptr;
  std::int32_t piece_tokens = 1024;
  std::string policy;
  Choices* record = nullptr;  // one of these two
  const Choices* replay = nullptr;
  Disagreement* disagreement = nullptr;
};

struct ReplayedTrace {
  std::vector<std::vector<float>> logits;  // after the prompt and after each further token
  std::vector<std::int32_t> kept;          // positions in layer 0, head 0
};

inline ReplayedTrace RunReplayed(const model::Model& model, const ReplayedRun& run,
                                 std::span<const Token> prompt, std::span<const Token> next) {
  ThreadPool pool(1);
  engine::Runtime runtime;
  runtime.model = &model;
  runtime.pool = &pool;
  runtime.backend = run.backend;
  runtime.compute = Compute::kF32;
  runtime.codec = kv::Codec::kF32;
  runtime.piece_tokens = run.piece_tokens;
  runtime.context = 4096;
  ReplayedTrace trace;
  Result<std::unique_ptr<const policy::Policy>> method = policy::MakePolicy(run.policy);
  EXPECT_TRUE(method);
  auto policy =
      run.record != nullptr
          ? std::make_unique<ReplayPolicy>(std::move(*method), run.record)
          : std::make_unique<ReplayPolicy>(std::move(*method), run.replay, run.disagreement);
  engine::SessionImpl session(runtime, std::move(policy), 16);
  engine::SessionState* state = &session.state();
  const auto tokens = static_cast<std::int32_t>(prompt.size());
  EXPECT_TRUE(state->BeginTurn(tokens, runtime).ok());
  EXPECT_TRUE(
      engine::Prefill(runtime, {&state, 1}, prompt.first(prompt.size() - 1), false).Run({}).ok());
  EXPECT_TRUE(session.FinishPrompt(prompt.back()).ok());
  trace.logits.emplace_back(session.logits().begin(), session.logits().end());
  for (const Token token : next) {
    EXPECT_TRUE(session.Decode(token));
    trace.logits.emplace_back(session.logits().begin(), session.logits().end());
  }
  trace.kept = session.KeptPositions(0, 0);
  return trace;
}

}  // namespace rkv::test

#endif  // RKV_TESTS_SUPPORT_REPLAYED_SESSION_H_
