#include <algorithm>
#include <functional>
#include <vector>

#include "attention/ref/kernels.h"
#include "attention/ref/softmax.h"

namespace rkv::attention::ref {

void WindowMass(const WindowQuery& window, const kv::HeadView& head, std::span<float> mass,
                Scratch& /*scratch*/) {
  std::vector<double> total(mass.size(), 0.0);
  const std::int32_t first = head.rows - window.tokens;
  for (std::int32_t i = 0; i < window.tokens; ++i) {
    for (std::int32_t h = 0; h < window.group; ++h) {
      const float* q = window.q + static_cast<std::size_t>(i) * window.q_stride +
                       static_cast<std::size_t>(h) * static_cast<std::size_t>(head.head_dim);
      const std::vector<double> weights = SoftmaxWeights(q, head, first + i + 1, window.scale);
      std::transform(total.begin(), total.end(), weights.begin(), total.begin(), std::plus<>());
    }
  }
  std::transform(total.begin(), total.end(), mass.begin(),
                 [](double v) { return static_cast<float>(v); });
}

}  // namespace rkv::attention::ref
