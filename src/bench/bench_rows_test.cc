#include "bench/bench_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rkv::bench {
namespace {

using ::testing::SizeIs;

constexpr ExplainShape kShape = {.layers = 1, .kv_heads = 1, .group = 1, .head_dim = 64};

Entry Timed(Setting setting, std::vector<double> speeds) {
  Entry entry;
  entry.setting = std::move(setting);
  entry.tokens_per_second = std::move(speeds);
  return entry;
}

CellResult Decode() {
  CellResult result = {{Phase::kDecode, 9, 995}, {}};
  result.entries = {
      Timed({.engine = "rkv", .kv = "full", .weight_bytes = 744'000}, {20, 10, 30}),
      Timed({.engine = "rkv", .kv = "other", .weight_bytes = 744'000}, {40, 40, 40}),
      Timed({.engine = "peer", .name = "a", .kv = "f16", .peer = true, .is_default = true},
            {5, 5, 5}),
      Timed({.engine = "peer", .name = "b", .kv = "f16", .peer = true}, {10, 10, 10})};
  result.entries[0].kv_bytes_per_token = 256'000;
  result.entries[0].probe_gb_per_second = {0.1, 0.04, 0.1};
  result.entries[1].kv_bytes_per_token = 56'000;
  result.entries[1].probe_gb_per_second = {0.16};
  return result;
}

TEST(MakeRows, TakesRatiosOfMedians) {
  const std::vector<Row> rows = MakeRows(Decode(), kShape, 2);
  ASSERT_THAT(rows, SizeIs(4));
  EXPECT_EQ(rows[0].test, "tg9 @ d995");
  EXPECT_EQ(rows[0].threads, 2);
  EXPECT_DOUBLE_EQ(rows[0].tokens_per_second.median, 20);
  EXPECT_DOUBLE_EQ(*rows[0].ratio_to_peer, 2);
  EXPECT_DOUBLE_EQ(*rows[0].ratio_to_peer_default, 4);
  EXPECT_DOUBLE_EQ(*rows[0].ratio_to_full, 1);
  EXPECT_DOUBLE_EQ(*rows[1].ratio_to_full, 2);
  EXPECT_DOUBLE_EQ(*rows[2].ratio_to_peer, 0.5);
  EXPECT_FALSE(rows[2].ratio_to_full);
  EXPECT_FALSE(rows[2].peer_best);
  EXPECT_TRUE(rows[3].peer_best);
}

TEST(MakeRows, ComparesTrafficWithTheProbe) {
  const std::vector<Row> rows = MakeRows(Decode(), kShape, 2);
  EXPECT_DOUBLE_EQ(*rows[0].gb_per_second, 0.02);       // 1 MB a token
  EXPECT_DOUBLE_EQ(*rows[0].probe_gb_per_second, 0.1);  // 100 tok/s
  EXPECT_DOUBLE_EQ(*rows[0].roofline_share, 0.2);
  EXPECT_DOUBLE_EQ(*rows[1].roofline_share, 0.2);  // 0.8 MB a token, 200 tok/s
  EXPECT_FALSE(rows[0].predicted_ratio_to_full);
  EXPECT_DOUBLE_EQ(*rows[1].predicted_ratio_to_full, 1.25);  // 1 MB against 0.8 MB
  EXPECT_FALSE(rows[3].gb_per_second);                       // weights unknown
}

TEST(MakeRows, HasNoTrafficOfAPrompt) {
  CellResult result = {{Phase::kPrompt, 4, 0},
                       {Timed({.engine = "rkv", .kv = "full"}, {0.5, 0.5})}};
  result.entries[0].stage_seconds = {
      {"prefill.linear", 3.0}, {"decode.linear", 0.25}, {"decode.output", 0.25}};
  const std::vector<Row> rows = MakeRows(result, kShape, 1);
  EXPECT_FALSE(rows[0].kv_bytes_per_token);
  EXPECT_FALSE(rows[0].ratio_to_peer);
  EXPECT_DOUBLE_EQ(rows[0].stage_seconds.at("linear"), 1.5);
  EXPECT_DOUBLE_EQ(rows[0].stage_seconds.at("last_token"), 0.25);
  EXPECT_DOUBLE_EQ(rows[0].stage_seconds.at("rest"), 0.25);  // 2 s a token
}

TEST(MakeRows, KeepsReasonsAndDropsWhatNeverBegan) {
  CellResult result = {{Phase::kDecode, 4, 0}, {Entry{}, Entry{}}};
  result.entries[0].skipped = "cannot";
  const std::vector<Row> rows = MakeRows(result, kShape, 1);
  ASSERT_THAT(rows, SizeIs(1));
  EXPECT_EQ(rows[0].skipped, "cannot");
}

}  // namespace
}  // namespace rkv::bench
