#include "policy/option_string.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <system_error>

#include "base/text.h"

namespace rkv::policy {
namespace {

constexpr std::string_view kAuto = "auto";

// The whole text as a number; false when it is none or does not fit.
template <class T>
bool ParseNumber(std::string_view text, T& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size();
}

Result<MethodString::Option> ParseOption(std::string_view text, const MethodString& before) {
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0 || equals + 1 == text.size()) {
    return Status(Code::kInvalidArgument,
                  fmt::format("option '{}' of method '{}' is not of the form name=value", text,
                              before.method));
  }
  MethodString::Option option{std::string(text.substr(0, equals)),
                              std::string(text.substr(equals + 1))};
  for (const MethodString::Option& other : before.options) {
    if (other.name == option.name) {
      return Status(Code::kInvalidArgument,
                    fmt::format("option '{}' of method '{}' is given twice: '{}' and '{}'",
                                option.name, before.method, other.value, option.value));
    }
  }
  return option;
}

std::string Describe(const IntRange& range) {
  return fmt::format("{}{} from {} to {}", range.automatic ? "auto or " : "",
                     range.odd ? "an odd whole number" : "a whole number", range.low, range.high);
}

}  // namespace

Result<MethodString> ParseMethodString(std::string_view spec) {
  const std::size_t colon = spec.find(':');
  MethodString out;
  out.method = spec.substr(0, colon);
  if (colon == std::string_view::npos) {
    return out;
  }
  for (std::string_view rest = spec.substr(colon + 1);;) {
    const std::size_t comma = rest.find(',');
    Result<MethodString::Option> option = ParseOption(rest.substr(0, comma), out);
    if (!option) {
      return option.error();
    }
    out.options.push_back(*std::move(option));
    if (comma == std::string_view::npos) {
      return out;
    }
    rest.remove_prefix(comma + 1);
  }
}

std::string NearestAndAll(std::string_view word, std::span<const std::string_view> known) {
  const std::string_view nearest = NearestName(word, known);
  const std::string hint = nearest.empty() ? "" : fmt::format("did you mean '{}'? ", nearest);
  return fmt::format("; {}known: {}", hint, fmt::join(known, ", "));
}

OptionReader::OptionReader(const MethodString& given, std::span<const OptionInfo> known)
    : given_(given) {
  std::vector<std::string_view> names;
  for (const OptionInfo& info : known) {
    names.emplace_back(info.name);
  }
  for (const MethodString::Option& option : given.options) {
    if (std::find(names.begin(), names.end(), option.name) == names.end()) {
      const std::string rest =
          names.empty() ? ", it takes none" : NearestAndAll(option.name, names);
      status_ = Status(Code::kInvalidArgument, fmt::format("method '{}' has no option '{}'{}",
                                                           given.method, option.name, rest));
      return;
    }
  }
}

const std::string* OptionReader::Find(std::string_view option) const {
  const auto found =
      std::find_if(given_.options.begin(), given_.options.end(),
                   [&](const MethodString::Option& other) { return other.name == option; });
  return status_.ok() && found != given_.options.end() ? &found->value : nullptr;
}

void OptionReader::Int(std::string_view option, const IntRange& range, std::int32_t& target) {
  const std::string* const text = Find(option);
  if (text == nullptr) {
    return;
  }
  if (range.automatic && *text == kAuto) {
    target = 0;
    return;
  }
  std::int32_t value = 0;
  if (!ParseNumber(*text, value) || value < range.low || value > range.high ||
      (range.odd && value % 2 == 0)) {
    Refuse(option, Describe(range));
    return;
  }
  target = value;
}

void OptionReader::FractionOrAuto(std::string_view option, double& target) {
  const std::string* const text = Find(option);
  if (text == nullptr) {
    return;
  }
  double value = -1.0;
  if (*text != kAuto && (!ParseNumber(*text, value) || !(value >= 0.0 && value <= 1.0))) {
    Refuse(option, "auto or a number from 0 to 1");
    return;
  }
  target = value;
}

void OptionReader::Number(std::string_view option, double low, double high, double& target) {
  const std::string* const text = Find(option);
  if (text == nullptr) {
    return;
  }
  double value = 0.0;
  if (!ParseNumber(*text, value) || !(value >= low && value <= high)) {
    Refuse(option, fmt::format("a number from {} to {}", low, high));
    return;
  }
  target = value;
}

void OptionReader::Choice(std::string_view option, std::string_view yes, std::string_view no,
                          bool& target) {
  const std::string* const text = Find(option);
  if (text == nullptr) {
    return;
  }
  if (*text != yes && *text != no) {
    Refuse(option, fmt::format("{} or {}", no, yes));
    return;
  }
  target = *text == yes;
}

void OptionReader::Refuse(std::string_view option, std::string_view allowed) {
  const std::string* const text = Find(option);
  if (text != nullptr) {
    status_ = Status(Code::kInvalidArgument,
                     fmt::format("option '{}' of method '{}' is '{}', allowed: {}", option,
                                 given_.method, *text, allowed));
  }
}

}  // namespace rkv::policy
