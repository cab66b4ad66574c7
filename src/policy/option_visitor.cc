#include "policy/option_visitor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <system_error>

namespace rkv::policy {
namespace {

constexpr std::string_view kAuto = "auto";
constexpr std::array<std::string_view, 2> kNoYes = {"no", "yes"};

// The whole text as a number; false when it is none or does not fit.
template <class T>
bool ParseNumber(std::string_view text, T& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size();
}

std::string Allowed(const IntRange& range) {
  return fmt::format("{}{} from {} to {}", range.automatic ? "auto or " : "",
                     range.odd ? "an odd whole number" : "a whole number", range.low, range.high);
}

std::string Allowed(const NumberRange& range) {
  return fmt::format("{}a number from {} to {}", range.automatic ? "auto or " : "", range.low,
                     range.high);
}

std::string Allowed(std::span<const std::string_view> words) {
  return fmt::format("{}", fmt::join(words, " or "));
}

std::string Value(std::int32_t value, const IntRange& range) {
  return range.automatic && value == 0 ? std::string(kAuto) : fmt::format("{}", value);
}

std::string Value(double value, const NumberRange& range) {
  return range.automatic && value < 0 ? std::string(kAuto) : fmt::format("{}", value);
}

}  // namespace

void OptionVisitor::Switch(std::string_view name, bool& value, std::string_view help) {
  std::size_t word = value ? 1 : 0;
  Choice(name, word, kNoYes, help);
  value = word == 1;
}

void OptionLister::Int(std::string_view name, std::int32_t& value, const IntRange& range,
                       std::string_view help) {
  options.push_back(
      {std::string(name), Value(value, range), fmt::format("{}; {}", help, Allowed(range))});
}

void OptionLister::Number(std::string_view name, double& value, const NumberRange& range,
                          std::string_view help) {
  options.push_back(
      {std::string(name), Value(value, range), fmt::format("{}; {}", help, Allowed(range))});
}

void OptionLister::Choice(std::string_view name, std::size_t& value,
                          std::span<const std::string_view> words, std::string_view help) {
  options.push_back(
      {std::string(name), std::string(words[value]), fmt::format("{}; {}", help, Allowed(words))});
}

void OptionLister::Text(std::string_view name, std::string& value, std::string_view help) {
  options.push_back({std::string(name), value, std::string(help)});
}

void OptionPrinter::Add(std::string_view name, std::string_view value) {
  text += fmt::format("{}{}={}", text.empty() ? "" : ",", name, value);
}

void OptionPrinter::Int(std::string_view name, std::int32_t& value, const IntRange& range,
                        std::string_view /*help*/) {
  Add(name, Value(value, range));
}

void OptionPrinter::Number(std::string_view name, double& value, const NumberRange& range,
                           std::string_view /*help*/) {
  Add(name, Value(value, range));
}

void OptionPrinter::Choice(std::string_view name, std::size_t& value,
                           std::span<const std::string_view> words, std::string_view /*help*/) {
  Add(name, words[value]);
}

void OptionPrinter::Text(std::string_view name, std::string& value, std::string_view /*help*/) {
  if (!value.empty()) {
    Add(name, value);
  }
}

const std::string* OptionReader::Find(std::string_view name) {
  known_.emplace_back(name);
  const auto found = std::ranges::find_if(
      given_.options, [&](const MethodString::Option& option) { return option.name == name; });
  return status_.ok() && found != given_.options.end() ? &found->value : nullptr;
}

void OptionReader::Refuse(std::string_view name, std::string_view value, std::string_view allowed) {
  status_ =
      Status(Code::kInvalidArgument, fmt::format("option '{}' of method '{}' is '{}', allowed: {}",
                                                 name, given_.method, value, allowed));
}

void OptionReader::Int(std::string_view name, std::int32_t& value, const IntRange& range,
                       std::string_view /*help*/) {
  const std::string* const text = Find(name);
  if (text == nullptr) {
    return;
  }
  std::int32_t number = 0;
  if (range.automatic && *text == kAuto) {
    value = 0;
  } else if (!ParseNumber(*text, number) || number < range.low || number > range.high ||
             (range.odd && number % 2 == 0)) {
    Refuse(name, *text, Allowed(range));
  } else {
    value = number;
  }
}

void OptionReader::Number(std::string_view name, double& value, const NumberRange& range,
                          std::string_view /*help*/) {
  const std::string* const text = Find(name);
  if (text == nullptr) {
    return;
  }
  double number = 0;
  if (range.automatic && *text == kAuto) {
    value = -1;
  } else if (!ParseNumber(*text, number) || !(number >= range.low && number <= range.high)) {
    Refuse(name, *text, Allowed(range));
  } else {
    value = number;
  }
}

void OptionReader::Choice(std::string_view name, std::size_t& value,
                          std::span<const std::string_view> words, std::string_view /*help*/) {
  const std::string* const text = Find(name);
  if (text == nullptr) {
    return;
  }
  const auto found = std::ranges::find(words, std::string_view(*text));
  if (found == words.end()) {
    Refuse(name, *text, Allowed(words));
  } else {
    value = static_cast<std::size_t>(found - words.begin());
  }
}

void OptionReader::Text(std::string_view name, std::string& value, std::string_view /*help*/) {
  if (const std::string* const text = Find(name); text != nullptr) {
    value = *text;
  }
}

Status OptionReader::Finish() const {
  if (!status_.ok()) {
    return status_;
  }
  for (const MethodString::Option& option : given_.options) {
    if (std::ranges::find(known_, option.name) == known_.end()) {
      const std::vector<std::string_view> names(known_.begin(), known_.end());
      const std::string rest =
          names.empty() ? ", it takes none" : NearestAndAll(option.name, names);
      return Status(Code::kInvalidArgument, fmt::format("method '{}' has no option '{}'{}",
                                                        given_.method, option.name, rest));
    }
  }
  return {};
}

}  // namespace rkv::policy
