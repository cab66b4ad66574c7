#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "attention/backend.h"

namespace rkv::attention {

void MergePartial(const PartialSoftmax& from, std::int32_t group, std::int32_t head_dim,
                  const PartialSoftmax& into) {
  for (std::int32_t h = 0; h < group; ++h) {
    const float max = std::max(from.max[h], into.max[h]);
    if (max == -std::numeric_limits<float>::infinity()) {
      continue;  // both empty
    }
    const float from_weight = std::exp(from.max[h] - max);
    const float into_weight = std::exp(into.max[h] - max);
    const auto offset = static_cast<std::ptrdiff_t>(h) * head_dim;
    const float* from_acc = from.acc + offset;
    float* into_acc = into.acc + offset;
    for (std::int32_t x = 0; x < head_dim; ++x) {
      into_acc[x] = into_acc[x] * into_weight + from_acc[x] * from_weight;
    }
    into.sum[h] = into.sum[h] * into_weight + from.sum[h] * from_weight;
    into.max[h] = max;
  }
}

void FinishPartial(const PartialSoftmax& state, std::int32_t group, std::int32_t head_dim,
                   float* out) {
  for (std::int32_t h = 0; h < group; ++h) {
    const float inverse = state.sum[h] > 0.0f ? 1.0f / state.sum[h] : 0.0f;
    for (std::int32_t x = 0; x < head_dim; ++x) {
      out[h * head_dim + x] = state.acc[h * head_dim + x] * inverse;
    }
  }
}

}  // namespace rkv::attention
