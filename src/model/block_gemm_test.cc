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
#include "model/packed_matrix.h"

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
  PanelWeights packed;
};

TestWeights MakeWeights(ggml_type type, BlockIsa isa, std::span<const float> values,
                        std::int32_t in, std::int32_t out) {
  ggml_cpu_init();
  const std::size_t row_bytes = ggml_row_size(type, in);
  std::vector<std::byte> rows(row_bytes * Size(out));
  ggml_quantize_chunk(type, values.data(), rows.data(), 0, out, in, nullptr);
  TestWeights w;
  w.expanded.resize(values.size());
  ggml_get_type_traits(type)->to_float(rows.data(), w.expanded.data(), in * out);
  const PanelForm form = PanelFormFor(static_cast<std::uint32_t>(type), isa);
  w.panels.resize(AllPanelBytes(form.kind, in, out));
  for (std::int32_t first = 0; first < out; first += kPackedRows) {
    std::vector<std::byte> packed(PackedPanelBytes(static_cast<std::uint32_t>(type), in));
    PackRows(static_cast<std::uint32_t>(type), rows.data() + Size(first) * row_bytes, row_bytes,
             std::min(kPackedRows, out - first), in, packed.data());
    ExpandPanel(static_cast<std::uint32_t>(type), packed.data(), in, form,
                w.panels.data() + Size(first / kPackedRows) * PanelBytes(form.kind, in));
  }
  w.packed = {w.panels.data(), in, out, form};
  return w;
}

// The product of all rows of x.
std::vector<float> Multiply(const TestWeights& w, std::span<const float> x, std::int32_t tokens,
                            const float* bias = nullptr) {
  std::vector<std::byte> memory(RoundedRows::Bytes(w.packed.in, tokens));
  const RoundedRows rounded = RoundedRows::In(memory.data(), w.packed.in, tokens);
  for (std::int32_t t = 0; t < tokens; ++t) {
    rounded.Round(t, x.data() + Size(t) * Size(w.packed.in));
  }
  std::vector<float> y(Size(tokens) * Size(w.packed.out) + 1, -77.0f);
  BlockGemm(w.packed, rounded, {0, tokens, 0, PanelCount(w.packed.out)}, bias, y.data(),
            Size(w.packed.out));
  EXPECT_EQ(y.back(), -77.0f) << "written past the end";
  y.pop_back();
  return y;
}

// The activations that the product really uses: 8 bits a block of 32.
std::vector<double> RoundedToBlocks(std::span<const float> x) {
  std::vector<double> out(x.size());
  for (std::size_t first = 0; first < x.size(); first += kPackedBlock) {
    float max = 0;
    for (std::size_t i = first; i < first + kPackedBlock; ++i) {
      max = std::max(max, std::abs(x[i]));
    }
    for (std::size_t i = first; i < first + kPackedBlock; ++i) {
      out[i] = max == 0 ? 0 : std::nearbyint(x[i] * (127.0f / max)) * (max / 127.0f);
    }
  }
  return out;
}

void ExpectProduct(const TestWeights& w, std::span<const float> x, std::int32_t tokens) {
  const std::size_t in = Size(w.packed.in);
  const std::size_t out = Size(w.packed.out);
  const std::vector<float> bias = Random(out, 11);
  const std::vector<float> y = Multiply(w, x, tokens, bias.data());
  for (std::size_t t = 0; t < Size(tokens); ++t) {
    const std::vector<double> a = RoundedToBlocks(x.subspan(t * in, in));
    for (std::size_t row = 0; row < out; ++row) {
      double expected = bias[row];
      double size = std::abs(bias[row]);
      for (std::size_t i = 0; i < in; ++i) {
        expected += a[i] * w.expanded[row * in + i];
        size += std::abs(a[i] * w.expanded[row * in + i]);
      }
      ASSERT_NEAR(y[t * out + row], expected, 1e-5 * size + 1e-6)
          << "token " << t << " row " << row << " of " << out << ", in " << in;
    }
  }
}

// Every type that an instruction set multiplies.
struct Case {
  ggml_type type;
  BlockIsa isa;
};

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  for (const BlockIsa isa : {BlockIsa::kAvx2, BlockIsa::kVnni}) {
    for (int type = 0; type < GGML_TYPE_COUNT; ++type) {
      if (PanelFormFor(static_cast<std::uint32_t>(type), isa).isa != BlockIsa::kNone) {
        cases.push_back({static_cast<ggml_type>(type), isa});
      }
    }
  }
  return cases;
}

class BlockGemmTypes : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!HasBlockIsa(GetParam().isa)) {
      GTEST_SKIP() << "this CPU lacks the instructions";
    }
  }

  static TestWeights Weights(std::span<const float> values, std::int32_t in, std::int32_t out) {
    return MakeWeights(GetParam().type, GetParam().isa, values, in, out);
  }
  // Inputs come in whole blocks of the type.
  static std::int32_t BlockInputs() {
    return static_cast<std::int32_t>(ggml_blck_size(GetParam().type));
  }
};

TEST_P(BlockGemmTypes, EqualsTheProductOfRoundedActivations) {
  for (const std::int32_t in : {BlockInputs(), 2 * BlockInputs(), 7 * BlockInputs()}) {
    for (const std::int32_t out : {1, 15, 16, 17, 40, 64}) {
      const TestWeights w = Weights(Random(Size(in) * Size(out), 7), in, out);
      for (const std::int32_t tokens : {0, 1, 2, 3, 5, 6, 7, 13}) {
        ExpectProduct(w, Random(Size(tokens) * Size(in), 3), tokens);
      }
    }
  }
}

// The largest bytes against the largest activations: no sum may overflow.
TEST_P(BlockGemmTypes, HoldsTheLargestSums) {
  const std::int32_t in = 3 * BlockInputs();
  for (const float top : {1.0f, -1.0f}) {
    std::vector<float> ramp(Size(in), top);
    for (std::size_t i = 0; i < ramp.size(); i += kPackedBlock) {
      ramp[i] = -top;  // so that every other weight takes one end of the range
    }
    const TestWeights w = Weights(ramp, in, 1);
    for (const float value : {1.0f, -1.0f, 1e30f, 1e-30f, 0.0f}) {
      ExpectProduct(w, std::vector<float>(Size(in), value), 1);
    }
  }
}

TEST_P(BlockGemmTypes, KeepsANanVisible) {
  const std::int32_t in = 2 * BlockInputs();
  const TestWeights w = Weights(Random(Size(in) * 16, 7), in, 16);
  for (const std::size_t at : {0, 7, 8, 31, 32, 63}) {
    std::vector<float> x = Random(Size(in), 3);
    x[at] = std::numeric_limits<float>::quiet_NaN();
    for (const float value : Multiply(w, x, 1)) {
      EXPECT_TRUE(std::isnan(value)) << at;
    }
  }
}

TEST_P(BlockGemmTypes, GivesATokenTheSameBitsInAnyCompany) {
  const std::int32_t in = 256;
  const TestWeights w = Weights(Random(Size(in) * 50, 7), in, 50);
  const std::vector<float> x = Random(10 * Size(in), 4);
  const std::vector<float> together = Multiply(w, x, 10);
  std::vector<float> alone;
  for (std::size_t t = 0; t < 10; ++t) {
    const std::vector<float> one = Multiply(w, std::span(x).subspan(t * Size(in), Size(in)), 1);
    alone.insert(alone.end(), one.begin(), one.end());
  }
  EXPECT_EQ(together, alone);
}

TEST_P(BlockGemmTypes, ComputesOnlyItsTile) {
  const std::int32_t in = 256;
  const TestWeights w = Weights(Random(Size(in) * 90, 7), in, 90);
  const std::vector<float> x = Random(20 * Size(in), 4);
  const std::vector<float> whole = Multiply(w, x, 20);
  std::vector<std::byte> memory(RoundedRows::Bytes(in, 20));
  const RoundedRows rounded = RoundedRows::In(memory.data(), in, 20);
  for (std::int32_t t = 0; t < 20; ++t) {
    rounded.Round(t, x.data() + Size(t) * Size(in));
  }
  std::vector<float> y(20 * 90, 5.0f);
  BlockGemm(w.packed, rounded, {3, 8, 1, 3}, nullptr, y.data(), 90);
  for (std::size_t i = 0; i < y.size(); ++i) {
    const std::size_t token = i / 90;
    const std::size_t row = i % 90;
    const bool inside = token >= 3 && token < 11 && row >= 16 && row < 64;
    ASSERT_EQ(y[i], inside ? whole[i] : 5.0f) << token << ' ' << row;
  }
}

INSTANTIATE_TEST_SUITE_P(All, BlockGemmTypes, testing::ValuesIn(AllCases()), [](const auto& c) {
  return std::string(ggml_type_name(c.param.type)) +
         (c.param.isa == BlockIsa::kVnni ? "_vnni" : "_avx2");
});

TEST(BlockGemm, KnowsItsTypes) {
  EXPECT_EQ(AllCases().size(), 6u + 8u);
  EXPECT_EQ(PanelFormFor(GGML_TYPE_F16, BlockIsa::kVnni).isa, BlockIsa::kNone);
  EXPECT_EQ(PanelFormFor(GGML_TYPE_Q8_0, BlockIsa::kAvx2).isa, BlockIsa::kNone);
  EXPECT_EQ(PanelFormFor(GGML_TYPE_Q4_0, BlockIsa::kNone).isa, BlockIsa::kNone);
}

}  // namespace
}  // namespace rkv::model
