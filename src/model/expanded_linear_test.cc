#include "model/expanded_linear.h"

#include <ggml-cpu.h>
#include <ggml.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/gemm.h"
#include "support/test_matrix.h"

namespace rkv::model {
namespace {

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
    Multiply(expanded, {x.data(), kIn, 3, {}}, y.data(), 40, pool);
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
      Multiply(expanded, {x.data(), 70, tokens, {}}, y.data(), stride, pool);
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
    Multiply(expanded, {x.data(), kIn, 300, {}}, whole.data(), 320, pool);
    std::vector<float> cut(300 * 320);
    for (std::int32_t t = 0; t < 300; t += 7) {
      Multiply(expanded, {x.data() + t * kIn, kIn, std::min(7, 300 - t), {}}, cut.data() + t * 320,
               320, pool);
    }
    for (std::size_t i = 0; i < whole.size(); ++i) {
      // Rounding of sums of 512 terms whose size is about 22.
      ASSERT_NEAR(cut[i], whole[i], 1e-4);
    }
    ThreadPool other(3);
    std::vector<float> three(300 * 320);
    Multiply(expanded, {x.data(), kIn, 300, {}}, three.data(), 320, other);
    EXPECT_EQ(whole, three);
  }
}

}  // namespace
}  // namespace rkv::model
