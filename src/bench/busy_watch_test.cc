#include "bench/busy_watch.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include "bench/stream_probe.h"

namespace rkv::bench {
namespace {

constexpr const char* kStat =
    "cpu  100 0 50 1000 5 1 2 7 0 0\n"
    "cpu0 60 10 30 500 5 1 2 3 9 0\n"
    "cpu1 40 0 20 500 0 0 0 4 0 0\n"
    "intr 12 13\n";

TEST(ParseProcStat, AddsUpTheCpusAskedFor) {
  const std::vector<int> first = {0};
  EXPECT_DOUBLE_EQ(ParseProcStat(kStat, first)->busy, 103);  // guest time is in user
  EXPECT_DOUBLE_EQ(ParseProcStat(kStat, first)->steal, 3);
  EXPECT_DOUBLE_EQ(ParseProcStat(kStat, {})->busy, 163);
  EXPECT_DOUBLE_EQ(ParseProcStat(kStat, {})->steal, 7);
}

TEST(ParseProcStat, RefusesOtherText) {
  EXPECT_FALSE(ParseProcStat("", {}));
  EXPECT_FALSE(ParseProcStat("cpu0 1 2\n", {}));
  EXPECT_FALSE(ParseProcStat(kStat, std::vector<int>{9}));
}

TEST(ParseProcessTicks, ReadsOwnAndChildrensTime) {
  EXPECT_DOUBLE_EQ(
      *ParseProcessTicks("12 (a) name) S 1 1 1 0 -1 4194304 10 20 30 40 500 60 7 8 20 0 3 0 99 1"),
      575);
  EXPECT_FALSE(ParseProcessTicks("12 (name) S 1 2"));
  EXPECT_FALSE(ParseProcessTicks("nothing"));
}

// A machine whose ticks the test sets; 100 ticks are a second.
struct FakeMachine {
  double busy = 0;
  double steal = 0;
  double own = 0;
  double seconds = 0;

  BusyWatch Watch() {
    return BusyWatch({[this](const std::string& path) {
                        return path == "/proc/stat"
                                   ? Stat()
                                   : fmt::format("1 (n) R 1 1 1 0 1 1 1 1 1 1 {} 0 0 0 1", own);
                      },
                      [this] { return seconds; }});
  }
  // The first CPU that this process may use does everything.
  std::string Stat() const {
    cpu_set_t set;
    sched_getaffinity(0, sizeof(set), &set);
    int cpu = 0;
    while (!CPU_ISSET(cpu, &set)) {
      ++cpu;
    }
    return fmt::format("cpu{} {} 0 0 0 0 0 0 {} 0 0\n", cpu, busy, steal);
  }
};

TEST(BusyWatch, CountsWhatIsNotOurs) {
  const double ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  FakeMachine machine;
  BusyWatch watch = machine.Watch();
  watch.Begin(1.0);
  machine = {.busy = 7 * ticks, .steal = 1 * ticks, .own = 3 * ticks, .seconds = 4};
  watch.End(3.0);  // 7 s busy, 3 s of us, 2 s of a child: 2 s of others in 4 s
  EXPECT_NEAR(watch.others(), 0.5, 1e-6);
  EXPECT_NEAR(watch.steal(), 0.25, 1e-6);
  EXPECT_THAT(watch.Warnings(), ::testing::ElementsAre(::testing::HasSubstr("50% of a core"),
                                                       ::testing::HasSubstr("25% of a core")));
}

TEST(BusyWatch, IgnoresWhatHappensBetweenPhases) {
  const double ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  FakeMachine machine;
  BusyWatch watch = machine.Watch();
  watch.Begin(0);
  machine = {.busy = ticks, .steal = 0, .own = ticks, .seconds = 1};
  watch.End(0);
  machine.busy += 100 * ticks;
  machine.seconds += 100;
  watch.Begin(0);
  watch.End(0);
  EXPECT_NEAR(watch.others(), 0, 1e-6);
  EXPECT_THAT(watch.Warnings(), ::testing::IsEmpty());
}

TEST(BusyWatch, IsQuietBeforeAnythingWasTimed) {
  const BusyWatch watch;
  EXPECT_EQ(watch.others(), 0);
  EXPECT_THAT(watch.Warnings(), ::testing::IsEmpty());
}

TEST(StreamProbe, ReadsNoMoreThanItHas) {
  StreamProbe probe(2, std::size_t{3} << 20);
  EXPECT_EQ(probe.capacity(), std::size_t{3} << 20);
  EXPECT_GT(probe.Pass(std::size_t{1} << 40), 0);
  EXPECT_EQ(probe.Pass(0), 0);
  EXPECT_EQ(StreamProbe(1, 0).Pass(1000), 0);
  EXPECT_GE(DramProbeBytes(), std::size_t{1} << 20);
}

}  // namespace
}  // namespace rkv::bench
