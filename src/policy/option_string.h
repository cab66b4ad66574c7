// The method string "name:option=value,option=value" and checked access to its values.
#ifndef RKV_POLICY_OPTION_STRING_H_
#define RKV_POLICY_OPTION_STRING_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "policy/policy.h"
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

// Splits a method string; knows no method. Spaces are not skipped.
// Errors: kInvalidArgument for an option that is not name=value or that is given twice.
Result<MethodString> ParseMethodString(std::string_view spec);

// Inclusive bounds of a whole number.
struct IntRange {
  std::int32_t low = 0;
  std::int32_t high = 0;
  bool odd = false;        // only odd values
  bool automatic = false;  // "auto" is allowed too and reads as 0
};

// Reads typed values of one method. The first error sticks: later calls do nothing, so that a
// method reads all its options and asks once. An option that is not given leaves its target as is.
// Every error is kInvalidArgument and names option, value and what is allowed.
class OptionReader {
 public:
  // Refuses options that `known` does not list, with the nearest and all names.
  OptionReader(const MethodString& given, std::span<const OptionInfo> known);

  void Int(std::string_view option, const IntRange& range, std::int32_t& target);
  // A number in [0, 1], or "auto", which reads as -1.
  void FractionOrAuto(std::string_view option, double& target);
  // A number in [low, high].
  void Number(std::string_view option, double low, double high, double& target);
  // One of two words; target tells whether it is `yes`.
  void Choice(std::string_view option, std::string_view yes, std::string_view no, bool& target);
  // An error of the method's own about the given option.
  void Refuse(std::string_view option, std::string_view allowed);

  const Status& status() const { return status_; }

 private:
  // The option's text, or null when it is not given or an error came before.
  const std::string* Find(std::string_view option) const;

  const MethodString& given_;
  Status status_;
};

// "; did you mean 'a'? known: a, b" for messages about an unknown name.
std::string NearestAndAll(std::string_view word, std::span<const std::string_view> known);

}  // namespace rkv::policy

#endif  // RKV_POLICY_OPTION_STRING_H_
