#include "kv/head_store.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "support/memory_limit.h"
#include "support/random.h"

namespace rkv::kv {
namespace {

constexpr std::int32_t kDim = 16;
constexpr std::int32_t kBoundaries[] = {0,
                                        1,
                                        kBlockRows - 1,
                                        kBlockRows,
                                        kBlockRows + 1,
                                        2 * kBlockRows - 1,
                                        2 * kBlockRows,
                                        2 * kBlockRows + 1};

// What a store should hold, as plain vectors.
struct ModelRow {
  std::int32_t position;
  std::vector<float> key;
  std::vector<float> value;
};
using Model = std::vector<ModelRow>;

// Whole numbers up to 127 are exact in every codec, of kQ8 in rows whose greatest is 127.
std::vector<float> ExactRow(Rng& rng) {
  std::vector<float> row(kDim);
  for (float& x : row) {
    x = static_cast<float>(test::IntBetween(rng, -127, 127));
  }
  row[rng.Below(row.size())] = 127;
  return row;
}

void Extend(Rng& rng, std::int32_t count, std::int32_t first_position, HeadStore& store,
            Model& model) {
  const Result<std::int32_t> first = store.Extend(count, first_position);
  ASSERT_TRUE(first);
  ASSERT_EQ(*first, static_cast<std::int32_t>(model.size()));
  for (std::int32_t i = 0; i < count; ++i) {
    model.push_back({first_position + i, ExactRow(rng), ExactRow(rng)});
    store.WriteRow(*first + i, model.back().key, model.back().value);
  }
}

void ExpectEqual(const HeadStore& store, const Model& model) {
  const HeadView view = store.view();
  ASSERT_EQ(view.rows, static_cast<std::int32_t>(model.size()));
  ASSERT_EQ(store.rows(), view.rows);
  std::vector<float> row(kDim);
  for (std::int32_t r = 0; r < view.rows; ++r) {
    const ModelRow& expected = model[static_cast<std::size_t>(r)];
    ASSERT_EQ(view.positions[r], expected.position);
    DecodeRow(view.codec, view.Key(r), row);
    ASSERT_EQ(row, expected.key) << "row " << r;
    DecodeRow(view.codec, view.Value(r), row, Part::kValue);
    ASSERT_EQ(row, expected.value) << "row " << r;
  }
  store.CheckInvariants();
}

Model Pick(const Model& model, const std::vector<std::int32_t>& rows) {
  Model out;
  for (const std::int32_t row : rows) {
    out.push_back(model[static_cast<std::size_t>(row)]);
  }
  return out;
}

std::size_t ExpectedBytes(const BlockPool& pool, std::int32_t rows) {
  const auto blocks = static_cast<std::size_t>((rows + kBlockRows - 1) / kBlockRows);
  return blocks * (pool.block_bytes() + std::size_t{4} * kBlockRows);
}

class HeadStoreTest : public ::testing::TestWithParam<Codec> {
 protected:
  HeadStore NewStore() { return {kDim, GetParam(), pool_, meter_}; }

  BlockPool pool_{HeadStore::BlockBytes(kDim, GetParam())};
  MemoryMeter meter_;
  Rng rng_{11};
};

INSTANTIATE_TEST_SUITE_P(Codecs, HeadStoreTest,
                         ::testing::Values(Codec::kF32, Codec::kF16, Codec::kBf16, Codec::kQ8),
                         [](const auto& suite) { return std::string(CodecName(suite.param)); });

TEST_P(HeadStoreTest, ABlockHoldsKeysAndValuesOfItsRows) {
  EXPECT_EQ(HeadStore::BlockBytes(kDim, GetParam()), 64u * RowBytes(GetParam(), kDim));
}

TEST_P(HeadStoreTest, RowsComeBackAroundBlockBoundaries) {
  for (const std::int32_t rows : kBoundaries) {
    HeadStore store = NewStore();
    Model model;
    Extend(rng_, rows, 5, store, model);
    ExpectEqual(store, model);
    EXPECT_EQ(pool_.used_blocks(), static_cast<std::size_t>((rows + 63) / 64));
    EXPECT_EQ(meter_.row_bytes(), ExpectedBytes(pool_, rows));
  }
  EXPECT_EQ(pool_.used_blocks(), 0u);
  EXPECT_EQ(meter_.bytes(), 0u);
}

TEST_P(HeadStoreTest, MutableRowIsWhereTheViewLooks) {
  HeadStore store = NewStore();
  ASSERT_TRUE(store.Extend(100, 0));
  for (const std::int32_t row : {0, 63, 64, 99}) {
    EXPECT_EQ(store.MutableRow(row), store.view().Key(row));
    EXPECT_EQ(store.view().Value(row) - store.view().Key(row),
              static_cast<std::ptrdiff_t>(StoredBytes(GetParam(), kDim)));
  }
}

TEST_P(HeadStoreTest, KeepGivesBlocksBackAndTheMeterFollows) {
  for (const std::int32_t rows : kBoundaries) {
    for (const std::int32_t kept : kBoundaries) {
      if (kept > rows) {
        continue;
      }
      HeadStore store = NewStore();
      Model model;
      Extend(rng_, rows, 0, store, model);
      const std::vector<std::int32_t> keep = test::RandomSubset(rng_, rows, kept);
      store.Keep(keep);
      ExpectEqual(store, Pick(model, keep));
      EXPECT_EQ(meter_.row_bytes(), ExpectedBytes(pool_, kept));
    }
  }
}

TEST_P(HeadStoreTest, KeepingALeadingRunLeavesItsRowsWhereTheyAre) {
  HeadStore store = NewStore();
  Model model;
  Extend(rng_, 200, 0, store, model);
  std::vector<std::int32_t> keep(130);
  std::iota(keep.begin(), keep.end(), 0);
  const std::byte* const place = store.MutableRow(129);
  store.Keep(keep);
  EXPECT_EQ(store.MutableRow(129), place);
  ExpectEqual(store, Pick(model, keep));
}

TEST_P(HeadStoreTest, AMovedStoreOwnsTheRows) {
  HeadStore store = NewStore();
  Model model;
  Extend(rng_, 70, 0, store, model);
  const HeadStore other = std::move(store);
  ExpectEqual(other, model);
  EXPECT_EQ(pool_.used_blocks(), 2u);
  EXPECT_EQ(meter_.row_bytes(), ExpectedBytes(pool_, 70));
}

TEST_P(HeadStoreTest, RandomOperationsMatchAPlainModel) {
  HeadStore stores[] = {NewStore(), NewStore()};
  Model models[2];
  std::int32_t position = 0;
  for (int step = 0; step < 400; ++step) {
    const std::size_t which = rng_.Below(2);
    HeadStore& store = stores[which];
    Model& model = models[which];
    const std::int32_t rows = store.rows();
    switch (rng_.Below(4)) {
      case 0: {
        const std::int32_t count = test::IntBetween(rng_, 0, 150);
        Extend(rng_, count, position, store, model);
        position += count + test::IntBetween(rng_, 1, 3);  // gaps as after an eviction
        break;
      }
      case 1: {
        const auto keep = test::RandomSubset(rng_, rows, test::IntBetween(rng_, 0, rows));
        store.Keep(keep);
        model = Pick(model, keep);
        break;
      }
      case 2: {
        const std::int32_t left = test::IntBetween(rng_, rows / 2, rows);
        store.Truncate(left);
        model.resize(static_cast<std::size_t>(left));
        break;
      }
      default: {
        const HeadStore& from = stores[1 - which];
        const auto picked =
            test::RandomSubset(rng_, from.rows(), test::IntBetween(rng_, 0, from.rows()));
        ASSERT_TRUE(store.CopyFrom(from, picked).ok());
        model = Pick(models[1 - which], picked);
        break;
      }
    }
    ASSERT_NO_FATAL_FAILURE(ExpectEqual(stores[0], models[0])) << "step " << step;
    ASSERT_NO_FATAL_FAILURE(ExpectEqual(stores[1], models[1])) << "step " << step;
    ASSERT_EQ(meter_.bytes(),
              ExpectedBytes(pool_, stores[0].rows()) + ExpectedBytes(pool_, stores[1].rows()));
    ASSERT_GE(meter_.peak_bytes(), meter_.bytes());
  }
}

TEST_P(HeadStoreTest, EvictedMemoryLeavesTheProcess) {
  HeadStore store = NewStore();
  const std::size_t bytes = pool_.block_bytes();
  const std::size_t per_slab = ((std::size_t{2} << 20) + bytes - 1) / bytes;
  ASSERT_TRUE(store.Extend(3 * static_cast<std::int32_t>(per_slab) * kBlockRows, 0));
  EXPECT_EQ(pool_.mapped_bytes(), 3 * per_slab * bytes);
  store.Keep(std::vector<std::int32_t>{0, 100, 5000});
  pool_.Trim();
  EXPECT_EQ(pool_.mapped_bytes(), per_slab * bytes);
  store.Truncate(0);
  pool_.Trim();
  EXPECT_EQ(pool_.mapped_bytes(), 0u);
}

TEST_P(HeadStoreTest, AFailedExtendChangesNothingAndAFailedCopyLeavesItEmpty) {
  HeadStore store = NewStore();
  HeadStore source = NewStore();
  Model model;
  Model source_model;
  Extend(rng_, 10, 0, store, model);
  Extend(rng_, 80000, 0, source, source_model);
  std::vector<std::int32_t> all(80000);
  std::iota(all.begin(), all.end(), 0);
  const std::size_t bytes = meter_.bytes();
  {
    const test::MemoryLimit limit(std::size_t{3} << 20);
    const Result<std::int32_t> first = store.Extend(500000, 100);
    ASSERT_FALSE(first);
    EXPECT_EQ(first.error().code(), Code::kResourceExhausted);
  }
  ExpectEqual(store, model);
  EXPECT_EQ(meter_.bytes(), bytes);
  pool_.Trim();
  {
    const test::MemoryLimit limit(0);
    EXPECT_EQ(store.CopyFrom(source, all).code(), Code::kResourceExhausted);
  }
  ExpectEqual(store, {});
  EXPECT_EQ(meter_.row_bytes(), ExpectedBytes(pool_, 80000));
  EXPECT_TRUE(store.CopyFrom(source, all).ok());
  ExpectEqual(store, source_model);
}

TEST(HeadStoreDeathTest, BrokenPreconditionsAbort) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  BlockPool pool(HeadStore::BlockBytes(kDim, Codec::kF16));
  MemoryMeter meter;
  HeadStore store(kDim, Codec::kF16, pool, meter);
  ASSERT_TRUE(store.Extend(3, 10));
  EXPECT_DEATH((void)store.Extend(1, 12), "ascend");
  EXPECT_DEATH(store.Keep(std::vector<std::int32_t>{1, 1}), "ascend");
  EXPECT_DEATH(store.Keep(std::vector<std::int32_t>{3}), "stored");
  EXPECT_DEATH(store.Truncate(4), "out of range");
  EXPECT_DEATH(store.MutableRow(3), "out of range");
  BlockPool small(4096);
  EXPECT_DEATH(HeadStore(64, Codec::kF32, small, meter), "too small");
}

}  // namespace
}  // namespace rkv::kv
