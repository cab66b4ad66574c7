#include "engine/session_state.h"

#include <cctype>
#include <utility>

namespace rkv::engine {

SessionState::SessionState(const Runtime& runtime, std::unique_ptr<const policy::Policy> method,
                           std::int32_t max_new)
    : policy(std::move(method)),
      max_new_tokens(max_new),
      codec(runtime.codec),
      pool(kv::HeadStore::BlockBytes(runtime.params().head_dim, runtime.codec)) {
  const model::HyperParams& params = runtime.params();
  layers.resize(static_cast<std::size_t>(params.layers));
  for (LayerCache& layer : layers) {
    layer.heads.reserve(static_cast<std::size_t>(params.kv_heads));
    layer.hot.reserve(static_cast<std::size_t>(params.kv_heads));
    for (std::int32_t h = 0; h < params.kv_heads; ++h) {
      layer.heads.emplace_back(params.head_dim, runtime.codec, pool, meter);
      layer.hot.emplace_back(meter);
    }
    layer.states.resize(layer.heads.size());
  }
}

namespace {

// Punctuation: at least one ASCII mark, no other visible character.
policy::TokenClass ClassOf(const model::Tokenizer& tokenizer, Token token) {
  if (tokenizer.IsControl(token)) {
    return policy::TokenClass::kSpecial;
  }
  bool mark = false;
  for (const char c : tokenizer.Piece(token, false)) {
    const auto byte = static_cast<unsigned char>(c);
    mark = mark || std::ispunct(byte) != 0;
    if (std::isspace(byte) == 0 && std::ispunct(byte) == 0) {
      return policy::TokenClass::kWord;
    }
  }
  return mark ? policy::TokenClass::kPunctuation : policy::TokenClass::kWord;
}

}  // namespace

policy::TurnShape ShapeOf(const Runtime& runtime, std::int32_t prompt_tokens,
                          std::int32_t max_new_tokens) {
  return {.prompt_tokens = prompt_tokens,
          .max_new_tokens = max_new_tokens,
          .head_dim = runtime.params().head_dim,
          .group = runtime.params().group(),
          .kv_heads = runtime.params().kv_heads,
          .layers = runtime.params().layers,
          .model = runtime.identity};
}

Status SessionState::BeginTurn(std::int32_t turn_tokens, const Runtime& runtime) {
  const policy::TurnShape turn =
      policy->Plan(ShapeOf(runtime, position + turn_tokens, max_new_tokens));
  if (Status status = policy->CheckShape(turn); !status.ok()) {
    return status;
  }
  shape = turn;
  needs = policy->needs(shape);
  // A prefill makes the states of every layer; a first prompt of one token may have none.
  for (std::int32_t l = 0; l < shape.layers && empty() && turn_tokens == 1; ++l) {
    LayerCache& layer = layers[static_cast<std::size_t>(l)];
    for (std::int32_t h = 0; h < shape.kv_heads; ++h) {
      layer.states[static_cast<std::size_t>(h)] = NewState(l, h);
    }
  }
  return {};
}

void SessionState::SeeToken(const Runtime& runtime, Token token) {
  tokens.push_back(token);
  if (needs.token_classes) {
    classes.push_back(ClassOf(runtime.model->tokenizer(), token));
  }
}

std::unique_ptr<policy::HeadState> SessionState::NewState(std::int32_t layer,
                                                          std::int32_t kv_head) {
  return policy->NewState(
      {.turn = &shape, .layer = layer, .kv_head = kv_head, .codec = codec, .meter = &meter});
}

void SessionState::Clear() {
  for (LayerCache& layer : layers) {
    for (std::size_t h = 0; h < layer.heads.size(); ++h) {
      layer.heads[h].Truncate(0);
      layer.hot[h].SetAll();
      layer.states[h].reset();
    }
  }
  pool.Trim();
  position = 0;
  prompt_end = 0;
  rewind_floor = 0;
  classes.clear();
  prompt_tokens = 0;
  prefill_seconds = 0;
  tokens.clear();
  logits.clear();
}

}  // namespace rkv::engine
