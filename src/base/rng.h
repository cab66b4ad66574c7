// Rng: a small seeded generator whose sequence is the same on every machine.
#ifndef RKV_BASE_RNG_H_
#define RKV_BASE_RNG_H_

#include <cstdint>

namespace rkv {

// SplitMix64. Not for cryptography. Copyable: a copy continues the same sequence.
class Rng {
 public:
  explicit Rng(std::uint64_t seed) : state_(seed) {}

  std::uint64_t Next() {
    state_ += 0x9e3779b97f4a7c15u;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  // Uniform in [0, 1) with 24 random bits.
  float Uniform() { return static_cast<float>(Next() >> 40) * 0x1p-24f; }

  // Uniform in [0, n). REQUIRES: n > 0. Bias below n / 2^64.
  std::uint64_t Below(std::uint64_t n) { return Next() % n; }

  // Standard normal, good enough for tests and synthetic weights (sum of 12 uniforms).
  float Normal() {
    float sum = -6.0f;
    for (int i = 0; i < 12; ++i) {
      sum += Uniform();
    }
    return sum;
  }

 private:
  std::uint64_t state_;
};

}  // namespace rkv

#endif  // RKV_BASE_RNG_H_
