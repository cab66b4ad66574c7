// The command line and the environment, turned into Options.
#ifndef RKV_CLI_ARGS_H_
#define RKV_CLI_ARGS_H_

#include <functional>
#include <span>
#include <string>

#include "cli/options.h"
#include "rkv/status.h"

namespace rkv::cli {

// std::getenv, or a test's own.
using GetEnv = std::function<const char*(const char* name)>;

// Parses everything after the program's name. Precedence: argument, RKV_<FLAG>, LLAMA_ARG_<FLAG>
// (for the flags that llama.cpp has), default. An empty variable counts as not set.
// Errors: kInvalidArgument for whatever the command line alone shows to be wrong; names the flag or
// variable, the value and what is allowed. Method strings are not checked here.
Result<Options> ParseArgs(std::span<const std::string> args, const GetEnv& get_env);

// Help of one command; Command::kNone: the list of commands.
std::string HelpText(Command command);

}  // namespace rkv::cli

#endif  // RKV_CLI_ARGS_H_
