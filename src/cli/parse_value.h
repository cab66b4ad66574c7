// Option values from text. Every error names the bad text and what is allowed.
#ifndef RKV_CLI_PARSE_VALUE_H_
#define RKV_CLI_PARSE_VALUE_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "rkv/options.h"
#include "rkv/status.h"

namespace rkv::cli {

// All: Errors: kInvalidArgument. Pure.

// A whole number within [low, high].
Result<std::int64_t> ParseInt(std::string_view text, std::int64_t low, std::int64_t high);
// A finite number within [low, high].
Result<float> ParseFloat(std::string_view text, float low, float high);
// "4096", "512M", "1.5G", "2GiB": K, M, G and T are binary, in either case, with an optional B or
// iB.
Result<std::size_t> ParseBytes(std::string_view text);
// true, 1, on, yes, enabled and their opposites.
Result<bool> ParseSwitch(std::string_view text);
// auto, f16, bf16, f32, q8, and q8_0 for q8.
Result<KvType> ParseKvType(std::string_view text);
// auto, f32.
Result<Compute> ParseCompute(std::string_view text);

// The names that the parsers above read.
std::string_view KvTypeName(KvType type);
std::string_view ComputeName(Compute compute);

}  // namespace rkv::cli

#endif  // RKV_CLI_PARSE_VALUE_H_
