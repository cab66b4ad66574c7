#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "attention/ref/kernels.h"

namespace rkv::attention::ref {

std::int32_t TopK(std::span<const float> scores, std::int32_t k, std::int32_t* out,
                  Scratch& /*scratch*/) {
  std::vector<std::int32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    const float left = scores[static_cast<std::size_t>(a)];
    const float right = scores[static_cast<std::size_t>(b)];
    return std::isnan(right) ? !std::isnan(left) : left > right;
  });
  order.resize(std::min(order.size(), static_cast<std::size_t>(std::max(k, 0))));
  std::sort(order.begin(), order.end());
  std::copy(order.begin(), order.end(), out);
  return static_cast<std::int32_t>(order.size());
}

}  // namespace rkv::attention::ref
