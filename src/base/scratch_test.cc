#include "base/scratch.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "support/random.h"

namespace rkv {
namespace {

TEST(Scratch, ArraysAreAlignedAndApart) {
  Scratch scratch;
  Scratch::Frame frame(scratch);
  Rng rng(1);
  struct Taken {
    std::byte* data;
    std::size_t bytes;
  };
  std::vector<Taken> taken;
  for (int i = 0; i < 200; ++i) {
    const std::size_t bytes = rng.Below(i % 10 == 0 ? 600000 : 3000);
    auto* const data = frame.Array<std::byte>(bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % 64, 0u);
    std::memset(data, i, bytes);
    taken.push_back({data, bytes});
  }
  for (std::size_t i = 0; i < taken.size(); ++i) {
    for (std::size_t b = 0; b < taken[i].bytes; ++b) {
      ASSERT_EQ(taken[i].data[b], static_cast<std::byte>(i)) << i;
    }
  }
}

TEST(Scratch, AFrameGivesItsMemoryBackForReuse) {
  Scratch scratch;
  float* first = nullptr;
  {
    Scratch::Frame frame(scratch);
    first = frame.Array<float>(1000);
  }
  const std::size_t bytes = scratch.bytes();
  for (int i = 0; i < 1000; ++i) {
    Scratch::Frame frame(scratch);
    EXPECT_EQ(frame.Array<float>(1000), first);
  }
  EXPECT_EQ(scratch.bytes(), bytes);
}

TEST(Scratch, AnInnerFrameLeavesTheOuterArraysAlone) {
  Scratch scratch;
  Scratch::Frame outer(scratch);
  auto* const kept = outer.Array<int>(100);
  kept[99] = 5;
  int* inner_data = nullptr;
  {
    Scratch::Frame inner(scratch);
    inner_data = inner.Array<int>(1000000);  // into another slab
    std::memset(inner_data, 0xff, 4000000);
  }
  auto* const next = outer.Array<int>(10);
  EXPECT_EQ(reinterpret_cast<std::byte*>(next), reinterpret_cast<std::byte*>(kept) + 448);
  EXPECT_EQ(kept[99], 5);
}

TEST(Scratch, RequestsThatGrowStepByStepDoNotPileUp) {
  Scratch scratch;
  std::size_t largest = 0;
  for (std::size_t bytes = 1 << 18; bytes < (2 << 20); bytes += 4096) {
    Scratch::Frame frame(scratch);
    frame.Array<std::byte>(100);
    frame.Array<std::byte>(bytes)[bytes - 1] = std::byte{1};
    largest = bytes;
  }
  EXPECT_LE(scratch.bytes(), 2 * largest);
}

TEST(Scratch, EmptyArraysAreFine) {
  Scratch scratch;
  Scratch::Frame frame(scratch);
  EXPECT_NE(frame.Array<float>(0), nullptr);
  EXPECT_NE(frame.Array<float>(1 << 20), nullptr);
}

}  // namespace
}  // namespace rkv
