// The table of flags: names, help, which commands take them, how a value is stored.
#ifndef RKV_CLI_FLAGS_H_
#define RKV_CLI_FLAGS_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "cli/options.h"
#include "rkv/status.h"

namespace rkv::cli {

// Which commands take a flag; a set of bits.
using CommandSet = unsigned;
constexpr CommandSet In(Command command) { return 1U << static_cast<unsigned>(command); }

enum class FlagValue : std::uint8_t { kNone, kRequired, kOptional };
// When a flag is given more than once. kError: a lost document or question would go unnoticed.
enum class FlagRepeat : std::uint8_t { kLastWins, kAll, kError };

struct Flag {
  std::string_view names;        // "-n,--predict,--n-predict"; the first long one names the flag
  std::string_view alias;        // a single dash and several letters, "-sys"; empty: none
  std::string_view placeholder;  // "N"
  std::string_view help;
  std::string_view group;
  CommandSet commands;
  std::string_view
      llama_env;  // LLAMA_ARG_ names besides the long ones, by commas; "-": none at all
  FlagValue value = FlagValue::kRequired;
  FlagRepeat repeat = FlagRepeat::kLastWins;
  // Stores one value. Errors: kInvalidArgument, without the flag's name.
  Status (*assign)(std::string_view value, Options& options);
};

std::span<const Flag> Flags();

// "--predict": the name that messages and environment variables are built from.
std::string_view LongName(const Flag& flag);

}  // namespace rkv::cli

#endif  // RKV_CLI_FLAGS_H_
