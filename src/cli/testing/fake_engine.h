// An Engine without a model for the tests of the commands: a token is a byte, an answer is
// scripted.
#ifndef RKV_CLI_TESTING_FAKE_ENGINE_H_
#define RKV_CLI_TESTING_FAKE_ENGINE_H_

#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rkv/engine.h"

namespace rkv::cli {

// What the fake says and what it saw; outlives the engine.
struct FakeScript {
  std::deque<std::vector<std::string>> answers = {{"Hello", " wor", "ld"}};  // the last one repeats
  StopReason stop_reason = StopReason::kEndOfGeneration;
  Status open_status;
  Status prefill_status;
  std::vector<std::string> warnings;
  std::int32_t context = 4096;
  std::function<void()> during_prefill;   // before the second progress call
  std::function<void()> during_generate;  // after the first piece

  EngineOptions opened;
  std::string shape;                // of the last OpenShape
  std::vector<std::int32_t> fills;  // tokens of each FillRandom
  std::vector<Token> decoded;
  std::function<void()> during_decode;
  std::vector<std::string> prompts;           // text of each prefill
  std::vector<std::size_t> prefill_sessions;  // how many each prefill had
  std::vector<SessionOptions> sessions;
  std::vector<std::string> calibrated;  // method and texts of CalibrateHeads
  std::vector<GenerateOptions> generates;
};

class FakeSession : public Session {
 public:
  FakeSession(SessionOptions options, FakeScript& script)
      : options_(std::move(options)), script_(script) {}

  std::string policy() const override { return options_.policy + ",spelled=out"; }
  std::int32_t position() const override { return stats_.prompt_tokens + stats_.generated_tokens; }
  Result<std::span<const float>> Decode(Token token) override {
    script_.decoded.push_back(token);
    if (script_.during_decode) {
      script_.during_decode();
    }
    ++stats_.generated_tokens;
    stats_.decode_seconds += 0.5;
    return std::span<const float>();
  }
  Status Rewind(std::int32_t position) override {
    stats_.generated_tokens = position - stats_.prompt_tokens;
    return {};
  }
  std::span<const float> logits() const override { return {}; }
  SessionStats stats() const override { return stats_; }
  std::vector<std::int32_t> KeptPositions(std::int32_t, std::int32_t) const override { return {}; }

  Result<GenerateResult> Generate(const GenerateOptions& options,
                                  const TextCallback& on_text) override {
    script_.generates.push_back(options);
    GenerateResult result;
    result.stop_reason = script_.stop_reason;
    const std::vector<std::string> pieces = script_.answers.front();
    if (script_.answers.size() > 1) {
      script_.answers.pop_front();
    }
    for (const std::string& piece : pieces) {
      const bool go_on = on_text(piece);
      if (result.tokens.empty() && script_.during_generate) {
        script_.during_generate();
      }
      if (!go_on) {
        return Status(Code::kCancelled, "cancelled");
      }
      result.text += piece;
      result.tokens.push_back(static_cast<Token>(piece.size()));
      ++stats_.generated_tokens;
      stats_.decode_seconds += 0.5;
    }
    return result;
  }

  void AddPrompt(std::size_t tokens) {
    stats_.prompt_tokens += static_cast<std::int32_t>(tokens);
    stats_.prefill_seconds += 2;
    stats_.kv_bytes_full = 1000;
    stats_.kv_bytes_kept = 250;
    stats_.kv_bytes_index = 50;
    stats_.kv_bytes_peak = 400;
    stats_.kv_bytes_layer = 100;
    stats_.tokens_kept = 64;
    stats_.tokens_read_per_step = 32;
    stats_.kv_bytes_read_per_step = 4096;
    stats_.stage_seconds = {{"decode.select", 0.25}, {"prefill.linear", 1.5}};
    stats_.warnings = script_.warnings;
  }

 private:
  SessionOptions options_;
  FakeScript& script_;
  SessionStats stats_;
};

class FakeEngine : public Engine {
 public:
  FakeEngine(const EngineOptions& options, FakeScript& script)
      : options_(options), script_(script) {
    options_.context = script.context;
    options_.threads = 2;
    model_ = {.path = options.model_path,
              .name = "Fake",
              .architecture = "llama",
              .weight_types = "Q4_1",
              .parameters = 1000,
              .file_bytes = 2048,
              .layers = 2,
              .embd = 64,
              .heads = 4,
              .kv_heads = 2,
              .head_dim = 16,
              .ff = 128,
              .vocab = 256,
              .trained_context = script.context,
              .rope = "neox, base 10000",
              .kv_bytes_per_token = 256};
  }

  const ModelInfo& model() const override { return model_; }
  const EngineOptions& options() const override { return options_; }

  Result<std::vector<Token>> Tokenize(std::string_view text, bool add_special,
                                      bool parse_special) const override {
    return Bytes(std::string(add_special ? "<bos>" : "") + (parse_special ? "<parsed>" : "") +
                 std::string(text));
  }
  Result<std::vector<Token>> TokenizeChat(std::span<const ChatMessage> messages,
                                          std::string_view chat_template) const override {
    std::string text(chat_template);
    for (const ChatMessage& message : messages) {
      text += "[" + message.role + "]" + message.content;
    }
    return Bytes(text);
  }
  Result<std::vector<Token>> TokenizeChatTurn(std::span<const ChatMessage> before,
                                              const ChatMessage& next,
                                              std::string_view) const override {
    return Bytes("(after " + before.back().content + ")[" + next.role + "]" + next.content);
  }
  std::string TokenText(Token token) const override {
    return std::string(1, static_cast<char>(token));
  }

  Result<std::unique_ptr<Session>> NewSession(const SessionOptions& options) override {
    script_.sessions.push_back(options);
    return std::unique_ptr<Session>(std::make_unique<FakeSession>(options, script_));
  }
  Result<MemoryPlan> PlanPrompt(const SessionOptions&, std::int32_t tokens) const override {
    return MemoryPlan{.kv_kept = 100,
                      .kv_index = 20,
                      .kv_layer = 30,
                      .scratch = static_cast<std::size_t>(tokens) * 2};
  }

  Status Prefill(std::span<Session* const> sessions, std::span<const Token> prompt,
                 const ProgressCallback& on_progress) override {
    script_.prompts.emplace_back(prompt.begin(), prompt.end());
    script_.prefill_sessions.push_back(sessions.size());
    const auto tokens = static_cast<std::int32_t>(prompt.size());
    for (std::int32_t layer = 0; layer < model_.layers; ++layer) {
      if (layer == 1 && script_.during_prefill) {
        script_.during_prefill();
      }
      if (!on_progress({layer, model_.layers, tokens / 2, tokens})) {
        return Status(Code::kCancelled, "cancelled");
      }
    }
    if (!script_.prefill_status.ok()) {
      return script_.prefill_status;
    }
    for (Session* session : sessions) {
      static_cast<FakeSession*>(session)->AddPrompt(prompt.size());
    }
    return {};
  }

  Result<HeadScores> CalibrateHeads(std::string_view method, std::span<const std::string> texts,
                                    const ProgressCallback& on_progress) override {
    script_.calibrated.emplace_back(method);
    script_.calibrated.insert(script_.calibrated.end(), texts.begin(), texts.end());
    if (!script_.prefill_status.ok()) {
      return script_.prefill_status;
    }
    if (script_.during_prefill) {
      script_.during_prefill();
    }
    if (!on_progress({0, model_.layers, 0, 10})) {
      return Status(Code::kCancelled, "cancelled");
    }
    return HeadScores{.method = std::string(method),
                      .model = "Fake",
                      .layers = 2,
                      .kv_heads = 2,
                      .scores = {0, 0.5F, 0.25F, 1},
                      .json = "{\"scores\":[[0,0.5],[0.25,1]]}\n"};
  }

  Status FillRandom(std::span<Session* const> sessions, std::int32_t tokens,
                    std::uint64_t) override {
    script_.fills.push_back(tokens);
    for (Session* session : sessions) {
      static_cast<FakeSession*>(session)->AddPrompt(static_cast<std::size_t>(tokens));
    }
    return {};
  }

 private:
  static Result<std::vector<Token>> Bytes(const std::string& text) {
    return std::vector<Token>(text.begin(), text.end());
  }

  EngineOptions options_;
  FakeScript& script_;
  ModelInfo model_;
};

}  // namespace rkv::cli

#endif  // RKV_CLI_TESTING_FAKE_ENGINE_H_
