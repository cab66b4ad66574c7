// The method string "name:option=value,option=value" taken apart.
#ifndef RKV_POLICY_OPTION_STRING_H_
#define RKV_POLICY_OPTION_STRING_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rkv/status.h"

namespace rkv::policy {

struct MethodString {
  struct Option {
    std::string name;
    std::string value;
  };
  std::string method;
  std::vector<Option> options;
};

// What a string without a name is: "evict=snapkv,select=hsa".
inline constexpr std::string_view kComposed = "compose";

// Splits a method string; knows no method. Spaces are not skipped. A string that begins with an
// option is one of kComposed.
// Errors: kInvalidArgument for an option that is not name=value or that is given twice.
Result<MethodString> ParseMethodString(std::string_view spec);

// "; did you mean 'a'? known: a, b" for messages about an unknown name.
std::string NearestAndAll(std::string_view word, std::span<const std::string_view> known);

}  // namespace rkv::policy

#endif  // RKV_POLICY_OPTION_STRING_H_
