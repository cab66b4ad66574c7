#include "policy/hit_variation.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace rkv::policy {
namespace {

// The q-quantile of `numbers`, which are reordered: the one at place floor(q (n - 1)).
float Quantile(std::vector<float>& numbers, double q) {
  const auto at =
      numbers.begin() + static_cast<std::ptrdiff_t>(q * static_cast<double>(numbers.size() - 1));
  std::nth_element(numbers.begin(), at, numbers.end());
  return *at;
}

// Softmax of `logits`, in place, times `factor`; added to `sum`.
void AddSoftmax(std::span<float> logits, float factor, std::span<float> sum) {
  const float most = *std::ranges::max_element(logits);
  float total = 0;
  for (float& logit : logits) {
    logit = std::exp(logit - most);
    total += logit;
  }
  for (std::size_t j = 0; j < logits.size(); ++j) {
    sum[j] += factor * logits[j] / total;
  }
}

}  // namespace

std::vector<float> RegionWeights(const LayerPrefill& layer, const HeadPrefill& head,
                                 std::int32_t begin, std::int32_t end) {
  const auto rows = static_cast<std::size_t>(std::max(0, end - begin));
  const auto group = static_cast<std::size_t>(head.window.group);
  std::vector<float> weights(static_cast<std::size_t>(head.window.tokens) * rows, 0.0f);
  if (rows == 0) {
    return weights;
  }
  std::vector<std::int32_t> list(rows);
  std::iota(list.begin(), list.end(), begin);
  std::vector<float> logits(group * rows);
  for (std::size_t i = 0; i < static_cast<std::size_t>(head.window.tokens); ++i) {
    layer.backend->score_rows({head.window.q + i * head.window.q_stride, head.window.group},
                              head.view, {list.data(), end - begin}, head.window.scale,
                              logits.data());
    for (std::size_t g = 0; g < group; ++g) {
      AddSoftmax(std::span(logits).subspan(g * rows, rows), 1.0f / static_cast<float>(group),
                 std::span(weights).subspan(i * rows, rows));
    }
  }
  return weights;
}

double CountVariation(std::span<const std::int32_t> hits) {
  if (hits.size() < 2) {
    return 0;
  }
  const auto n = static_cast<double>(hits.size());
  const double mean = std::accumulate(hits.begin(), hits.end(), 0.0) / n;
  const double squares = std::accumulate(hits.begin(), hits.end(), 0.0, [&](double sum, double x) {
    return sum + (x - mean) * (x - mean);
  });
  return std::sqrt(squares / (n - 1)) / std::max(mean, 1e-10);
}

double HitVariation(std::span<const float> weights, std::int32_t rows, const HitRule& rule) {
  if (weights.empty() || rows == 0) {
    return 0;
  }
  constexpr float kLeast = 1e-9f;
  std::vector<float> sorted(weights.begin(), weights.end());
  const float high = std::max(Quantile(sorted, rule.beta), kLeast);
  const float low = std::max(Quantile(sorted, 1 - rule.beta), kLeast);
  const float bound = low + (high - low) * static_cast<float>(rule.reach);
  std::vector<std::int32_t> hits(static_cast<std::size_t>((rows + rule.chunk - 1) / rule.chunk));
  for (std::size_t begin = 0; begin < weights.size(); begin += static_cast<std::size_t>(rows)) {
    for (std::size_t b = 0; b < hits.size(); ++b) {
      const std::size_t first = b * static_cast<std::size_t>(rule.chunk);
      const std::size_t count =
          std::min(static_cast<std::size_t>(rule.chunk), static_cast<std::size_t>(rows) - first);
      hits[b] += *std::ranges::max_element(weights.subspan(begin + first, count)) > bound ? 1 : 0;
    }
  }
  return CountVariation(hits);
}

}  // namespace rkv::policy
