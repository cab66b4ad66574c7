// rkv policies: what --kv understands.
#include <fmt/format.h>

#include <string>

#include "cli/commands.h"
#include "cli/exit_codes.h"
#include "cli/json_output.h"

namespace rkv::cli {
namespace {

std::string PolicyText(const PolicyDescription& policy) {
  std::string text =
      fmt::format("{}\n  keeps   {}\n  reads   {}\n", policy.name, policy.keeps, policy.reads);
  if (!policy.state.empty()) {
    text += fmt::format("  state   {}\n", policy.state);
  }
  text += fmt::format("  source  {}\n", policy.source);
  for (const PolicyOption& option : policy.options) {
    text += fmt::format("    {:<22}{}\n", fmt::format("{}={}", option.name, option.default_value),
                        option.help);
  }
  return text;
}

}  // namespace

int Policies(const Options& options, const EngineApi& api, Console& console) {
  const std::vector<PolicyDescription> policies = api.describe_policies();
  if (options.json) {
    console.out.Write(PoliciesJson(policies));
    return kExitOk;
  }
  console.out.Write("Methods of --kv, written name:option=value,option=value\n");
  for (const PolicyDescription& policy : policies) {
    console.out.Write(fmt::format("\n{}", PolicyText(policy)));
  }
  return kExitOk;
}

}  // namespace rkv::cli
