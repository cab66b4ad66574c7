// rkv policies: what --kv understands, and the numbers that a method derives for a shape.
#include <fmt/format.h>

#include <cmath>
#include <string>
#include <string_view>

#include "base/text.h"
#include "cli/answer.h"
#include "cli/commands.h"
#include "cli/exit_codes.h"
#include "cli/json_output.h"
#include "cli/parse_value.h"

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

std::string Number(double value) {
  return value == std::floor(value) ? fmt::format("{:.0f}", value) : fmt::format("{:.4g}", value);
}

// One line of the comparison: a figure of the method with its share of Full-KV's, and that.
std::string Compared(std::string_view label, double value, double full, bool bytes) {
  const auto text = [bytes](double x) {
    return bytes ? HumanBytes(static_cast<std::uint64_t>(std::llround(x)))
                 : fmt::format("{:.1f}", x);
  };
  const std::string share =
      full > 0 ? fmt::format("{} ({:.1f}%)", text(value), 100 * value / full) : text(value);
  return fmt::format("{:<22}{:<24}{}\n", label, share, text(full));
}

std::string ExplanationText(const Explanation& explanation) {
  const ExplainShape& s = explanation.shape;
  const PolicyNumbers& method = explanation.method;
  const PolicyNumbers& full = explanation.full;
  std::string text = fmt::format(
      "{}\ncontext {}: prompt {}, answer {}; {} layers, {} KV heads of {}, groups of {}, {}{}\n\n"
      "derived\n",
      method.policy, s.context, s.context - s.max_new_tokens, s.max_new_tokens, s.layers,
      s.kv_heads, s.head_dim, s.group, KvTypeName(s.kv_type),
      explanation.model.empty() ? "" : " (" + explanation.model + ")");
  for (const auto& [name, value] : method.numbers) {
    text += fmt::format("  {:<20}{}\n", name, Number(value));
  }
  return text + fmt::format("\n{:<22}{:<24}Full-KV\n", "", "this method") +
         Compared("rows held", method.rows_held, full.rows_held, false) +
         Compared("rows read per step", method.rows_read, full.rows_read, false) +
         Compared("  by the estimate", method.rows_estimate, full.rows_estimate, false) +
         Compared("KV held", method.bytes_held, full.bytes_held, true) +
         Compared("KV index", method.bytes_index, full.bytes_index, true) +
         Compared("KV read per step", method.bytes_read, full.bytes_read, true) +
         "\nRows are of one KV head, bytes of all; held at the end of the answer, read as the mean "
         "over its steps.\n";
}

// The shape of the model, or that of an 8B model; both with the lengths of -c and -n.
Result<ExplainShape> ShapeToExplain(const Options& options, const EngineApi& api,
                                    Console& console) {
  ExplainShape shape;
  if (!options.engine.model_path.empty()) {
    Options facts = options;  // nothing is computed: any context will do
    facts.engine.context = 0;
    facts.engine.repack = false;
    const Result<std::unique_ptr<Engine>> engine = OpenEngine(facts, api, console);
    if (!engine) {
      return engine.error();
    }
    shape = ExplainShapeOf((*engine)->model(), (*engine)->options());
  }
  if (options.engine.context > 0) {
    shape.context = options.engine.context;
  }
  if (options.engine.kv_type != KvType::kAuto || shape.kv_type == KvType::kAuto) {
    shape.kv_type = options.engine.kv_type == KvType::kAuto ? KvType::kF16 : options.engine.kv_type;
  }
  shape.max_new_tokens = PlannedTokens(options);
  return shape;
}

int Explain(const Options& options, const EngineApi& api, Console& console) {
  const Result<ExplainShape> shape = ShapeToExplain(options, api, console);
  if (!shape) {
    return Fail(console, shape.error());
  }
  const Result<PolicyNumbers> method = api.explain_policy(options.explain, *shape);
  const Result<PolicyNumbers> full = api.explain_policy("full", *shape);
  if (!method || !full) {
    const Status& error = method ? full.error() : method.error();
    PrintError(console, fmt::format("--ctx-size {}, --predict {}: {}", shape->context,
                                    shape->max_new_tokens, error.message()));
    return kExitUsage;
  }
  const Explanation explanation = {options.engine.model_path, *shape, *method, *full};
  console.out.Write(options.json ? ExplanationJson(explanation) : ExplanationText(explanation));
  return kExitOk;
}

}  // namespace

int Policies(const Options& options, const EngineApi& api, Console& console) {
  if (!options.explain.empty()) {
    return Explain(options, api, console);
  }
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
