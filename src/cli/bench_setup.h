// Who takes part in `rkv bench`: our engine, the peers, and the ids that all of them get.
#ifndef RKV_CLI_BENCH_SETUP_H_
#define RKV_CLI_BENCH_SETUP_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/bench_plan.h"
#include "bench/racer.h"
#include "bench/token_feed.h"
#include "cli/api.h"
#include "cli/console.h"
#include "cli/options.h"

namespace rkv::cli {

// Methods, shape, peers and their settings. Errors: kInvalidArgument; names the flag, the value and
// what there is.
Status CheckBench(const BenchOptions& options, const EngineApi& api);

// Everything that takes turns; the engine comes first and outlives what uses it.
struct Contest {
  std::unique_ptr<Engine> engine;
  std::optional<bench::TokenFeed> feed;
  std::vector<std::unique_ptr<bench::Racer>> racers;  // ours, then the peers as asked for
  std::uint64_t weight_bytes = 0;                     // of one token
};

struct ContestPlan {
  std::vector<bench::Cell> cells;
  int threads = 0;
  std::string text;  // to take ids from; empty: random ids
};

// Opens them. Errors: those of the engine and of the peers, with the peer's name.
Result<std::unique_ptr<Contest>> OpenContest(const Options& options, const ContestPlan& plan,
                                             const EngineApi& api, Console& console);

}  // namespace rkv::cli

#endif  // RKV_CLI_BENCH_SETUP_H_
