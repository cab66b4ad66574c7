// Every kernel of prompt tiles against the plain one, on the inputs that break attention kernels.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "attention/backend.h"
#include "attention/cpu/prefill_gemm.h"
#include "attention/cpu/prefill_int16.h"
#include "attention/cpu/prefill_panels.h"
#include "base/gemm.h"
#include "support/random.h"
#include "support/test_head.h"

namespace rkv::attention::cpu {
namespace {

using test::Nmse;
using test::TestHead;

using Kernel = void (*)(const PrefillTile&, const kv::HeadView&, Scratch&);

void ByBf16(const PrefillTile& tile, const kv::HeadView& head, Scratch& scratch) {
  PrefillByGemm(tile, head, GemmBf16, scratch);
}

struct Variant {
  const char* name;
  Kernel kernel;
  bool (*runs)(std::int32_t head_dim);
  double nmse;   // of ordinary input: twice what was measured, at least
  double sharp;  // of scores of a size of about 100: rounding of a score moves a weight
};

const Variant kVariants[] = {
    {"panels", PrefillByPanels, [](std::int32_t) { return true; }, 1e-11, 1e-8},
    // 12 to 13 bits of values and weights; scores to 1e-5 of the product of the lengths.
    {"int16", PrefillByInt16, HasInt16Prefill, 5e-7, 5e-6},
    {"bf16", ByBf16, [](std::int32_t) { return HasBf16Gemm(); }, 5e-5, 5e-2},
};

struct Shape {
  std::int32_t group;
  std::int32_t head_dim;
  std::int32_t first_row;
  std::int32_t tokens;
  kv::Codec codec = kv::Codec::kF16;
};

std::size_t Size(std::int32_t n) { return static_cast<std::size_t>(n); }

std::vector<float> Attend(Kernel kernel, const Shape& s, const std::vector<float>& q,
                          const kv::HeadView& head) {
  const std::size_t stride = Size(s.group * s.head_dim);
  std::vector<float> out(q.size(), 99.0f);
  Scratch scratch;
  kernel({q.data(), stride, s.tokens, s.group, s.first_row,
          1.0f / std::sqrt(static_cast<float>(s.head_dim)), out.data(), stride},
         head, scratch);
  return out;
}

std::vector<float> Queries(Rng& rng, const Shape& s, float scale) {
  return test::NormalVector(rng, Size(s.tokens) * Size(s.group * s.head_dim), scale);
}

class PrefillVariants : public testing::TestWithParam<Variant> {
 protected:
  void SetUp() override {
    UseOneGemmThread();
    if (!GetParam().runs(64)) {
      GTEST_SKIP() << "this CPU lacks the instructions";
    }
  }

  static void ExpectClose(const Shape& s, const std::vector<float>& q, const TestHead& head,
                          double tolerance) {
    const auto expected = Attend(RefBackend().prefill_tile, s, q, head.view());
    EXPECT_LE(Nmse(expected, Attend(GetParam().kernel, s, q, head.view())), tolerance)
        << s.group << " heads of " << s.head_dim << ", " << s.tokens << " tokens from row "
        << s.first_row;
  }
};

TEST_P(PrefillVariants, EqualsThePlainKernel) {
  Rng rng(1);
  const kv::Codec codecs[] = {kv::Codec::kF16, kv::Codec::kBf16, kv::Codec::kF32};
  const std::int32_t firsts[] = {0, 1, 63, 64, 65, 255, 256, 257, 511, 512, 530};
  const std::int32_t tokens[] = {1, 2, 5, 17, 31, 8, 3, 70};
  std::size_t i = 0;
  for (const std::int32_t head_dim : {16, 48, 64, 80, 96, 112, 128, 192, 256}) {
    for (const std::int32_t group : {1, 2, 3, 4, 5, 6, 7, 8}) {
      const Shape s{group, head_dim, firsts[i % std::size(firsts)], tokens[i % std::size(tokens)],
                    codecs[i % std::size(codecs)]};
      const TestHead head = TestHead::Random(rng, head_dim, s.codec, s.first_row + s.tokens);
      ExpectClose(s, Queries(rng, s, 2.0f), head, GetParam().nmse);
      ++i;
    }
  }
  const Shape whole{3, 64, 0, 300};
  const TestHead head = TestHead::Random(rng, 64, whole.codec, 300);
  ExpectClose(whole, Queries(rng, whole, 1.0f), head, GetParam().nmse);
}

TEST_P(PrefillVariants, HoldsForSharpAndFlatScores) {
  Rng rng(2);
  const Shape s{3, 64, 600, 20};
  const TestHead flat = TestHead::Random(rng, 64, s.codec, 620, 0.0f);
  ExpectClose(s, Queries(rng, s, 1.0f), flat, 1e-5);  // the mean of 600 values is small
  const TestHead sharp = TestHead::Random(rng, 64, s.codec, 620, 5.0f);
  ExpectClose(s, Queries(rng, s, 5.0f), sharp, GetParam().sharp);  // scores of about +-80
}

// A row that takes nearly all the weight, with a value that is nearly nothing: the others decide
// the result.
TEST_P(PrefillVariants, KeepsSmallWeightsBesideASink) {
  Rng rng(3);
  const Shape s{2, 64, 700, 20};
  for (const std::int32_t sink : {0, 300, 650}) {
    TestHead head = TestHead::Random(rng, 64, s.codec, 720, 0.3f);
    const std::vector<float> direction = test::NormalVector(rng, 64, 1.0f);
    std::vector<float> q = Queries(rng, s, 0.5f);
    for (std::size_t i = 0; i < q.size(); ++i) {
      q[i] += direction[i % 64];
    }
    std::vector<float> key = direction;
    for (float& x : key) {
      x *= 2.0f;  // a score of 16 above the others': e^16 / 720 of the weight
    }
    head.SetRow(sink, key, test::NormalVector(rng, 64, 1e-5f));
    ExpectClose(s, q, head, 4 * GetParam().nmse);
  }
}

// A few channels of the keys are a hundred times the others, as the biases of Qwen2.5's keys.
TEST_P(PrefillVariants, HoldsForOutlierChannels) {
  Rng rng(4);
  const Shape s{7, 64, 500, 20};
  TestHead head(64, s.codec, 520);
  for (std::int32_t row = 0; row < 520; ++row) {
    std::vector<float> key = test::NormalVector(rng, 64, 1.0f);
    key[3] += 110.0f;
    key[40] -= 90.0f;
    std::vector<float> value = test::NormalVector(rng, 64, 1.0f);
    value[17] *= 30.0f;
    head.SetRow(row, key, value);
  }
  ExpectClose(s, Queries(rng, s, 1.0f), head, GetParam().sharp);
}

TEST_P(PrefillVariants, ShowsWhatIsNotANumberToThoseWhoSeeIt) {
  const Shape s{1, 64, 0, 300};
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (const bool in_key : {true, false}) {
      Rng rng(5);
      TestHead head = TestHead::Random(rng, 64, s.codec, 300);
      const std::vector<float> q = Queries(rng, s, 1.0f);
      const auto before = Attend(GetParam().kernel, s, q, head.view());
      std::vector<float> key = test::NormalVector(rng, 64);
      std::vector<float> value = test::NormalVector(rng, 64);
      (in_key ? key : value)[5] = bad;
      head.SetRow(200, key, value);
      const auto after = Attend(GetParam().kernel, s, q, head.view());
      for (std::size_t t = 0; t < 300; ++t) {
        // An infinite key may also have a weight of 0.
        const bool seen = t >= 200 && (!in_key || std::isnan(bad));
        const float number = after[t * 64 + 5];
        if (t < 200 && std::string(GetParam().name) == "int16") {
          ASSERT_EQ(number, before[t * 64 + 5]) << t;
        } else if (seen) {
          ASSERT_FALSE(std::isfinite(number)) << t;
        }
      }
    }
  }
}

TEST_P(PrefillVariants, MakesAQueryThatIsNoNumberVisible) {
  Rng rng(6);
  const Shape s{2, 64, 30, 10};
  const TestHead head = TestHead::Random(rng, 64, s.codec, 40);
  std::vector<float> q = Queries(rng, s, 1.0f);
  q[9 * 64 + 3] = std::numeric_limits<float>::quiet_NaN();
  const auto out = Attend(GetParam().kernel, s, q, head.view());
  for (std::size_t row = 0; row < 20; ++row) {
    EXPECT_EQ(std::isnan(out[row * 64]), row == 9) << row;
  }
}

INSTANTIATE_TEST_SUITE_P(All, PrefillVariants, testing::ValuesIn(kVariants),
                         [](const auto& c) { return std::string(c.param.name); });

class Int16Prefill : public testing::Test {
 protected:
  void SetUp() override {
    if (!HasInt16Prefill(64)) {
      GTEST_SKIP() << "this CPU lacks the instructions";
    }
  }
};

TEST_F(Int16Prefill, DoesNotDependOnHowThePromptIsCut) {
  Rng rng(7);
  const Shape s{3, 64, 200, 101};
  const TestHead head = TestHead::Random(rng, 64, s.codec, 301);
  const std::vector<float> q = Queries(rng, s, 2.0f);
  const auto whole = Attend(PrefillByInt16, s, q, head.view());
  for (const std::int32_t size : {1, 7, 32, 100}) {
    for (std::int32_t first = 0; first < s.tokens; first += size) {
      const Shape part{3, 64, s.first_row + first, std::min(size, s.tokens - first)};
      const auto begin = static_cast<std::ptrdiff_t>(first) * 3 * 64;
      const std::vector<float> part_q(q.begin() + begin,
                                      q.begin() + begin + std::ptrdiff_t{part.tokens} * 3 * 64);
      const auto out = Attend(PrefillByInt16, part, part_q, head.view());
      ASSERT_TRUE(std::equal(out.begin(), out.end(), whole.begin() + begin))
          << size << " tokens from " << first;
    }
  }
}

TEST_F(Int16Prefill, EarlierTokensDoNotSeeLaterRows) {
  Rng rng(8);
  const Shape s{2, 64, 240, 40};
  TestHead head = TestHead::Random(rng, 64, s.codec, 280);
  const std::vector<float> q = Queries(rng, s, 1.0f);
  const auto before = Attend(PrefillByInt16, s, q, head.view());
  head.SetRow(263, test::NormalVector(rng, 64, 100.0f), test::NormalVector(rng, 64, 100.0f));
  const auto after = Attend(PrefillByInt16, s, q, head.view());
  const std::ptrdiff_t cut = std::ptrdiff_t{23} * 2 * 64;
  EXPECT_TRUE(std::equal(before.begin(), before.begin() + cut, after.begin()));
  EXPECT_FALSE(std::equal(before.begin() + cut, before.end(), after.begin() + cut));
}

// A value's scale and its logarithm are computed apart: they must agree at every size.
TEST_F(Int16Prefill, WeighsValuesOfAnySize) {
  const Shape s{1, 16, 0, 2, kv::Codec::kF32};
  const std::vector<float> zero(16, 0.0f);
  const std::vector<float> q(32, 0.0f);
  for (std::int32_t exponent = -30; exponent <= 30; ++exponent) {
    for (const float top : {1.0f, 1.4999999f, 1.5f, 1.5000001f, 1.9999999f}) {
      const float value = std::ldexp(top * 4095.0f / 4096.0f, exponent);
      TestHead head(16, s.codec, 2);
      head.SetRow(0, zero, std::vector<float>(16, value));
      head.SetRow(1, zero, std::vector<float>(16, 1.0f));
      const auto out = Attend(PrefillByInt16, s, q, head.view());
      EXPECT_NEAR(out[16], 0.5f * (value + 1.0f), 1e-3f * (value + 1.0f)) << value;
    }
  }
}

// Products as large as they get: rows along one direction, of equal numbers or of one number.
TEST_F(Int16Prefill, HoldsTheLargestSums) {
  for (const float size : {3.0f, 3e4f}) {  // the latter's scores are of about 1e9
    const std::int32_t head_dim = size == 3.0f ? 64 : 256;
    const Shape s{1, head_dim, 400, 9, kv::Codec::kBf16};
    for (const bool one : {true, false}) {
      for (const float sign : {1.0f, -1.0f}) {
        TestHead head(head_dim, s.codec, 409);
        std::vector<float> key(Size(head_dim), one ? 0.0f : size);
        key[1] = size;
        std::vector<float> q;
        for (std::int32_t t = 0; t < s.tokens; ++t) {
          for (const float x : key) {
            q.push_back(sign * x);
          }
        }
        for (std::int32_t row = 0; row < 409; ++row) {
          head.SetRow(row, key, std::vector<float>(Size(head_dim), sign * 7.0f));
        }
        for (const float x : Attend(PrefillByInt16, s, q, head.view())) {
          ASSERT_NEAR(x, sign * 7.0f, 1e-3f);
        }
      }
    }
  }
}

}  // namespace
}  // namespace rkv::attention::cpu
