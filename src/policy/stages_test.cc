#include "policy/stages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "support/random.h"

namespace rkv::policy {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using List = std::vector<std::int32_t>;

List Expand(const std::vector<float>& u, std::int32_t chunk_rows, std::int32_t rows,
            std::int32_t k) {
  Scratch scratch;
  List out = {99};  // must be cleared
  ExpandChunks(attention::RefBackend(), u, chunk_rows, rows, k, out, scratch);
  return out;
}

// Step 7 as it is written: every row has its chunk's score; higher score, then lower row.
List BestRows(const std::vector<float>& u, std::int32_t chunk_rows, std::int32_t rows,
              std::int32_t k) {
  List order(static_cast<std::size_t>(rows));
  std::iota(order.begin(), order.end(), 0);
  const auto score = [&](std::int32_t row) {
    const float x = u[static_cast<std::size_t>(row / chunk_rows)];
    return std::isnan(x) ? -INFINITY : x;
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int32_t a, std::int32_t b) { return score(a) > score(b); });
  order.resize(static_cast<std::size_t>(std::min(k, rows)));
  std::sort(order.begin(), order.end());
  return order;
}

// Steps 4 and 5 as they are written, with plain loops.
List SnapKvByDefinition(const std::vector<float>& mass, std::int32_t window, std::int32_t kernel,
                        std::int32_t prompt_budget) {
  const auto n = static_cast<std::int32_t>(mass.size());
  std::vector<float> pooled;
  for (std::int32_t j = 0; j < n; ++j) {
    const auto first = mass.begin() + std::max(0, j - kernel / 2);
    const auto last = mass.begin() + std::min(n, j + kernel / 2 + 1);
    pooled.push_back(*std::max_element(first, last));
  }
  List order(mass.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    const auto i = static_cast<std::size_t>(a);
    const auto j = static_cast<std::size_t>(b);
    return pooled[i] != pooled[j] ? pooled[i] > pooled[j] : mass[i] > mass[j];
  });
  order.resize(static_cast<std::size_t>(std::clamp(prompt_budget - window, 0, n)));
  std::sort(order.begin(), order.end());
  for (std::int32_t i = 0; i < window; ++i) {
    order.push_back(n + i);
  }
  return order;
}

// Vector E2 of the specification.
const std::vector<float> kPoolingExample = {.30f, .02f, .05f, .01f, .40f, .03f, .02f, .04f};

TEST(SnapKvRows, KeepsTheNeighboursOfHeavyRows) {
  EXPECT_THAT(SnapKvRows(kPoolingExample, 2, 3, 5), ElementsAre(3, 4, 5, 8, 9));
}

TEST(SnapKvRows, BreaksPoolingTiesByUnpooledMassThenIndex) {
  EXPECT_THAT(SnapKvRows(kPoolingExample, 0, 3, 4), ElementsAre(0, 3, 4, 5));
  EXPECT_THAT(SnapKvRows(std::vector<float>(6, 0.5f), 1, 3, 4), ElementsAre(0, 1, 2, 6));
}

TEST(SnapKvRows, AWideBudgetKeepsAll) {
  for (const std::int32_t budget : {10, 11, 1000}) {
    EXPECT_EQ(SnapKvRows(kPoolingExample, 2, 63, budget).size(), 10u);
  }
  EXPECT_THAT(SnapKvRows({}, 3, 63, 100), ElementsAre(0, 1, 2));
  EXPECT_THAT(SnapKvRows({}, 0, 63, 100), IsEmpty());
}

TEST(SnapKvRows, ABudgetUpToTheWindowKeepsTheWindow) {
  EXPECT_THAT(SnapKvRows(kPoolingExample, 2, 3, 2), ElementsAre(8, 9));
  EXPECT_THAT(SnapKvRows(kPoolingExample, 2, 3, 0), ElementsAre(8, 9));
  EXPECT_THAT(SnapKvRows(kPoolingExample, 2, 3, 3), ElementsAre(4, 8, 9));
}

TEST(SnapKvRows, FollowsTheDefinitionOnRandomMass) {
  Rng rng(41);
  for (int i = 0; i < 600; ++i) {
    const auto n = static_cast<std::size_t>(test::IntBetween(rng, 0, 200));
    const std::int32_t window = test::IntBetween(rng, 0, 40);
    const std::int32_t kernel = 2 * test::IntBetween(rng, 0, 40) + 1;
    const std::int32_t budget = test::IntBetween(rng, 0, 260);
    const std::vector<float> mass =
        i % 2 == 0 ? test::UniformVector(rng, n) : test::TiedVector(rng, n, 4);
    const List rows = SnapKvRows(mass, window, kernel, budget);
    ASSERT_EQ(rows, SnapKvByDefinition(mass, window, kernel, budget));
    const auto total = static_cast<std::int32_t>(n) + window;
    ASSERT_EQ(static_cast<std::int32_t>(rows.size()), std::min(total, std::max(budget, window)));
  }
}

TEST(SnapKvRows, LargerBudgetsContainSmallerOnes) {
  Rng rng(42);
  const std::vector<float> mass = test::TiedVector(rng, 150, 10);
  List before = SnapKvRows(mass, 8, 7, 8);
  for (std::int32_t budget = 9; budget <= 158; ++budget) {
    const List rows = SnapKvRows(mass, 8, 7, budget);
    ASSERT_TRUE(std::includes(rows.begin(), rows.end(), before.begin(), before.end()));
    before = rows;
  }
}

TEST(SnapKvRows, NanMassSortsLast) {
  std::vector<float> mass = kPoolingExample;
  mass[7] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(SnapKvRows(mass, 0, 1, 2), ElementsAre(0, 4));
}

// Vector E1 of the specification: u per chunk for chunks of 2.
const std::vector<float> kChunkExample = {.2212f, .5780f, .2008f};

TEST(ExpandChunks, TakesWholeChunksThenTheFirstRowsOfTheNext) {
  EXPECT_THAT(Expand(kChunkExample, 2, 6, 3), ElementsAre(0, 2, 3));
  EXPECT_THAT(Expand(kChunkExample, 2, 6, 4), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(Expand(kChunkExample, 2, 6, 0), IsEmpty());
  EXPECT_THAT(Expand({}, 2, 0, 5), IsEmpty());
}

TEST(ExpandChunks, AShortLastChunkMakesRoomForMore) {
  // Rows: chunk 0 {0..3}, chunk 1 {4..7}, chunk 2 {8}. The best chunk has one row only.
  EXPECT_THAT(Expand({1, 2, 3}, 4, 9, 4), ElementsAre(4, 5, 6, 8));
  EXPECT_THAT(Expand({1, 2, 3}, 4, 9, 6), ElementsAre(0, 4, 5, 6, 7, 8));
  EXPECT_THAT(Expand({1, 2, 3}, 4, 9, 1), ElementsAre(8));
}

TEST(ExpandChunks, EqualsTheTokenLevelDefinition) {
  Rng rng(43);
  for (int i = 0; i < 1500; ++i) {
    const std::int32_t chunk_rows = test::IntBetween(rng, 1, 9);
    const std::int32_t rows = test::IntBetween(rng, 0, 120);
    const auto chunks = static_cast<std::size_t>((rows + chunk_rows - 1) / chunk_rows);
    std::vector<float> u =
        i % 2 == 0 ? test::UniformVector(rng, chunks) : test::TiedVector(rng, chunks, 3);
    if (i % 5 == 0) {
      for (float& x : u) {
        x = rng.Below(3) == 0 ? std::numeric_limits<float>::quiet_NaN() : x;
      }
    }
    for (const std::int32_t k : {0, 1, chunk_rows - 1, chunk_rows, chunk_rows + 1, rows - 1, rows,
                                 rows + 1, test::IntBetween(rng, 0, rows)}) {
      if (k >= 0) {
        ASSERT_EQ(Expand(u, chunk_rows, rows, k), BestRows(u, chunk_rows, rows, k))
            << "chunk " << chunk_rows << ", rows " << rows << ", k " << k;
      }
    }
  }
}

TEST(ExpandChunks, LargerKContainsSmallerK) {
  Rng rng(44);
  const std::vector<float> u = test::TiedVector(rng, 30, 7);
  List before;
  for (std::int32_t k = 0; k <= 89; ++k) {
    const List rows = Expand(u, 3, 88, k);
    ASSERT_TRUE(std::includes(rows.begin(), rows.end(), before.begin(), before.end()));
    before = rows;
  }
}

}  // namespace
}  // namespace rkv::policy
