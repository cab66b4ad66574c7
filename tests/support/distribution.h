// Measures between two rows of logits.
#ifndef RKV_TESTS_SUPPORT_DISTRIBUTION_H_
#define RKV_TESTS_SUPPORT_DISTRIBUTION_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>

namespace rkv::test {

inline double LogSumExp(std::span<const float> logits) {
  const double max = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float x : logits) {
    sum += std::exp(x - max);
  }
  return max + std::log(sum);
}

// KL(softmax(reference) || softmax(other)) in nats.
inline double KlDivergence(std::span<const float> reference, std::span<const float> other) {
  const double z_reference = LogSumExp(reference);
  const double z_other = LogSumExp(other);
  double kl = 0;
  for (std::size_t i = 0; i < reference.size(); ++i) {
    const double log_p = reference[i] - z_reference;
    kl += std::exp(log_p) * (log_p - (other[i] - z_other));
  }
  return kl;
}

inline std::size_t ArgMax(std::span<const float> logits) {
  return static_cast<std::size_t>(std::ranges::max_element(logits) - logits.begin());
}

// Sum of squared differences over the sum of squares of the reference.
inline double Nmse(std::span<const float> reference, std::span<const float> other) {
  double error = 0;
  double power = 0;
  for (std::size_t i = 0; i < reference.size(); ++i) {
    const double difference = static_cast<double>(reference[i]) - other[i];
    error += difference * difference;
    power += static_cast<double>(reference[i]) * reference[i];
  }
  return power == 0 ? error : error / power;
}

}  // namespace rkv::test

#endif  // RKV_TESTS_SUPPORT_DISTRIBUTION_H_
