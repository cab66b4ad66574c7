// The result of `rkv bench`: what was measured, on what, and its four formats.
#ifndef RKV_CLI_BENCH_REPORT_H_
#define RKV_CLI_BENCH_REPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "bench/bench_rows.h"
#include "bench/bench_stats.h"
#include "cli/bench_options.h"
#include "rkv/engine.h"

namespace rkv::cli {

// One thread count's part of the run.
struct BenchTeam {
  int threads = 0;
  std::size_t dram_probe_bytes = 0;
  bench::Spread dram_gb_per_second;  // 0: no decode test ran
  double others_busy = 0;            // CPUs that other processes kept busy in timed phases
  double steal = 0;
};

struct BenchReport {
  std::string version;
  std::string cpu;
  ModelInfo model;
  EngineOptions settings;
  std::uint64_t weight_bytes_per_token = 0;
  std::string fill;    // "prompt", "random"
  std::string tokens;  // where ids come from
  int repetitions = 0;
  std::vector<std::string> peers;  // version of each
  std::vector<BenchTeam> teams;
  std::vector<std::string> warnings;
  std::vector<bench::Row> rows;
};

// docs/cli.md describes the fields.
std::string FormatBench(const BenchReport& report, BenchFormat format);

// The formats; FormatBench picks one.
std::string BenchMarkdown(const BenchReport& report);
std::string BenchCsv(const BenchReport& report);
std::string BenchJson(const BenchReport& report);
std::string BenchJsonLines(const BenchReport& report);

}  // namespace rkv::cli

#endif  // RKV_CLI_BENCH_REPORT_H_
