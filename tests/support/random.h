// Seeded random data for tests; the same on every machine.
#ifndef RKV_TESTS_SUPPORT_RANDOM_H_
#define RKV_TESTS_SUPPORT_RANDOM_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/rng.h"

namespace rkv::test {

// n standard normal numbers times `scale`.
inline std::vector<float> NormalVector(Rng& rng, std::size_t n, float scale = 1.0f) {
  std::vector<float> out(n);
  for (float& x : out) {
    x = scale * rng.Normal();
  }
  return out;
}

// n numbers in [0, 1).
inline std::vector<float> UniformVector(Rng& rng, std::size_t n) {
  std::vector<float> out(n);
  for (float& x : out) {
    x = rng.Uniform();
  }
  return out;
}

// n numbers out of {0, 1, …, values - 1}: many ties.
inline std::vector<float> TiedVector(Rng& rng, std::size_t n, std::uint64_t values) {
  std::vector<float> out(n);
  for (float& x : out) {
    x = static_cast<float>(rng.Below(values));
  }
  return out;
}

// An integer in [low, high].
inline std::int32_t IntBetween(Rng& rng, std::int32_t low, std::int32_t high) {
  return low + static_cast<std::int32_t>(rng.Below(static_cast<std::uint64_t>(high - low) + 1));
}

// k of the indices [0, n), ascending.
inline std::vector<std::int32_t> RandomSubset(Rng& rng, std::int32_t n, std::int32_t k) {
  std::vector<std::int32_t> out;
  for (std::int32_t i = 0; i < n; ++i) {
    const auto left = static_cast<std::uint64_t>(n - i);
    if (rng.Below(left) < static_cast<std::uint64_t>(k) - out.size()) {
      out.push_back(i);
    }
  }
  return out;
}

}  // namespace rkv::test

#endif  // RKV_TESTS_SUPPORT_RANDOM_H_
