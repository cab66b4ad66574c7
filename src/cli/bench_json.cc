// JSON and JSON lines of `rkv bench`.
#include <nlohmann/json.hpp>

#include "cli/bench_report.h"
#include "cli/parse_value.h"

namespace rkv::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string Dump(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json OrNull(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

Json ToJson(const bench::Spread& spread) {
  return {{"median", spread.median}, {"min", spread.min}, {"max", spread.max}};
}

Json ToJson(const bench::Row& r) {
  Json stages = Json::object();
  for (const auto& [name, seconds] : r.stage_seconds) {
    stages[name] = seconds;
  }
  Json json = {{"engine", r.setting.engine},
               {"setting", r.setting.name},
               {"kv", r.setting.kv},
               {"peer_best", r.peer_best},
               {"peer_default", r.setting.is_default},
               {"threads", r.threads},
               {"test", r.test},
               {"depth", r.depth},
               {"tokens_per_second", ToJson(r.tokens_per_second)},
               {"ratio_to_peer", OrNull(r.ratio_to_peer)},
               {"ratio_to_peer_default", OrNull(r.ratio_to_peer_default)},
               {"ratio_to_full", OrNull(r.ratio_to_full)},
               {"predicted_ratio_to_full", OrNull(r.predicted_ratio_to_full)},
               {"weight_bytes_per_token", r.setting.weight_bytes},
               {"kv_bytes_per_token", OrNull(r.kv_bytes_per_token)},
               {"gb_per_second", OrNull(r.gb_per_second)},
               {"probe_gb_per_second", OrNull(r.probe_gb_per_second)},
               {"roofline_share", OrNull(r.roofline_share)},
               {"stages", stages}};
  if (!r.skipped.empty()) {
    json["skipped"] = r.skipped;
  }
  return json;
}

Json Teams(const BenchReport& report) {
  Json teams = Json::array();
  for (const BenchTeam& team : report.teams) {
    teams.push_back({{"threads", team.threads},
                     {"probe_bytes", team.dram_probe_bytes},
                     {"probe_gb_per_second", ToJson(team.dram_gb_per_second)},
                     {"others_busy", team.others_busy},
                     {"steal", team.steal}});
  }
  return teams;
}

Json Header(const BenchReport& report) {
  const ModelInfo& m = report.model;
  return {{"version", report.version},
          {"cpu", report.cpu},
          {"model", m.path.empty() ? m.name : m.path},
          {"weight_types", m.weight_types},
          {"parameters", m.parameters},
          {"weight_bytes_per_token", report.weight_bytes_per_token},
          {"kv_type", KvTypeName(report.settings.kv_type)},
          {"compute", ComputeName(report.settings.compute)},
          {"piece_tokens", report.settings.piece_tokens},
          {"fill", report.fill},
          {"tokens", report.tokens},
          {"repetitions", report.repetitions},
          {"teams", Teams(report)},
          {"peers", report.peers},
          {"warnings", report.warnings}};
}

}  // namespace

std::string BenchJson(const BenchReport& report) {
  Json rows = Json::array();
  for (const bench::Row& row : report.rows) {
    rows.push_back(ToJson(row));
  }
  return Dump({{"header", Header(report)}, {"rows", rows}}, 2);
}

std::string BenchJsonLines(const BenchReport& report) {
  std::string lines = Dump({{"header", Header(report)}}, -1);
  for (const bench::Row& row : report.rows) {
    lines += Dump(ToJson(row), -1);
  }
  return lines;
}

}  // namespace rkv::cli
