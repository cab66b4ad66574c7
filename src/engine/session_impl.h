// SessionImpl: the public Session over a SessionState.
#ifndef RKV_ENGINE_SESSION_IMPL_H_
#define RKV_ENGINE_SESSION_IMPL_H_

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/decode.h"
#include "engine/runtime.h"
#include "engine/session_state.h"
#include "rkv/session.h"

namespace rkv::engine {

// kInvalidArgument, with the allowed range, for an id outside the vocabulary.
Status CheckToken(const Runtime& runtime, Token token);

class SessionImpl final : public Session {
 public:
  // `runtime` must outlive the session.
  SessionImpl(const Runtime& runtime, std::unique_ptr<const policy::Policy> policy,
              std::int32_t max_new_tokens);

  std::string policy() const override;
  std::int32_t position() const override;
  Result<std::span<const float>> Decode(Token token) override;
  Status Rewind(std::int32_t position) override;
  std::span<const float> logits() const override;
  Result<GenerateResult> Generate(const GenerateOptions& options,
                                  const TextCallback& on_text) override;
  SessionStats stats() const override;
  std::vector<std::int32_t> KeptPositions(std::int32_t layer, std::int32_t kv_head) const override;

  // For the engine's prefill.
  SessionState& state() { return state_; }
  const Runtime& runtime() const { return runtime_; }
  // Feeds the last prompt token when the prefill left it out. Counts as prefill time.
  Status FinishPrompt(Token last);
  // A later prompt begins: warns when rows that it may need are gone for good. Once a session.
  void WarnOfDroppedRows();
  // kInvalidArgument when the session has lost rows.
  Status CheckUsable() const;

 private:
  Status Step(Token token);

  const Runtime& runtime_;
  SessionState state_;
  DecodeBuffers buffers_;
  std::vector<std::string> warnings_;  // for the statistics
};

}  // namespace rkv::engine

#endif  // RKV_ENGINE_SESSION_IMPL_H_
