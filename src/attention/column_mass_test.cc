#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "attention/backend.h"
#include "attention/cpu/targets.h"
#include "support/hwy_targets.h"
#include "support/random.h"
#include "support/test_head.h"

namespace rkv::attention {
namespace {

using test::ForEachTarget;
using test::Nmse;
using test::TestHead;

constexpr std::int32_t kHugeBand = std::numeric_limits<std::int32_t>::max();

struct Case {
  std::int32_t group;
  std::int32_t head_dim;
  std::int32_t first_row;
  std::int32_t tokens;
  std::int32_t band;
  kv::Codec codec;
};

std::size_t Stride(const Case& c) { return static_cast<std::size_t>(c.group * c.head_dim) + 3; }

// Queries of all rows up to the tile's last, so that a prompt can be cut.
std::vector<float> Queries(Rng& rng, const Case& c, float scale = 2.0f) {
  return test::NormalVector(rng, static_cast<std::size_t>(c.first_row + c.tokens) * Stride(c),
                            scale);
}

struct Mass {
  std::vector<float> all;
  std::vector<float> near;
};

// Behind the sums stands a number that no kernel may touch.
Mass MassOf(const Backend& backend, const Case& c, const std::vector<float>& q,
            const kv::HeadView& head, bool with_near = true) {
  Scratch scratch;
  const auto rows = static_cast<std::size_t>(c.first_row + c.tokens);
  Mass mass{std::vector<float>(rows + 1, 99.0f), std::vector<float>(rows + 1, 99.0f)};
  const PrefillTile tile{.q = q.data() + static_cast<std::size_t>(c.first_row) * Stride(c),
                         .q_stride = Stride(c),
                         .tokens = c.tokens,
                         .group = c.group,
                         .first_row = c.first_row,
                         .scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim))};
  backend.column_mass(tile, head, c.band, mass.all.data(), with_near ? mass.near.data() : nullptr,
                      scratch);
  EXPECT_EQ(mass.all.back(), 99.0f);
  EXPECT_EQ(mass.near.back(), 99.0f);
  mass.all.pop_back();
  mass.near.pop_back();
  return mass;
}

double Sum(const std::vector<float>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), 0.0);
}

// What holds for any input.
void ExpectConsistent(const Case& c, const Mass& mass) {
  const double rows = c.tokens * c.group;
  EXPECT_NEAR(Sum(mass.all), rows, 1e-5 * rows);
  for (std::size_t j = 0; j < mass.all.size(); ++j) {
    ASSERT_GE(mass.near[j], 0.0f) << j;
    // The same weights, but summed in another order.
    ASSERT_LE(mass.near[j], mass.all[j] * (1.0f + 1e-5f)) << j;
  }
}

// A score of 10 carries an f32 rounding error of 1e-6, and its weight the same.
void ExpectSameMass(const Mass& expected, const Mass& actual) {
  EXPECT_LE(Nmse(expected.all, actual.all), 1e-11);
  EXPECT_LE(Nmse(expected.near, actual.near), 1e-11);
}

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.group << " heads of " << c.head_dim << " in " << kv::CodecName(c.codec) << ", "
       << c.tokens << " tokens from row " << c.first_row << ", band " << c.band;
}

void ExpectEqualsThePlainKernel(Rng& rng, const Case& c) {
  const TestHead head = TestHead::Random(rng, c.head_dim, c.codec, c.first_row + c.tokens);
  const auto q = Queries(rng, c);
  const Mass expected = MassOf(RefBackend(), c, q, head.view());
  ForEachTarget([&] {
    SCOPED_TRACE(testing::PrintToString(c));
    const Mass actual = MassOf(CpuBackend(), c, q, head.view());
    ExpectSameMass(expected, actual);
    ExpectConsistent(c, actual);
    const Mass without = MassOf(CpuBackend(), c, q, head.view(), false);
    EXPECT_EQ(without.all, actual.all);
    EXPECT_EQ(without.near, std::vector<float>(actual.near.size(), 99.0f));
  });
}

TEST(ColumnMass, EqualsThePlainKernel) {
  // Rows round the key tiles of 256, query rows round the blocks of 6 and 12, bands round both.
  const Case cases[] = {
      {1, 64, 0, 1, 1, kv::Codec::kF16},       {3, 64, 0, 300, 40, kv::Codec::kF16},
      {7, 64, 250, 45, 300, kv::Codec::kBf16}, {4, 128, 255, 1, 200, kv::Codec::kF32},
      {4, 128, 254, 2, 2, kv::Codec::kQ8},     {2, 80, 255, 2, 256, kv::Codec::kF16},
      {8, 96, 500, 13, 257, kv::Codec::kF16},  {5, 256, 120, 9, 17, kv::Codec::kBf16},
      {6, 64, 511, 3, 1, kv::Codec::kQ8},      {1, 2, 0, 530, 100, kv::Codec::kF32},
      {2, 6, 70, 35, 0, kv::Codec::kQ8},       {3, 72, 200, 60, kHugeBand, kv::Codec::kF16},
      {2, 80, 0, 257, 31, kv::Codec::kQ8}};
  Rng rng(1);
  for (const Case& c : cases) {
    ExpectEqualsThePlainKernel(rng, c);
  }
}

TEST(ColumnMass, EqualsThePlainKernelOnRandomShapes) {
  constexpr kv::Codec kCodecs[] = {kv::Codec::kF16, kv::Codec::kBf16, kv::Codec::kF32,
                                   kv::Codec::kQ8};
  constexpr std::int32_t kWidths[] = {64, 80, 96, 128, 6, 2};
  Rng rng(2);
  for (std::size_t i = 0; i < 48; ++i) {
    const std::int32_t first_row = i % 3 == 0 ? 0 : test::IntBetween(rng, 1, 300);
    ExpectEqualsThePlainKernel(
        rng, {static_cast<std::int32_t>(i % 8) + 1, kWidths[i / 8], first_row,
              test::IntBetween(rng, 1, 40), test::IntBetween(rng, 0, 300), kCodecs[i % 4]});
  }
}

TEST(ColumnMass, CountsNothingNearABandOfNoneAndAllOfAHugeOne) {
  Rng rng(3);
  const Case none{3, 64, 100, 50, 0, kv::Codec::kF16};
  Case huge = none;
  huge.band = kHugeBand;
  const TestHead head = TestHead::Random(rng, 64, none.codec, 150);
  const auto q = Queries(rng, none);
  for (const Backend* backend : {&RefBackend(), &CpuBackend()}) {
    ForEachTarget([&] {
      EXPECT_EQ(MassOf(*backend, none, q, head.view()).near, std::vector<float>(150, 0.0f));
      const Mass mass = MassOf(*backend, huge, q, head.view());
      EXPECT_EQ(mass.near, mass.all);
    });
  }
}

TEST(ColumnMass, CountsATokensOwnRowInABandOfOne) {
  Rng rng(4);
  const Case c{2, 64, 30, 40, 1, kv::Codec::kF32};
  const TestHead head = TestHead::Random(rng, 64, c.codec, 70);
  const auto q = Queries(rng, c);
  for (const Backend* backend : {&RefBackend(), &CpuBackend()}) {
    ForEachTarget([&] {
      const Mass mass = MassOf(*backend, c, q, head.view());
      for (std::size_t j = 0; j < 30; ++j) {
        EXPECT_EQ(mass.near[j], 0.0f);
      }
      // The last row is seen by its own token only.
      EXPECT_EQ(mass.near[69], mass.all[69]);
      EXPECT_GT(mass.near[30], 0.0f);
    });
  }
}

TEST(ColumnMass, SpreadsEquallyOverKeysOfZero) {
  // Token i spreads 1 / (i + 1) on rows [0, i]; two heads do alike.
  const Case c{2, 64, 0, 4, 2, kv::Codec::kF16};
  const TestHead head(64, c.codec, 4);
  Rng rng(5);
  const auto q = Queries(rng, c);
  const float all[] = {25.0f / 12, 13.0f / 12, 7.0f / 12, 1.0f / 4};
  const float near[] = {3.0f / 2, 5.0f / 6, 7.0f / 12, 1.0f / 4};
  for (const Backend* backend : {&RefBackend(), &CpuBackend()}) {
    ForEachTarget([&] {
      const Mass mass = MassOf(*backend, c, q, head.view());
      for (std::size_t j = 0; j < 4; ++j) {
        EXPECT_NEAR(mass.all[j], 2.0f * all[j], 1e-6f) << j;
        EXPECT_NEAR(mass.near[j], 2.0f * near[j], 1e-6f) << j;
      }
    });
  }
}

TEST(ColumnMass, WeighsScoresWorkedOutByHand) {
  // Scores 0, ln 2 and ln 5 on rows 0, 1 and 2; the tile's tokens are rows 1 and 2.
  const Case c{1, 2, 1, 2, 2, kv::Codec::kF32};
  TestHead head(2, c.codec, 3);
  const std::vector<float> zero(2, 0.0f);
  for (std::int32_t row = 0; row < 3; ++row) {
    const float scores[] = {0.0f, std::log(2.0f), std::log(5.0f)};
    head.SetRow(row, std::vector<float>{scores[row], 7.0f}, zero);
  }
  std::vector<float> q(3 * Stride(c), 0.0f);
  for (std::size_t token = 0; token < 3; ++token) {
    q[token * Stride(c)] = std::sqrt(2.0f);  // undoes the scale
  }
  const float all[] = {1.0f / 3 + 1.0f / 8, 2.0f / 3 + 2.0f / 8, 5.0f / 8};
  const float near[] = {1.0f / 3, 2.0f / 3 + 2.0f / 8, 5.0f / 8};
  for (const Backend* backend : {&RefBackend(), &CpuBackend()}) {
    ForEachTarget([&] {
      const Mass mass = MassOf(*backend, c, q, head.view());
      for (std::size_t j = 0; j < 3; ++j) {
        EXPECT_NEAR(mass.all[j], all[j], 1e-6f) << j;
        EXPECT_NEAR(mass.near[j], near[j], 1e-6f) << j;
      }
    });
  }
}

TEST(ColumnMass, AddsUpOverTheTilesOfAPrompt) {
  Rng rng(6);
  const Case whole{3, 64, 0, 600, 90, kv::Codec::kF16};
  const TestHead head = TestHead::Random(rng, 64, whole.codec, 600);
  const auto q = Queries(rng, whole);
  ForEachTarget([&] {
    const Mass expected = MassOf(CpuBackend(), whole, q, head.view());
    Mass sum{std::vector<float>(600, 0.0f), std::vector<float>(600, 0.0f)};
    const std::int32_t cuts[] = {0, 1, 130, 256, 500, 600};
    for (std::size_t i = 0; i + 1 < std::size(cuts); ++i) {
      Case tile = whole;
      tile.first_row = cuts[i];
      tile.tokens = cuts[i + 1] - cuts[i];
      // The head holds later rows already, which no token of the tile sees.
      const Mass part = MassOf(CpuBackend(), tile, q, head.view());
      for (std::size_t j = 0; j < part.all.size(); ++j) {
        sum.all[j] += part.all[j];
        sum.near[j] += part.near[j];
      }
    }
    ExpectSameMass(expected, sum);
  });
}

TEST(ColumnMass, WritesZerosForNoTokens) {
  const Case c{2, 64, 20, 0, 5, kv::Codec::kF16};
  const TestHead head(64, c.codec, 20);
  const std::vector<float> q(20 * Stride(c), 1.0f);
  for (const Backend* backend : {&RefBackend(), &CpuBackend()}) {
    const Mass mass = MassOf(*backend, c, q, head.view());
    EXPECT_EQ(mass.all, std::vector<float>(20, 0.0f));
    EXPECT_EQ(mass.near, std::vector<float>(20, 0.0f));
  }
}

TEST(ColumnMass, SurvivesHugeScores) {
  Rng rng(7);
  const Case c{2, 64, 300, 100, 50, kv::Codec::kF32};
  const TestHead head = TestHead::Random(rng, 64, c.codec, 400, 300.0f);
  const auto q = Queries(rng, c, 40.0f);
  const Mass expected = MassOf(RefBackend(), c, q, head.view());
  ForEachTarget([&] {
    // Scores of 1e4 carry an f32 rounding error of 1e-3.
    const Mass actual = MassOf(CpuBackend(), c, q, head.view());
    EXPECT_LE(Nmse(expected.all, actual.all), 1e-5);
    EXPECT_LE(Nmse(expected.near, actual.near), 1e-5);
  });
}

}  // namespace
}  // namespace rkv::attention
