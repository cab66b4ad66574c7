#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "policy/composed.h"
#include "policy/methods.h"
#include "policy/option_string.h"
#include "policy/parts.h"
#include "policy/policy.h"

namespace rkv::policy {
namespace {

// A new method is one line here and one file.
constexpr std::array kMethods = {
    FullMethod,      RocketKvMethod, RocketKvMtMethod, HsaMethod,       SnapKvMethod,
    QuestMethod,     SparQMethod,    AdaKvMethod,      ExactTopKMethod, DuoMethod,
    StreamingMethod, H2oMethod,      FastGenMethod,    ChunkKvMethod,   ShadowKvMethod,
    CateKvMethod,    LrqkMethod,     SqueezeMethod,    PyramidMethod,   RandomMethod,
};

// Not a method of its own: what a session is for decides which of two it is.
PolicyInfo AutoInfo() {
  PolicyInfo info = {.name = "auto",
                     .keeps = "as rocketkv-mt where later questions will follow, else as rocketkv",
                     .reads = "as these; all rows while that is no slower (option bypass)",
                     .state = "as these",
                     .source = "RocketKV, arXiv:2502.14051"};
  OptionLister lister;
  ComposedPolicy(info.name, info.name, RocketKvMethod().make()).Options(lister);
  info.options = std::move(lister.options);
  std::erase_if(info.options,  // its default differs between the two
                [](const OptionInfo& option) { return option.name == "window_size"; });
  return info;
}

std::vector<std::string_view> Names() {
  std::vector<std::string_view> names;
  for (const PolicyInfo& info : KnownPolicies()) {
    names.emplace_back(info.name);
  }
  return names;
}

Result<std::unique_ptr<const Policy>> Read(std::string_view name, std::string prefix, Parts parts,
                                           const MethodString& given) {
  auto policy = std::make_unique<ComposedPolicy>(name, std::move(prefix), std::move(parts));
  OptionLister defaults;
  policy->Options(defaults);
  // A default that is spelled out still gives way to a short prompt.
  const bool window_given = std::ranges::any_of(given.options, [&](const auto& option) {
    return option.name == "window_size" &&
           std::ranges::none_of(defaults.options, [&](const OptionInfo& info) {
             return info.name == option.name && info.default_value == option.value;
           });
  });
  OptionReader reader(given);
  policy->Options(reader);
  if (Status status = reader.Finish(); !status.ok()) {
    return status;
  }
  if (Status status = policy->Load(); !status.ok()) {
    return status;
  }
  if (window_given) {
    policy->HoldToWindow();
  }
  policy->FixSpec();
  return std::unique_ptr<const Policy>(std::move(policy));
}

// Takes option `name` out of `given`; empty when it is not there.
std::string Take(MethodString& given, std::string_view name) {
  const auto found = std::ranges::find_if(
      given.options, [&](const MethodString::Option& option) { return option.name == name; });
  if (found == given.options.end()) {
    return {};
  }
  std::string value = std::move(found->value);
  given.options.erase(found);
  return value;
}

// The half of method `name` that `half` points at. Errors: no such method has it.
template <class Half>
Result<Half> HalfOf(std::string_view option, const std::string& name, Half Parts::*half) {
  std::vector<std::string_view> able;
  for (std::size_t i = 0; i < kMethods.size(); ++i) {
    const Method method = kMethods[i]();
    Parts parts = method.halves != nullptr ? method.halves() : method.make();
    const bool both = parts.evictor != nullptr && parts.selector != nullptr;
    if ((both && method.halves == nullptr) || parts.*half == nullptr) {
      continue;
    }
    able.push_back(KnownPolicies()[i].name);
    if (able.back() == name) {
      return std::move(parts.*half);
    }
  }
  return Status(Code::kInvalidArgument,
                fmt::format("option '{}' is '{}', which is none of its methods{}", option, name,
                            NearestAndAll(name, able)));
}

Result<std::unique_ptr<const Policy>> Compose(MethodString given) {
  const std::string evict = Take(given, "evict");
  const std::string select = Take(given, "select");
  if (evict.empty() && select.empty()) {
    return Status(Code::kInvalidArgument,
                  "a method string without a name begins with evict=METHOD or select=METHOD");
  }
  Parts parts;
  std::string prefix;
  if (!evict.empty()) {
    auto evictor = HalfOf("evict", evict, &Parts::evictor);
    if (!evictor) {
      return evictor.error();
    }
    parts.evictor = *std::move(evictor);
    prefix = "evict=" + evict;
  }
  if (!select.empty()) {
    auto selector = HalfOf("select", select, &Parts::selector);
    if (!selector) {
      return selector.error();
    }
    parts.selector = *std::move(selector);
    prefix += (prefix.empty() ? "select=" : ",select=") + select;
  }
  return Read(kComposed, std::move(prefix), std::move(parts), given);
}

}  // namespace

const std::vector<PolicyInfo>& KnownPolicies() {
  static const std::vector<PolicyInfo> known = [] {
    std::vector<PolicyInfo> out;
    for (const auto& method : kMethods) {
      Method made = method();
      OptionLister lister;
      ComposedPolicy(made.info.name, made.info.name, made.make()).Options(lister);
      made.info.options = std::move(lister.options);
      out.push_back(std::move(made.info));
    }
    out.push_back(AutoInfo());
    return out;
  }();
  return known;
}

Result<std::unique_ptr<const Policy>> MakePolicy(std::string_view spec, bool multi_turn) {
  Result<MethodString> given = ParseMethodString(spec);
  if (!given) {
    return given.error();
  }
  if (given->method == "auto") {
    given->method = multi_turn ? "rocketkv-mt" : "rocketkv";
  }
  if (given->method == kComposed) {
    return Compose(*std::move(given));
  }
  const std::vector<std::string_view> names = Names();
  const auto found = std::ranges::find(names, std::string_view(given->method));
  if (found == names.end()) {
    return Status(Code::kInvalidArgument, fmt::format("unknown method '{}'{}", given->method,
                                                      NearestAndAll(given->method, names)));
  }
  const auto index = static_cast<std::size_t>(found - names.begin());
  return Read(*found, std::string(*found), kMethods[index]().make(), *given);
}

std::vector<std::pair<std::string, double>> ExplainPolicy(const Policy& policy,
                                                          const TurnShape& shape) {
  return policy.Explain(policy.Plan(shape));
}

}  // namespace rkv::policy
