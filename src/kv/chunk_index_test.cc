#include "kv/chunk_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/half.h"
#include "kv/head_store.h"
#include "support/memory_limit.h"
#include "support/random.h"

namespace rkv::kv {
namespace {

constexpr std::int32_t kDim = 8;

float At(const IndexView& view, const std::byte* channel, std::int32_t chunk) {
  float out = 0;
  DecodeRow(view.codec, channel + static_cast<std::size_t>(chunk) * CodecBytes(view.codec),
            {&out, 1});
  return out;
}

// Compares with minima and maxima taken from the rows in f32.
void ExpectExact(const ChunkIndex& index, const HeadView& head) {
  const IndexView view = index.view();
  ASSERT_EQ(view.rows, head.rows);
  ASSERT_EQ(view.chunks(), (head.rows + view.chunk_rows - 1) / view.chunk_rows);
  std::vector<float> key(kDim);
  for (std::int32_t chunk = 0; chunk < view.chunks(); ++chunk) {
    std::vector<float> low(kDim, INFINITY);
    std::vector<float> high(kDim, -INFINITY);
    const std::int32_t end = std::min((chunk + 1) * view.chunk_rows, head.rows);
    for (std::int32_t row = chunk * view.chunk_rows; row < end; ++row) {
      DecodeRow(head.codec, head.Key(row), key);
      if (head.codec == Codec::kQ8) {  // an index in f16
        std::ranges::transform(key, key.begin(), [](float x) { return F16ToF32(F32ToF16(x)); });
      }
      for (std::size_t c = 0; c < key.size(); ++c) {
        low[c] = std::min(low[c], key[c]);
        high[c] = std::max(high[c], key[c]);
      }
    }
    for (std::int32_t c = 0; c < kDim; ++c) {
      ASSERT_EQ(At(view, view.Min(c), chunk), low[static_cast<std::size_t>(c)])
          << "chunk " << chunk;
      ASSERT_EQ(At(view, view.Max(c), chunk), high[static_cast<std::size_t>(c)])
          << "chunk " << chunk;
    }
  }
}

// The stored bits of every used place, channel by channel.
std::vector<std::byte> Bits(const ChunkIndex& index) {
  const IndexView view = index.view();
  std::vector<std::byte> out;
  const std::size_t used = static_cast<std::size_t>(view.chunks()) * CodecBytes(view.codec);
  for (std::int32_t c = 0; used > 0 && c < kDim; ++c) {
    out.insert(out.end(), view.Min(c), view.Min(c) + used);
    out.insert(out.end(), view.Max(c), view.Max(c) + used);
  }
  return out;
}

class ChunkIndexTest : public ::testing::TestWithParam<std::tuple<Codec, int>> {
 protected:
  Codec codec() const { return std::get<0>(GetParam()); }
  std::int32_t chunk_rows() const { return std::get<1>(GetParam()); }
  ChunkIndex NewIndex() { return {kDim, codec(), chunk_rows(), meter_}; }

  void Extend(std::int32_t count) {
    const Result<std::int32_t> first = store_.Extend(count, position_);
    ASSERT_TRUE(first);
    position_ += count;
    for (std::int32_t i = 0; i < count; ++i) {
      std::vector<float> key = test::NormalVector(rng_, kDim);
      key[0] = 0.0f;  // one channel of signed zeros
      key[0] = rng_.Below(2) == 0 ? -key[0] : key[0];
      store_.WriteRow(*first + i, key, test::NormalVector(rng_, kDim));
    }
  }

  BlockPool pool_{HeadStore::BlockBytes(kDim, codec())};
  MemoryMeter meter_;
  HeadStore store_{kDim, codec(), pool_, meter_};
  std::int32_t position_ = 0;
  Rng rng_{21};
};

INSTANTIATE_TEST_SUITE_P(All, ChunkIndexTest,
                         ::testing::Combine(::testing::Values(Codec::kF32, Codec::kF16,
                                                              Codec::kBf16, Codec::kQ8),
                                            ::testing::Range(1, 10)),
                         [](const auto& suite) {
                           return std::string(CodecName(std::get<0>(suite.param))) + "_chunk" +
                                  std::to_string(std::get<1>(suite.param));
                         });

TEST_P(ChunkIndexTest, HoldsExactMinimaAndMaximaAroundChunkBoundaries) {
  const std::int32_t p = chunk_rows();
  for (const std::int32_t rows : {0, 1, p - 1, p, p + 1, 7 * p - 1, 7 * p, 7 * p + 1}) {
    store_.Truncate(0);
    Extend(rows);
    ChunkIndex index = NewIndex();
    ASSERT_TRUE(index.Rebuild(store_.view(), 0).ok());
    ExpectExact(index, store_.view());
  }
}

TEST_P(ChunkIndexTest, AppendsInAnyPortionsEqualARebuild) {
  ChunkIndex one_by_one = NewIndex();
  ChunkIndex in_portions = NewIndex();
  ChunkIndex rebuilt = NewIndex();
  for (int step = 0; step < 30; ++step) {
    const std::int32_t count = test::IntBetween(rng_, 0, 3 * chunk_rows());
    for (std::int32_t i = 0; i < count; ++i) {
      Extend(1);
      ASSERT_TRUE(one_by_one.Append(store_.view()).ok());
    }
    ASSERT_TRUE(in_portions.Append(store_.view()).ok());
    ASSERT_TRUE(rebuilt.Rebuild(store_.view(), 5).ok());
    ASSERT_EQ(Bits(one_by_one), Bits(rebuilt)) << "step " << step;
    ASSERT_EQ(Bits(in_portions), Bits(rebuilt)) << "step " << step;
  }
  ExpectExact(one_by_one, store_.view());
}

TEST_P(ChunkIndexTest, FollowsARebuildAfterAnEviction) {
  Extend(20 * chunk_rows() + 1);
  ChunkIndex index = NewIndex();
  ASSERT_TRUE(index.Append(store_.view()).ok());
  store_.Keep(test::RandomSubset(rng_, store_.rows(), 9 * chunk_rows() + 1));
  ASSERT_TRUE(index.Rebuild(store_.view(), chunk_rows()).ok());
  ExpectExact(index, store_.view());
  EXPECT_EQ(index.rows(), store_.rows());
  Extend(chunk_rows());
  ASSERT_TRUE(index.Append(store_.view()).ok());
  ExpectExact(index, store_.view());
}

TEST_P(ChunkIndexTest, ForgettingRowsEqualsARebuildOfThoseBefore) {
  ChunkIndex index = NewIndex();
  ChunkIndex rebuilt = NewIndex();
  for (int step = 0; step < 40; ++step) {
    Extend(test::IntBetween(rng_, 0, 4 * chunk_rows()));
    ASSERT_TRUE(index.Append(store_.view()).ok());
    store_.Truncate(test::IntBetween(rng_, 0, store_.rows()));
    index.Truncate(store_.view());
    ASSERT_TRUE(rebuilt.Rebuild(store_.view(), 0).ok());
    ASSERT_EQ(index.rows(), store_.rows());
    ASSERT_EQ(Bits(index), Bits(rebuilt)) << "step " << step;
  }
}

TEST_P(ChunkIndexTest, SpareRowsNeedNoNewMemory) {
  Extend(10 * chunk_rows());
  ChunkIndex index = NewIndex();
  ASSERT_TRUE(index.Rebuild(store_.view(), 40 * chunk_rows()).ok());
  const std::size_t bytes = meter_.index_bytes();
  EXPECT_EQ(bytes, ChunkIndex::Bytes(kDim, codec(), chunk_rows(), 50 * chunk_rows()));
  Extend(40 * chunk_rows());
  ASSERT_TRUE(index.Append(store_.view()).ok());
  EXPECT_EQ(meter_.index_bytes(), bytes);
}

TEST_P(ChunkIndexTest, GrowsByHalf) {
  Extend(400 * chunk_rows());
  ChunkIndex index = NewIndex();
  ASSERT_TRUE(index.Rebuild(store_.view(), 0).ok());
  std::size_t last = meter_.index_bytes();
  int growths = 0;
  for (int i = 0; i < 400; ++i) {
    Extend(chunk_rows());
    ASSERT_TRUE(index.Append(store_.view()).ok());
    if (meter_.index_bytes() != last) {
      EXPECT_GE(meter_.index_bytes(), last * 5 / 4);
      EXPECT_LE(meter_.index_bytes(), last * 7 / 4);
      last = meter_.index_bytes();
      ++growths;
    }
  }
  EXPECT_LE(growths, 3);
  ExpectExact(index, store_.view());
}

TEST_P(ChunkIndexTest, ChannelsSpreadOverCacheSetsAndHavePadding) {
  for (std::int32_t chunks = 1; chunks < 3000; chunks = chunks * 3 / 2 + 1) {
    ChunkIndex index = NewIndex();
    store_.Truncate(0);
    ASSERT_TRUE(store_.Extend(chunks, 0));  // of one row each at least
    ASSERT_TRUE(index.Rebuild(store_.view(), 0).ok());
    const IndexView view = index.view();
    const std::size_t bytes = view.stride * CodecBytes(view.codec);
    EXPECT_EQ(bytes % 64, 0u);
    EXPECT_NE(bytes % 128, 0u);
    EXPECT_GE(bytes, static_cast<std::size_t>(view.chunks()) * CodecBytes(view.codec) + 64);
    EXPECT_EQ(meter_.index_bytes(), ChunkIndex::Bytes(kDim, codec(), chunk_rows(), chunks));
  }
  EXPECT_EQ(meter_.index_bytes(), 0u);
}

TEST_P(ChunkIndexTest, NanKeysDoNoHarmToOtherChannels) {
  Extend(4 * chunk_rows());
  std::vector<float> key(kDim, 1000.0f);
  key[2] = std::numeric_limits<float>::quiet_NaN();
  store_.WriteRow(chunk_rows(), key, key);
  ChunkIndex index = NewIndex();
  ASSERT_TRUE(index.Rebuild(store_.view(), 0).ok());
  const IndexView view = index.view();
  if (codec() == Codec::kQ8) {  // a NaN takes the numbers that share its scale along
    EXPECT_TRUE(std::isnan(At(view, view.Max(1), 1)));
  } else {
    EXPECT_EQ(At(view, view.Max(1), 1), 1000.0f);
  }
  EXPECT_TRUE(std::isnan(At(view, view.Max(2), 1)));
  EXPECT_FALSE(std::isnan(At(view, view.Max(2), 0)));
}

TEST_P(ChunkIndexTest, MovesWithItsBytes) {
  Extend(3 * chunk_rows());
  ChunkIndex index = NewIndex();
  ASSERT_TRUE(index.Rebuild(store_.view(), 0).ok());
  const std::size_t bytes = meter_.index_bytes();
  {
    const ChunkIndex other = std::move(index);
    ExpectExact(other, store_.view());
    EXPECT_EQ(meter_.index_bytes(), bytes);
  }
  EXPECT_EQ(meter_.index_bytes(), 0u);
}

TEST_P(ChunkIndexTest, OutOfMemoryLeavesTheStatedState) {
  Extend(2 * chunk_rows());
  ChunkIndex index = NewIndex();
  ASSERT_TRUE(index.Append(store_.view()).ok());
  const std::vector<std::byte> before = Bits(index);
  Extend(2000 * chunk_rows());
  {
    const test::MemoryLimit limit(4096);
    EXPECT_EQ(index.Append(store_.view()).code(), Code::kResourceExhausted);
  }
  EXPECT_EQ(index.rows(), 2 * chunk_rows());
  EXPECT_EQ(Bits(index), before);
  {
    const test::MemoryLimit limit(4096);
    EXPECT_EQ(index.Rebuild(store_.view(), 0).code(), Code::kResourceExhausted);
  }
  EXPECT_EQ(index.rows(), 0);
  EXPECT_EQ(meter_.index_bytes(), 0u);
  EXPECT_TRUE(index.Append(store_.view()).ok());
  EXPECT_EQ(index.rows(), store_.rows());
}

TEST(ChunkIndex, OneRowAChunkIsStoredOnce) {
  EXPECT_EQ(ChunkIndex::Bytes(64, Codec::kF16, 1, 1000) * 2,
            ChunkIndex::Bytes(64, Codec::kF16, 2, 2000));
  EXPECT_EQ(ChunkIndex::Bytes(64, Codec::kF16, 3, 0), 0u);
}

}  // namespace
}  // namespace rkv::kv
