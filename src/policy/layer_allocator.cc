#include "policy/layer_allocator.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "policy/methods.h"

namespace rkv::policy {
namespace {

struct Inner {
  std::string_view name;
  Method (*method)();
};

// Evictors that keep to shape.prompt_budget in whatever layer they are called.
constexpr std::array kInner = {
    Inner{"snapkv", SnapKvMethod},   Inner{"adakv", AdaKvMethod},
    Inner{"chunkkv", ChunkKvMethod}, Inner{"streaming", StreamingMethod},
    Inner{"h2o", H2oMethod},  // the one with sums of the running layer
};

// The layer's budget beside the inner evictor's state, for its steps.
struct LayerState final : HeadState {
  std::int32_t budget = 0;
  std::unique_ptr<HeadState> inner;

  Status Build(const StateBuild& build) override;
  Status Append(const kv::SlotView& rows) override {
    return inner == nullptr ? Status() : inner->Append(rows);
  }
  void Truncate(const kv::SlotView& rows) override {
    if (inner != nullptr) {
      inner->Truncate(rows);
    }
  }
  Status Keep(const kv::SlotView& rows, std::span<const std::int32_t> kept) override {
    return inner == nullptr ? Status() : inner->Keep(rows, kept);
  }
};

TurnShape WithBudget(TurnShape shape, std::int32_t budget) {
  shape.prompt_budget = budget > 0 ? budget : shape.prompt_budget;
  return shape;
}

// A step as the inner evictor sees it; `shape` holds what it points at.
HeadDecode OfInner(HeadDecode in, TurnShape& shape) {
  if (in.state != nullptr) {
    const auto& state = static_cast<const LayerState&>(*in.state);
    shape = WithBudget(*in.shape, state.budget);
    in.shape = &shape;
    in.state = state.inner.get();
  }
  return in;
}

HeadPrefill OfInner(HeadPrefill in) {
  in.state = in.state == nullptr ? nullptr : static_cast<const LayerState*>(in.state)->inner.get();
  return in;
}

Status LayerState::Build(const StateBuild& build) {
  budget = build.keep->budget;
  if (inner == nullptr) {
    return {};
  }
  const HeadPrefill prefill = OfInner(*build.prefill);
  StateBuild part = build;
  part.prefill = &prefill;
  return inner->Build(part);
}

}  // namespace

std::unique_ptr<Evictor> LayerAllocator::MakeInner(std::size_t choice) {
  return std::move(kInner[choice].method().make().evictor);
}

void LayerAllocator::Options(OptionVisitor& options) {
  std::array<std::string_view, kInner.size()> names;
  std::ranges::transform(kInner, names.begin(), [](const Inner& inner) { return inner.name; });
  std::size_t choice = choice_;
  options.Choice("inner", choice, std::span(names).first(names.size() - (sums_ ? 0 : 1)),
                 "what keeps each layer's share; its options follow");
  if (choice != choice_) {
    choice_ = choice;
    inner_ = MakeInner(choice);
  }
  inner_->Options(options);
}

Status LayerAllocator::CheckShape(const TurnShape& shape) const {
  return inner_->CheckShape(shape);
}

Needs LayerAllocator::needs(const TurnShape& shape) const { return inner_->needs(shape); }

std::int32_t LayerAllocator::LeastRows() const { return inner_->LeastRows(); }

std::int64_t LayerAllocator::RowsKept(const TurnShape& shape, std::int64_t rows) const {
  const std::vector<std::int32_t> budgets = Budgets(shape, {});
  std::int64_t sum = 0;
  for (const std::int32_t budget : budgets) {
    sum += inner_->RowsKept(WithBudget(shape, budget), rows);
  }
  const auto layers = static_cast<std::int64_t>(budgets.size());
  return (sum + layers - 1) / layers;
}

std::int64_t LayerAllocator::RowsAfter(const TurnShape& shape, std::int64_t kept,
                                       std::int64_t more) const {
  const std::vector<std::int32_t> budgets = Budgets(shape, {});
  std::int64_t growth = 0;
  for (const std::int32_t budget : budgets) {
    const TurnShape layer = WithBudget(shape, budget);
    const std::int64_t rows = inner_->RowsKept(layer, shape.prompt_tokens);
    growth += inner_->RowsAfter(layer, rows, more) - rows;
  }
  const auto layers = static_cast<std::int64_t>(budgets.size());
  return kept + (growth + layers - 1) / layers;
}

double LayerAllocator::StateCost(const TurnShape& shape, std::int32_t slots) const {
  return inner_->StateCost(shape, slots);
}

void LayerAllocator::Score(const LayerPrefill& layer, const HeadPrefill& in,
                           std::vector<float>& scores) const {
  LayerPrefill mine = layer;
  const auto budgets = Budgets(layer.shape, {});
  mine.shape.prompt_budget = budgets[static_cast<std::size_t>(layer.layer)];
  inner_->Score(mine, OfInner(in), scores);
}

Status LayerAllocator::Evict(const LayerPrefill& in, std::span<Rows> keep) const {
  const auto budgets = Budgets(in.shape, in.residual_cosine);
  const std::int32_t budget = budgets[static_cast<std::size_t>(in.layer)];
  std::vector<HeadPrefill> heads(in.heads.size());
  std::ranges::transform(in.heads, heads.begin(),
                         [](const HeadPrefill& head) { return OfInner(head); });
  LayerPrefill mine = in;
  mine.shape.prompt_budget = budget;
  mine.heads = heads;
  for (Rows& rows : keep) {
    rows.budget = budget;
  }
  return inner_->Evict(mine, keep);
}

std::unique_ptr<HeadState> LayerAllocator::NewState(const StateShape& shape) const {
  auto state = std::make_unique<LayerState>();
  state->inner = inner_->NewState(shape);
  return state;
}

std::size_t LayerAllocator::StateBytes(const TurnShape& shape, std::int64_t rows) const {
  return sizeof(LayerState) + inner_->StateBytes(shape, rows);
}

void LayerAllocator::Live(const HeadDecode& in, Rows& live) const {
  TurnShape shape;
  inner_->Live(OfInner(in, shape), live);
}

Status LayerAllocator::Observe(const HeadDecode& in, const Rows& read,
                               std::span<const float> log_sum, Rows& keep) const {
  TurnShape shape;
  return inner_->Observe(OfInner(in, shape), read, log_sum, keep);
}

std::vector<std::int32_t> RoundShares(std::span<const double> shares, std::int64_t total) {
  std::vector<std::int32_t> rounded(shares.size());
  std::vector<std::size_t> order(shares.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::transform(shares, rounded.begin(),
                         [](double share) { return static_cast<std::int32_t>(share); });
  const auto rest = [&](std::size_t i) { return shares[i] - std::floor(shares[i]); };
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return rest(a) > rest(b); });
  std::int64_t missing = total - std::accumulate(rounded.begin(), rounded.end(), std::int64_t{0});
  for (std::size_t i = 0; missing > 0; i = (i + 1) % order.size(), --missing) {
    rounded[order[i]] += 1;
  }
  return rounded;
}

}  // namespace rkv::policy
