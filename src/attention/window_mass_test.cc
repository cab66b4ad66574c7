#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "attention/backend.h"
#include "attention/cpu/targets.h"
#include "support/hwy_targets.h"
#include "support/random.h"
#include "support/test_head.h"

namespace rkv::attention {
namespace {

using test::Nmse;
using test::TestHead;

struct Case {
  std::int32_t group;
  std::int32_t head_dim;
  std::int32_t rows;
  std::int32_t tokens;
  kv::Codec codec;
};

std::vector<float> Mass(const Backend& backend, const Case& c, const std::vector<float>& q,
                        const kv::HeadView& head) {
  Scratch scratch;
  std::vector<float> mass(static_cast<std::size_t>(c.rows - c.tokens), 99.0f);
  const WindowQuery window{q.data(), static_cast<std::size_t>(c.group * c.head_dim) + 3, c.tokens,
                           c.group, 1.0f / std::sqrt(static_cast<float>(c.head_dim))};
  backend.window_mass(window, head, mass, scratch);
  return mass;
}

std::vector<float> Queries(Rng& rng, const Case& c, float scale) {
  return test::NormalVector(rng, static_cast<std::size_t>(c.tokens * (c.group * c.head_dim + 3)),
                            scale);
}

TEST(WindowMass, EqualsThePlainKernel) {
  const Case cases[] = {{1, 64, 300, 32, kv::Codec::kF16},  {3, 64, 700, 32, kv::Codec::kF16},
                        {7, 64, 289, 32, kv::Codec::kBf16}, {4, 128, 257, 16, kv::Codec::kF32},
                        {2, 80, 256, 8, kv::Codec::kF16},   {8, 96, 600, 5, kv::Codec::kF16},
                        {3, 72, 33, 32, kv::Codec::kF16},   {2, 256, 512, 1, kv::Codec::kBf16},
                        {3, 64, 20, 20, kv::Codec::kF16},   {1, 6, 530, 3, kv::Codec::kF32},
                        {3, 64, 700, 32, kv::Codec::kQ8},   {2, 80, 300, 8, kv::Codec::kQ8},
                        {1, 6, 70, 3, kv::Codec::kQ8}};
  Rng rng(1);
  for (const Case& c : cases) {
    const TestHead head = TestHead::Random(rng, c.head_dim, c.codec, c.rows);
    const auto q = Queries(rng, c, 2.0f);
    const auto expected = Mass(RefBackend(), c, q, head.view());
    test::ForEachTarget([&] {
      SCOPED_TRACE(testing::Message()
                   << c.group << " heads of " << c.head_dim << ", " << c.rows << " rows");
      EXPECT_LE(Nmse(expected, Mass(CpuBackend(), c, q, head.view())), 1e-12);
    });
  }
}

TEST(WindowMass, CountsTheWindowInTheDenominator) {
  // All keys zero: token i spreads 1 / (first + i + 1) on each of its rows.
  const Case c{2, 64, 12, 2, kv::Codec::kF16};
  const TestHead head(64, c.codec, c.rows);
  Rng rng(2);
  const auto q = Queries(rng, c, 1.0f);
  for (const Backend* backend : {&RefBackend(), &CpuBackend()}) {
    for (const float mass : Mass(*backend, c, q, head.view())) {
      EXPECT_FLOAT_EQ(mass, 2.0f * (1.0f / 11.0f + 1.0f / 12.0f));
    }
  }
}

TEST(WindowMass, SurvivesHugeScores) {
  Rng rng(3);
  const Case c{2, 64, 400, 8, kv::Codec::kF32};
  const TestHead head = TestHead::Random(rng, 64, c.codec, c.rows, 300.0f);
  const auto q = Queries(rng, c, 40.0f);
  const auto expected = Mass(RefBackend(), c, q, head.view());
  test::ForEachTarget([&] {
    // Scores of 1e4 carry an f32 rounding error of 1e-3.
    EXPECT_LE(Nmse(expected, Mass(CpuBackend(), c, q, head.view())), 1e-5);
  });
}

}  // namespace
}  // namespace rkv::attention
