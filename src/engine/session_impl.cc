#include "engine/session_impl.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "engine/sampler.h"
#include "engine/text_stream.h"

namespace rkv::engine {

SessionImpl::SessionImpl(const Runtime& runtime, std::unique_ptr<const policy::Policy> policy,
                         std::int32_t max_new_tokens)
    : runtime_(runtime), state_(runtime, std::move(policy), max_new_tokens) {}

std::string SessionImpl::policy() const { return state_.policy->spec(); }
std::int32_t SessionImpl::position() const { return state_.position; }
std::span<const float> SessionImpl::logits() const { return state_.logits; }

Status CheckToken(const Runtime& runtime, Token token) {
  if (token < 0 || token >= runtime.params().vocab) {
    return {Code::kInvalidArgument, fmt::format("token id {} is outside the vocabulary [0, {})",
                                                token, runtime.params().vocab)};
  }
  return {};
}

Status SessionImpl::Rewind(std::int32_t position) {
  if (Status status = CheckUsable(); !status.ok()) {
    return status;
  }
  const std::int32_t first = std::max(state_.prompt_end, state_.rewind_floor);
  if (position < first || position > state_.position) {
    return {
        Code::kInvalidArgument,
        fmt::format("a rewind goes to a position from {} ({}) to {} (tokens seen), got {}", first,
                    first == state_.prompt_end ? "end of the last prompt"
                                               : "rows were dropped after earlier ones",
                    state_.position, position)};
  }
  for (LayerCache& cache : state_.layers) {
    for (std::size_t h = 0; h < cache.heads.size(); ++h) {
      kv::HeadStore& head = cache.heads[h];
      std::int32_t rows = head.rows();
      for (const kv::HeadView view = head.view(); rows > 0 && view.positions[rows - 1] >= position;
           --rows) {
      }
      head.Truncate(rows);
      cache.hot[h].Truncate(rows);
      if (cache.states[h] != nullptr) {
        cache.states[h]->Truncate(cache.Slots(h));
      }
    }
  }
  state_.position = position;
  state_.tokens.resize(static_cast<std::size_t>(position));
  state_.classes.resize(std::min(state_.classes.size(), state_.tokens.size()));
  return {};
}

Status SessionImpl::CheckUsable() const {
  if (state_.lost) {
    return {Code::kInvalidArgument,
            "this session lost rows when an earlier call failed; start a new one"};
  }
  return {};
}

// One decode step after all checks; its stages count, its time does not yet.
Status SessionImpl::Step(Token token) {
  if (Status status = CheckToken(runtime_, token); !status.ok()) {
    return status;
  }
  if (state_.position >= runtime_.context) {
    return {Code::kResourceExhausted, fmt::format("the context is full: {} of {} tokens used",
                                                  state_.position, runtime_.context)};
  }
  return DecodeToken(runtime_, token, state_, buffers_);
}

void SessionImpl::WarnOfDroppedRows() {
  const auto dropped = [this](const kv::HeadStore& head) { return head.rows() < state_.position; };
  const bool any = std::ranges::any_of(state_.layers, [&dropped](const LayerCache& layer) {
    return std::ranges::any_of(layer.heads, dropped);
  });
  if (!any) {
    return;
  }
  std::string warning = fmt::format(
      "{} dropped rows of earlier turns: text that only later questions need may be lost "
      "(rocketkv-mt keeps all rows)",
      state_.policy->name());
  if (std::ranges::find(warnings_, warning) == warnings_.end()) {
    warnings_.push_back(std::move(warning));
  }
}

Status SessionImpl::FinishPrompt(Token last) {
  const ReadTotals before = state_.reads;
  const Status status = Step(last);
  state_.reads = before;  // the means are of generated tokens
  return status;
}

Result<std::span<const float>> SessionImpl::Decode(Token token) {
  if (Status status = CheckUsable(); !status.ok()) {
    return status;
  }
  if (state_.empty()) {
    return Status(Code::kInvalidArgument, "the session needs a prompt before it can decode");
  }
  const StageTimer timer(&state_.decode_seconds);
  if (Status status = Step(token); !status.ok()) {
    return status;
  }
  state_.generated_tokens += 1;
  return std::span<const float>(state_.logits);
}

Result<GenerateResult> SessionImpl::Generate(const GenerateOptions& options,
                                             const TextCallback& on_text) {
  if (Status status = CheckUsable(); !status.ok()) {
    return status;
  }
  if (Status status = Sampler::Validate(options.sampler); !status.ok()) {
    return status;
  }
  if (state_.logits.empty()) {
    return Status(Code::kInvalidArgument, "the session needs a prompt before it can generate");
  }
  const model::Tokenizer& tokenizer = runtime_.model->tokenizer();
  Sampler sampler(options.sampler);
  for (const Token token : state_.tokens) {  // the repeat penalty sees the prompt, as in llama.cpp
    sampler.Accept(token);
  }
  TextStream stream(options.stop);
  GenerateResult result;
  const auto emit = [&](const std::string& text) {
    result.text += text;
    return !on_text || on_text(text);  // also without text, so that the caller can cancel
  };
  const auto cancelled = [] { return Status(Code::kCancelled, "the answer was cancelled"); };
  while (static_cast<std::int32_t>(result.tokens.size()) < options.max_tokens) {
    const Result<Token> token = sampler.Sample(state_.logits);
    if (!token) {
      return token.error();
    }
    if (!options.ignore_eos && tokenizer.IsEndOfGeneration(*token)) {
      result.stop_reason = StopReason::kEndOfGeneration;
      break;
    }
    if (state_.position >= runtime_.context) {
      result.stop_reason = StopReason::kContextFull;
      break;
    }
    sampler.Accept(*token);
    result.tokens.push_back(*token);
    const bool go_on = emit(stream.Push(tokenizer.Piece(*token, false)));
    const Result<std::span<const float>> logits = Decode(*token);
    if (!logits) {
      return logits.error();
    }
    if (!go_on) {
      return cancelled();
    }
    if (stream.stopped()) {
      result.stop_reason = StopReason::kStopString;
      result.stop_string = stream.stop_string();
      break;
    }
  }
  if (!emit(stream.Finish())) {
    return cancelled();
  }
  return result;
}

SessionStats SessionImpl::stats() const {
  const model::HyperParams& params = runtime_.params();
  SessionStats stats;
  stats.prompt_tokens = state_.prompt_tokens;
  stats.generated_tokens = state_.generated_tokens;
  stats.prefill_seconds = state_.prefill_seconds;
  stats.decode_seconds = state_.decode_seconds;
  const std::size_t row_bytes = kv::RowBytes(runtime_.codec, params.head_dim);
  const auto heads =
      static_cast<std::size_t>(params.layers) * static_cast<std::size_t>(params.kv_heads);
  stats.kv_bytes_full = heads * row_bytes * static_cast<std::size_t>(state_.position);
  stats.kv_bytes_kept = state_.meter.row_bytes();
  stats.kv_bytes_index = state_.meter.index_bytes();
  stats.kv_bytes_peak = std::max(state_.meter.peak_bytes(), state_.shared_peak_bytes);
  stats.kv_bytes_layer = state_.layer_bytes;
  double rows = 0;
  double parked = 0;
  for (const LayerCache& layer : state_.layers) {
    for (std::size_t h = 0; h < layer.heads.size(); ++h) {
      rows += layer.heads[h].rows();
      parked += layer.heads[h].rows() - layer.Slots(h).slots;
    }
  }
  stats.tokens_kept = rows / static_cast<double>(heads);
  stats.kv_bytes_parked = static_cast<std::size_t>(parked) * row_bytes;
  if (state_.reads.reads > 0) {
    const auto reads = static_cast<double>(state_.reads.reads);
    const double bytes = state_.reads.bytes / reads;
    stats.tokens_read_per_step = bytes / static_cast<double>(row_bytes);
    stats.kv_bytes_read_per_step = bytes * static_cast<double>(heads);
    stats.dense_share = static_cast<double>(state_.reads.dense) / reads;
  }
  stats.stage_seconds = state_.stage_seconds;
  stats.warnings = warnings_;
  return stats;
}

std::vector<std::int32_t> SessionImpl::KeptPositions(std::int32_t layer,
                                                     std::int32_t kv_head) const {
  const model::HyperParams& params = runtime_.params();
  if (layer < 0 || layer >= params.layers || kv_head < 0 || kv_head >= params.kv_heads) {
    return {};
  }
  const kv::HeadView view = state_.layers[static_cast<std::size_t>(layer)]
                                .heads[static_cast<std::size_t>(kv_head)]
                                .view();
  return {view.positions, view.positions + view.rows};
}

}  // namespace rkv::engine
