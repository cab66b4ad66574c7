#include "base/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace rkv {
namespace {

TEST(F16, KnownValues) {
  EXPECT_EQ(F32ToF16(0.0f), 0x0000);
  EXPECT_EQ(F32ToF16(-0.0f), 0x8000);
  EXPECT_EQ(F32ToF16(1.0f), 0x3c00);
  EXPECT_EQ(F32ToF16(-2.0f), 0xc000);
  EXPECT_EQ(F32ToF16(65504.0f), 0x7bff);
  EXPECT_EQ(F32ToF16(65519.996f), 0x7bff);  // the last number below the tie
  EXPECT_EQ(F32ToF16(65520.0f), 0x7c00);    // the tie goes to infinity
  EXPECT_EQ(F32ToF16(std::numeric_limits<float>::infinity()), 0x7c00);
  EXPECT_EQ(F32ToF16(0x1p-24f), 0x0001);
  EXPECT_EQ(F32ToF16(0x1p-25f), 0x0000);  // tie to even
  EXPECT_EQ(F32ToF16(0x1.000002p-25f), 0x0001);
  EXPECT_EQ(F32ToF16(0x1.8p-24f), 0x0002);    // tie to even
  EXPECT_EQ(F32ToF16(0x1.ffep-15f), 0x0400);  // rounds up to the smallest normal number
}

TEST(F16, EveryPatternSurvives) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = F16ToF32(static_cast<std::uint16_t>(bits));
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(F16ToF32(F32ToF16(value)))) << bits;
    } else {
      ASSERT_EQ(F32ToF16(value), bits);
    }
  }
}

TEST(Bf16, KnownValues) {
  EXPECT_EQ(F32ToBf16(1.0f), 0x3f80);
  EXPECT_EQ(F32ToBf16(-0.0f), 0x8000);
  EXPECT_EQ(F32ToBf16(0x1.01p0f), 0x3f80);  // tie to even, down
  EXPECT_EQ(F32ToBf16(0x1.03p0f), 0x3f82);  // tie to even, up
  EXPECT_EQ(F32ToBf16(0x1.010002p0f), 0x3f81);
  EXPECT_EQ(F32ToBf16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_TRUE(std::isnan(Bf16ToF32(F32ToBf16(std::numeric_limits<float>::quiet_NaN()))));
}

TEST(Bf16, EveryPatternSurvives) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = Bf16ToF32(static_cast<std::uint16_t>(bits));
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(Bf16ToF32(F32ToBf16(value)))) << bits;
    } else {
      ASSERT_EQ(F32ToBf16(value), bits);
    }
  }
}

}  // namespace
}  // namespace rkv
