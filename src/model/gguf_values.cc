// Typed access to GGUF values.
#include <fmt/format.h>

#include <limits>

#include "model/gguf.h"

namespace rkv::model {
namespace {

Status Missing(std::string_view key) {
  return {Code::kNotFound, fmt::format("GGUF: key '{}' is missing", key)};
}

Status WrongType(std::string_view key, std::string_view wanted) {
  return {Code::kDataLoss, fmt::format("GGUF: key '{}' is not {}", key, wanted)};
}

}  // namespace

Result<std::int64_t> GetInt(const GgufFile& file, std::string_view key) {
  const GgufValue* value = file.FindValue(key);
  if (value == nullptr) {
    return Missing(key);
  }
  if (const auto* number = std::get_if<std::int64_t>(value)) {
    return *number;
  }
  const auto* number = std::get_if<std::uint64_t>(value);
  if (number == nullptr) {
    return WrongType(key, "an integer");
  }
  if (*number > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    return Status(Code::kDataLoss, fmt::format("GGUF: key '{}' is too large: {}", key, *number));
  }
  return static_cast<std::int64_t>(*number);
}

Result<double> GetFloat(const GgufFile& file, std::string_view key) {
  const GgufValue* value = file.FindValue(key);
  if (value == nullptr) {
    return Missing(key);
  }
  const auto* number = std::get_if<double>(value);
  if (number == nullptr) {
    return WrongType(key, "a floating-point number");
  }
  return *number;
}

Result<std::string_view> GetString(const GgufFile& file, std::string_view key) {
  const GgufValue* value = file.FindValue(key);
  if (value == nullptr) {
    return Missing(key);
  }
  const auto* text = std::get_if<std::string_view>(value);
  if (text == nullptr) {
    return WrongType(key, "a string");
  }
  return *text;
}

Result<std::int64_t> GetIntOr(const GgufFile& file, std::string_view key, std::int64_t missing) {
  return file.FindValue(key) == nullptr ? Result<std::int64_t>(missing) : GetInt(file, key);
}

Result<double> GetFloatOr(const GgufFile& file, std::string_view key, double missing) {
  return file.FindValue(key) == nullptr ? Result<double>(missing) : GetFloat(file, key);
}

}  // namespace rkv::model
