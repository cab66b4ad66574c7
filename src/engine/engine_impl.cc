#include "engine/engine_impl.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/clock.h"
#include "base/text.h"
#include "engine/memory_plan.h"
#include "engine/model_info.h"
#include "engine/prefill.h"
#include "engine/random_fill.h"

namespace rkv::engine {

kv::Codec CodecOf(KvType type) {
  switch (type) {
    case KvType::kF32:
      return kv::Codec::kF32;
    case KvType::kBf16:
      return kv::Codec::kBf16;
    case KvType::kQ8:
      return kv::Codec::kQ8;
    default:
      return kv::Codec::kF16;
  }
}

EngineImpl::EngineImpl(const EngineOptions& options, std::unique_ptr<model::Model> model)
    : options_(options), model_(std::move(model)), pool_(options.threads) {
  options_.threads = pool_.threads();  // fewer when the system refused some
  runtime_.model = model_.get();
  runtime_.pool = &pool_;
  runtime_.backend = &attention::CpuBackend();
  runtime_.compute = options.compute;
  runtime_.codec = CodecOf(options.kv_type);
  runtime_.piece_tokens = options.piece_tokens;
  runtime_.context = options.context;
  info_ = DescribeModel(*model_, runtime_.codec);
  runtime_.identity = ModelIdentity(info_);
}

Status EngineImpl::PackWeights() {
  options_.repack = options_.repack && options_.compute != Compute::kF32;
  if (!options_.repack) {
    return {};
  }
  const std::size_t bytes = model_->BytesToPack();
  if (const std::size_t available = AvailableMemory(); bytes > available) {
    return {Code::kResourceExhausted,
            fmt::format("weights in this CPU's layout take {}, available are {}; without repacking "
                        "(--no-repack) they stay in the mapped file",
                        HumanBytes(bytes), HumanBytes(available))};
  }
  if (Status status = model_->Pack(pool_); !status.ok()) {
    return status;
  }
  info_.packed_bytes = model_->packed_bytes();
  return {};
}

Result<std::vector<Token>> EngineImpl::Tokenize(std::string_view text, bool add_special,
                                                bool parse_special) const {
  return model_->tokenizer().Encode(text, add_special, parse_special);
}

Result<std::vector<Token>> EngineImpl::TokenizeChat(std::span<const ChatMessage> messages,
                                                    std::string_view chat_template) const {
  return model_->tokenizer().EncodeChat(messages, chat_template);
}

Result<std::vector<Token>> EngineImpl::TokenizeChatTurn(std::span<const ChatMessage> before,
                                                        const ChatMessage& next,
                                                        std::string_view chat_template) const {
  return model_->tokenizer().EncodeChatTurn(before, next, chat_template);
}

std::string EngineImpl::TokenText(Token token) const {
  return model_->tokenizer().Piece(token, false);
}

Result<std::unique_ptr<Session>> EngineImpl::NewSession(const SessionOptions& options) {
  if (options.max_new_tokens < 1) {
    return Status(Code::kInvalidArgument,
                  fmt::format("max_new_tokens must be at least 1, got {}", options.max_new_tokens));
  }
  Result<std::unique_ptr<const policy::Policy>> method =
      policy::MakePolicy(options.policy, options.multi_turn);
  if (!method) {
    return method.error();
  }
  // No answer is longer than the context; a larger number would only distort the budget formulas.
  return std::unique_ptr<Session>(std::make_unique<SessionImpl>(
      runtime_, std::move(*method), std::min(options.max_new_tokens, runtime_.context)));
}

Result<MemoryPlan> EngineImpl::PlanPrompt(const SessionOptions& options,
                                          std::int32_t tokens) const {
  if (tokens < 1 || tokens > runtime_.context || options.max_new_tokens < 1) {
    return Status(
        Code::kInvalidArgument,
        fmt::format("a plan needs 1 to {} prompt tokens and at least 1 new one, got {} and {}",
                    runtime_.context, tokens, options.max_new_tokens));
  }
  Result<std::unique_ptr<const policy::Policy>> method =
      policy::MakePolicy(options.policy, options.multi_turn);
  if (!method) {
    return method.error();
  }
  const policy::TurnShape shape = (*method)->Plan(
      ShapeOf(runtime_, tokens, std::min(options.max_new_tokens, runtime_.context)));
  if (Status status = (*method)->CheckShape(shape); !status.ok()) {
    return status;
  }
  return PlanMemory(runtime_, **method, shape, 0, tokens);
}

Result<std::vector<SessionImpl*>> EngineImpl::OwnSessions(
    std::span<Session* const> sessions) const {
  if (sessions.empty()) {
    return Status(Code::kInvalidArgument, "a prompt needs at least one session");
  }
  std::vector<SessionImpl*> ours;
  for (Session* session : sessions) {
    auto* impl = dynamic_cast<SessionImpl*>(session);
    if (impl == nullptr || &impl->runtime() != &runtime_) {
      return Status(Code::kInvalidArgument, "a session belongs to another engine");
    }
    if (std::ranges::find(ours, impl) != ours.end()) {
      return Status(Code::kInvalidArgument, "a session is given twice");
    }
    ours.push_back(impl);
  }
  return ours;
}

Status EngineImpl::CheckTokens(std::span<const Token> prompt) const {
  for (const Token token : prompt) {
    if (Status status = CheckToken(runtime_, token); !status.ok()) {
      return status;
    }
  }
  return {};
}

// Whether a prompt of `tokens` can follow what the sessions hold.
Status EngineImpl::CheckRoom(std::span<SessionImpl* const> sessions, std::int64_t tokens) const {
  if (tokens <= 0) {
    return {Code::kInvalidArgument, "the prompt is empty"};
  }
  for (SessionImpl* session : sessions) {
    if (Status status = session->CheckUsable(); !status.ok()) {
      return status;
    }
    if (sessions.size() > 1 && !session->state().empty()) {
      return {Code::kInvalidArgument, "only empty sessions can share one prefill"};
    }
  }
  const std::int64_t used = sessions[0]->position();
  if (used + tokens >= runtime_.context) {  // one place stays for an answer
    const std::string held = used == 0 ? "" : fmt::format(" after {} earlier tokens", used);
    return {
        Code::kInvalidArgument,
        fmt::format("the prompt has {} tokens{}, but the context holds {} (at least one of them "
                    "for the answer)",
                    tokens, held, runtime_.context)};
  }
  return {};
}

std::size_t EngineImpl::BytesNeeded(std::span<SessionImpl* const> sessions, std::int32_t tokens,
                                    Need need) const {
  std::size_t sum = 0;
  std::size_t scratch = 0;
  for (SessionImpl* session : sessions) {
    const SessionState& state = session->state();
    policy::TurnShape shape = state.shape;
    if (state.empty() || state.needs.replan) {
      shape = state.policy->Plan(ShapeOf(runtime_, state.position + tokens, state.max_new_tokens));
    }
    std::int32_t held = 0;  // rows of the fullest kv_head
    for (const LayerCache& layer : state.layers) {
      for (const kv::HeadStore& head : layer.heads) {
        held = std::max(held, head.rows());
      }
    }
    const MemoryPlan plan = PlanMemory(runtime_, *state.policy, shape, held, tokens);
    const std::size_t own = plan.kv_kept + plan.kv_index;
    // What a session holds is no longer free, but counts against a limit of the user's.
    sum += options_.memory_limit > 0 ? own : own - std::min(own, state.meter.bytes());
    if (need == Need::kPrefill) {
      const bool holds_full = session == sessions[0] || state.policy->needs(shape).all_layers;
      sum += holds_full ? plan.kv_layer : 0;
      scratch = std::max(scratch, plan.scratch);
    }
  }
  return sum + scratch;
}

Status EngineImpl::CheckMemory(std::span<SessionImpl* const> sessions, std::int32_t tokens,
                               Need need) const {
  const std::size_t available =
      options_.memory_limit > 0 ? options_.memory_limit : AvailableMemory();
  const std::size_t needed = BytesNeeded(sessions, tokens, need);
  if (needed <= available) {
    return {};
  }
  std::int32_t fits = 0;
  for (std::int32_t low = 1, high = tokens; low <= high;) {  // bytes grow with tokens
    const std::int32_t middle = low + (high - low) / 2;
    if (BytesNeeded(sessions, middle, need) <= available) {
      fits = middle;
      low = middle + 1;
    } else {
      high = middle - 1;
    }
  }
  return {
      Code::kResourceExhausted,
      fmt::format("the prompt of {} tokens needs {} bytes ({}) beyond the weights, {} bytes ({}) "
                  "are available; the largest prompt that fits has {} tokens",
                  tokens, needed, HumanBytes(needed), available, HumanBytes(available), fits)};
}

Status EngineImpl::Prefill(std::span<Session* const> sessions, std::span<const Token> prompt,
                           const ProgressCallback& on_progress) {
  const Result<std::vector<SessionImpl*>> ours = OwnSessions(sessions);
  if (!ours) {
    return ours.error();
  }
  if (Status status = CheckTokens(prompt); !status.ok()) {
    return status;
  }
  if (Status status = CheckRoom(*ours, static_cast<std::int64_t>(prompt.size())); !status.ok()) {
    return status;
  }
  const auto tokens = static_cast<std::int32_t>(prompt.size());
  if (Status status = CheckMemory(*ours, tokens, Need::kPrefill); !status.ok()) {
    return status;
  }
  return RunPrefill(*ours, prompt, on_progress);
}

Status EngineImpl::BeginTurn(std::span<SessionImpl* const> sessions, std::int32_t tokens) {
  for (SessionImpl* session : sessions) {
    SessionState& state = session->state();
    // A later prompt of one token has no prefill that could build a new index.
    const bool begins = state.empty() || (state.needs.replan && tokens > 1);
    if (Status status = begins ? state.BeginTurn(tokens, runtime_) : Status(); !status.ok()) {
      return status;
    }
    session->WarnOfDroppedRows();
  }
  return {};
}

Status EngineImpl::RunPrefill(std::span<SessionImpl* const> sessions, std::span<const Token> prompt,
                              const ProgressCallback& on_progress) {
  const auto tokens = static_cast<std::int32_t>(prompt.size());
  std::vector<std::pair<policy::TurnShape, policy::Needs>> before;
  for (SessionImpl* session : sessions) {
    before.emplace_back(session->state().shape, session->state().needs);
  }
  Status status = BeginTurn(sessions, tokens);
  if (status.ok()) {
    status = RunTurn(sessions, prompt, on_progress);
  }
  for (std::size_t i = 0; i < sessions.size() && !status.ok(); ++i) {
    std::tie(sessions[i]->state().shape, sessions[i]->state().needs) = before[i];
  }
  return status;
}

Status EngineImpl::RunTurn(std::span<SessionImpl* const> sessions, std::span<const Token> prompt,
                           const ProgressCallback& on_progress) {
  const auto tokens = static_cast<std::int32_t>(prompt.size());
  std::vector<SessionState*> states;
  bool whole = false;
  for (SessionImpl* session : sessions) {
    states.push_back(&session->state());
    whole = whole || states.back()->needs.prefill_last_token;
  }
  for (const SessionState* state : states) {
    if (whole && state->policy->name() != "full" && !state->needs.prefill_last_token) {
      return {Code::kInvalidArgument,
              "sessions with last_token=prefill and last_token=decode cannot share one prefill"};
    }
  }
  const double start = NowSeconds();
  const bool fresh = states[0]->empty();
  whole = whole && (fresh || tokens > 1);  // a later prompt of one token is a decode step
  const std::span<const Token> body = whole ? prompt : prompt.first(prompt.size() - 1);
  if (!body.empty()) {
    if (Status status = engine::Prefill(runtime_, states, body, whole).Run(on_progress);
        !status.ok()) {
      return status;
    }
  }
  const double shared = NowSeconds() - start;
  for (SessionImpl* session : sessions) {
    const double own = NowSeconds();
    if (Status status = whole ? Status() : session->FinishPrompt(prompt.back()); !status.ok()) {
      AbandonPrompt(states, fresh);
      return status;
    }
    session->state().prompt_tokens += tokens;
    session->state().prompt_end = session->position();
    session->state().prefill_seconds += shared + NowSeconds() - own;
  }
  return {};
}

// After a failure behind the prefill: empty sessions are empty again, others have lost rows.
void EngineImpl::AbandonPrompt(std::span<SessionState* const> states, bool fresh) {
  for (SessionState* state : states) {
    if (fresh) {
      state->Clear();
    }
    state->lost = !fresh;
  }
}

Status EngineImpl::FillRandom(std::span<Session* const> sessions, std::int32_t tokens,
                              std::uint64_t seed) {
  const Result<std::vector<SessionImpl*>> ours = OwnSessions(sessions);
  if (!ours) {
    return ours.error();
  }
  for (SessionImpl* session : *ours) {
    if (!session->state().empty()) {
      return {Code::kInvalidArgument, "only empty sessions can be filled with random rows"};
    }
  }
  if (Status status = CheckRoom(*ours, tokens); !status.ok()) {
    return status;
  }
  if (Status status = CheckMemory(*ours, tokens, Need::kKept); !status.ok()) {
    return status;
  }
  Status status = BeginTurn(*ours, tokens);
  for (std::size_t i = 0; i < ours->size() && status.ok(); ++i) {
    SessionState& state = (*ours)[i]->state();
    status = engine::FillRandom(runtime_, tokens, seed, state);
    state.prompt_tokens = tokens;
    state.prompt_end = tokens;
  }
  for (SessionImpl* session : *ours) {
    if (!status.ok()) {
      session->state().Clear();
    }
  }
  return status;
}

}  // namespace rkv::engine
