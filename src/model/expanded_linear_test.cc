#include "model/expanded_linear.h"

#include <ggml-cpu.h>
#include <ggml.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/gemm.h"
#include "base/rng.h"

namespace rkv::model {
namespace {

constexpr std::int32_t kIn = 512;  // two of the largest blocks

// A matrix of random weights in some type, and what it means in f64.
struct TestMatrix {
  std::vector<std::byte> bytes;
  Linear linear;
  std::vector<float> expanded;  // [out][in]
};

std::vector<float> Random(std::size_t n, std::uint64_t seed) {
  Rng rng(seed);
  std::vector<float> out(n);
  for (float& value : out) {
    value = rng.Normal();
  }
  return out;
}

bool AllFinite(std::span<const float> values) {
  return std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
}

// Random blocks: these types take ggml seconds to write, but any bits are a valid block as long as
// its f16 scale, which comes first in most of them, is a number.
void RandomBlocks(ggml_type type, std::span<std::byte> out) {
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

bool WritesFast(ggml_type type) {
  const std::string_view family = std::string_view(ggml_type_name(type)).substr(0, 3);
  return family != "iq1" && family != "iq2" && family != "iq3";
}

TestMatrix MakeMatrix(ggml_type type, std::int32_t out, bool bias = false, std::int32_t in = kIn) {
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

std::vector<double> Product(const TestMatrix& m, const float* x) {
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
double Nmse(std::span<const float> got, std::span<const double> expected) {
  double error = 0;
  double size = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    error += (got[i] - expected[i]) * (got[i] - expected[i]);
    size += expected[i] * expected[i];
  }
  return error / size;
}

// Types whose rows ggml can write, read and dot.
std::vector<ggml_type> WeightTypes() {
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

// The product of `tokens` rows of m.linear.in numbers, x_stride apart, in rows of y_stride.
void Multiply(const ExpandedLinear& expanded, const MatMulInput& input, float* y,
              std::size_t y_stride, ThreadPool& pool) {
  std::vector<std::byte> memory(MatMulBytes(expanded.linear().in, input.tokens));
  const MatMulJob job{&expanded, y, y_stride};
  MatMul({&job, 1}, input, memory.data(), pool);
}

class ExpandedTypes : public ::testing::TestWithParam<ggml_type> {};

TEST_P(ExpandedTypes, MatMulEqualsTheDefinition) {
  const TestMatrix m = MakeMatrix(GetParam(), 40, true);
  ThreadPool pool(2);
  for (const Compute compute : {Compute::kF32, Compute::kAuto}) {
    std::vector<std::byte> memory(ExpandedLinear::Bytes(m.linear, compute));
    const ExpandedLinear expanded(m.linear, compute, memory.data(), pool);
    const std::vector<float> x = Random(3 * kIn, 2);
    std::vector<float> y(3 * 40);
    Multiply(expanded, {x.data(), kIn, 3}, y.data(), 40, pool);
    // Rounding of inputs to bf16 or to 8 bits a block; none in f32.
    const bool exact = ExpandedLinear::FormOf(m.linear, compute) == ExpandedLinear::Form::kF32;
    for (std::size_t t = 0; t < 3; ++t) {
      EXPECT_LE(Nmse(std::span(y).subspan(t * 40, 40), Product(m, x.data() + t * kIn)),
                exact ? 1e-10 : 1e-4);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ExpandedTypes, ::testing::ValuesIn(WeightTypes()),
                         [](const auto& c) { return std::string(ggml_type_name(c.param)); });

TEST(MatMul, HoldsForTokenCountsAroundASlice) {
  for (const std::int32_t out : {1, 40, 700}) {
    const TestMatrix m = MakeMatrix(GGML_TYPE_F16, out, true, 64);
    ThreadPool pool(2);
    std::vector<std::byte> memory(ExpandedLinear::Bytes(m.linear, Compute::kF32));
    const ExpandedLinear expanded(m.linear, Compute::kF32, memory.data(), pool);
    const std::vector<float> x = Random(129 * 70, 2);
    for (const std::int32_t tokens : {0, 1, 127, 128, 129}) {
      const std::size_t stride = static_cast<std::size_t>(out) + 3;
      std::vector<float> y(129 * stride, -7.0f);
      std::vector<double> expected(y.begin(), y.end());  // what is not written stays
      for (std::int32_t t = 0; t < tokens; ++t) {
        const std::vector<double> row = Product(m, x.data() + t * 70);
        std::copy(row.begin(), row.end(),
                  expected.begin() + t * static_cast<std::ptrdiff_t>(stride));
      }
      Multiply(expanded, {x.data(), 70, tokens}, y.data(), stride, pool);
      for (std::size_t i = 0; i < y.size(); ++i) {
        ASSERT_NEAR(y[i], expected[i], 2e-5) << "of " << tokens << " tokens, number " << i;
      }
    }
  }
}

TEST(MatMul, DoesNotDependOnHowTokensAreCutOrOnThreads) {
  const TestMatrix m = MakeMatrix(GGML_TYPE_Q8_0, 320);
  const std::vector<float> x = Random(300 * kIn, 2);
  for (const Compute compute : {Compute::kF32, Compute::kAuto}) {
    ThreadPool pool(2);
    std::vector<std::byte> memory(ExpandedLinear::Bytes(m.linear, compute));
    const ExpandedLinear expanded(m.linear, compute, memory.data(), pool);
    std::vector<float> whole(300 * 320);
    Multiply(expanded, {x.data(), kIn, 300}, whole.data(), 320, pool);
    std::vector<float> cut(300 * 320);
    for (std::int32_t t = 0; t < 300; t += 7) {
      Multiply(expanded, {x.data() + t * kIn, kIn, std::min(7, 300 - t)}, cut.data() + t * 320, 320,
               pool);
    }
    for (std::size_t i = 0; i < whole.size(); ++i) {
      // Rounding of sums of 512 terms whose size is about 22.
      ASSERT_NEAR(cut[i], whole[i], 1e-4);
    }
    ThreadPool other(3);
    std::vector<float> three(300 * 320);
    Multiply(expanded, {x.data(), kIn, 300}, three.data(), 320, other);
    EXPECT_EQ(whole, three);
  }
}

}  // namespace
}  // namespace rkv::model
