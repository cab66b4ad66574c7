// A step that selected 833 to 1039 rows of some 3,100 lost up to 192 of them: the tasks that attend
// were planned for the longer spans of all rows, which are fewer.
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "engine/prefill.h"
#include "engine/session_impl.h"
#include "support/forwarding_policy.h"
#include "support/tiny_engine.h"

namespace rkv {
namespace {

// Reads the last `count` rows; `scored`: says that choosing takes work, so that the engine plans
// its tasks before it knows how many rows there will be.
class LastRows final : public test::ForwardingPolicy {
 public:
  LastRows(std::int32_t count, bool scored)
      : ForwardingPolicy(*policy::MakePolicy("full")), count_(count), scored_(scored) {}
  policy::Needs needs(const policy::TurnShape& shape) const override {
    policy::Needs needs = ForwardingPolicy::needs(shape);
    needs.scores_steps = scored_;
    return needs;
  }
  Status Select(const policy::HeadDecode& in, policy::Rows& read) const override {
    read.all = false;
    for (std::int32_t row = std::max(in.rows.slots - count_, 0); row < in.rows.slots; ++row) {
      read.list.push_back(row);
    }
    return {};
  }

 private:
  std::int32_t count_;
  bool scored_;
};

std::vector<float> LastLogits(engine::Runtime& runtime, std::int32_t prompt, std::int32_t count,
                              bool scored) {
  engine::SessionImpl session(runtime, std::make_unique<LastRows>(count, scored), 4);
  const std::vector<Token> tokens =
      test::RandomTokens(static_cast<std::size_t>(prompt), runtime.params().vocab);
  engine::SessionState* state = &session.state();
  EXPECT_TRUE(state->BeginTurn(prompt, runtime).ok());
  EXPECT_TRUE(
      engine::Prefill(runtime, {&state, 1}, std::span(tokens).first(tokens.size() - 1), false)
          .Run({})
          .ok());
  EXPECT_TRUE(session.FinishPrompt(tokens.back()).ok());
  return {session.logits().begin(), session.logits().end()};
}

TEST(Issues, EveryListedRowIsReadHoweverManyThereAre) {
  Result<std::unique_ptr<model::Model>> model =
      model::Model::Load(test::TinyModel("llama-f32-gqa3-llama3rope"));
  ASSERT_TRUE(model);
  ThreadPool pool(2);
  engine::Runtime runtime;
  runtime.model = model->get();
  runtime.pool = &pool;
  runtime.backend = &attention::CpuBackend();
  runtime.context = 4096;
  for (const std::int32_t rows : {900, 1041, 1100, 2100, 3100, 4000}) {
    for (const std::int32_t count : {1, 64, 65, 832, 833, 1000, 1024, 1039, 1040, 2050}) {
      EXPECT_EQ(LastLogits(runtime, rows, count, true), LastLogits(runtime, rows, count, false))
          << count << " of " << rows;
    }
  }
}

}  // namespace
}  // namespace rkv
