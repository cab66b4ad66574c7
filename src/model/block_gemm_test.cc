#include "model/block_gemm.h"

#include <ggml-cpu.h>
#include <ggml.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "base/rng.h"

namespace rkv::model {
namespace {

std::size_t Size(std::int32_t n) { return static_cast<std::size_t>(n); }

std::vector<float> Random(std::size_t n, std::uint64_t seed) {
  Rng rng(seed);
  std::vector<float> out(n);
  for (float& value : out) {
    value = rng.Normal();
  }
  return out;
}

// A matrix as ggml stores it, packed, and expanded to f32.
struct TestWeights {
  std::vector<std::byte> panels;
  std::vector<float> expanded;  // [out][in]
  PackedWeights packed;
};

TestWeights MakeWeights(ggml_type type, std::int32_t in, std::int32_t out) {
  ggml_cpu_init();
  const std::vector<float> values = Random(Size(in) * Size(out), 7);
  const std::size_t row_bytes = ggml_row_size(type, in);
  std::vector<std::byte> rows(row_bytes * Size(out));
  ggml_quantize_chunk(type, values.data(), rows.data(), 0, out, in, nullptr);
  TestWeights w;
  w.expanded.resize(values.size());
  ggml_get_type_traits(type)->to_float(rows.data(), w.expanded.data(), in * out);
  w.panels.resize(PackedBytes(in, out));
  for (std::int32_t first = 0; first < out; first += kPanelRows) {
    PackPanel(type, rows.data() + Size(first) * row_bytes, row_bytes,
              std::min(kPanelRows, out - first), in,
              w.panels.data() + Size(first / kPanelRows) * PanelBytes(in));
  }
  w.packed = {w.panels.data(), in, out, type == GGML_TYPE_Q5_0 || type == GGML_TYPE_Q5_1};
  return w;
}

// The activations that the product really uses: 8 bits a block of 32.
std::vector<double> RoundedToBlocks(std::span<const float> x) {
  std::vector<double> out(x.size());
  for (std::size_t first = 0; first < x.size(); first += kGemmBlock) {
    float max = 0;
    for (std::size_t i = first; i < first + kGemmBlock; ++i) {
      max = std::max(max, std::abs(x[i]));
    }
    for (std::size_t i = first; i < first + kGemmBlock; ++i) {
      out[i] = max == 0 ? 0 : std::nearbyint(x[i] * (127.0f / max)) * (max / 127.0f);
    }
  }
  return out;
}

void ExpectProduct(const TestWeights& w, std::span<const float> x, std::int32_t tokens) {
  const std::size_t in = Size(w.packed.in);
  const std::size_t out = Size(w.packed.out);
  std::vector<float> y(Size(tokens) * out + 1, -77.0f);
  Scratch scratch;
  BlockGemm(w.packed, x.data(), in, tokens, y.data(), out, scratch);
  EXPECT_EQ(y.back(), -77.0f) << "written past the end";
  for (std::size_t t = 0; t < Size(tokens); ++t) {
    const std::vector<double> a = RoundedToBlocks(x.subspan(t * in, in));
    for (std::size_t row = 0; row < out; ++row) {
      double expected = 0;
      double size = 0;
      for (std::size_t i = 0; i < in; ++i) {
        expected += a[i] * w.expanded[row * in + i];
        size += std::abs(a[i] * w.expanded[row * in + i]);
      }
      ASSERT_NEAR(y[t * out + row], expected, 1e-5 * size + 1e-6)
          << "token " << t << " row " << row;
    }
  }
}

class BlockGemmTypes : public testing::TestWithParam<ggml_type> {
 protected:
  void SetUp() override {
    if (!HasBlockGemm()) {
      GTEST_SKIP() << "this CPU has no AVX2 and FMA";
    }
  }
};

TEST_P(BlockGemmTypes, EqualsTheProductOfRoundedActivations) {
  for (const std::int32_t in : {32, 64, 576}) {
    for (const std::int32_t out : {1, 15, 16, 17, 40}) {
      const TestWeights w = MakeWeights(GetParam(), in, out);
      for (const std::int32_t tokens : {0, 1, 2, 3, 4, 7}) {
        const std::vector<float> x = Random(Size(tokens) * Size(in), 3);
        ExpectProduct(w, x, tokens);
      }
    }
  }
}

// The largest bytes against the largest activations: sums of 16 bits must not overflow.
TEST_P(BlockGemmTypes, HoldsTheLargestSums) {
  const std::int32_t in = 96;
  std::vector<float> ramp(Size(in), 1.0f);
  for (std::size_t i = 0; i < ramp.size(); i += kGemmBlock) {
    ramp[i] = -1.0f;  // so that every other weight takes the top of the range
  }
  TestWeights w;
  std::vector<std::byte> row(ggml_row_size(GetParam(), in));
  ggml_quantize_chunk(GetParam(), ramp.data(), row.data(), 0, 1, in, nullptr);
  w.expanded.resize(Size(in));
  ggml_get_type_traits(GetParam())->to_float(row.data(), w.expanded.data(), in);
  w.panels.resize(PackedBytes(in, 1));
  PackPanel(GetParam(), row.data(), row.size(), 1, in, w.panels.data());
  w.packed = {w.panels.data(), in, 1, GetParam() == GGML_TYPE_Q5_0 || GetParam() == GGML_TYPE_Q5_1};
  for (const float value : {1.0f, -1.0f, 1e30f, 1e-30f, 0.0f}) {
    const std::vector<float> x(Size(in), value);
    ExpectProduct(w, x, 1);
  }
}

TEST_P(BlockGemmTypes, KeepsANanVisible) {
  const TestWeights w = MakeWeights(GetParam(), 64, 16);
  for (const std::size_t at : {0, 7, 8, 31, 32, 63}) {
    std::vector<float> x = Random(64, 3);
    x[at] = std::numeric_limits<float>::quiet_NaN();
    std::vector<float> y(16);
    Scratch scratch;
    BlockGemm(w.packed, x.data(), 64, 1, y.data(), 16, scratch);
    for (const float value : y) {
      EXPECT_TRUE(std::isnan(value)) << at;
    }
  }
}

TEST_P(BlockGemmTypes, GivesATokenTheSameBitsInAnyCompany) {
  const TestWeights w = MakeWeights(GetParam(), 128, 50);
  const std::vector<float> x = Random(10 * 128, 4);
  Scratch scratch;
  std::vector<float> together(10 * 50);
  BlockGemm(w.packed, x.data(), 128, 10, together.data(), 50, scratch);
  std::vector<float> alone(10 * 50);
  for (std::size_t t = 0; t < 10; ++t) {
    BlockGemm(w.packed, x.data() + t * 128, 128, 1, alone.data() + t * 50, 50, scratch);
  }
  EXPECT_EQ(together, alone);
}

INSTANTIATE_TEST_SUITE_P(All, BlockGemmTypes,
                         testing::Values(GGML_TYPE_Q4_0, GGML_TYPE_Q4_1, GGML_TYPE_Q5_0,
                                         GGML_TYPE_Q5_1),
                         [](const auto& c) { return std::string(ggml_type_name(c.param)); });

TEST(BlockGemm, KnowsItsTypes) {
  for (int type = 0; type < GGML_TYPE_COUNT; ++type) {
    const bool expected = type == GGML_TYPE_Q4_0 || type == GGML_TYPE_Q4_1 ||
                          type == GGML_TYPE_Q5_0 || type == GGML_TYPE_Q5_1;
    EXPECT_EQ(IsBlockGemmType(static_cast<std::uint32_t>(type)), expected);
  }
}

}  // namespace
}  // namespace rkv::model
