#include <gtest/gtest.h>

#include <vector>

#include "attention/backend.h"
#include "base/gemm.h"
#include "support/random.h"
#include "support/test_head.h"

namespace rkv::attention {
namespace {

TEST(PrefillTile, OfBothBackendsIsTheSame) {
  UseOneGemmThread();
  Rng rng(1);
  for (const kv::Codec codec : {kv::Codec::kF16, kv::Codec::kQ8}) {
    const test::TestHead head = test::TestHead::Random(rng, 64, codec, 600);
    const auto q = test::NormalVector(rng, 40 * 3 * 64);
    std::vector<float> expected(q.size());
    std::vector<float> actual(q.size());
    Scratch scratch;
    RefBackend().prefill_tile({q.data(), 192, 40, 3, 560, 0.125f, expected.data(), 192},
                              head.view(), scratch);
    CpuBackend().prefill_tile({q.data(), 192, 40, 3, 560, 0.125f, actual.data(), 192}, head.view(),
                              scratch);
    // Which kernel runs depends on the CPU; the loosest rounds operands to bf16, that is 8 bits.
    EXPECT_LE(test::Nmse(expected, actual), 5e-5) << CodecName(codec);
  }
}

TEST(PrefillTile, OfRowsInF32IsExact) {
  Rng rng(2);
  const test::TestHead head = test::TestHead::Random(rng, 64, kv::Codec::kF32, 600);
  const auto q = test::NormalVector(rng, 40 * 3 * 64);
  std::vector<float> expected(q.size());
  std::vector<float> actual(q.size());
  Scratch scratch;
  RefBackend().prefill_tile({q.data(), 192, 40, 3, 560, 0.125f, expected.data(), 192}, head.view(),
                            scratch);
  CpuBackend().prefill_tile({q.data(), 192, 40, 3, 560, 0.125f, actual.data(), 192}, head.view(),
                            scratch);
  EXPECT_LE(test::Nmse(expected, actual), 1e-12);
}

TEST(PrefillTile, TakesNoTokens) {
  const test::TestHead head(64, kv::Codec::kF16, 4);
  Scratch scratch;
  for (const Backend* backend : {&RefBackend(), &CpuBackend()}) {
    float untouched = 5.0f;
    backend->prefill_tile({&untouched, 64, 0, 1, 4, 1.0f, &untouched, 64}, head.view(), scratch);
    EXPECT_EQ(untouched, 5.0f);
  }
}

}  // namespace
}  // namespace rkv::attention
