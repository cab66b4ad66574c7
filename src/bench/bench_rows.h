// From what was measured to the rows that are printed: ratios, traffic, share of the roofline.
#ifndef RKV_BENCH_BENCH_ROWS_H_
#define RKV_BENCH_BENCH_ROWS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/bench_run.h"
#include "bench/bench_stats.h"
#include "bench/roofline.h"

namespace rkv::bench {

// One setting in one test. A figure that does not exist is nullopt: a prompt test has no traffic, a
// run without a peer no ratio to it.
struct Row {
  Setting setting;
  std::string test;  // "tg128 @ d4096"
  std::int32_t depth = 0;
  int threads = 0;
  std::string skipped;  // why there are no figures
  bool peer_best = false;
  Spread tokens_per_second;
  std::optional<double> ratio_to_peer;            // to the fastest setting of all peers
  std::optional<double> ratio_to_peer_default;    // to what the first peer does without flags
  std::optional<double> ratio_to_full;            // to our own `full`; of our settings only
  std::optional<double> predicted_ratio_to_full;  // what the bandwidth model allows
  std::optional<double> kv_bytes_per_token;
  std::optional<double> gb_per_second;        // weights and KV of a token x tokens per second
  std::optional<double> probe_gb_per_second;  // a plain read of as many bytes, median
  std::optional<double> roofline_share;       // of the two above
  // Of one token, by stage without its phase ("linear", "attend"); "rest" is what no stage has. In
  // a prompt test "last_token" is the decode step that ends the prompt. Empty when not known.
  std::map<std::string, double> stage_seconds;
};

// Rows of one cell in the order of its entries; entries that were never timed and say no reason are
// left out. `cache`: the shape of ours, without its lengths. Pure.
std::vector<Row> MakeRows(const CellResult& result, const ExplainShape& cache, int threads);

}  // namespace rkv::bench

#endif  // RKV_BENCH_BENCH_ROWS_H_
