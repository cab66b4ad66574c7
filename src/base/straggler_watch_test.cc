#include "base/straggler_watch.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace rkv {
namespace {

TEST(StragglerWatch, EveryoneTakesPartAtFirst) {
  const StragglerWatch watch(3);
  for (std::size_t member = 0; member < 3; ++member) {
    EXPECT_TRUE(watch.TakesPart(member, 1.0));
  }
}

TEST(StragglerWatch, ALateMemberPausesAloneAndComesBack) {
  StragglerWatch watch(2);
  watch.Late(1, 5.0);
  EXPECT_FALSE(watch.TakesPart(1, 5.0));
  EXPECT_FALSE(watch.TakesPart(1, 5.0 + StragglerWatch::kFirstPause * 0.99));
  EXPECT_TRUE(watch.TakesPart(1, 5.0 + StragglerWatch::kFirstPause * 1.01));
  EXPECT_TRUE(watch.TakesPart(0, 5.0));
}

TEST(StragglerWatch, PausesDoubleWhileTrialsFailUpToALimit) {
  StragglerWatch watch(1);
  double now = 1.0;
  double pause = StragglerWatch::kFirstPause;
  for (int trial = 0; trial < 10; ++trial) {
    watch.Late(0, now);
    EXPECT_FALSE(watch.TakesPart(0, now + pause * 0.99)) << trial;
    EXPECT_TRUE(watch.TakesPart(0, now + pause * 1.01)) << trial;
    now += pause * 1.01;
    pause = std::min(pause * 2, StragglerWatch::kLongestPause);
  }
}

TEST(StragglerWatch, AfterAGoodWhileThePauseIsShortAgain) {
  StragglerWatch watch(1);
  watch.Late(0, 1.0);
  watch.Late(0, 1.0 + StragglerWatch::kFirstPause + 0.001);
  const double later = 2.0;
  watch.Late(0, later);
  EXPECT_TRUE(watch.TakesPart(0, later + StragglerWatch::kFirstPause * 1.01));
}

TEST(StragglerWatch, PatienceCoversLongTasks) {
  EXPECT_GT(StragglerWatch::Patience(0.01), 0.05);
  EXPECT_GT(StragglerWatch::Patience(0.0), 100e-6);
}

}  // namespace
}  // namespace rkv
