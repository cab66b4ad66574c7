#include "model/linear.h"

#include <ggml-cpu.h>
#include <ggml.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/gemm.h"
#include "base/rng.h"
#include "model/pack_weights.h"

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

std::vector<float> RunMatVec(const TestMatrix& m, const std::vector<float>& x, Compute compute,
                             int threads = 1) {
  ThreadPool pool(threads);
  std::vector<float> y(static_cast<std::size_t>(m.linear.out));
  const MatVecJob job{&m.linear, y.data()};
  MatVec({&job, 1}, x.data(), 1, compute, pool);
  return y;
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
