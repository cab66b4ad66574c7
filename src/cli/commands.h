// The commands of rkv. Each returns the process's exit code and has printed its errors.
#ifndef RKV_CLI_COMMANDS_H_
#define RKV_CLI_COMMANDS_H_

#include <span>
#include <string>

#include "cli/api.h"
#include "cli/args.h"
#include "cli/console.h"
#include "cli/options.h"

namespace rkv::cli {

// The whole program behind main: parses, checks method strings, runs the command, reports a
// standard output that could not be written. Never throws.
int Main(std::span<const std::string> args, const GetEnv& get_env, const EngineApi& api,
         Console& console);

int Run(const Options& options, const EngineApi& api, Console& console);
int Chat(const Options& options, const EngineApi& api, Console& console);
int Info(const Options& options, const EngineApi& api, Console& console);
int Bench(const Options& options, const EngineApi& api, Console& console);
int Calibrate(const Options& options, const EngineApi& api, Console& console);
int Policies(const Options& options, const EngineApi& api, Console& console);

}  // namespace rkv::cli

#endif  // RKV_CLI_COMMANDS_H_
