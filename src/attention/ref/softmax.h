// The softmax of one query over the first rows of a head, for the plain kernels.
#ifndef RKV_ATTENTION_REF_SOFTMAX_H_
#define RKV_ATTENTION_REF_SOFTMAX_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "attention/ref/numbers.h"
#include "kv/head_view.h"

namespace rkv::attention::ref {

// The attention weights of a query on rows [0, rows).
inline std::vector<double> SoftmaxWeights(const float* q, const kv::HeadView& head,
                                          std::int32_t rows, float scale) {
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
  for (double& weight : weights) {
    weight /= sum;
  }
  return weights;
}

}  // namespace rkv::attention::ref

#endif  // RKV_ATTENTION_REF_SOFTMAX_H_
