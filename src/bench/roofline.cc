#include "bench/roofline.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace rkv::bench {
namespace {

// A method string of which only the budget changes the traffic.
struct Budgeted {
  std::string_view name;
  double budget = 1024;
};

bool ReadBudget(std::string_view text, double& budget) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, budget);
  return error == std::errc() && stop == end && budget > 0;
}

std::optional<Budgeted> Parse(std::string_view method) {
  const std::size_t colon = std::min(method.find(':'), method.size());
  Budgeted parsed = {.name = method.substr(0, colon)};
  std::string_view rest = method.substr(std::min(colon + 1, method.size()));
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view option = rest.substr(0, comma);
    const std::size_t equals = std::min(option.find('='), option.size());
    const std::string_view key = option.substr(0, equals);
    if (key == "budget") {
      if (!ReadBudget(option.substr(std::min(equals + 1, option.size())), parsed.budget)) {
        return std::nullopt;
      }
    } else if (key != "kernel_size" && key != "last_token") {
      return std::nullopt;
    }
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return parsed;
}

// Rows that stage 1 leaves of the prompt.
double KeptRows(double budget, const TestShape& test) {
  constexpr double kWindow = 32;
  const double prompt = test.depth;
  const double all = prompt + test.new_tokens;
  const double c = std::max(1.0, all / budget);
  const double alpha = std::min(0.2 + 0.06 * std::log2(c), 0.8);
  const double capacity =
      std::max(std::floor(all / std::pow(c, alpha)), std::min(2.0 * test.new_tokens, all));
  const double kept = std::max(capacity - test.new_tokens, std::min(prompt, kWindow + 1));
  return std::min(kept, prompt);
}

// Rows' worth of traffic of one step over `rows` rows, of which the cache will hold `capacity`.
double StepRows(double budget, double capacity, double rows, double head_dim) {
  const double k = std::floor(budget / 2);
  const double c2 = std::max(1.0, capacity / budget);
  const double root = std::ceil(std::sqrt(c2));
  const double chunk = root > c2 ? 1 : root;
  const double r = std::clamp(std::floor(head_dim * chunk / c2), 1.0, head_dim);
  const double estimate = rows / chunk * r / (2 * head_dim);
  constexpr double kBypass = 1.6;
  return k >= rows || kBypass * (estimate + k) >= rows ? rows : estimate + k;
}

}  // namespace

double KvBytesPerRow(const CacheShape& shape) {
  return 2.0 * shape.layers * shape.kv_heads * shape.head_dim * shape.bytes_per_number;
}

double FullKvBytes(const CacheShape& shape, const TestShape& test) {
  return KvBytesPerRow(shape) * (test.depth + 0.5 * (test.new_tokens + 1));
}

std::optional<double> MethodKvBytes(std::string_view method, const CacheShape& shape,
                                    const TestShape& test) {
  const std::optional<Budgeted> parsed = Parse(method);
  if (!parsed) {
    return std::nullopt;
  }
  if (parsed->name == "full") {
    return FullKvBytes(shape, test);
  }
  if (parsed->name != "rocketkv" && parsed->name != "hsa") {
    return std::nullopt;
  }
  const double kept = parsed->name == "hsa" ? test.depth : KeptRows(parsed->budget, test);
  const double rows = kept + 0.5 * (test.new_tokens + 1);
  return KvBytesPerRow(shape) *
         StepRows(parsed->budget, kept + test.new_tokens, rows, shape.head_dim);
}

double RooflineRate(double bytes, double gb_per_second) {
  return bytes > 0 ? gb_per_second * 1e9 / bytes : 0;
}

}  // namespace rkv::bench
