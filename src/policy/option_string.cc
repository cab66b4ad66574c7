#include "policy/option_string.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace rkv::policy {
namespace {

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

}  // namespace

Result<MethodString> ParseMethodString(std::string_view spec) {
  const std::size_t colon = spec.find(':');
  MethodString out;
  std::string_view rest = spec;
  if (spec.substr(0, colon).find('=') == std::string_view::npos) {
    out.method = spec.substr(0, colon);
    if (colon == std::string_view::npos) {
      return out;
    }
    rest = spec.substr(colon + 1);
  } else {
    out.method = kComposed;
  }
  for (;;) {
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

}  // namespace rkv::policy
