#include "engine/session_state.h"

#include <utility>

namespace rkv::engine {

SessionState::SessionState(const Runtime& runtime, std::unique_ptr<const policy::Policy> method,
                           std::int32_t max_new)
    : policy(std::move(method)),
      max_new_tokens(max_new),
      pool(kv::HeadStore::BlockBytes(runtime.params().head_dim, runtime.codec)) {
  const model::HyperParams& params = runtime.params();
  layers.resize(static_cast<std::size_t>(params.layers));
  for (LayerCache& layer : layers) {
    layer.heads.reserve(static_cast<std::size_t>(params.kv_heads));
    for (std::int32_t h = 0; h < params.kv_heads; ++h) {
      layer.heads.emplace_back(params.head_dim, runtime.codec, pool, meter);
    }
  }
}

policy::TurnShape ShapeOf(const Runtime& runtime, std::int32_t prompt_tokens,
                          std::int32_t max_new_tokens) {
  return {.prompt_tokens = prompt_tokens,
          .max_new_tokens = max_new_tokens,
          .head_dim = runtime.params().head_dim,
          .group = runtime.params().group()};
}

Status SessionState::BeginTurn(std::int32_t turn_tokens, const Runtime& runtime) {
  const policy::TurnShape turn = ShapeOf(runtime, position + turn_tokens, max_new_tokens);
  if (Status status = policy->CheckShape(turn); !status.ok()) {
    return status;
  }
  shape = turn;
  needs = policy->needs(shape);
  for (LayerCache& layer : layers) {
    layer.indexes.clear();
    for (std::int32_t h = 0; needs.chunk_rows > 0 && h < runtime.params().kv_heads; ++h) {
      layer.indexes.emplace_back(runtime.params().head_dim, runtime.codec, needs.chunk_rows, meter);
    }
  }
  return {};
}

void SessionState::Clear() {
  for (LayerCache& layer : layers) {
    layer.indexes.clear();
    for (kv::HeadStore& head : layer.heads) {
      head.Truncate(0);
    }
  }
  pool.Trim();
  position = 0;
  prompt_end = 0;
  prompt_tokens = 0;
  prefill_seconds = 0;
  tokens.clear();
  logits.clear();
}

}  // namespace rkv::engine
