#include "model/packed_dot.h"

#include <ggml-cpu.h>
#include <ggml.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/rng.h"

namespace rkv::model {
namespace {

std::vector<std::uint32_t> PackedTypes() {
  return {GGML_TYPE_Q4_0, GGML_TYPE_Q4_1, GGML_TYPE_Q5_0, GGML_TYPE_Q5_1,
          GGML_TYPE_Q8_0, GGML_TYPE_Q4_K, GGML_TYPE_Q5_K, GGML_TYPE_Q6_K};
}

std::vector<float> Normals(std::size_t n, std::uint64_t seed) {
  Rng rng(seed);
  std::vector<float> out(n);
  std::generate(out.begin(), out.end(), [&] { return rng.Normal(); });
  return out;
}

struct Matrix {
  Matrix(std::uint32_t type_, std::int32_t in_, std::int32_t out_)
      : type(type_), in(in_), out(out_) {
    ggml_cpu_init();
    const auto count = static_cast<std::size_t>(in) * static_cast<std::size_t>(out);
    const std::vector<float> values = Normals(count, 7);
    const auto ggml = static_cast<ggml_type>(type);
    row_bytes = ggml_row_size(ggml, in);
    bytes.resize(row_bytes * static_cast<std::size_t>(out));
    ggml_quantize_chunk(ggml, values.data(), bytes.data(), 0, out, in, nullptr);
    expanded.resize(count);
    ggml_get_type_traits(ggml)->to_float(bytes.data(), expanded.data(),
                                         static_cast<std::int64_t>(count));
    packed.resize(PackedMatrixBytes(type, in, out));
    for (std::int32_t row = 0; row < out; row += kPackedRows) {
      PackRows(
          type, bytes.data() + static_cast<std::size_t>(row) * row_bytes, row_bytes,
          std::min(kPackedRows, out - row), in,
          packed.data() + static_cast<std::size_t>(row / kPackedRows) * PackedPanelBytes(type, in));
    }
  }

  PackedMatrix view() const { return {type, packed.data(), in, out}; }

  std::uint32_t type;
  std::int32_t in;
  std::int32_t out;
  std::size_t row_bytes;
  std::vector<std::byte> bytes;
  std::vector<float> expanded;  // [out][in]
  std::vector<std::byte> packed;
};

class PackedType : public ::testing::TestWithParam<std::uint32_t> {};

TEST_P(PackedType, UnpackedWeightsAreExactlyGgmls) {
  for (const std::int32_t out : {1, 15, 16, 17, 40}) {
    const Matrix m(GetParam(), 512, out);
    for (std::int32_t i = 0; i < m.in; i += kPackedBlock) {
      for (std::int32_t row = 0; row < out; ++row) {
        const std::byte* panel = m.packed.data() + static_cast<std::size_t>(row / kPackedRows) *
                                                       PackedPanelBytes(m.type, m.in);
        UnpackedBlock block;
        UnpackBlock(m.type, panel, static_cast<std::size_t>(i / kPackedBlock), block);
        for (int x = 0; x < kPackedBlock; ++x) {
          const int r = row % kPackedRows;
          const int byte = block.bytes[x / 4][4 * r + x % 4] - PackedCentre(m.type);
          const float weight = block.scale[x / 16][r] * static_cast<float>(byte) + block.minimum[r];
          const float expected = m.expanded[static_cast<std::size_t>(row * m.in + i + x)];
          ASSERT_NEAR(weight, expected, 1e-6f * std::max(1.0f, std::abs(expected)))
              << "row " << row << " input " << i + x;
        }
      }
    }
  }
}

TEST_P(PackedType, UnpackedRowsAreExactlyGgmls) {
  const Matrix m(GetParam(), 512, 17);
  std::vector<float> rows(static_cast<std::size_t>(kPackedRows * m.in));
  for (std::int64_t panel = 0; panel < 2; ++panel) {
    UnpackRows(m.view(), panel, rows.data());
    const std::int64_t first = panel * kPackedRows * m.in;
    for (std::int64_t i = 0; i < std::min<std::int64_t>(kPackedRows * m.in, m.out * m.in - first);
         ++i) {
      const float expected = m.expanded[static_cast<std::size_t>(first + i)];
      ASSERT_NEAR(rows[static_cast<std::size_t>(i)], expected,
                  1e-6f * std::max(1.0f, std::abs(expected)));
    }
  }
  EXPECT_EQ(rows.back(), 0.0f) << "a row behind the last";
}

// What the kernels compute, in f64: exact weights times rounded activations.
std::vector<double> Expected(const Matrix& m, const RoundedInput& x) {
  std::vector<double> y(static_cast<std::size_t>(m.out));
  for (std::size_t row = 0; row < y.size(); ++row) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(m.in); ++i) {
      y[row] += static_cast<double>(m.expanded[row * static_cast<std::size_t>(m.in) + i]) *
                x.scales[i / 32] * x.bytes[i];
    }
  }
  return y;
}

std::vector<BlockIsa> Targets() {
  std::vector<BlockIsa> out;
  for (const BlockIsa target : {BlockIsa::kAvx2, BlockIsa::kVnni}) {
    if (target <= BestBlockIsa()) {
      out.push_back(target);
    }
  }
  return out;
}

TEST_P(PackedType, DotEqualsTheDefinitionOnEveryTarget) {
  if (Targets().empty()) {
    GTEST_SKIP() << "this CPU has no kernel for packed weights";
  }
  for (const BlockIsa target : Targets()) {
    for (const std::int32_t in : {256, 512, 2304}) {
      if (!HasPackedDot(target, GetParam(), in)) {
        continue;
      }
      for (const std::int32_t out : {1, 16, 33}) {
        const Matrix m(GetParam(), in, out);
        Scratch scratch;
        Scratch::Frame frame(scratch);
        std::vector<RoundedInput> inputs;
        for (std::uint64_t t = 0; t < kPackedTokens; ++t) {
          inputs.push_back(
              RoundInput(target, Normals(static_cast<std::size_t>(in), 20 + t).data(), in, frame));
        }
        for (std::int32_t tokens = 1; tokens <= kPackedTokens; ++tokens) {
          const std::size_t stride = static_cast<std::size_t>(out) + 3;
          std::vector<float> y(stride * kPackedTokens, -1.0f);
          DotPanels(target, m.view(), 0, m.view().panel_count(), inputs.data(), tokens, y.data(),
                    stride);
          for (std::int32_t t = 0; t < tokens; ++t) {
            const std::vector<double> expected = Expected(m, inputs[static_cast<std::size_t>(t)]);
            for (std::size_t row = 0; row < expected.size(); ++row) {
              ASSERT_NEAR(y[static_cast<std::size_t>(t) * stride + row], expected[row],
                          2e-5 * std::sqrt(in))
                  << "target " << static_cast<int>(target) << " in " << in << " token " << t;
            }
            ASSERT_EQ(y[static_cast<std::size_t>(t) * stride + expected.size()], -1.0f);
          }
        }
      }
    }
  }
}

TEST_P(PackedType, ATokenDoesNotDependOnTheOthers) {
  for (const BlockIsa target : Targets()) {
    if (!HasPackedDot(target, GetParam(), 512)) {
      continue;
    }
    const Matrix m(GetParam(), 512, 32);
    Scratch scratch;
    Scratch::Frame frame(scratch);
    std::vector<RoundedInput> inputs;
    for (std::uint64_t t = 0; t < kPackedTokens; ++t) {
      inputs.push_back(RoundInput(target, Normals(512, 40 + t).data(), 512, frame));
    }
    std::vector<float> together(kPackedTokens * 32);
    DotPanels(target, m.view(), 0, 2, inputs.data(), kPackedTokens, together.data(), 32);
    for (std::size_t t = 0; t < kPackedTokens; ++t) {
      std::vector<float> alone(32);
      DotPanels(target, m.view(), 0, 2, &inputs[t], 1, alone.data(), 32);
      EXPECT_TRUE(
          std::equal(alone.begin(), alone.end(), together.begin() + static_cast<long>(t) * 32));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, PackedType, ::testing::ValuesIn(PackedTypes()), [](const auto& param) {
  return std::string(ggml_type_name(static_cast<ggml_type>(param.param)));
});

TEST(PackedMatrixLayout, OtherTypesAndWidthsHaveNone) {
  EXPECT_FALSE(HasPackedLayout(GGML_TYPE_F16, 256));
  EXPECT_FALSE(HasPackedLayout(GGML_TYPE_Q2_K, 256));
  EXPECT_FALSE(HasPackedLayout(GGML_TYPE_Q4_0, 0));
  EXPECT_FALSE(HasPackedLayout(GGML_TYPE_Q4_0, 48));
  EXPECT_FALSE(HasPackedLayout(GGML_TYPE_Q4_K, 128));
  EXPECT_TRUE(HasPackedLayout(GGML_TYPE_Q4_0, 96));
  EXPECT_TRUE(HasPackedLayout(GGML_TYPE_Q6_K, 512));
}

TEST(PackedMatrixLayout, TakesAtMostThreePercentMoreThanGgmls) {
  for (const std::uint32_t type : PackedTypes()) {
    const std::size_t ggml = 64 * ggml_row_size(static_cast<ggml_type>(type), 1024);
    EXPECT_LE(PackedMatrixBytes(type, 1024, 64), ggml * 103 / 100) << type;
  }
}

TEST(RoundInput, KeepsNansVisibleAndZerosZero) {
  for (const BlockIsa target : Targets()) {
    std::vector<float> x(96, 0.0f);
    x[40] = std::numeric_limits<float>::quiet_NaN();
    x[70] = -2.0f;
    Scratch scratch;
    Scratch::Frame frame(scratch);
    const RoundedInput rounded = RoundInput(target, x.data(), 96, frame);
    EXPECT_EQ(rounded.scales[0], 0.0f);
    EXPECT_TRUE(std::isnan(rounded.scales[1]));
    EXPECT_EQ(rounded.bytes[70], -127);
    EXPECT_EQ(rounded.sums[4], -127.0f);
    EXPECT_EQ(rounded.sums[5], 0.0f);
  }
}

TEST(RoundInput, IsTheSameOnEveryTarget) {
  if (Targets().size() < 2) {
    GTEST_SKIP() << "this CPU has one target or none";
  }
  const std::vector<float> x = Normals(512, 3);
  Scratch scratch;
  Scratch::Frame frame(scratch);
  const RoundedInput a = RoundInput(BlockIsa::kAvx2, x.data(), 512, frame);
  const RoundedInput b = RoundInput(BlockIsa::kVnni, x.data(), 512, frame);
  EXPECT_TRUE(std::equal(a.bytes, a.bytes + 512, b.bytes));
  EXPECT_TRUE(std::equal(a.scales, a.scales + 16, b.scales));
  EXPECT_TRUE(std::equal(a.sums, a.sums + 32, b.sums));
}

}  // namespace
}  // namespace rkv::model
