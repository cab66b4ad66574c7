#include "base/gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <thread>
#include <vector>

#include "base/half.h"
#include "support/random.h"

namespace rkv {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Operands of one product, with garbage between the rows that must be neither read nor written.
struct Operands {
  explicit Operands(const GemmShape& s, Rng& rng) {
    const std::int64_t b_rows = s.b_transposed ? s.n : s.k;
    const std::int64_t b_cols = s.b_transposed ? s.k : s.n;
    a = Matrix(rng, s.m, s.k, s.lda);
    b = Matrix(rng, b_rows, b_cols, s.ldb);
    c = Matrix(rng, s.m, s.n, s.ldc);
  }

  static std::vector<float> Matrix(Rng& rng, std::int64_t rows, std::int64_t cols,
                                   std::int64_t stride) {
    std::vector<float> out(static_cast<std::size_t>(rows * stride), kNan);
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < cols; ++j) {
        out[static_cast<std::size_t>(i * stride + j)] = rng.Normal();
      }
    }
    return out;
  }

  std::vector<float> a, b, c;
};

// C[i, j] by a double sum, and the sum of magnitudes that its rounding error is relative to.
struct Expected {
  double value = 0;
  double magnitude = 0;
};

Expected Entry(const GemmShape& s, const Operands& in, std::int64_t i, std::int64_t j) {
  Expected out;
  if (s.accumulate) {
    out.value = in.c[static_cast<std::size_t>(i * s.ldc + j)];
    out.magnitude = std::abs(out.value);
  }
  for (std::int64_t x = 0; x < s.k; ++x) {
    const std::int64_t at = s.b_transposed ? j * s.ldb + x : x * s.ldb + j;
    const double product = static_cast<double>(in.a[static_cast<std::size_t>(i * s.lda + x)]) *
                           in.b[static_cast<std::size_t>(at)];
    out.value += product;
    out.magnitude += std::abs(product);
  }
  return out;
}

void ExpectProduct(const GemmShape& s, const Operands& in, const std::vector<float>& c) {
  for (std::int64_t i = 0; i < s.m; ++i) {
    for (std::int64_t j = 0; j < s.ldc; ++j) {
      const float got = c[static_cast<std::size_t>(i * s.ldc + j)];
      if (j >= s.n) {
        ASSERT_TRUE(std::isnan(got)) << "padding written at " << i << ", " << j;
        continue;
      }
      const Expected expected = Entry(s, in, i, j);
      ASSERT_NEAR(got, expected.value, 1e-6 * expected.magnitude + 1e-30)
          << s.m << 'x' << s.n << 'x' << s.k << " at " << i << ", " << j;
    }
  }
}

// Every mix of odd sizes, 1 and 0, padded and tight rows, both forms of B, with and without C.
std::vector<GemmShape> Shapes() {
  std::vector<GemmShape> shapes;
  const std::int64_t sizes[][3] = {
      {1, 1, 1},  {1, 64, 64},  {1, 17, 3},    {5, 1, 7}, {3, 5, 7}, {17, 33, 9}, {31, 64, 65},
      {70, 3, 1}, {64, 48, 32}, {2, 130, 257}, {4, 6, 0}, {0, 6, 4}, {4, 0, 6}};
  for (const auto& [m, n, k] : sizes) {
    for (const std::int64_t pad : {0, 3}) {
      for (const bool transposed : {false, true}) {
        for (const bool accumulate : {false, true}) {
          shapes.push_back({.m = m,
                            .n = n,
                            .k = k,
                            .lda = k + pad,
                            .ldb = (transposed ? k : n) + pad,
                            .ldc = n + pad,
                            .b_transposed = transposed,
                            .accumulate = accumulate});
        }
      }
    }
  }
  return shapes;
}

TEST(GemmF32, EqualsDoubleLoops) {
  UseOneGemmThread();
  Rng rng(61);
  for (const GemmShape& shape : Shapes()) {
    const Operands in(shape, rng);
    std::vector<float> c = in.c;
    GemmF32(shape, in.a.data(), in.b.data(), c.data());
    ASSERT_NO_FATAL_FAILURE(ExpectProduct(shape, in, c));
  }
}

TEST(GemmF32, OverwritesGarbageUnlessItAccumulates) {
  UseOneGemmThread();
  const std::vector<float> a = {1, 2};
  const std::vector<float> b = {3, 4};
  float c = kNan;
  GemmF32({.m = 1, .n = 1, .k = 2, .lda = 2, .ldb = 2, .ldc = 1, .b_transposed = true}, a.data(),
          b.data(), &c);
  EXPECT_EQ(c, 11.0f);
  c = kNan;
  GemmF32({.m = 1, .n = 1, .k = 0, .lda = 1, .ldb = 1, .ldc = 1}, a.data(), b.data(), &c);
  EXPECT_EQ(c, 0.0f);
  c = 5.0f;
  GemmF32({.m = 1, .n = 1, .k = 0, .lda = 1, .ldb = 1, .ldc = 1, .accumulate = true}, a.data(),
          b.data(), &c);
  EXPECT_EQ(c, 5.0f);
}

TEST(GemmF32, RowsDoNotDependOnTheirCompany) {
  UseOneGemmThread();
  Rng rng(62);
  const GemmShape all = {
      .m = 37, .n = 50, .k = 64, .lda = 64, .ldb = 64, .ldc = 50, .b_transposed = true};
  const Operands in(all, rng);
  std::vector<float> together(in.c.size());
  GemmF32(all, in.a.data(), in.b.data(), together.data());
  GemmShape one = all;
  one.m = 1;
  for (std::int64_t i = 0; i < all.m; ++i) {
    std::vector<float> alone(50);
    GemmF32(one, in.a.data() + i * all.lda, in.b.data(), alone.data());
    for (std::int64_t j = 0; j < all.n; ++j) {
      ASSERT_NEAR(alone[static_cast<std::size_t>(j)],
                  together[static_cast<std::size_t>(i * all.ldc + j)],
                  2e-6 * Entry(all, in, i, j).magnitude);
    }
  }
}

TEST(GemmF32, RunsOnSeveralThreadsAtOnce) {
  Rng rng(63);
  const GemmShape shape = {
      .m = 20, .n = 30, .k = 40, .lda = 40, .ldb = 30, .ldc = 30, .b_transposed = false};
  const Operands in(shape, rng);
  std::vector<std::vector<float>> results(3, in.c);
  std::vector<std::thread> threads;
  for (std::vector<float>& c : results) {
    threads.emplace_back([&shape, &in, &c] {
      UseOneGemmThread();
      for (int i = 0; i < 20; ++i) {
        GemmF32(shape, in.a.data(), in.b.data(), c.data());
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const std::vector<float>& c : results) {
    ExpectProduct(shape, in, c);
  }
}

TEST(GemmBf16, EqualsDoubleLoopsOnRoundedOperands) {
  if (!HasBf16Gemm()) {
    GTEST_SKIP() << "this CPU multiplies no bf16 in hardware (needs AVX-512 BF16 or AMX)";
  }
  UseOneGemmThread();
  Rng rng(64);
  for (const GemmShape& shape : Shapes()) {
    Operands in(shape, rng);
    const auto round = [](std::vector<float>& values) {
      std::vector<std::uint16_t> bits(values.size());
      for (std::size_t i = 0; i < values.size(); ++i) {
        bits[i] = F32ToBf16(values[i]);
        values[i] = Bf16ToF32(bits[i]);
      }
      return bits;
    };
    const std::vector<std::uint16_t> a = round(in.a);
    const std::vector<std::uint16_t> b = round(in.b);
    std::vector<float> c = in.c;
    GemmBf16(shape, a.data(), b.data(), c.data());
    ASSERT_NO_FATAL_FAILURE(ExpectProduct(shape, in, c));
  }
}

}  // namespace
}  // namespace rkv
