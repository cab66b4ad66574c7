#include "cli/commands.h"

#include <fmt/format.h>

#include <exception>

#include "cli/bench_setup.h"
#include "cli/exit_codes.h"

namespace rkv::cli {
namespace {

int Dispatch(const Options& options, const EngineApi& api, Console& console) {
  switch (options.command) {
    case Command::kNone:
      console.err.Write(HelpText(Command::kNone));
      return kExitUsage;
    case Command::kHelp:
      console.out.Write(HelpText(options.help_topic));
      return kExitOk;
    case Command::kVersion:
      console.out.Write(fmt::format("rkv {}\n", api.version));
      return kExitOk;
    case Command::kRun:
      return Run(options, api, console);
    case Command::kChat:
      return Chat(options, api, console);
    case Command::kInfo:
      return Info(options, api, console);
    case Command::kBench:
      return Bench(options, api, console);
    case Command::kCalibrate:
      return Calibrate(options, api, console);
    case Command::kPolicies:
      break;
  }
  return Policies(options, api, console);
}

// Method strings, before a model is loaded for nothing.
Status CheckMethods(const Options& options, const EngineApi& api) {
  if (options.command == Command::kBench) {
    return CheckBench(options.bench, api);
  }
  Status status = api.check_policy(options.policy);
  if (!status.ok()) {
    return Status(status.code(), "--kv: " + status.message());
  }
  if (!options.compare.empty()) {
    status = api.check_policy(options.compare);
    if (!status.ok()) {
      return Status(status.code(), "--compare: " + status.message());
    }
  }
  if (!options.explain.empty()) {
    status = api.check_policy(options.explain);
    if (!status.ok()) {
      return Status(status.code(), "--explain: " + status.message());
    }
  }
  return {};
}

int ParseAndDispatch(std::span<const std::string> args, const GetEnv& get_env, const EngineApi& api,
                     Console& console) {
  const Result<Options> options = ParseArgs(args, get_env);
  if (!options) {
    PrintError(console, options.error().message());
    return kExitUsage;
  }
  const Status methods = CheckMethods(*options, api);
  if (!methods.ok()) {
    PrintError(console, methods.message());
    return kExitUsage;
  }
  return Dispatch(*options, api, console);
}

}  // namespace

int Main(std::span<const std::string> args, const GetEnv& get_env, const EngineApi& api,
         Console& console) {
  int code = kExitError;
  try {
    code = ParseAndDispatch(args, get_env, api, console);
  } catch (const std::exception& error) {  // bad_alloc, or a mistake in a library
    PrintError(console, fmt::format("unexpected: {}", error.what()));
  }
  return Finish(console, code);
}

}  // namespace rkv::cli
