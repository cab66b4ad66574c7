// rkv info: facts about a model, and what a method would keep of a full context.
#include <fmt/format.h>

#include <memory>
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

std::string Line(std::string_view label, std::string_view value) {
  return fmt::format("{:<16}{}\n", label, value);
}

std::string ModelText(const ModelReport& report) {
  const ModelInfo& m = report.model;
  const EngineOptions& o = report.settings;
  return Line("model", m.name) +
         Line("file", fmt::format("{} ({})", m.path, HumanBytes(m.file_bytes))) +
         Line("architecture",
              fmt::format("{}, {} layers, embedding {}, feed-forward {}, vocabulary {}",
                          m.architecture, m.layers, m.embd, m.ff, m.vocab)) +
         Line("attention",
              fmt::format("{} heads, {} KV heads of {}", m.heads, m.kv_heads, m.head_dim)) +
         Line("rope", m.rope) +
         Line("weights", fmt::format("{}, {} parameters", m.weight_types, m.parameters)) +
         Line("context", fmt::format("{} trained, {} in use", m.trained_context, o.context)) +
         Line("KV per token",
              fmt::format("{} ({})", HumanBytes(m.kv_bytes_per_token), KvTypeName(o.kv_type)));
}

std::string PlanText(const ModelReport& report) {
  const MemoryPlan& plan = report.plan;
  const std::size_t per_token = report.model.kv_bytes_per_token;
  const std::size_t full = per_token * static_cast<std::size_t>(report.tokens);
  const auto trained = static_cast<std::size_t>(report.model.trained_context);
  const auto of_full = [full](std::size_t bytes) {
    const double share = full == 0 ? 0 : static_cast<double>(bytes) / static_cast<double>(full);
    return fmt::format("{} ({:.1f}%)", HumanBytes(bytes), 100 * share);
  };
  return Line("Full-KV", fmt::format("{} at the trained context of {} tokens",
                                     HumanBytes(per_token * trained), trained)) +
         fmt::format("\n{}, prompt of {} tokens:\n", report.policy, report.tokens) +
         Line("  KV kept", of_full(plan.kv_kept)) + Line("  KV index", of_full(plan.kv_index)) +
         Line("  prefill", fmt::format("{} for one layer's full K/V, {} of scratch",
                                       HumanBytes(plan.kv_layer), HumanBytes(plan.scratch))) +
         Line("  in all", fmt::format("{} beyond the weights", HumanBytes(plan.total())));
}

Result<ModelReport> MakeModelReport(Engine& engine, const Options& options) {
  const std::int32_t context = engine.options().context;
  const SessionOptions session_options = SessionOptionsFor(options, options.policy, context, 0);
  const Result<std::unique_ptr<Session>> session = engine.NewSession(session_options);
  if (!session) {
    return session.error();
  }
  const Result<MemoryPlan> plan = engine.PlanPrompt(session_options, context);
  if (!plan) {
    return plan.error();
  }
  return ModelReport{engine.model(), engine.options(), (*session)->policy(), context, *plan};
}

}  // namespace

int Info(const Options& options, const EngineApi& api, Console& console) {
  const Result<std::unique_ptr<Engine>> engine = OpenEngine(options, api, console);
  if (!engine) {
    return Fail(console, engine.error());
  }
  const Result<ModelReport> report = MakeModelReport(**engine, options);
  if (!report) {
    return Fail(console, report.error());
  }
  console.out.Write(options.json ? ModelJson(*report) : ModelText(*report) + PlanText(*report));
  return kExitOk;
}

}  // namespace rkv::cli
