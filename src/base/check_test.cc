#include "base/check.h"

#include <gtest/gtest.h>

namespace rkv {
namespace {

TEST(CheckDeathTest, AbortsWithPlaceAndText) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Check(true, "fine");
  EXPECT_DEATH(Check(1 + 1 == 3, "sums are broken"),
               "check_test.cc:[0-9]+: internal check failed: sums are broken");
}

}  // namespace
}  // namespace rkv
