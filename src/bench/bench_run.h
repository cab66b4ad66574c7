// The interleaved run: in every repetition each engine takes its turn in each of its settings.
#ifndef RKV_BENCH_BENCH_RUN_H_
#define RKV_BENCH_BENCH_RUN_H_

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "bench/bench_plan.h"
#include "bench/busy_watch.h"
#include "bench/racer.h"
#include "bench/stream_probe.h"
#include "rkv/status.h"

namespace rkv::bench {

// What one setting did in one test.
struct Entry {
  Setting setting;
  std::vector<double> tokens_per_second;        // one a repetition
  std::vector<double> probe_gb_per_second;      // passes over as many bytes as a token reads
  double kv_bytes_per_token = 0;                // 0: unknown
  std::map<std::string, double> stage_seconds;  // a token, summed over the repetitions
  std::string skipped;                          // why there are no figures; empty: there are
};

struct CellResult {
  Cell cell;
  std::vector<Entry> entries;  // in the order of the racers and their settings
};

// The step that begins; `done` of `steps` are over.
struct Step {
  std::string label;  // "tg128 @ d4096, llama.cpp fa1, 2 of 5"
  std::int64_t done = 0;
  std::int64_t steps = 0;
};

struct RunOptions {
  int repetitions = 5;
  bool warmup = true;
  StopCheck stop;
  std::function<void(const Step&)> on_step;
};

struct RunResult {
  std::vector<CellResult> cells;  // those that were begun
  std::vector<double> dram_gb_per_second;
  Status status;  // kCancelled, or the failure that ended the run; figures before it stand
};

// Runs the cells in order. After each repetition of a decode test `probe` reads as many bytes as
// each setting's token, and its whole buffer. `watch` sees the timed phases.
RunResult RunCells(std::span<const Cell> cells, std::span<Racer* const> racers,
                   const RunOptions& options, StreamProbe& probe, BusyWatch& watch);

}  // namespace rkv::bench

#endif  // RKV_BENCH_BENCH_RUN_H_
