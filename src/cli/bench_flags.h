// Flags of `rkv bench` alone, in llama-bench's names, and what their values mean together.
#ifndef RKV_CLI_BENCH_FLAGS_H_
#define RKV_CLI_BENCH_FLAGS_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/flags.h"
#include "rkv/status.h"

namespace rkv::cli {

std::span<const Flag> BenchFlags();

// Method strings of a list. ';' separates methods; ',' does too where what follows is not an option
// (`key=value`), so that "full,rocketkv:budget=512,window_size=16,hsa" is three. Pure.
// Errors: kInvalidArgument for an empty method.
Result<std::vector<std::string>> SplitMethods(std::string_view text);

// Defaults for lists that no flag gave, and what no single flag shows to be wrong.
// Errors: kInvalidArgument; names the flags.
Status FinishBenchOptions(Options& options);

}  // namespace rkv::cli

#endif  // RKV_CLI_BENCH_FLAGS_H_
