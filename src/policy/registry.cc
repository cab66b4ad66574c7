#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "policy/methods.h"
#include "policy/policy.h"

namespace rkv::policy {
namespace {

struct Method {
  PolicyInfo (*info)();
  MadePolicy (*make)(const MethodString& given);
};

// A new method is one line here and one file.
constexpr std::array<Method, 3> kMethods = {{
    {FullInfo, MakeFull},
    {RocketKvInfo, MakeRocketKv},
    {HsaInfo, MakeHsa},
}};

}  // namespace

const std::vector<PolicyInfo>& KnownPolicies() {
  static const std::vector<PolicyInfo> known = [] {
    std::vector<PolicyInfo> out;
    for (const Method& method : kMethods) {
      out.push_back(method.info());
    }
    return out;
  }();
  return known;
}

Result<std::unique_ptr<const Policy>> MakePolicy(std::string_view spec) {
  const Result<MethodString> given = ParseMethodString(spec);
  if (!given) {
    return given.error();
  }
  std::vector<std::string_view> names;
  for (const PolicyInfo& info : KnownPolicies()) {
    names.emplace_back(info.name);
  }
  const auto found = std::find(names.begin(), names.end(), given->method);
  if (found == names.end()) {
    return Status(Code::kInvalidArgument, fmt::format("unknown method '{}'{}", given->method,
                                                      NearestAndAll(given->method, names)));
  }
  return kMethods[static_cast<std::size_t>(found - names.begin())].make(*given);
}

std::vector<std::pair<std::string, double>> ExplainPolicy(const Policy& policy,
                                                          const TurnShape& shape) {
  return policy.Explain(shape);
}

}  // namespace rkv::policy
