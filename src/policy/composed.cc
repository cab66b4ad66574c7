#include "policy/composed.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "policy/composed_state.h"
#include "policy/distinct_options.h"
#include "policy/rows.h"

namespace rkv::policy {
namespace {

constexpr double kMaxBypass = 100;
constexpr std::array<std::string_view, 2> kLastToken = {"decode", "prefill"};

}  // namespace

ComposedPolicy::ComposedPolicy(std::string_view name, std::string prefix, Parts parts)
    : name_(name), prefix_(std::move(prefix)), parts_(std::move(parts)) {
  split_.alpha = parts_.alpha;
}

void ComposedPolicy::Options(OptionVisitor& visitor) {
  if (parts_.evictor == nullptr && parts_.selector == nullptr) {
    return;
  }
  DistinctOptions options(visitor);
  options.Int("budget", split_.budget, {.low = 16, .high = kMaxTokens},
              "tokens of KV traffic a step may cause per KV head, estimate included");
  if (parts_.evictor != nullptr) {
    parts_.evictor->Options(options);
    split_.least_rows = parts_.evictor->LeastRows();
  }
  if (two_stages()) {
    options.Int("prompt_budget", split_.prompt_budget,
                {.low = split_.least_rows, .high = kMaxTokens, .automatic = true},
                "rows kept of the prompt per KV head, window included");
    options.Number("split", split_.alpha, {.low = 0, .high = 1, .automatic = true},
                   "share of the compression (as an exponent) that the eviction takes");
  }
  if (parts_.selector != nullptr) {
    parts_.selector->Options(options);
    options.Number("bypass", bypass_, {.low = 1, .high = kMaxBypass},
                   "all rows are read while they are at most so many times what a step would "
                   "otherwise read (1: never more bytes)");
  }
  std::size_t last = prefill_last_token_ ? 1 : 0;
  options.Choice("last_token", last, kLastToken,
                 "the last prompt token: fed as the first decoded one, or part of the prefill");
  prefill_last_token_ = last == 1;
}

void ComposedPolicy::FixSpec() {
  OptionPrinter printer;
  Options(printer);
  const std::string_view join = prefix_.find('=') == std::string::npos ? ":" : ",";
  spec_ = prefix_;
  if (!printer.text.empty()) {
    spec_.append(join).append(printer.text);
  }
}

TurnShape ComposedPolicy::Plan(const TurnShape& shape) const {
  TurnShape plan = shape;
  plan.budget = split_.budget;
  plan.prompt_budget = shape.prompt_tokens;
  if (parts_.evictor != nullptr) {
    plan.prompt_budget = std::max(split_.budget, split_.least_rows);
  }
  if (two_stages()) {
    plan.prompt_budget = SplitBudget(split_, shape).prompt_budget;
    // A derived budget that comes from a short first prompt would throw away rows of a later turn
    // that the second stage reads for free.
    plan.capacity = RowsAtEnd(plan, plan.prompt_budget);
    const auto k = static_cast<std::int32_t>(parts_.selector->Cost(plan, 0).rows);
    const std::int32_t readable = split_.prompt_budget > 0 ? 0 : k;
    plan.prompt_budget = std::max({plan.prompt_budget, readable, split_.least_rows});
  }
  const auto kept = static_cast<std::int32_t>(
      parts_.evictor == nullptr ? shape.prompt_tokens
                                : parts_.evictor->RowsKept(plan, shape.prompt_tokens));
  const std::int32_t at_end = RowsAtEnd(plan, kept);
  if (!two_stages()) {
    plan.capacity = at_end;
  }
  plan.selects = parts_.selector != nullptr && !ReadsAll(plan, at_end);
  return plan;
}

std::int32_t ComposedPolicy::RowsAtEnd(const TurnShape& shape, std::int32_t kept) const {
  const std::int32_t more = shape.max_new_tokens;
  return parts_.evictor == nullptr
             ? kept + more
             : static_cast<std::int32_t>(parts_.evictor->RowsAfter(shape, kept, more));
}

Status ComposedPolicy::CheckShape(const TurnShape& shape) const {
  if (parts_.evictor != nullptr) {
    const std::int32_t window = parts_.evictor->needs(shape).window;
    // One token is no prompt to choose among: `rkv bench` decodes behind it.
    if (window_given_ && window > shape.prompt_tokens && shape.prompt_tokens > 1) {
      return {Code::kInvalidArgument,
              fmt::format("option 'window_size' is '{}', allowed: a whole number from 1 to {}, the "
                          "tokens of the prompt",
                          window, shape.prompt_tokens)};
    }
    if (parts_.selector == nullptr && split_.least_rows > split_.budget) {
      return {Code::kInvalidArgument,
              fmt::format("option 'budget' is '{}', allowed: a whole number from {}, as the other "
                          "options of '{}' keep so many rows in any case",
                          split_.budget, split_.least_rows, name_)};
    }
  }
  Status status = parts_.evictor == nullptr ? Status() : parts_.evictor->CheckShape(shape);
  if (status.ok() && parts_.selector != nullptr) {
    status = parts_.selector->CheckShape(shape);
  }
  return status;
}

Needs ComposedPolicy::needs(const TurnShape& shape) const {
  Needs needs = parts_.evictor == nullptr ? Needs() : parts_.evictor->needs(shape);
  if (parts_.selector != nullptr && shape.selects) {
    const Needs more = parts_.selector->needs(shape);
    needs.window = std::max(needs.window, more.window);
    needs.query_gram = needs.query_gram || more.query_gram;
    needs.key_rank = more.key_rank;
    needs.scores_steps = needs.scores_steps || more.scores_steps;
  }
  needs.park = parts_.park;
  needs.prefill_last_token = prefill_last_token_;
  needs.replan = parts_.evictor == nullptr && parts_.selector != nullptr;
  return needs;
}

std::int64_t ComposedPolicy::RowsKept(const TurnShape& shape, std::int64_t rows) const {
  return parts_.evictor == nullptr || parts_.park ? rows : parts_.evictor->RowsKept(shape, rows);
}

std::size_t ComposedPolicy::StateBytes(const TurnShape& shape, kv::Codec codec,
                                       std::int64_t rows) const {
  std::size_t bytes = 0;
  if (parts_.evictor != nullptr) {
    const std::int64_t more = shape.max_new_tokens;
    if (parts_.park) {  // the states are of the view
      rows = parts_.evictor->RowsKept(shape, rows - more) + more;
    }
    bytes += parts_.evictor->StateBytes(shape, rows);
  }
  if (parts_.selector != nullptr && shape.selects) {
    bytes += parts_.selector->StateBytes(shape, codec, rows);
  }
  return bytes;
}

bool ComposedPolicy::ReadsAll(const TurnShape& shape, std::int32_t slots) const {
  const StepCost cost = parts_.selector->Cost(shape, slots);
  return cost.rows >= slots || bypass_ * (cost.estimate + cost.rows) >= slots;
}

Numbers ComposedPolicy::Explain(const TurnShape& shape) const {
  Numbers out;
  if (two_stages()) {
    const BudgetSplit split = SplitBudget(split_, shape);
    out = {{"c", split.c}, {"alpha", split.alpha}, {"capacity", shape.capacity}};
  } else if (parts_.evictor != nullptr || parts_.selector != nullptr) {
    out = {{"c", CompressionRatio(shape.prompt_tokens + shape.max_new_tokens, split_.budget)}};
  }
  std::int32_t kept = shape.prompt_tokens;
  if (parts_.evictor != nullptr) {
    out.emplace_back("prompt_budget", shape.prompt_budget);
    kept = static_cast<std::int32_t>(parts_.evictor->RowsKept(shape, shape.prompt_tokens));
    parts_.evictor->Explain(shape, out);
  }
  out.emplace_back("rows_kept", parts_.park ? shape.prompt_tokens : kept);
  if (parts_.park) {
    out.emplace_back("rows_in_view", kept);
  }
  const std::int32_t max_rows = RowsAtEnd(shape, kept);
  StepCost cost = {.rows = static_cast<double>(max_rows)};
  if (parts_.selector != nullptr) {
    parts_.selector->Explain(shape, out);
    if (shape.selects) {
      cost = parts_.selector->Cost(shape, max_rows);
    }
  }
  if (parts_.evictor != nullptr) {
    cost.estimate += parts_.evictor->StateCost(shape, max_rows);
  }
  out.emplace_back("max_rows", max_rows);
  out.emplace_back("estimation_traffic", cost.estimate);
  out.emplace_back("total_traffic", cost.estimate + cost.rows);
  out.emplace_back("reads_all", shape.selects ? 0.0 : 1.0);
  return out;
}

std::unique_ptr<HeadState> ComposedPolicy::NewState(const StateShape& shape) const {
  auto state = std::make_unique<ComposedState>();
  if (parts_.evictor != nullptr) {
    state->evictor = parts_.evictor->NewState(shape);
  }
  if (parts_.selector != nullptr && shape.turn->selects) {
    state->selector = parts_.selector->NewState(shape);
  }
  return state->evictor == nullptr && state->selector == nullptr ? nullptr : std::move(state);
}

void ComposedPolicy::Score(const LayerPrefill& layer, const HeadPrefill& in,
                           std::vector<float>& scores) const {
  if (parts_.evictor != nullptr) {
    parts_.evictor->Score(layer, OfEvictor(in), scores);
  }
}

Status ComposedPolicy::Evict(const LayerPrefill& in, std::span<Rows> keep) const {
  if (parts_.evictor == nullptr) {
    return {};
  }
  std::vector<HeadPrefill> heads;
  for (const HeadPrefill& head : in.heads) {
    heads.push_back(OfEvictor(head));
  }
  LayerPrefill of_evictor = in;
  of_evictor.heads = heads;
  return parts_.evictor->Evict(of_evictor, keep);
}

void ComposedPolicy::ExactKeys(const TurnShape& shape, const HeadState& state, std::int32_t slots,
                               std::vector<std::int32_t>& exact) const {
  parts_.selector->ExactKeys(shape, *static_cast<const ComposedState&>(state).selector, slots,
                             exact);
}

Status ComposedPolicy::Select(const HeadDecode& in, Rows& read) const {
  if (parts_.selector != nullptr && in.shape->selects && !ReadsAll(*in.shape, in.rows.slots)) {
    if (Status status = parts_.selector->Select(OfSelector(in), read); !status.ok()) {
      return status;
    }
  }
  if (parts_.evictor != nullptr && read.all) {
    parts_.evictor->Live(OfEvictor(in), read);
  } else if (parts_.evictor != nullptr) {
    Rows live;
    parts_.evictor->Live(OfEvictor(in), live);
    Intersect(live, read);
    read.estimate_bytes += live.estimate_bytes;
  }
  return {};
}

Status ComposedPolicy::Observe(const HeadDecode& in, const Rows& read,
                               std::span<const float> log_sum, Rows& keep) const {
  return parts_.evictor == nullptr ? Status()
                                   : parts_.evictor->Observe(OfEvictor(in), read, log_sum, keep);
}

}  // namespace rkv::policy
