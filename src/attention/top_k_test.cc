#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "attention/backend.h"
#include "attention/cpu/targets.h"
#include "support/hwy_targets.h"
#include "support/random.h"

namespace rkv::attention {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<std::int32_t> Best(const Backend& backend, const std::vector<float>& scores,
                               std::int32_t k) {
  Scratch scratch;
  // Exactly as long as promised, so that AddressSanitizer sees a longer write.
  std::vector<std::int32_t> out(std::min(scores.size(), static_cast<std::size_t>(std::max(k, 0))),
                                -1);
  EXPECT_EQ(backend.top_k(scores, k, out.data(), scratch), static_cast<std::int32_t>(out.size()));
  return out;
}

TEST(TopK, EqualsThePlainKernelOnRandomScores) {
  Rng rng(1);
  for (int i = 0; i < 300; ++i) {
    const auto n = static_cast<std::size_t>(test::IntBetween(rng, 0, i < 250 ? 70 : 1500));
    std::vector<float> scores = i % 3 == 0   ? test::TiedVector(rng, n, 5)
                                : i % 3 == 1 ? test::NormalVector(rng, n)
                                             : test::UniformVector(rng, n);
    for (float& score : scores) {
      const std::uint64_t kind = i % 2 == 0 ? rng.Below(20) : 99;
      const float special[] = {kNan, kInfinity, -kInfinity, -0.0f, 0.0f, -kNan, 1e-42f, -1e-42f};
      score = kind < std::size(special) ? special[kind] : score;
    }
    const std::int32_t k = test::IntBetween(rng, 0, static_cast<std::int32_t>(n) + 2);
    const auto expected = Best(RefBackend(), scores, k);
    test::ForEachTarget(
        [&] { EXPECT_EQ(expected, Best(CpuBackend(), scores, k)) << k << " of " << n; });
  }
}

TEST(TopK, BreaksTiesByLowerIndex) {
  for (const Backend* backend : {&RefBackend(), &CpuBackend()}) {
    test::ForEachTarget([&] {
      EXPECT_THAT(Best(*backend, {1, 3, 3, 2, 3, 3}, 3), ElementsAre(1, 2, 4));
      EXPECT_THAT(Best(*backend, std::vector<float>(100, 7.0f), 4), ElementsAre(0, 1, 2, 3));
    });
  }
}

TEST(TopK, OrdersSpecialNumbers) {
  for (const Backend* backend : {&RefBackend(), &CpuBackend()}) {
    test::ForEachTarget([&] {
      EXPECT_THAT(Best(*backend, {kNan, 1, -kInfinity, kInfinity}, 3), ElementsAre(1, 2, 3));
      EXPECT_THAT(Best(*backend, {-kNan, kNan, kNan}, 2), ElementsAre(0, 1));
      EXPECT_THAT(Best(*backend, {-1, kNan, 2, kNan}, 3), ElementsAre(0, 1, 2));
      // The two zeros are equal: the lower index wins, whatever its sign.
      EXPECT_THAT(Best(*backend, {-1, -0.0f, 0.0f}, 1), ElementsAre(1));
      EXPECT_THAT(Best(*backend, {-1, 0.0f, -0.0f}, 1), ElementsAre(1));
    });
  }
}

TEST(TopK, GivesEverythingOrNothing) {
  for (const Backend* backend : {&RefBackend(), &CpuBackend()}) {
    EXPECT_THAT(Best(*backend, {5, kNan, 6}, 9), ElementsAre(0, 1, 2));
    EXPECT_THAT(Best(*backend, {5, 6}, 0), IsEmpty());
    EXPECT_THAT(Best(*backend, {5, 6}, -1), IsEmpty());
    EXPECT_THAT(Best(*backend, {}, 3), IsEmpty());
  }
}

TEST(TopK, GroupOfE1) {
  // Policy specification, vector E1: sums of the two heads' softmaxes and of the HSA estimate.
  for (const Backend* backend : {&RefBackend(), &CpuBackend()}) {
    EXPECT_THAT(Best(*backend, {.5485f, .0568f, .2114f, .5759f, .0339f, .5736f}, 3),
                ElementsAre(0, 3, 5));
    EXPECT_THAT(Best(*backend, {.2212f, .2212f, .5780f, .5780f, .2008f, .2008f}, 3),
                ElementsAre(0, 2, 3));
    EXPECT_THAT(Best(*backend, {.2212f, .2212f, .5780f, .5780f, .2008f, .2008f}, 4),
                ElementsAre(0, 1, 2, 3));
  }
}

}  // namespace
}  // namespace rkv::attention
