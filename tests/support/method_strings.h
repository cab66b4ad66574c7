// The method strings that tests run through: every method, every evictor with every selector.
#ifndef RKV_TESTS_SUPPORT_METHOD_STRINGS_H_
#define RKV_TESTS_SUPPORT_METHOD_STRINGS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/model_info.h"
#include "policy/policy.h"
#include "support/head_table_file.h"
#include "support/tiny_engine.h"

namespace rkv::test {

// The tiny model that the tests of all methods run on.
inline constexpr const char* kMethodModel = "llama-f32-gqa3-llama3rope";

// What a method cannot do without: a head table of that model, in which every second head streams.
inline std::string Required(std::string_view method) {
  if (method != "duo") {
    return "";
  }
  static const HeadTableFile kFile = [] {
    const ModelInfo model = OpenTiny(kMethodModel)->model();
    policy::HeadTable table{.method = "duo",
                            .model = engine::ModelIdentity(model),
                            .layers = model.layers,
                            .kv_heads = model.kv_heads,
                            .scores = {}};
    for (std::int32_t i = 0; i < model.layers * model.kv_heads; ++i) {
      table.scores.push_back(static_cast<float>(i % 2));
    }
    return HeadTableFile(table);
  }();
  return "table=" + kFile.path();
}

inline std::string Joined(const std::string& a, const std::string& b, char by) {
  return a.empty() || b.empty() ? a + b : a + by + b;
}

// Methods alone, and all compositions, without a budget.
inline std::vector<std::string> AllMethods() {
  std::vector<std::string> names;
  for (const policy::PolicyInfo& info : policy::KnownPolicies()) {
    names.push_back(info.name);
  }
  std::vector<std::string> all;
  for (const std::string& name : names) {
    all.push_back(Joined(name, Required(name), ':'));
  }
  for (const std::string& evict : names) {
    const std::string half = Joined("evict=" + evict, Required(evict), ',');
    if (!policy::MakePolicy(half)) {
      continue;
    }
    for (const std::string& select : names) {
      const std::string both = Joined(half, "select=" + select, ',');
      if (policy::MakePolicy(both)) {
        all.push_back(both);
      }
    }
  }
  return all;
}

inline std::string WithBudget(const std::string& method, std::int32_t budget) {
  if (method == "full") {
    return method;
  }
  const bool bare = method.find(':') == std::string::npos && method.find('=') == std::string::npos;
  return method + (bare ? ':' : ',') + "budget=" + std::to_string(budget);
}

// The most that a step may move with this budget: bypass reads up to 1.6 times of it, an evictor
// alone adds the generated rows, windows and chunks round up. Full-KV and per-head oracles have no
// such limit.
inline double MostTraffic(std::string_view method, double budget, double generated) {
  const bool unlimited = method.starts_with("full");
  return unlimited ? 1e9 : 1.6 * budget + generated + 80;
}

}  // namespace rkv::test

#endif  // RKV_TESTS_SUPPORT_METHOD_STRINGS_H_
