// Rewrites arguments into the plain form that CLI11 reads.
#ifndef RKV_CLI_PLAIN_ARGS_H_
#define RKV_CLI_PLAIN_ARGS_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/flags.h"
#include "rkv/status.h"

namespace rkv::cli {

// "--flag" "value" pairs and bare "--flag"s, in order. CLI11 knows neither names of several letters
// behind one dash (-sys, -ctk), nor a value that may be left out (-fa), nor an empty one after '=';
// a bare model file becomes --model. The command's flags are `flags`.
// Errors: kInvalidArgument for an unknown flag (names the nearest), a missing value, a value where
// none belongs, an argument that belongs to no flag.
Result<std::vector<std::string>> PlainArgs(std::span<const Flag* const> flags, Command command,
                                           std::span<const std::string> args);

}  // namespace rkv::cli

#endif  // RKV_CLI_PLAIN_ARGS_H_
