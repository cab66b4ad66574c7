#include "cli/parse_value.h"

#include <gtest/gtest.h>

#include <array>

namespace rkv::cli {
namespace {

TEST(ParseBytes, KnowsBinarySuffixes) {
  EXPECT_EQ(*ParseBytes("4096"), 4096U);
  EXPECT_EQ(*ParseBytes("1k"), 1024U);
  EXPECT_EQ(*ParseBytes("512M"), std::size_t{512} << 20);
  EXPECT_EQ(*ParseBytes("1.5GiB"), std::size_t{3} << 29);
  EXPECT_EQ(*ParseBytes("2TB"), std::size_t{2} << 40);
  EXPECT_EQ(*ParseBytes("7B"), 7U);
}

TEST(ParseBytes, RefusesWhatIsNoSize) {
  for (const char* text :
       {"", "M", "-1", "0", "1.2.3", "12Q", "12iB", "1e30T", "99999999999T", "1 M"}) {
    EXPECT_FALSE(ParseBytes(text)) << text;
  }
}

TEST(ParseInt, RefusesTextAroundTheNumber) {
  EXPECT_EQ(*ParseInt("-1", -1, 9), -1);
  for (const char* text : {"", " 1", "1 ", "+1", "0x1", "10", "-2", "99999999999999999999"}) {
    EXPECT_FALSE(ParseInt(text, -1, 9)) << text;
  }
}

TEST(ParseFloat, RefusesNotANumber) {
  EXPECT_FLOAT_EQ(*ParseFloat("0.25", 0, 1), 0.25F);
  for (const char* text : {"", "nan", "inf", "-0.1", "1.1", "0.5x"}) {
    EXPECT_FALSE(ParseFloat(text, 0, 1)) << text;
  }
}

TEST(ParseSwitch, KnowsBothSides) {
  EXPECT_TRUE(*ParseSwitch("on"));
  EXPECT_FALSE(*ParseSwitch("disabled"));
  EXPECT_FALSE(ParseSwitch("perhaps"));
}

TEST(ParseKvType, ReadsTheNamesItPrints) {
  for (const KvType type :
       {KvType::kAuto, KvType::kF16, KvType::kBf16, KvType::kF32, KvType::kQ8}) {
    EXPECT_EQ(*ParseKvType(KvTypeName(type)), type);
  }
  EXPECT_EQ(*ParseKvType("q8_0"), KvType::kQ8);
  for (const Compute compute : {Compute::kAuto, Compute::kF32}) {
    EXPECT_EQ(*ParseCompute(ComputeName(compute)), compute);
  }
}

}  // namespace
}  // namespace rkv::cli
