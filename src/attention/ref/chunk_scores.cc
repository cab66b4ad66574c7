#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "attention/ref/kernels.h"
#include "attention/ref/numbers.h"

namespace rkv::attention::ref {
namespace {

// Step 1: the channels with the largest sum over heads of |q|, lower channel first on ties.
std::vector<std::int32_t> LoudestChannels(const GroupQuery& query, std::int32_t head_dim,
                                          std::int32_t channels) {
  std::vector<float> loudness(static_cast<std::size_t>(head_dim), 0.0f);
  for (std::int32_t i = 0; i < query.group * head_dim; ++i) {
    loudness[static_cast<std::size_t>(i % head_dim)] += std::fabs(query.q[i]);
  }
  std::vector<std::int32_t> order(loudness.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return loudness[static_cast<std::size_t>(a)] > loudness[static_cast<std::size_t>(b)];
  });
  order.resize(static_cast<std::size_t>(channels));
  return order;
}

double SumAbs(const float* q, std::span<const std::int32_t> channels) {
  double sum = 0.0;
  for (const std::int32_t x : channels) {
    sum += std::fabs(q[x]);
  }
  return sum;
}

// Step 4.
double Temperature(const float* q, std::int32_t head_dim, std::span<const std::int32_t> channels) {
  std::vector<std::int32_t> all(static_cast<std::size_t>(head_dim));
  std::iota(all.begin(), all.end(), 0);
  const double chosen = SumAbs(q, channels);
  // A head without weight in the chosen channels scores all chunks alike, at any temperature.
  return chosen == 0.0 ? std::sqrt(head_dim) : std::sqrt(head_dim * chosen / SumAbs(q, all));
}

// Steps 2 and 3: the side that the group's summed sign picks.
const std::byte* Side(const GroupQuery& query, const kv::IndexView& index, std::int32_t x) {
  float sign = 0.0f;
  for (std::int32_t h = 0; h < query.group; ++h) {
    sign += query.q[h * index.head_dim + x];
  }
  return sign > 0.0f ? index.Max(x) : index.Min(x);
}

}  // namespace

void ChunkScores(const GroupQuery& query, const kv::IndexView& index, std::int32_t channels,
                 std::span<float> u, float* by_head, Scratch& /*scratch*/) {
  const std::vector<std::int32_t> chosen = LoudestChannels(query, index.head_dim, channels);
  std::vector<double> total(u.size(), 0.0);
  for (std::int32_t h = 0; h < query.group; ++h) {
    const float* q = query.q + h * index.head_dim;
    std::vector<double> z(u.size(), 0.0);
    for (const std::int32_t x : chosen) {
      const std::byte* side = Side(query, index, x);
      for (std::size_t b = 0; b < z.size(); ++b) {
        z[b] += static_cast<double>(q[x]) * NumberAt(index.codec, side, b);
      }
    }
    const double temperature = Temperature(q, index.head_dim, chosen);
    const double top = z.empty() ? 0.0 : *std::max_element(z.begin(), z.end());
    double norm = 0.0;
    for (std::size_t b = 0; b < z.size(); ++b) {
      z[b] = std::exp((z[b] - top) / temperature);
      const auto first = static_cast<std::int32_t>(b) * index.chunk_rows;
      norm += z[b] * std::min(index.chunk_rows, index.rows - first);
    }
    for (std::size_t b = 0; b < z.size(); ++b) {
      total[b] += z[b] / norm;
      if (by_head != nullptr) {
        by_head[static_cast<std::size_t>(h) * z.size() + b] = static_cast<float>(z[b] / norm);
      }
    }
  }
  std::transform(total.begin(), total.end(), u.begin(),
                 [](double v) { return static_cast<float>(v); });
}

}  // namespace rkv::attention::ref
