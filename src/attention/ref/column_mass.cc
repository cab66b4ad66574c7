#include <algorithm>
#include <vector>

#include "attention/ref/kernels.h"
#include "attention/ref/softmax.h"

namespace rkv::attention::ref {
namespace {

void Write(const std::vector<double>& from, float* to) {
  std::transform(from.begin(), from.end(), to, [](double v) { return static_cast<float>(v); });
}

}  // namespace

void ColumnMass(const PrefillTile& tile, const kv::HeadView& head, std::int32_t band, float* all,
                float* near, Scratch& /*scratch*/) {
  std::vector<double> sums(static_cast<std::size_t>(tile.first_row + tile.tokens), 0.0);
  std::vector<double> near_sums(sums.size(), 0.0);
  for (std::int32_t i = 0; i < tile.tokens; ++i) {
    const std::int32_t row = tile.first_row + i;
    for (std::int32_t g = 0; g < tile.group; ++g) {
      const float* q = tile.q + static_cast<std::size_t>(i) * tile.q_stride +
                       static_cast<std::size_t>(g) * static_cast<std::size_t>(head.head_dim);
      const std::vector<double> weights = SoftmaxWeights(q, head, row + 1, tile.scale);
      for (std::size_t j = 0; j < weights.size(); ++j) {
        sums[j] += weights[j];
        near_sums[j] += row - static_cast<std::int32_t>(j) < band ? weights[j] : 0.0;
      }
    }
  }
  Write(sums, all);
  if (near != nullptr) {
    Write(near_sums, near);
  }
}

}  // namespace rkv::attention::ref
