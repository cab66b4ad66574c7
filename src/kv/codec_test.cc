#include "kv/codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "support/random.h"

namespace rkv::kv {
namespace {

using ::testing::HasSubstr;

constexpr Codec kAll[] = {Codec::kF32, Codec::kF16, Codec::kBf16, Codec::kQ8};

std::vector<float> RoundTrip(Codec codec, const std::vector<float>& row) {
  std::vector<std::byte> stored(StoredBytes(codec, static_cast<std::int32_t>(row.size())));
  EncodeRow(codec, row, stored.data());
  std::vector<float> back(row.size());
  DecodeRow(codec, stored.data(), back);
  return back;
}

TEST(Codec, NamesParseBack) {
  for (const Codec codec : kAll) {
    const Result<Codec> parsed = ParseCodec(CodecName(codec));
    ASSERT_TRUE(parsed);
    EXPECT_EQ(*parsed, codec);
  }
}

TEST(Codec, UnknownNameListsTheNearestAndAll) {
  const Result<Codec> parsed = ParseCodec("fp16");
  ASSERT_FALSE(parsed);
  EXPECT_EQ(parsed.error().code(), Code::kInvalidArgument);
  EXPECT_EQ(parsed.error().message(),
            "unknown KV type 'fp16'; did you mean 'f16'? known: f32, f16, bf16, q8");
  EXPECT_THAT(ParseCodec("").error().message(), HasSubstr("known: f32, f16, bf16, q8"));
}

TEST(Codec, F32KeepsEveryBit) {
  Rng rng(1);
  std::vector<float> row = test::NormalVector(rng, 257);
  row[3] = -0.0f;
  row[5] = std::numeric_limits<float>::denorm_min();
  row[7] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> back = RoundTrip(Codec::kF32, row);
  EXPECT_EQ(std::memcmp(back.data(), row.data(), row.size() * sizeof(float)), 0);
}

TEST(Codec, EveryStored16BitPatternSurvivesARoundTrip) {
  for (const Codec codec : {Codec::kF16, Codec::kBf16}) {
    std::vector<std::uint16_t> stored(65536);
    for (std::size_t i = 0; i < stored.size(); ++i) {
      stored[i] = static_cast<std::uint16_t>(i);
    }
    std::vector<float> row(stored.size());
    DecodeRow(codec, reinterpret_cast<const std::byte*>(stored.data()), row);
    std::vector<std::uint16_t> again(stored.size());
    EncodeRow(codec, row, reinterpret_cast<std::byte*>(again.data()));
    for (std::size_t i = 0; i < stored.size(); ++i) {
      if (std::isnan(row[i])) {  // stays a NaN of its sign
        float back = 0;
        DecodeRow(codec, reinterpret_cast<const std::byte*>(&again[i]), {&back, 1});
        ASSERT_TRUE(std::isnan(back)) << i;
        ASSERT_EQ(again[i] >> 15, stored[i] >> 15) << i;
      } else {
        ASSERT_EQ(again[i], stored[i]) << CodecName(codec);
      }
    }
  }
}

// The nearest multiple of the format's unit at x, ties to even, from double arithmetic.
double RoundInDouble(double x, int mantissa_bits, int min_exponent, double max_value) {
  if (x == 0 || !std::isfinite(x)) {
    return x;
  }
  const int exponent = std::max(std::ilogb(x), min_exponent);
  const double unit = std::ldexp(1.0, exponent - mantissa_bits);
  const double rounded = std::nearbyint(x / unit) * unit;  // the default mode ties to even
  return std::abs(rounded) > max_value ? std::copysign(INFINITY, x) : rounded;
}

TEST(Codec, RoundsToNearestEven) {
  Rng rng(2);
  std::vector<float> row;
  for (int i = 0; i < 200000; ++i) {  // any bit pattern of f32
    row.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(rng.Next())));
  }
  for (int i = 0; i < 200000; ++i) {  // the range of f16, subnormals and ties well covered
    const double magnitude = std::ldexp(1.0 + rng.Uniform(), test::IntBetween(rng, -27, 16));
    row.push_back(static_cast<float>(rng.Below(2) == 0 ? magnitude : -magnitude));
    const auto step = static_cast<float>(rng.Below(4096));
    row.push_back(std::ldexp(step * 0.5f, test::IntBetween(rng, -24, 4)));  // exact ties
  }
  const std::vector<float> f16 = RoundTrip(Codec::kF16, row);
  const std::vector<float> bf16 = RoundTrip(Codec::kBf16, row);
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (std::isnan(row[i])) {
      ASSERT_TRUE(std::isnan(f16[i]) && std::isnan(bf16[i]));
      continue;
    }
    ASSERT_EQ(f16[i], RoundInDouble(row[i], 10, -14, 65504.0)) << row[i];
    ASSERT_EQ(bf16[i], RoundInDouble(row[i], 7, -126, 0x1.fep127)) << row[i];
  }
}

TEST(Codec, Q8IsWithinHalfAStepOfEachGroup) {
  Rng rng(3);
  for (const std::size_t width : {2u, 16u, 30u, 64u, 80u, 128u}) {
    for (int round = 0; round < 200; ++round) {
      std::vector<float> row = test::NormalVector(rng, width);
      row[rng.Below(width)] = std::ldexp(1.0f, test::IntBetween(rng, -60, 60));  // one outlier
      const std::vector<float> back = RoundTrip(Codec::kQ8, row);
      for (std::size_t x = 0; x < width; ++x) {
        float most = 0;
        for (std::size_t y = x / 16 * 16; y < std::min(width, x / 16 * 16 + 16); ++y) {
          most = std::max(most, std::fabs(row[y]));
        }
        ASSERT_LE(std::fabs(row[x] - back[x]), most / 127 * 0.5001f) << width;
      }
    }
  }
}

TEST(Codec, Q8HasScalesForSixteenNumbersOfAKeyAndForAWholeValue) {
  EXPECT_EQ(StoredBytes(Codec::kQ8, 64), 64u + 4 * 4);
  EXPECT_EQ(StoredBytes(Codec::kQ8, 64, Part::kValue), 64u + 4);
  EXPECT_EQ(StoredBytes(Codec::kQ8, 30), 32u + 2 * 4);
  EXPECT_EQ(StoredBytes(Codec::kQ8, 2), 4u + 4);
  EXPECT_EQ(RowBytes(Codec::kQ8, 128), 160u + 132);
  EXPECT_EQ(RowBytes(Codec::kF16, 64), 256u);
}

TEST(Codec, Q8ValueHasOneStep) {
  Rng rng(4);
  std::vector<float> row = test::NormalVector(rng, 64);
  row[5] = 127.0f;  // the step is 1
  std::vector<std::byte> stored(StoredBytes(Codec::kQ8, 64, Part::kValue));
  EncodeRow(Codec::kQ8, row, stored.data(), Part::kValue);
  std::vector<float> back(row.size());
  DecodeRow(Codec::kQ8, stored.data(), back, Part::kValue);
  for (std::size_t x = 0; x < row.size(); ++x) {
    EXPECT_EQ(back[x], std::nearbyint(row[x]));
  }
}

TEST(Codec, Q8KeepsZerosAndShowsWhatIsNotFinite) {
  for (const float bad : {INFINITY, -INFINITY, std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> row(48, 1.0f);
    row[17] = bad;
    std::fill(row.begin() + 32, row.end(), -0.0f);
    row[40] = 1e-38f;
    const std::vector<float> back = RoundTrip(Codec::kQ8, row);
    for (std::size_t x = 0; x < row.size(); ++x) {
      if (x / 16 == 1) {
        EXPECT_TRUE(std::isnan(back[x]));
      } else {
        EXPECT_NEAR(back[x], x < 16 ? 1.0f : 0.0f, 0.004f);
      }
    }
  }
}

TEST(Codec, EmptyRowsAreFine) {
  for (const Codec codec : kAll) {
    EXPECT_TRUE(RoundTrip(codec, {}).empty());
  }
}

}  // namespace
}  // namespace rkv::kv
