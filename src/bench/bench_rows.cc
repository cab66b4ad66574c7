#include "bench/bench_rows.h"

#include <algorithm>

namespace rkv::bench {
namespace {

std::optional<double> Ratio(double value, double base) {
  return base > 0 && value > 0 ? std::optional(value / base) : std::nullopt;
}

// The speeds that ratios are taken to; 0: there is none.
struct Bases {
  double peer_best = 0;
  double peer_default = 0;
  double full = 0;
};

bool IsOwnFull(const Setting& setting) {
  return !setting.peer && (setting.kv == "full" || setting.kv.starts_with("full:"));
}

Bases BasesOf(const CellResult& result) {
  Bases bases;
  for (const Entry& entry : result.entries) {
    const double median = SpreadOf(entry.tokens_per_second).median;
    if (entry.setting.peer) {
      bases.peer_best = std::max(bases.peer_best, median);
      if (entry.setting.is_default && bases.peer_default == 0) {
        bases.peer_default = median;
      }
    } else if (IsOwnFull(entry.setting) && bases.full == 0) {
      bases.full = median;
    }
  }
  return bases;
}

// Traffic of a token and what it means at the bandwidth that was measured.
void AddTraffic(const Entry& entry, Row& row) {
  const auto weights = static_cast<double>(entry.setting.weight_bytes);
  row.kv_bytes_per_token = entry.kv_bytes_per_token;
  if (weights <= 0) {
    return;
  }
  const double bytes = weights + entry.kv_bytes_per_token;
  row.gb_per_second = bytes * row.tokens_per_second.median / 1e9;
  const double probe = SpreadOf(entry.probe_gb_per_second).median;
  if (probe > 0) {
    row.probe_gb_per_second = probe;
    row.roofline_share = Ratio(row.tokens_per_second.median, RooflineRate(bytes, probe));
  }
}

// Of bytes at equal bandwidth: as the method derives them, else as counted.
std::optional<double> PredictedRatio(const CellResult& result, const ExplainShape& cache,
                                     const Entry& entry) {
  const TestShape test = {StartDepth(result.cell), result.cell.tokens};
  const auto weights = static_cast<double>(entry.setting.weight_bytes);
  const std::optional<double> full = MethodKvBytes("full", cache, test);
  if (weights <= 0 || !full) {
    return std::nullopt;
  }
  const double kv = MethodKvBytes(entry.setting.kv, cache, test).value_or(entry.kv_bytes_per_token);
  return Ratio(weights + *full, weights + kv);
}

std::map<std::string, double> StagesOf(const CellResult& result, const Entry& entry) {
  std::map<std::string, double> stages;
  double rest = 0;
  for (const double rate : entry.tokens_per_second) {
    rest += 1 / rate;
  }
  const auto repetitions = static_cast<double>(entry.tokens_per_second.size());
  const std::string prefix = result.cell.phase == Phase::kDecode ? "decode." : "prefill.";
  for (const auto& [name, seconds] : entry.stage_seconds) {
    const std::string stage = name.starts_with(prefix) ? name.substr(prefix.size()) : "last_token";
    stages[stage] += seconds / repetitions;
    rest -= seconds;
  }
  if (!stages.empty()) {
    stages["rest"] = std::max(rest / repetitions, 0.0);
  }
  return stages;
}

Row MakeRow(const CellResult& result, const ExplainShape& cache, const Entry& entry,
            const Bases& bases) {
  Row row;
  row.setting = entry.setting;
  row.test = TestName(result.cell);
  row.depth = result.cell.depth;
  row.skipped = entry.skipped;
  row.tokens_per_second = SpreadOf(entry.tokens_per_second);
  const double median = row.tokens_per_second.median;
  if (median <= 0) {
    return row;
  }
  row.peer_best = entry.setting.peer && median >= bases.peer_best;
  row.ratio_to_peer = Ratio(median, bases.peer_best);
  row.ratio_to_peer_default = Ratio(median, bases.peer_default);
  row.ratio_to_full = entry.setting.peer ? std::nullopt : Ratio(median, bases.full);
  row.stage_seconds = StagesOf(result, entry);
  if (result.cell.phase == Phase::kDecode) {
    AddTraffic(entry, row);
    if (!entry.setting.peer && !IsOwnFull(entry.setting)) {
      row.predicted_ratio_to_full = PredictedRatio(result, cache, entry);
    }
  }
  return row;
}

}  // namespace

std::vector<Row> MakeRows(const CellResult& result, const ExplainShape& cache, int threads) {
  const Bases bases = BasesOf(result);
  std::vector<Row> rows;
  for (const Entry& entry : result.entries) {
    if (!entry.tokens_per_second.empty() || !entry.skipped.empty()) {
      rows.push_back(MakeRow(result, cache, entry, bases));
      rows.back().threads = threads;
    }
  }
  return rows;
}

}  // namespace rkv::bench
