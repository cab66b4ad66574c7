#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <limits>
#include <vector>

#include "attention/backend.h"
#include "attention/cpu/targets.h"
#include "support/hwy_targets.h"
#include "support/random.h"
#include "support/test_head.h"

namespace rkv::attention {
namespace {

constexpr kv::Codec kCodecs[] = {kv::Codec::kF16, kv::Codec::kBf16, kv::Codec::kF32,
                                 kv::Codec::kQ8};

// Bytes that a backend writes for `tokens` rows of [head_dim] with stride `stride`.
std::vector<std::byte> Store(const Backend& backend, kv::Codec codec, std::int32_t head_dim,
                             const std::vector<float>& keys, const std::vector<float>& values,
                             std::size_t stride) {
  const std::size_t tokens = keys.size() / stride;
  const std::size_t row_bytes = kv::RowBytes(codec, head_dim);
  std::vector<std::byte> out(tokens * row_bytes, std::byte{0xee});
  std::vector<std::byte*> rows(tokens);
  for (std::size_t i = 0; i < tokens; ++i) {
    rows[i] = out.data() + (tokens - 1 - i) * row_bytes;  // any place will do
  }
  backend.store_rows(codec, head_dim, keys.data(), values.data(), stride, rows);
  return out;
}

TEST(StoreRows, WritesTheSameBitsAsThePlainKernel) {
  Rng rng(1);
  for (const std::int32_t head_dim : {2, 6, 16, 30, 64, 72, 80, 96, 128, 256}) {
    const auto width = static_cast<std::size_t>(head_dim);
    const auto keys = test::NormalVector(rng, 5 * (width + 4), 10.0f);
    const auto values = test::NormalVector(rng, 5 * (width + 4), 1e-3f);
    for (const kv::Codec codec : kCodecs) {
      const auto expected = Store(RefBackend(), codec, head_dim, keys, values, width + 4);
      test::ForEachTarget([&] {
        EXPECT_EQ(expected, Store(CpuBackend(), codec, head_dim, keys, values, width + 4));
      });
    }
  }
}

TEST(StoreRows, RoundsEveryKindOfNumberAsThePlainKernel) {
  // All exponents with mantissas around each rounding cut, infinities and NaN, both signs.
  std::vector<float> numbers;
  for (std::uint32_t high = 0; high < 0x10000u; high += 7) {
    for (const std::uint32_t low : {0x0u, 0xfffu, 0x1000u, 0x1001u, 0x7fffu, 0x8000u, 0x8001u}) {
      numbers.push_back(std::bit_cast<float>(high << 16 | low));
    }
  }
  numbers.resize(numbers.size() / 64 * 64);
  for (const kv::Codec codec : kCodecs) {
    const auto expected = Store(RefBackend(), codec, 64, numbers, numbers, 64);
    test::ForEachTarget(
        [&] { EXPECT_EQ(expected, Store(CpuBackend(), codec, 64, numbers, numbers, 64)); });
  }
}

}  // namespace
}  // namespace rkv::attention
