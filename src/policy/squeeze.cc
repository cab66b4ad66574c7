// SqueezeAttention: layers whose attention hardly turns the residual stream get a small budget,
// the others share the rest. Policy specification 2.18, arXiv:2404.04793.
#include "policy/squeeze.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "policy/layer_allocator.h"
#include "policy/methods.h"

namespace rkv::policy {
namespace {

class Squeeze final : public LayerAllocator {
 public:
  Squeeze() : LayerAllocator(false) {}

  void Options(OptionVisitor& options) override {
    options.Number("p3", p3_, {.low = 0.01, .high = 1},
                   "budget of a layer whose attention changes little, in parts of the mean");
    LayerAllocator::Options(options);
  }

  Needs needs(const TurnShape& shape) const override {
    Needs needs = LayerAllocator::needs(shape);
    needs.all_layers = true;
    needs.residual_cosine = true;
    return needs;
  }

  void Explain(const TurnShape& shape, Numbers& out) const override {
    out.emplace_back("low_layer_budget", LowBudget(shape));
    inner().Explain(shape, out);
  }

 protected:
  std::vector<std::int32_t> Budgets(const TurnShape& shape,
                                    std::span<const float> cosine) const override {
    return SqueezeBudgets(cosine, shape.layers, shape.prompt_budget, LowBudget(shape),
                          shape.prompt_tokens);
  }

 private:
  std::int32_t LowBudget(const TurnShape& shape) const {
    const auto low = static_cast<std::int32_t>(std::lround(p3_ * shape.prompt_budget));
    return std::min(std::max(low, LeastRows()), shape.prompt_budget);
  }

  double p3_ = 0.35;
};

}  // namespace

double HighestOfThree(std::span<const float> values) {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  std::vector<double> sorted(values.begin(), values.end());
  std::ranges::sort(sorted);
  if (sorted.size() < 3 || !(sorted.front() < sorted.back())) {
    return kNone;
  }
  const std::size_t n = sorted.size();
  const double middle = std::accumulate(sorted.begin(), sorted.end(), 0.0) / static_cast<double>(n);
  std::vector<double> sum(n + 1), squares(n + 1);
  for (std::size_t i = 0; i < n; ++i) {
    const double x = sorted[i] - middle;
    sum[i + 1] = sum[i] + x;
    squares[i + 1] = squares[i] + x * x;
  }
  // Squared distances of [begin, end) from their mean.
  const auto spread = [&](std::size_t begin, std::size_t end) {
    const double total = sum[end] - sum[begin];
    return begin == end
               ? 0.0
               : squares[end] - squares[begin] - total * total / static_cast<double>(end - begin);
  };
  const auto cuts = [&](std::size_t i) { return sorted[i - 1] < sorted[i]; };
  double best = kNone;
  double lowest = kNone;
  for (std::size_t i = 1; i < n; ++i) {
    for (std::size_t j = i; j < n; ++j) {  // j == i: two values only, the middle cluster is empty
      const double cost = spread(0, i) + spread(i, j) + spread(j, n);
      if (cuts(i) && cuts(j) && cost < best) {
        best = cost;
        lowest = sorted[j];
      }
    }
  }
  return lowest;
}

std::vector<std::int32_t> SqueezeBudgets(std::span<const float> cosine, std::int32_t layers,
                                         std::int32_t mean, std::int32_t low, std::int32_t most) {
  const auto count = static_cast<std::size_t>(layers);
  const double bound =
      cosine.size() == count ? HighestOfThree(cosine) : std::numeric_limits<double>::infinity();
  const auto lows = static_cast<std::int64_t>(
      std::ranges::count_if(cosine, [&](float value) { return value >= bound; }));
  std::vector<double> shares(count, mean);
  if (lows > 0) {
    const std::int64_t total = std::int64_t{layers} * mean;
    const auto highs = static_cast<double>(layers - lows);
    const double share = std::min(static_cast<double>(total - lows * low) / highs,
                                  static_cast<double>(std::max(mean, most)));
    const double rest = (static_cast<double>(total) - highs * share) / static_cast<double>(lows);
    for (std::size_t l = 0; l < count; ++l) {
      shares[l] = cosine[l] >= bound ? rest : share;
    }
  }
  return RoundShares(shares, std::int64_t{layers} * mean);
}

Method SqueezeMethod() {
  return {.info = {.name = "squeeze",
                   .keeps = "budget rows per KV head on average over the layers, few in layers "
                            "whose attention changes little, chosen as `inner` does",
                   .reads = "everything kept",
                   .state = "that of `inner`; the prefill holds all layers' full K/V",
                   .source = "SqueezeAttention, arXiv:2404.04793"},
          .make = [] { return Parts{.evictor = std::make_unique<Squeeze>()}; }};
}

}  // namespace rkv::policy
