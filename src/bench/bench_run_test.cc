#include "bench/bench_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/testing/fake_racer.h"

namespace rkv::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

struct Fixture {
  std::vector<std::string> log;
  FakeRacer ours{{{.engine = "rkv", .kv = "full", .weight_bytes = 1 << 20},
                  {.engine = "rkv", .name = "2", .kv = "hsa", .weight_bytes = 1 << 20}},
                 log};
  FakeRacer peer{{{.engine = "peer", .kv = "f16", .peer = true}}, log};
  StreamProbe probe{2, std::size_t{4} << 20};
  BusyWatch watch;
  RunOptions options = {
      .repetitions = 2, .warmup = false, .stop = [] { return false; }, .on_step = {}};

  RunResult Run(const std::vector<Cell>& cells) {
    const std::vector<Racer*> racers = {&ours, &peer};
    return RunCells(cells, racers, options, probe, watch);
  }
};

TEST(RunCells, GivesEachSettingItsTurnInEachRepetition) {
  Fixture f;
  const RunResult result = f.Run({{Phase::kDecode, 8, 100}});
  EXPECT_TRUE(result.status.ok());
  EXPECT_THAT(f.log,
              ElementsAre("rkv fill 100+8", "rkv tg8", "rkv2 tg8", "peer fill 100+8", "peer tg8",
                          "rkv fill 100+8", "rkv tg8", "rkv2 tg8", "peer fill 100+8", "peer tg8"));
  ASSERT_THAT(result.cells, SizeIs(1));
  EXPECT_THAT(result.cells[0].entries[2].tokens_per_second, ElementsAre(1, 1));
}

TEST(RunCells, WarmsUpUntimed) {
  Fixture f;
  f.options.warmup = true;
  f.options.repetitions = 1;
  const RunResult result = f.Run({{Phase::kPrompt, 512, 0}});
  EXPECT_THAT(
      f.log, ElementsAre("rkv fill 0+1", "rkv pp64", "rkv2 pp64", "peer fill 0+1", "peer pp64",
                         "rkv fill 0+1", "rkv pp512", "rkv2 pp512", "peer fill 0+1", "peer pp512"));
  EXPECT_THAT(result.cells[0].entries[0].tokens_per_second, SizeIs(1));
}

TEST(RunCells, ProbesAsManyBytesAsATokenReads) {
  Fixture f;
  const RunResult result = f.Run({{Phase::kPrompt, 8, 0}, {Phase::kDecode, 8, 0}});
  EXPECT_THAT(result.cells[0].entries[0].probe_gb_per_second, SizeIs(0));
  EXPECT_THAT(result.cells[1].entries[0].probe_gb_per_second, SizeIs(2));
  EXPECT_THAT(result.cells[1].entries[2].probe_gb_per_second, SizeIs(0));  // weights unknown
  EXPECT_THAT(result.dram_gb_per_second, SizeIs(2));
  EXPECT_GT(result.dram_gb_per_second[0], 0);
}

TEST(RunCells, LeavesOutWhatASettingCannotDo) {
  Fixture f;
  f.peer.decode_status = Status(Code::kUnsupported, "no decoding");
  const RunResult result = f.Run({{Phase::kDecode, 8, 0}});
  EXPECT_TRUE(result.status.ok());
  EXPECT_EQ(result.cells[0].entries[2].skipped, "no decoding");
  EXPECT_THAT(result.cells[0].entries[0].tokens_per_second, SizeIs(2));
}

TEST(RunCells, KeepsWhatWasMeasuredBeforeAnEnd) {
  Fixture f;
  f.ours.calls_until_end = 3;
  const RunResult result = f.Run({{Phase::kDecode, 8, 0}, {Phase::kDecode, 9, 0}});
  EXPECT_EQ(result.status.code(), Code::kCancelled);
  ASSERT_THAT(result.cells, SizeIs(1));
  EXPECT_THAT(result.cells[0].entries[0].tokens_per_second, SizeIs(2));
  EXPECT_THAT(result.cells[0].entries[1].tokens_per_second, SizeIs(1));
}

TEST(RunCells, AnnouncesItsSteps) {
  Fixture f;
  std::vector<std::string> labels;
  std::int64_t last = 0;
  f.options.on_step = [&](const Step& step) {
    labels.push_back(step.label);
    last = step.done;
    EXPECT_EQ(step.steps, 6);
  };
  f.Run({{Phase::kDecode, 8, 100}});
  EXPECT_EQ(labels[1], "tg8 @ d100, rkv full, 1 of 2");
  EXPECT_EQ(last, 5);
}

}  // namespace
}  // namespace rkv::bench
