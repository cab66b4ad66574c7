// EngineImpl: the public Engine.
#ifndef RKV_ENGINE_ENGINE_IMPL_H_
#define RKV_ENGINE_ENGINE_IMPL_H_

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/runtime.h"
#include "engine/session_impl.h"
#include "rkv/engine.h"

namespace rkv::engine {

// How rows of a type are stored; kAuto as f16.
kv::Codec CodecOf(KvType type);

class EngineImpl final : public Engine {
 public:
  // REQUIRES: options checked, `model` loaded.
  EngineImpl(const EngineOptions& options, std::unique_ptr<model::Model> model);

  // Lays the weights out for decode when the options say so; before anything else.
  // Errors: kResourceExhausted names bytes needed and available.
  Status PackWeights();

  const ModelInfo& model() const override { return info_; }
  const EngineOptions& options() const override { return options_; }
  Result<std::vector<Token>> Tokenize(std::string_view text, bool add_special,
                                      bool parse_special) const override;
  Result<std::vector<Token>> TokenizeChat(std::span<const ChatMessage> messages,
                                          std::string_view chat_template) const override;
  Result<std::vector<Token>> TokenizeChatTurn(std::span<const ChatMessage> before,
                                              const ChatMessage& next,
                                              std::string_view chat_template) const override;
  std::string TokenText(Token token) const override;
  Result<std::unique_ptr<Session>> NewSession(const SessionOptions& options) override;
  Result<MemoryPlan> PlanPrompt(const SessionOptions& options, std::int32_t tokens) const override;
  Status Prefill(std::span<Session* const> sessions, std::span<const Token> prompt,
                 const ProgressCallback& on_progress) override;
  Result<HeadScores> CalibrateHeads(std::string_view method, std::span<const std::string> texts,
                                    const ProgressCallback& on_progress) override;
  Status FillRandom(std::span<Session* const> sessions, std::int32_t tokens,
                    std::uint64_t seed) override;

 private:
  // The sessions as ours; kInvalidArgument for none, one given twice or one of another engine.
  Result<std::vector<SessionImpl*>> OwnSessions(std::span<Session* const> sessions) const;
  Status CheckTokens(std::span<const Token> prompt) const;
  Status CheckRoom(std::span<SessionImpl* const> sessions, std::int64_t tokens) const;
  // What a turn takes: all that a prefill needs, or the rows and indexes that stay.
  enum class Need : std::uint8_t { kPrefill, kKept };
  Status CheckMemory(std::span<SessionImpl* const> sessions, std::int32_t tokens, Need need) const;
  std::size_t BytesNeeded(std::span<SessionImpl* const> sessions, std::int32_t tokens,
                          Need need) const;
  Status BeginTurn(std::span<SessionImpl* const> sessions, std::int32_t tokens);
  static void AbandonPrompt(std::span<SessionState* const> states, bool fresh);
  Status RunPrefill(std::span<SessionImpl* const> sessions, std::span<const Token> prompt,
                    const ProgressCallback& on_progress);
  Status RunTurn(std::span<SessionImpl* const> sessions, std::span<const Token> prompt,
                 const ProgressCallback& on_progress);

  EngineOptions options_;
  std::unique_ptr<model::Model> model_;
  ThreadPool pool_;
  Runtime runtime_;
  ModelInfo info_;
};

}  // namespace rkv::engine

#endif  // RKV_ENGINE_ENGINE_IMPL_H_
