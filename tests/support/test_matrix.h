// Matrices of random weights in any ggml type, for tests of the products of model/.
#ifndef RKV_TESTS_SUPPORT_TEST_MATRIX_H_
#define RKV_TESTS_SUPPORT_TEST_MATRIX_H_

#include <ggml-cpu.h>
#include <ggml.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "model/linear.h"

namespace rkv::model {

inline constexpr std::int32_t kIn = 512;  // two of the largest blocks

// A matrix of random weights in some type, and what it means in f64.
struct TestMatrix {
  std::vector<std::byte> bytes;
  Linear linear;
  std::vector<float> expanded;  // [out][in]
};

inline std::vector<float> Random(std::size_t n, std::uint64_t seed) {
  Rng rng(seed);
  std::vector<float> out(n);
  for (float& value : out) {
    value = rng.Normal();
  }
  return out;
}

inline bool AllFinite(std::span<const float> values) {
  return std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
}

// Random blocks: these types take ggml seconds to write, but any bits are a valid block as long as
// its f16 scale, which comes first in most of them, is a number.
inline void RandomBlocks(ggml_type type, std::span<std::byte> out) {
  Rng rng(5);
  const std::size_t block = ggml_type_size(type);
  std::vector<float> numbers(static_cast<std::size_t>(ggml_blck_size(type)));
  for (std::size_t at = 0; at < out.size(); at += block) {
    do {
      for (std::size_t i = 0; i < block; ++i) {
        out[at + i] = static_cast<std::byte>(rng.Below(256));
      }
      out[at] = std::byte{0x00};
      out[at + 1] = std::byte{0x3c};  // 1.0
      ggml_get_type_traits(type)->to_float(&out[at], numbers.data(), ggml_blck_size(type));
    } while (!AllFinite(numbers));
  }
}

inline bool WritesFast(ggml_type type) {
  const std::string_view family = std::string_view(ggml_type_name(type)).substr(0, 3);
  return family != "iq1" && family != "iq2" && family != "iq3";
}

inline TestMatrix MakeMatrix(ggml_type type, std::int32_t out, bool bias = false,
                             std::int32_t in = kIn) {
  ggml_cpu_init();
  TestMatrix m;
  const std::size_t count = static_cast<std::size_t>(in) * static_cast<std::size_t>(out);
  const std::vector<float> values = Random(count, 5);
  m.linear.type = type;
  m.linear.in = in;
  m.linear.out = out;
  m.linear.row_bytes = ggml_row_size(type, in);
  m.bytes.resize(m.linear.row_bytes * static_cast<std::size_t>(out));
  if (WritesFast(type)) {
    ggml_quantize_chunk(type, values.data(), m.bytes.data(), 0, out, in, nullptr);
  } else {
    RandomBlocks(type, m.bytes);
  }
  m.linear.data = m.bytes.data();
  if (bias) {
    m.linear.bias = Random(static_cast<std::size_t>(out), 6);
  }
  m.expanded.resize(count);
  for (std::int32_t row = 0; row < out; ++row) {
    ExpandRow(m.linear, row,
              std::span(m.expanded)
                  .subspan(static_cast<std::size_t>(row * in), static_cast<std::size_t>(in)));
  }
  return m;
}

inline std::vector<double> Product(const TestMatrix& m, const float* x) {
  std::vector<double> y(static_cast<std::size_t>(m.linear.out));
  const auto in = static_cast<std::size_t>(m.linear.in);
  for (std::size_t row = 0; row < y.size(); ++row) {
    y[row] = m.linear.bias.empty() ? 0.0 : m.linear.bias[row];
    for (std::size_t i = 0; i < in; ++i) {
      y[row] += static_cast<double>(m.expanded[row * in + i]) * x[i];
    }
  }
  return y;
}

// Squared error over squared size.
inline double Nmse(std::span<const float> got, std::span<const double> expected) {
  double error = 0;
  double size = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    error += (got[i] - expected[i]) * (got[i] - expected[i]);
    size += expected[i] * expected[i];
  }
  return error / size;
}

// Types whose rows ggml can write, read and dot.
inline std::vector<ggml_type> WeightTypes() {
  ggml_cpu_init();
  std::vector<ggml_type> types;
  for (int i = 0; i < GGML_TYPE_COUNT; ++i) {
    const auto type = static_cast<ggml_type>(i);
    const bool reads = type == GGML_TYPE_F32 || ggml_get_type_traits(type)->to_float != nullptr;
    const bool dots = ggml_get_type_traits_cpu(type)->vec_dot != nullptr;
    const bool intermediate = type == GGML_TYPE_Q8_1 || type == GGML_TYPE_Q8_K;
    if (reads && dots && !intermediate) {
      types.push_back(type);
    }
  }
  return types;
}

}  // namespace rkv::model

#endif  // RKV_TESTS_SUPPORT_TEST_MATRIX_H_
