// EngineImpl::CalibrateHeads: ordinary prompts under a policy that measures heads.
#include <algorithm>
#include <utility>

#include "engine/engine_impl.h"
#include "engine/pass_key_texts.h"
#include "policy/head_probe.h"
#include "policy/head_table.h"

namespace rkv::engine {
namespace {

// About 2K tokens each where the context has room.
constexpr std::int32_t kTexts = 4;
constexpr std::int32_t kWords = 1400;

}  // namespace

Result<HeadScores> EngineImpl::CalibrateHeads(std::string_view method,
                                              std::span<const std::string> texts,
                                              const ProgressCallback& on_progress) {
  HeadScores heads{.method = std::string(method),
                   .model = runtime_.identity,
                   .layers = runtime_.params().layers,
                   .kv_heads = runtime_.params().kv_heads,
                   .scores = {},
                   .json = {}};
  heads.scores.resize(static_cast<std::size_t>(heads.layers) *
                      static_cast<std::size_t>(heads.kv_heads));
  std::vector<std::string> own;
  if (texts.empty()) {
    own = PassKeyTexts(kTexts, std::min(kWords, runtime_.context / 3));
    texts = own;
  }
  for (const std::string& text : texts) {
    Result<std::unique_ptr<const policy::Policy>> probe =
        policy::MakeHeadProbe(method, heads.scores);
    if (!probe) {
      return probe.error();
    }
    const Result<std::vector<Token>> tokens = Tokenize(text, true, false);
    if (!tokens) {
      return tokens.error();
    }
    SessionImpl session(runtime_, *std::move(probe), 1);
    Session* raw = &session;
    // Of our own texts the end matters, which asks for the keys.
    const auto most = own.empty() ? tokens->size() : static_cast<std::size_t>(runtime_.context - 1);
    const auto prompt = std::span(*tokens).last(std::min(tokens->size(), most));
    if (Status status = Prefill({&raw, 1}, prompt, on_progress); !status.ok()) {
      return status;
    }
  }
  for (float& score : heads.scores) {
    score /= static_cast<float>(texts.size());
  }
  heads.json = policy::HeadTableJson({.method = heads.method,
                                      .model = heads.model,
                                      .layers = heads.layers,
                                      .kv_heads = heads.kv_heads,
                                      .scores = heads.scores});
  return heads;
}

}  // namespace rkv::engine
