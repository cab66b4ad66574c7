#include "base/clock.h"

#include <gtest/gtest.h>

namespace rkv {
namespace {

TEST(Clock, NeverGoesBack) {
  double last = NowSeconds();
  for (int i = 0; i < 1000; ++i) {
    const double now = NowSeconds();
    ASSERT_GE(now, last);
    last = now;
  }
}

TEST(StageTimer, AddsUpScopes) {
  double seconds = 1.0;
  const double start = NowSeconds();
  {
    const StageTimer timer(&seconds);
    while (NowSeconds() - start < 0.002) {
    }
  }
  EXPECT_GE(seconds, 1.002 - 1e-4);
  EXPECT_LE(seconds, 1.0 + (NowSeconds() - start));
}

}  // namespace
}  // namespace rkv
