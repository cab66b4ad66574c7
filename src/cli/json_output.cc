#include "cli/json_output.h"

#include <nlohmann/json.hpp>

#include "cli/parse_value.h"

namespace rkv::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string Dump(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json Phase(std::int32_t tokens, double seconds) {
  return {{"seconds", seconds}, {"tokens_per_second", PerSecond(tokens, seconds)}};
}

Json Kv(const SessionStats& s) {
  return {{"bytes_full", s.kv_bytes_full},
          {"bytes_kept", s.kv_bytes_kept},
          {"bytes_index", s.kv_bytes_index},
          {"bytes_parked", s.kv_bytes_parked},
          {"bytes_peak", s.kv_bytes_peak},
          {"bytes_layer", s.kv_bytes_layer},
          {"tokens_kept", s.tokens_kept},
          {"tokens_read_per_step", s.tokens_read_per_step},
          {"bytes_read_per_step", s.kv_bytes_read_per_step},
          {"dense_share", s.dense_share}};
}

Json Stages(const SessionStats& s) {
  Json stages = Json::object();
  for (const auto& [name, seconds] : s.stage_seconds) {
    stages[name] = seconds;
  }
  return stages;
}

Json Settings(const EngineOptions& o) {
  return {{"threads", o.threads},
          {"context", o.context},
          {"kv_type", KvTypeName(o.kv_type)},
          {"compute", ComputeName(o.compute)},
          {"repack", o.repack},
          {"piece_tokens", o.piece_tokens}};
}

Json Amounts(const PolicyNumbers& n) {
  return {{"rows_held", n.rows_held},         {"rows_read", n.rows_read},
          {"rows_estimate", n.rows_estimate}, {"bytes_held", n.bytes_held},
          {"bytes_index", n.bytes_index},     {"bytes_read", n.bytes_read}};
}

Json ToJson(const Report& r, bool with_tokens) {
  Json json = {{"text", r.result.text},
               {"model", r.model},
               {"policy", r.policy},
               {"prompt_tokens", r.stats.prompt_tokens},
               {"generated_tokens", r.generated_tokens},
               {"stop_reason", StopReasonName(r.result.stop_reason)},
               {"prefill", Phase(r.stats.prompt_tokens, r.stats.prefill_seconds)},
               {"decode", Phase(r.stats.generated_tokens, r.stats.decode_seconds)},
               {"kv", Kv(r.stats)},
               {"stages", Stages(r.stats)},
               {"memory",
                {{"weights_bytes", r.weights_bytes},
                 {"packed_bytes", r.packed_bytes},
                 {"scratch_bytes", r.scratch_bytes},
                 {"rss_bytes", r.rss_bytes},
                 {"rss_peak_bytes", r.rss_peak_bytes},
                 {"rss_file_bytes", r.rss_file_bytes}}},
               {"settings", Settings(r.settings)},
               {"warnings", r.stats.warnings}};
  json["settings"]["seed"] = r.seed;
  if (with_tokens) {
    json["tokens"] = r.result.tokens;
  }
  return json;
}

Json Answers(const std::vector<Report>& reports, bool with_tokens) {
  if (reports.size() == 1) {
    return ToJson(reports.front(), with_tokens);
  }
  Json answers = Json::array();
  for (const Report& report : reports) {
    Json answer = {{"prompt", report.prompt}};
    answer.update(ToJson(report, with_tokens));
    answers.push_back(std::move(answer));
  }
  return {{"answers", answers}};
}

}  // namespace

std::string ReportJsonLine(const Report& report, bool with_tokens) {
  return Dump(ToJson(report, with_tokens), -1);
}

std::string RunJson(std::span<const std::vector<Report>> runs, bool with_tokens) {
  if (runs.size() == 1) {
    return Dump(Answers(runs.front(), with_tokens), 2);
  }
  Json list = Json::array();
  for (const std::vector<Report>& reports : runs) {
    list.push_back(Answers(reports, with_tokens));
  }
  return Dump({{"runs", list}}, 2);
}

std::string ModelJson(const ModelReport& report) {
  const ModelInfo& m = report.model;
  const auto tokens = static_cast<std::size_t>(report.tokens);
  return Dump(
      {{"model", m.path},
       {"name", m.name},
       {"architecture", m.architecture},
       {"weight_types", m.weight_types},
       {"parameters", m.parameters},
       {"file_bytes", m.file_bytes},
       {"layers", m.layers},
       {"embd", m.embd},
       {"heads", m.heads},
       {"kv_heads", m.kv_heads},
       {"head_dim", m.head_dim},
       {"ff", m.ff},
       {"vocab", m.vocab},
       {"rope", m.rope},
       {"trained_context", m.trained_context},
       {"kv_bytes_per_token", m.kv_bytes_per_token},
       {"kv_bytes_full", m.kv_bytes_per_token * static_cast<std::size_t>(m.trained_context)},
       {"plan",
        {{"policy", report.policy},
         {"tokens", report.tokens},
         {"kv_bytes_full", m.kv_bytes_per_token * tokens},
         {"kv_bytes_kept", report.plan.kv_kept},
         {"kv_bytes_index", report.plan.kv_index},
         {"kv_bytes_layer", report.plan.kv_layer},
         {"scratch_bytes", report.plan.scratch},
         {"total_bytes", report.plan.total()}}},
       {"settings", Settings(report.settings)}},
      2);
}

std::string ExplanationJson(const Explanation& explanation) {
  const ExplainShape& s = explanation.shape;
  Json numbers = Json::object();
  for (const auto& [name, value] : explanation.method.numbers) {
    numbers[name] = value;
  }
  Json json = {{"policy", explanation.method.policy},
               {"model", explanation.model.empty() ? Json() : Json(explanation.model)},
               {"shape",
                {{"context", s.context},
                 {"prompt_tokens", s.context - s.max_new_tokens},
                 {"max_new_tokens", s.max_new_tokens},
                 {"layers", s.layers},
                 {"kv_heads", s.kv_heads},
                 {"group", s.group},
                 {"head_dim", s.head_dim},
                 {"kv_type", KvTypeName(s.kv_type)}}},
               {"numbers", numbers}};
  json.update(Amounts(explanation.method));
  json["full"] = Amounts(explanation.full);
  return Dump(json, 2);
}

std::string PoliciesJson(const std::vector<PolicyDescription>& policies) {
  Json list = Json::array();
  for (const PolicyDescription& policy : policies) {
    Json options = Json::array();
    for (const PolicyOption& option : policy.options) {
      options.push_back(
          {{"name", option.name}, {"default", option.default_value}, {"help", option.help}});
    }
    list.push_back({{"name", policy.name},
                    {"keeps", policy.keeps},
                    {"reads", policy.reads},
                    {"state", policy.state},
                    {"source", policy.source},
                    {"options", options}});
  }
  return Dump({{"policies", list}}, 2);
}

}  // namespace rkv::cli
