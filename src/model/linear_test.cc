#include "model/linear.h"

#include <ggml-cpu.h>
#include <ggml.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/gemm.h"
#include "model/pack_weights.h"
#include "support/test_matrix.h"

namespace rkv::model {
namespace {

std::vector<float> RunMatVec(const TestMatrix& m, const std::vector<float>& x, Compute compute,
                             int threads = 1) {
  ThreadPool pool(threads);
  std::vector<float> y(static_cast<std::size_t>(m.linear.out));
  const MatVecJob job{&m.linear, y.data()};
  MatVec({&job, 1}, x.data(), 1, compute, pool);
  return y;
}

class LinearTypes : public ::testing::TestWithParam<ggml_type> {};

TEST_P(LinearTypes, MatVecInF32EqualsTheDefinition) {
  const TestMatrix m = MakeMatrix(GetParam(), 40, true);
  const std::vector<float> x = Random(kIn, 1);
  EXPECT_LE(Nmse(RunMatVec(m, x, Compute::kF32), Product(m, x.data())), 1e-10);
}

TEST_P(LinearTypes, QuantisedMatVecIsCloseToTheDefinition) {
  const TestMatrix m = MakeMatrix(GetParam(), 40, true);
  const std::vector<float> x = Random(kIn, 1);
  EXPECT_LE(Nmse(RunMatVec(m, x, Compute::kAuto), Product(m, x.data())), 1e-3);
}

INSTANTIATE_TEST_SUITE_P(All, LinearTypes, ::testing::ValuesIn(WeightTypes()),
                         [](const auto& c) { return std::string(ggml_type_name(c.param)); });

TEST(MatVec, IsTheSameForAnyNumberOfThreads) {
  for (const ggml_type type : {GGML_TYPE_F32, GGML_TYPE_Q4_1, GGML_TYPE_Q6_K}) {
    const TestMatrix m = MakeMatrix(type, 1000, true);
    const std::vector<float> x = Random(kIn, 1);
    for (const Compute compute : {Compute::kF32, Compute::kAuto}) {
      const std::vector<float> one = RunMatVec(m, x, compute, 1);
      EXPECT_EQ(one, RunMatVec(m, x, compute, 2));
      EXPECT_EQ(one, RunMatVec(m, x, compute, 3));
    }
  }
}

TEST(MatVec, ServesSeveralMatricesOfDifferentTypes) {
  const TestMatrix a = MakeMatrix(GGML_TYPE_Q4_0, 300);
  const TestMatrix b = MakeMatrix(GGML_TYPE_Q6_K, 77, true);
  const TestMatrix c = MakeMatrix(GGML_TYPE_F32, 1);
  const std::vector<float> x = Random(kIn, 1);
  std::vector<float> y(300 + 77 + 1);
  const std::vector<MatVecJob> jobs = {
      {&a.linear, y.data()}, {&b.linear, y.data() + 300}, {&c.linear, y.data() + 377}};
  ThreadPool pool(2);
  MatVec(jobs, x.data(), 1, Compute::kAuto, pool);
  const std::vector<float> ya = RunMatVec(a, x, Compute::kAuto);
  const std::vector<float> yb = RunMatVec(b, x, Compute::kAuto);
  const std::vector<float> yc = RunMatVec(c, x, Compute::kAuto);
  EXPECT_TRUE(std::equal(ya.begin(), ya.end(), y.begin()));
  EXPECT_TRUE(std::equal(yb.begin(), yb.end(), y.begin() + 300));
  EXPECT_EQ(y[377], yc[0]);
}

// A matrix in the packed layout as well.
struct PackedCopy {
  explicit PackedCopy(const TestMatrix& m, ThreadPool& pool) : linear(m.linear) {
    Linear* const matrices[] = {&linear};
    Result<Buffer> packed =
        PackWeights(matrices, pool, [this](std::span<const std::byte> old) { released = old; });
    EXPECT_TRUE(packed);
    memory = *std::move(packed);
  }
  Linear linear;
  Buffer memory;
  std::span<const std::byte> released;
};

TEST(MatVec, OfPackedWeightsIsCloseToTheDefinition) {
  ThreadPool pool(2);
  for (const ggml_type type : {GGML_TYPE_Q4_0, GGML_TYPE_Q5_1, GGML_TYPE_Q8_0, GGML_TYPE_Q4_K,
                               GGML_TYPE_Q6_K, GGML_TYPE_F16}) {
    const TestMatrix m = MakeMatrix(type, 1000, true);
    const std::vector<float> x = Random(kIn, 1);
    const PackedCopy copy(m, pool);
    EXPECT_EQ(copy.linear.packed != nullptr, CanPack(m.linear)) << ggml_type_name(type);
    EXPECT_EQ(copy.released.size(), CanPack(m.linear) ? m.bytes.size() : 0u);
    std::vector<float> y(1000);
    const MatVecJob job{&copy.linear, y.data()};
    MatVec({&job, 1}, x.data(), 1, Compute::kAuto, pool);
    EXPECT_LE(Nmse(y, Product(m, x.data())), 1e-4) << ggml_type_name(type);
  }
}

TEST(MatVec, OfSeveralTokensGivesEachItsOwnResult) {
  constexpr std::int32_t kTokens = 6;  // more than a packed kernel takes at once
  ThreadPool pool(2);
  const std::vector<float> x = Random(std::size_t{kTokens} * kIn, 4);
  for (const ggml_type type : {GGML_TYPE_Q4_1, GGML_TYPE_Q6_K, GGML_TYPE_F32}) {
    const TestMatrix m = MakeMatrix(type, 100, true);
    const PackedCopy packed(m, pool);
    for (const Linear* linear : {&m.linear, &packed.linear}) {
      for (const Compute compute : {Compute::kAuto, Compute::kF32}) {
        std::vector<float> together(kTokens * 100);
        const MatVecJob all{linear, together.data()};
        MatVec({&all, 1}, x.data(), kTokens, compute, pool);
        for (std::size_t t = 0; t < kTokens; ++t) {
          std::vector<float> alone(100);
          const MatVecJob one{linear, alone.data()};
          MatVec({&one, 1}, x.data() + t * kIn, 1, compute, pool);
          EXPECT_TRUE(std::equal(alone.begin(), alone.end(),
                                 together.begin() + static_cast<std::ptrdiff_t>(t * 100)))
              << ggml_type_name(type) << " token " << t;
        }
      }
    }
  }
}

}  // namespace
}  // namespace rkv::model
