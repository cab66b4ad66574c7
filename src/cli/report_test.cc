#include "cli/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/stats_table.h"

namespace rkv::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(StatusBytes, ReadsKibibytesOfTheRightLine) {
  const char* const status = "Name:\trkv\nVmHWM:\t    20 kB\nVmRSS:\t    10 kB\n";
  EXPECT_EQ(StatusBytes(status, "VmRSS"), 10U * 1024);
  EXPECT_EQ(StatusBytes(status, "VmHWM"), 20U * 1024);
  EXPECT_EQ(StatusBytes(status, "VmSwap"), 0U);
}

TEST(TurnStats, SubtractsCountsAndKeepsState) {
  SessionStats before;
  before.prompt_tokens = 100;
  before.generated_tokens = 10;
  before.prefill_seconds = 2;
  before.stage_seconds = {{"a", 1.0}};
  before.warnings = {"old"};
  SessionStats after = before;
  after.prompt_tokens = 130;
  after.generated_tokens = 15;
  after.prefill_seconds = 2.5;
  after.kv_bytes_kept = 77;
  after.stage_seconds = {{"a", 1.25}, {"b", 3.0}};
  after.warnings = {"old", "new"};
  const SessionStats turn = TurnStats(before, after);
  EXPECT_EQ(turn.prompt_tokens, 30);
  EXPECT_EQ(turn.generated_tokens, 5);
  EXPECT_DOUBLE_EQ(turn.prefill_seconds, 0.5);
  EXPECT_EQ(turn.kv_bytes_kept, 77U);
  EXPECT_DOUBLE_EQ(turn.stage_seconds.at("a"), 0.25);
  EXPECT_DOUBLE_EQ(turn.stage_seconds.at("b"), 3.0);
  EXPECT_THAT(turn.warnings, ElementsAre("new"));
}

TEST(StatsTable, PutsMethodsSideBySide) {
  Report a;
  a.method = "rocketkv:budget=512";
  a.stats.kv_bytes_full = 4096;
  a.stats.kv_bytes_kept = 1024;
  a.stats.generated_tokens = 10;
  a.stats.decode_seconds = 2;
  Report b = a;
  b.method = "full";
  b.stats.kv_bytes_kept = 4096;
  const Report both[] = {a, b};
  const std::string table = StatsTable(both);
  EXPECT_THAT(table, HasSubstr("method                rocketkv:budget=512       full\n"));
  EXPECT_THAT(table,
              HasSubstr("KV kept               1.00 KiB (25.0%)          4.00 KiB (100.0%)\n"));
  EXPECT_THAT(table, HasSubstr("5.0 tok/s (2.00 s)"));
}

TEST(StageTable, StartsWithTheMostExpensiveStage) {
  Report report;
  report.stats.stage_seconds = {{"cheap", 0.5}, {"dear", 2}};
  EXPECT_EQ(StageTable(report),
            "dear                  2.000 s\n"
            "cheap                 0.500 s\n");
}

TEST(PerSecond, IsZeroWithoutTime) { EXPECT_EQ(PerSecond(5, 0), 0.0); }

}  // namespace
}  // namespace rkv::cli
