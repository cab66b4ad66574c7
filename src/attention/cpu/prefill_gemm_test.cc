#include "attention/cpu/prefill_gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "attention/cpu/targets.h"
#include "base/half.h"
#include "support/hwy_targets.h"
#include "support/random.h"
#include "support/test_head.h"

namespace rkv::attention::cpu {
namespace {

using test::Nmse;
using test::TestHead;

// GemmBf16 in plain loops: this CPU need not have the hardware.
void PlainProduct(const GemmShape& s, const std::uint16_t* a, const std::uint16_t* b, float* c) {
  for (std::int64_t i = 0; i < s.m; ++i) {
    for (std::int64_t j = 0; j < s.n; ++j) {
      float sum = s.accumulate ? c[i * s.ldc + j] : 0.0f;
      for (std::int64_t k = 0; k < s.k; ++k) {
        sum += Bf16ToF32(a[i * s.lda + k]) *
               Bf16ToF32(s.b_transposed ? b[j * s.ldb + k] : b[k * s.ldb + j]);
      }
      c[i * s.ldc + j] = sum;
    }
  }
}

struct Case {
  std::int32_t group;
  std::int32_t head_dim;
  std::int32_t first_row;
  std::int32_t tokens;
  kv::Codec codec;
};

using Kernel = void (*)(const PrefillTile&, const kv::HeadView&, Scratch&);

std::vector<float> Attend(Kernel kernel, const Case& c, const std::vector<float>& q,
                          const kv::HeadView& head) {
  const auto stride = static_cast<std::size_t>(c.group * c.head_dim);
  std::vector<float> out(q.size(), 99.0f);
  Scratch scratch;
  kernel({q.data(), stride, c.tokens, c.group, c.first_row,
          1.0f / std::sqrt(static_cast<float>(c.head_dim)), out.data(), stride},
         head, scratch);
  return out;
}

void ByPlainProducts(const PrefillTile& tile, const kv::HeadView& head, Scratch& scratch) {
  PrefillByGemm(tile, head, PlainProduct, scratch);
}

TEST(PrefillByGemm, EqualsThePlainKernelWithinBf16) {
  const Case cases[] = {{3, 64, 0, 1, kv::Codec::kF16},    {3, 64, 505, 20, kv::Codec::kF16},
                        {7, 64, 0, 70, kv::Codec::kBf16},  {1, 128, 511, 3, kv::Codec::kF32},
                        {4, 80, 1020, 7, kv::Codec::kF16}, {2, 72, 30, 40, kv::Codec::kF16},
                        {3, 64, 505, 20, kv::Codec::kQ8},  {2, 72, 30, 40, kv::Codec::kQ8}};
  Rng rng(1);
  for (const Case& c : cases) {
    const TestHead head = TestHead::Random(rng, c.head_dim, c.codec, c.first_row + c.tokens);
    const auto q =
        test::NormalVector(rng, static_cast<std::size_t>(c.tokens * c.group * c.head_dim), 1.0f);
    const auto expected = Attend(RefBackend().prefill_tile, c, q, head.view());
    test::ForEachTarget([&] {
      SCOPED_TRACE(testing::Message() << c.group << " heads of " << c.head_dim << ", " << c.tokens
                                      << " tokens from row " << c.first_row);
      // bf16 keeps 8 bits: 2^-9 of rounding error in queries, keys, values and weights.
      EXPECT_LE(Nmse(expected, Attend(ByPlainProducts, c, q, head.view())), 5e-5);
    });
  }
}

TEST(PrefillByGemm, EarlierTokensDoNotSeeLaterRows) {
  Rng rng(2);
  const Case c{2, 64, 500, 30, kv::Codec::kF16};
  TestHead head = TestHead::Random(rng, c.head_dim, c.codec, c.first_row + c.tokens);
  const auto q = test::NormalVector(rng, static_cast<std::size_t>(c.tokens * 2 * 64), 1.0f);
  const auto before = Attend(ByPlainProducts, c, q, head.view());
  const std::int32_t changed = 13;  // stored at row 513, in the second key tile
  head.SetRow(c.first_row + changed, test::NormalVector(rng, 64, 100.0f),
              test::NormalVector(rng, 64, 100.0f));
  const auto after = Attend(ByPlainProducts, c, q, head.view());
  const auto cut = static_cast<std::ptrdiff_t>(changed * 2 * 64);
  EXPECT_TRUE(std::equal(before.begin(), before.begin() + cut, after.begin()));
  EXPECT_FALSE(std::equal(before.begin() + cut, before.end(), after.begin() + cut));
}

}  // namespace
}  // namespace rkv::attention::cpu
