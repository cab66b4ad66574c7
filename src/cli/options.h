// What the command line asks for, after parsing.
#ifndef RKV_CLI_OPTIONS_H_
#define RKV_CLI_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cli/bench_options.h"
#include "rkv/options.h"

namespace rkv::cli {

enum class Command : std::uint8_t {
  kNone,
  kHelp,
  kVersion,
  kRun,
  kChat,
  kInfo,
  kPolicies,
  kBench,
  kCalibrate
};

struct Options {
  Command command = Command::kNone;
  Command help_topic = Command::kNone;  // kHelp: the command to explain, kNone for all of them

  EngineOptions engine;               // model_path empty: the default model
  int threads_batch = 0;              // -tb; 0: not given
  int batch_tokens = 0;               // -b; 0: not given
  int ubatch_tokens = 0;              // -ub; 0: not given
  KvType value_type = KvType::kAuto;  // -ctv; engine.kv_type holds -ctk until they are compared

  std::string policy = "rocketkv:budget=1024";
  std::string compare;  // a second method string; empty: none
  std::string explain;  // the method string that policies explains; empty: none

  GenerateOptions generate;  // max_tokens -1: no limit; repeat_last_n -1: the whole context
  bool random_seed = true;

  BenchOptions bench;

  std::string calibrate;  // the method that `rkv calibrate` measures heads for
  std::string output;     // its file; "-": standard output

  std::vector<std::string> prompts;  // questions, as turns of one session; empty: the document only
  std::string file;                  // "-": standard input
  std::string system;
  std::string chat_template;
  bool raw = false;
  bool json = false;
  bool verbose = false;
};

}  // namespace rkv::cli

#endif  // RKV_CLI_OPTIONS_H_
