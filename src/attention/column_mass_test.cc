#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "attention/backend.h"
#include "attention/cpu/mass_columns.h"
#include "attention/cpu/prefill_int16.h"
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

using Kernel = decltype(Backend::column_mass);

// One of the kernels behind CpuBackend, in the form of a Backend's.
template <void (*kMass)(const PrefillTile&, const kv::HeadView&, const cpu::MassColumns&, Scratch&)>
void Direct(const PrefillTile& tile, const kv::HeadView& head, std::int32_t band, float* all,
            float* near, Scratch& scratch) {
  kMass(tile, head, {static_cast<std::size_t>(tile.first_row + tile.tokens), band, all, near},
        scratch);
}

void ByBackend(const PrefillTile& tile, const kv::HeadView& head, std::int32_t band, float* all,
               float* near, Scratch& scratch) {
  CpuBackend().column_mass(tile, head, band, all, near, scratch);
}

struct Variant {
  const char* name;
  Kernel kernel;
  bool (*runs)(std::int32_t head_dim);
  double nmse;   // of ordinary input: twice what was measured, at least
  double sharp;  // of scores of a size of about 100: rounding of a score moves a weight
};

constexpr Variant kVariants[] = {
    {"panels", Direct<cpu::MassByPanels>, [](std::int32_t) { return true; }, 1e-11, 1e-8},
    // Scores to 1e-5 of the product of the lengths.
    {"int16", Direct<cpu::MassByInt16>, cpu::HasInt16Prefill, 2e-7, 5e-6},
    // One of the above.
    {"cpu", ByBackend, [](std::int32_t) { return true; }, 2e-7, 5e-6}};

// Behind the sums stands a number that no kernel may touch.
Mass MassOf(Kernel kernel, const Case& c, const std::vector<float>& q, const kv::HeadView& head,
            bool with_near = true) {
  Scratch scratch;
  const auto rows = static_cast<std::size_t>(c.first_row) + static_cast<std::size_t>(c.tokens);
  Mass mass{std::vector<float>(rows + 1, 99.0f), std::vector<float>(rows + 1, 99.0f)};
  const PrefillTile tile{.q = q.data() + static_cast<std::size_t>(c.first_row) * Stride(c),
                         .q_stride = Stride(c),
                         .tokens = c.tokens,
                         .group = c.group,
                         .first_row = c.first_row,
                         .scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim))};
  kernel(tile, head, c.band, mass.all.data(), with_near ? mass.near.data() : nullptr, scratch);
  EXPECT_EQ(mass.all.back(), 99.0f);
  EXPECT_EQ(mass.near.back(), 99.0f);
  mass.all.pop_back();
  mass.near.pop_back();
  return mass;
}

double Sum(const std::vector<float>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), 0.0);
}

// What holds for any input; `slack`: relative error of a weight by rounding.
void ExpectConsistent(const Case& c, const Mass& mass, double slack = 1e-5) {
  const double rows = c.tokens * c.group;
  EXPECT_NEAR(Sum(mass.all), rows, slack * rows);
  for (std::size_t j = 0; j < mass.all.size(); ++j) {
    ASSERT_GE(mass.near[j], 0.0f) << j;
    // The same weights, but summed in another order.
    ASSERT_LE(mass.near[j], mass.all[j] * (1.0f + 1e-5f)) << j;
  }
}

void ExpectSameMass(const Mass& expected, const Mass& actual, double nmse) {
  EXPECT_LE(Nmse(expected.all, actual.all), nmse);
  EXPECT_LE(Nmse(expected.near, actual.near), nmse);
}

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.group << " heads of " << c.head_dim << " in " << kv::CodecName(c.codec) << ", "
       << c.tokens << " tokens from row " << c.first_row << ", band " << c.band;
}

void ExpectVariantEquals(const Variant& variant, const Mass& expected, const Case& c,
                         const std::vector<float>& q, const kv::HeadView& head) {
  SCOPED_TRACE(testing::Message() << variant.name << ": " << testing::PrintToString(c));
  const Mass actual = MassOf(variant.kernel, c, q, head);
  ExpectSameMass(expected, actual, variant.nmse);
  ExpectConsistent(c, actual);
  const Mass without = MassOf(variant.kernel, c, q, head, false);
  EXPECT_EQ(without.all, actual.all);
  EXPECT_EQ(without.near, std::vector<float>(actual.near.size(), 99.0f));
}

void ExpectEqualsThePlainKernel(Rng& rng, const Case& c) {
  const TestHead head = TestHead::Random(rng, c.head_dim, c.codec, c.first_row + c.tokens);
  const auto q = Queries(rng, c);
  const Mass expected = MassOf(RefBackend().column_mass, c, q, head.view());
  ForEachTarget([&] {
    for (const Variant& variant : kVariants) {
      if (variant.runs(c.head_dim)) {
        ExpectVariantEquals(variant, expected, c, q, head.view());
      }
    }
  });
}

// body(kernel) for the plain kernel and all others on every instruction set.
template <class Body>
void ForEachKernel(std::int32_t head_dim, const Body& body) {
  body(RefBackend().column_mass);
  ForEachTarget([&] {
    for (const Variant& variant : kVariants) {
      if (variant.runs(head_dim)) {
        SCOPED_TRACE(variant.name);
        body(variant.kernel);
      }
    }
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
  ForEachKernel(64, [&](Kernel kernel) {
    EXPECT_EQ(MassOf(kernel, none, q, head.view()).near, std::vector<float>(150, 0.0f));
    const Mass mass = MassOf(kernel, huge, q, head.view());
    EXPECT_EQ(mass.near, mass.all);
  });
}

TEST(ColumnMass, CountsATokensOwnRowInABandOfOne) {
  Rng rng(4);
  const Case c{2, 64, 30, 40, 1, kv::Codec::kF32};
  const TestHead head = TestHead::Random(rng, 64, c.codec, 70);
  const auto q = Queries(rng, c);
  ForEachKernel(64, [&](Kernel kernel) {
    const Mass mass = MassOf(kernel, c, q, head.view());
    for (std::size_t j = 0; j < 30; ++j) {
      EXPECT_EQ(mass.near[j], 0.0f);
    }
    // The last row is seen by its own token only.
    EXPECT_EQ(mass.near[69], mass.all[69]);
    EXPECT_GT(mass.near[30], 0.0f);
  });
}

TEST(ColumnMass, SpreadsEquallyOverKeysOfZero) {
  // Token i spreads 1 / (i + 1) on rows [0, i]; two heads do alike.
  const Case c{2, 64, 0, 4, 2, kv::Codec::kF16};
  const TestHead head(64, c.codec, 4);
  Rng rng(5);
  const auto q = Queries(rng, c);
  const float all[] = {25.0f / 12, 13.0f / 12, 7.0f / 12, 1.0f / 4};
  const float near[] = {3.0f / 2, 5.0f / 6, 7.0f / 12, 1.0f / 4};
  ForEachKernel(64, [&](Kernel kernel) {
    const Mass mass = MassOf(kernel, c, q, head.view());
    for (std::size_t j = 0; j < 4; ++j) {
      EXPECT_NEAR(mass.all[j], 2.0f * all[j], 2e-5f * all[j]) << j;
      EXPECT_NEAR(mass.near[j], 2.0f * near[j], 2e-5f * near[j]) << j;
    }
  });
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
  ForEachKernel(2, [&](Kernel kernel) {
    const Mass mass = MassOf(kernel, c, q, head.view());
    for (std::size_t j = 0; j < 3; ++j) {
      EXPECT_NEAR(mass.all[j], all[j], 1e-5f * all[j]) << j;
      EXPECT_NEAR(mass.near[j], near[j], 1e-5f * near[j]) << j;
    }
  });
}

TEST(ColumnMass, AddsUpOverTheTilesOfAPrompt) {
  Rng rng(6);
  const Case whole{3, 64, 0, 600, 90, kv::Codec::kF16};
  const TestHead head = TestHead::Random(rng, 64, whole.codec, 600);
  const auto q = Queries(rng, whole);
  ForEachKernel(64, [&](Kernel kernel) {
    const Mass expected = MassOf(kernel, whole, q, head.view());
    Mass sum{std::vector<float>(600, 0.0f), std::vector<float>(600, 0.0f)};
    const std::int32_t cuts[] = {0, 1, 130, 256, 500, 600};
    for (std::size_t i = 0; i + 1 < std::size(cuts); ++i) {
      Case tile = whole;
      tile.first_row = cuts[i];
      tile.tokens = cuts[i + 1] - cuts[i];
      // The head holds later rows already, which no token of the tile sees.
      const Mass part = MassOf(kernel, tile, q, head.view());
      for (std::size_t j = 0; j < part.all.size(); ++j) {
        sum.all[j] += part.all[j];
        sum.near[j] += part.near[j];
      }
    }
    ExpectSameMass(expected, sum, 1e-12);
  });
}

TEST(ColumnMass, WritesZerosForNoTokens) {
  const Case c{2, 64, 20, 0, 5, kv::Codec::kF16};
  const TestHead head(64, c.codec, 20);
  const std::vector<float> q(20 * Stride(c), 1.0f);
  for (const Kernel kernel : {RefBackend().column_mass, CpuBackend().column_mass}) {
    const Mass mass = MassOf(kernel, c, q, head.view());
    EXPECT_EQ(mass.all, std::vector<float>(20, 0.0f));
    EXPECT_EQ(mass.near, std::vector<float>(20, 0.0f));
  }
}

TEST(ColumnMass, HoldsForSharpAndFlatScores) {
  Rng rng(7);
  const Case c{2, 64, 300, 100, 50, kv::Codec::kF16};
  const auto q = Queries(rng, c, 5.0f);
  for (const float key_scale : {0.0f, 5.0f}) {  // scores of 0, of about +-80
    const TestHead head = TestHead::Random(rng, 64, c.codec, 400, key_scale);
    const Mass expected = MassOf(RefBackend().column_mass, c, q, head.view());
    ForEachTarget([&] {
      for (const Variant& variant : kVariants) {
        if (variant.runs(64)) {
          SCOPED_TRACE(testing::Message() << variant.name << ", keys of " << key_scale);
          ExpectSameMass(expected, MassOf(variant.kernel, c, q, head.view()), variant.sharp);
        }
      }
    });
  }
}

TEST(ColumnMass, SurvivesHugeScores) {
  Rng rng(8);
  const Case c{2, 64, 300, 100, 50, kv::Codec::kF32};
  const TestHead head = TestHead::Random(rng, 64, c.codec, 400, 300.0f);
  const auto q = Queries(rng, c, 40.0f);
  // Scores of 1e4 carry a rounding error of 1e-3.
  ForEachKernel(
      64, [&](Kernel kernel) { ExpectConsistent(c, MassOf(kernel, c, q, head.view()), 1e-3); });
  const Mass expected = MassOf(RefBackend().column_mass, c, q, head.view());
  ForEachTarget([&] {
    // Rows in f32 are multiplied in f32.
    ExpectSameMass(expected, MassOf(CpuBackend().column_mass, c, q, head.view()), 1e-5);
  });
}

}  // namespace
}  // namespace rkv::attention
