#include "cli/parse_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <string>

namespace rkv::cli {
namespace {

Status Bad(std::string_view text, std::string_view allowed) {
  return Status(Code::kInvalidArgument, fmt::format("'{}' is not {}", text, allowed));
}

template <class T>
bool ReadWhole(std::string_view text, T& value) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end;
}

// Power of 1024 that a lower-case suffix stands for, or -1.
int SuffixPower(std::string_view suffix) {
  static constexpr std::string_view kLetters = "kmgt";
  if (suffix.empty() || suffix == "b") {
    return 0;
  }
  const std::size_t power = kLetters.find(suffix[0]);
  const std::string_view rest = suffix.substr(1);
  if (power == std::string_view::npos || (!rest.empty() && rest != "b" && rest != "ib")) {
    return -1;
  }
  return static_cast<int>(power) + 1;
}

}  // namespace

Result<std::int64_t> ParseInt(std::string_view text, std::int64_t low, std::int64_t high) {
  std::int64_t value = 0;
  if (!ReadWhole(text, value) || value < low || value > high) {
    return Bad(text, fmt::format("a whole number from {} to {}", low, high));
  }
  return value;
}

Result<float> ParseFloat(std::string_view text, float low, float high) {
  float value = 0;
  if (!ReadWhole(text, value) || !(value >= low && value <= high)) {
    return Bad(text, fmt::format("a number from {} to {}", low, high));
  }
  return value;
}

Result<std::size_t> ParseBytes(std::string_view text) {
  static constexpr std::string_view kAllowed = "a number of bytes such as 4096, 512M or 1.5G";
  const std::size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  std::string suffix(text.substr(digits));
  std::ranges::transform(suffix, suffix.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const int power = SuffixPower(suffix);
  double value = 0;
  if (power < 0 || !ReadWhole(text.substr(0, digits), value)) {
    return Bad(text, kAllowed);
  }
  const double bytes = std::ldexp(value, 10 * power);
  if (bytes < 1 || bytes >= std::ldexp(1.0, 63)) {
    return Bad(text, kAllowed);
  }
  return static_cast<std::size_t>(bytes);
}

Result<bool> ParseSwitch(std::string_view text) {
  static constexpr std::array<std::string_view, 5> kOn = {"true", "1", "on", "yes", "enabled"};
  static constexpr std::array<std::string_view, 5> kOff = {"false", "0", "off", "no", "disabled"};
  if (std::ranges::find(kOn, text) != kOn.end()) {
    return true;
  }
  if (std::ranges::find(kOff, text) != kOff.end()) {
    return false;
  }
  return Bad(text, "on or off");
}

Result<KvType> ParseKvType(std::string_view text) {
  for (const KvType type :
       {KvType::kAuto, KvType::kF16, KvType::kBf16, KvType::kF32, KvType::kQ8}) {
    if (text == KvTypeName(type)) {
      return type;
    }
  }
  if (text == "q8_0") {  // what llama.cpp's users write; its rows have a scale for every 32 numbers
    return KvType::kQ8;
  }
  return Bad(text, "auto, f16, bf16, f32 or q8");
}

Result<Compute> ParseCompute(std::string_view text) {
  for (const Compute compute : {Compute::kAuto, Compute::kF32}) {
    if (text == ComputeName(compute)) {
      return compute;
    }
  }
  return Bad(text, "auto or f32");
}

std::string_view KvTypeName(KvType type) {
  switch (type) {
    case KvType::kAuto:
      return "auto";
    case KvType::kF16:
      return "f16";
    case KvType::kBf16:
      return "bf16";
    case KvType::kQ8:
      return "q8";
    case KvType::kF32:
      break;
  }
  return "f32";
}

std::string_view ComputeName(Compute compute) { return compute == Compute::kAuto ? "auto" : "f32"; }

}  // namespace rkv::cli
