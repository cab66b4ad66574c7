#include "base/buffer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace rkv {
namespace {

constexpr std::size_t kHuge = std::size_t{2} << 20;

Buffer Make(std::size_t size) {
  Result<Buffer> buffer = Buffer::Allocate(size);
  EXPECT_TRUE(buffer);
  return *std::move(buffer);
}

// Bytes of [data, data + size) in physical memory; 0 when it is not mapped.
std::size_t ResidentBytes(std::byte* data, std::size_t size) {
  std::vector<unsigned char> pages((size + 4095) / 4096);
  if (mincore(data, size, pages.data()) != 0) {
    return 0;
  }
  const auto resident = [](unsigned char page) { return (page & 1) != 0; };
  return 4096 * static_cast<std::size_t>(std::count_if(pages.begin(), pages.end(), resident));
}

TEST(Buffer, IsZeroedAlignedAndWritable) {
  for (const std::size_t size : {std::size_t{1}, std::size_t{4096}, std::size_t{4097}, kHuge - 1,
                                 kHuge, kHuge + 1, 3 * kHuge + 5}) {
    Buffer buffer = Make(size);
    ASSERT_EQ(buffer.size(), size);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % (size >= kHuge ? kHuge : 4096), 0u);
    EXPECT_TRUE(std::all_of(buffer.data(), buffer.data() + size,
                            [](std::byte b) { return b == std::byte{0}; }));
    std::memset(buffer.data(), 1, size);
    EXPECT_EQ(buffer.as<unsigned char>()[size - 1], 1);
  }
}

TEST(Buffer, NothingIsAnEmptyBuffer) {
  EXPECT_EQ(Make(0).size(), 0u);
  EXPECT_EQ(Make(0).data(), nullptr);
  EXPECT_EQ(Buffer().data(), nullptr);
}

TEST(Buffer, TooMuchIsAnErrorThatNamesTheBytes) {
  for (const std::size_t size : {SIZE_MAX, SIZE_MAX / 2, std::size_t{1} << 60}) {
    const Result<Buffer> buffer = Buffer::Allocate(size);
    ASSERT_FALSE(buffer);
    EXPECT_EQ(buffer.error().code(), Code::kResourceExhausted);
    EXPECT_THAT(buffer.error().message(), ::testing::HasSubstr(std::to_string(size)));
  }
}

TEST(Buffer, MovesKeepTheAddress) {
  Buffer a = Make(10000);
  std::byte* const data = a.data();
  data[5] = std::byte{9};
  Buffer b = std::move(a);
  EXPECT_EQ(b.data(), data);
  Buffer c = Make(100);
  c = std::move(b);
  EXPECT_EQ(c.data(), data);
  EXPECT_EQ(c.size(), 10000u);
  EXPECT_EQ(c.data()[5], std::byte{9});
}

TEST(Buffer, DiscardedPagesReadAsZeroAndTheirNeighboursStay) {
  Buffer buffer = Make(kHuge + 3 * 4096);
  std::memset(buffer.data(), 7, buffer.size());
  buffer.Discard(4096, 8192);
  EXPECT_EQ(buffer.data()[4095], std::byte{7});
  EXPECT_EQ(buffer.data()[4096], std::byte{0});
  EXPECT_EQ(buffer.data()[12287], std::byte{0});
  EXPECT_EQ(buffer.data()[12288], std::byte{7});
  buffer.Discard(0, 0);
  EXPECT_EQ(buffer.data()[0], std::byte{7});
}

TEST(Buffer, FreedAndDiscardedMemoryLeavesTheProcess) {
  constexpr std::size_t kSize = 8 * kHuge;
  std::byte* data = nullptr;
  {
    Buffer buffer = Make(kSize);
    data = buffer.data();
    std::memset(data, 1, kSize);
    EXPECT_EQ(ResidentBytes(data, kSize), kSize);
    buffer.Discard(kHuge, 3 * kHuge);
    EXPECT_EQ(ResidentBytes(data, kSize), kSize - 3 * kHuge);
    std::memset(data, 1, kSize);
    EXPECT_EQ(ResidentBytes(data, kSize), kSize);
  }
  EXPECT_EQ(ResidentBytes(data, kSize), 0u);
}

TEST(BufferDeathTest, DiscardOutsideAborts) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Buffer buffer = Make(8192);
  EXPECT_DEATH(buffer.Discard(1, 4096), "Discard outside");
  EXPECT_DEATH(buffer.Discard(4096, 8192), "Discard outside");
}

}  // namespace
}  // namespace rkv
