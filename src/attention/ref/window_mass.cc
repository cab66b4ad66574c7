#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "attention/ref/kernels.h"
#include "attention/ref/numbers.h"

namespace rkv::attention::ref {
namespace {

// Adds the softmax of one query over rows [0, rows) to `mass`, which covers its first rows only.
void AddWeights(const float* q, const kv::HeadView& head, std::int32_t rows, float scale,
                std::vector<double>& mass) {
  std::vector<double> weights(static_cast<std::size_t>(rows));
  double top = -std::numeric_limits<double>::infinity();
  for (std::int32_t j = 0; j < rows; ++j) {
    double& score = weights[static_cast<std::size_t>(j)];
    score = Dot(q, head.codec, head.Key(j), head.head_dim) * scale;
    top = std::max(top, score);
  }
  double sum = 0.0;
  for (double& weight : weights) {
    weight = std::exp(weight - top);
    sum += weight;
  }
  for (std::size_t j = 0; j < mass.size(); ++j) {
    mass[j] += weights[j] / sum;
  }
}

}  // namespace

void WindowMass(const WindowQuery& window, const kv::HeadView& head, std::span<float> mass,
                Scratch& /*scratch*/) {
  std::vector<double> total(mass.size(), 0.0);
  const std::int32_t first = head.rows - window.tokens;
  for (std::int32_t i = 0; i < window.tokens; ++i) {
    for (std::int32_t h = 0; h < window.group; ++h) {
      const float* q = window.q + static_cast<std::size_t>(i) * window.q_stride +
                       static_cast<std::size_t>(h) * static_cast<std::size_t>(head.head_dim);
      AddWeights(q, head, first + i + 1, window.scale, total);
    }
  }
  std::transform(total.begin(), total.end(), mass.begin(),
                 [](double v) { return static_cast<float>(v); });
}

}  // namespace rkv::attention::ref
