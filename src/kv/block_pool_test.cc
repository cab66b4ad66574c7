#include "kv/block_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "support/memory_limit.h"
#include "support/random.h"

namespace rkv::kv {
namespace {

constexpr std::size_t kSlab = std::size_t{2} << 20;

std::vector<std::byte*> AllocateMany(BlockPool& pool, std::size_t count) {
  std::vector<std::byte*> blocks;
  for (std::size_t i = 0; i < count; ++i) {
    Result<std::byte*> block = pool.Allocate();
    EXPECT_TRUE(block);
    blocks.push_back(*block);
  }
  return blocks;
}

TEST(BlockPool, RoundsBlocksUpToCacheLines) {
  EXPECT_EQ(BlockPool(1).block_bytes(), 64u);
  EXPECT_EQ(BlockPool(4096).block_bytes(), 4096u);
  EXPECT_EQ(BlockPool(4097).block_bytes(), 4160u);
}

TEST(BlockPool, TrimLeavesBlocksThatShareAPageWithFreeOnes) {
  constexpr std::size_t kBytes = 9472;  // 64 rows of a 64-wide head in q8
  BlockPool pool(kBytes);
  std::vector<std::byte*> blocks = AllocateMany(pool, 500);
  for (std::byte* const block : blocks) {
    std::memset(block, 7, kBytes);
  }
  Rng rng(5);
  std::vector<bool> freed(blocks.size());
  for (const std::int32_t i : test::RandomSubset(rng, 500, 300)) {
    freed[static_cast<std::size_t>(i)] = true;
    pool.Free(blocks[static_cast<std::size_t>(i)]);
  }
  pool.Trim();
  std::size_t zeros = 0;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const auto kept = std::count(blocks[i], blocks[i] + kBytes, std::byte{7});
    if (!freed[i]) {
      ASSERT_EQ(kept, static_cast<std::ptrdiff_t>(kBytes)) << i;
    }
    zeros += kBytes - static_cast<std::size_t>(kept);
  }
  EXPECT_GT(zeros, 300 * kBytes / 2);
}

TEST(BlockPool, BlocksAreWritableZeroedAndApart) {
  for (const std::size_t bytes : {std::size_t{4096}, std::size_t{24576}, 2 * kSlab + 4096}) {
    BlockPool pool(bytes);
    std::vector<std::byte*> blocks = AllocateMany(pool, 3);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      EXPECT_EQ(blocks[i][bytes - 1], std::byte{0});
      std::memset(blocks[i], static_cast<int>(i) + 1, bytes);
    }
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      EXPECT_TRUE(std::all_of(blocks[i], blocks[i] + bytes,
                              [&](std::byte b) { return b == static_cast<std::byte>(i + 1); }));
    }
  }
}

TEST(BlockPool, SlabsHoldManyBlocksOfAboutTwoMebibytes) {
  BlockPool pool(16384);
  AllocateMany(pool, kSlab / 16384);
  EXPECT_EQ(pool.mapped_bytes(), kSlab);
  AllocateMany(pool, 1);
  EXPECT_EQ(pool.mapped_bytes(), 2 * kSlab);
  BlockPool large(3 * kSlab);
  AllocateMany(large, 1);
  EXPECT_EQ(large.mapped_bytes(), 3 * kSlab);
}

TEST(BlockPool, HandsOutTheLowestFreeAddress) {
  BlockPool pool(16384);
  std::vector<std::byte*> blocks = AllocateMany(pool, 300);
  std::set<std::byte*> free;
  Rng rng(3);
  for (const std::int32_t i : test::RandomSubset(rng, 300, 100)) {
    pool.Free(blocks[static_cast<std::size_t>(i)]);
    free.insert(blocks[static_cast<std::size_t>(i)]);
  }
  EXPECT_EQ(pool.used_blocks(), 200u);
  while (!free.empty()) {
    const Result<std::byte*> block = pool.Allocate();
    ASSERT_TRUE(block);
    EXPECT_LE(*block, *free.begin());  // or a block that was never handed out
    free.erase(*block);
  }
}

TEST(BlockPool, TrimUnmapsFreeSlabsAndDiscardsOtherFreeBlocks) {
  BlockPool pool(16384);
  const std::size_t per_slab = kSlab / 16384;
  std::vector<std::byte*> blocks = AllocateMany(pool, 3 * per_slab);
  std::sort(blocks.begin(), blocks.end());
  for (std::byte* const block : blocks) {
    std::memset(block, 7, pool.block_bytes());
  }
  EXPECT_EQ(pool.mapped_bytes(), 3 * kSlab);
  // Everything but the first block of the highest slab.
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (i != 2 * per_slab) {
      pool.Free(blocks[i]);
    }
  }
  EXPECT_EQ(pool.mapped_bytes(), 3 * kSlab);  // freeing alone keeps them for reuse
  pool.Trim();
  EXPECT_EQ(pool.mapped_bytes(), kSlab);
  EXPECT_EQ(pool.used_blocks(), 1u);
  EXPECT_EQ(blocks[2 * per_slab][0], std::byte{7});
  const Result<std::byte*> again = pool.Allocate();
  ASSERT_TRUE(again);
  EXPECT_EQ(*again, blocks[2 * per_slab + 1]);
  EXPECT_EQ((*again)[100], std::byte{0}) << "a discarded block reads as zero";
  pool.Free(*again);
  pool.Free(blocks[2 * per_slab]);
  pool.Trim();
  EXPECT_EQ(pool.mapped_bytes(), 0u);
  EXPECT_EQ(AllocateMany(pool, 1).size(), 1u);  // still usable
}

TEST(BlockPool, OutOfMemoryIsAnErrorThatChangesNothing) {
  BlockPool pool(std::size_t{1} << 60);
  const Result<std::byte*> block = pool.Allocate();
  ASSERT_FALSE(block);
  EXPECT_EQ(block.error().code(), Code::kResourceExhausted);
  EXPECT_THAT(block.error().message(), ::testing::HasSubstr(std::to_string(1ull << 60)));
  EXPECT_EQ(pool.used_blocks(), 0u);
  EXPECT_EQ(pool.mapped_bytes(), 0u);
}

TEST(BlockPool, WorksAgainWhenMemoryComesBack) {
  BlockPool pool(16384);
  {
    const test::MemoryLimit limit(kSlab / 2);
    const Result<std::byte*> block = pool.Allocate();
    ASSERT_FALSE(block);
    EXPECT_EQ(block.error().code(), Code::kResourceExhausted);
  }
  EXPECT_TRUE(pool.Allocate());
}

using BlockPoolDeathTest = ::testing::Test;

TEST(BlockPoolDeathTest, RefusesForeignAndDoubleFrees) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  BlockPool pool(8192);
  std::vector<std::byte*> blocks = AllocateMany(pool, 2);
  std::byte local{};
  EXPECT_DEATH(pool.Free(&local), "not of this pool");
  EXPECT_DEATH(pool.Free(blocks[0] + 4096), "not of this pool");
  pool.Free(blocks[0]);
  EXPECT_DEATH(pool.Free(blocks[0]), "freed twice");
  EXPECT_DEATH(BlockPool(0), "block size");
}

}  // namespace
}  // namespace rkv::kv
