// Markdown and CSV of `rkv bench`.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "base/text.h"
#include "cli/bench_report.h"
#include "cli/parse_value.h"

namespace rkv::cli {
namespace {

using Cells = std::vector<std::string>;
using bench::Row;

// Columns of equal width; numbers right, as the second line says.
std::string MarkdownTable(const std::vector<Cells>& lines, std::size_t text_columns) {
  std::vector<std::size_t> widths(lines.front().size(), 3);
  for (const Cells& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) {
      widths[i] = std::max(widths[i], line[i].size());
    }
  }
  std::string table;
  const auto add = [&](const Cells& line) {
    for (std::size_t i = 0; i < line.size(); ++i) {
      table += i < text_columns ? fmt::format("| {:<{}} ", line[i], widths[i])
                                : fmt::format("| {:>{}} ", line[i], widths[i]);
    }
    table += "|\n";
  };
  add(lines.front());
  for (std::size_t i = 0; i < widths.size(); ++i) {
    table += i < text_columns ? fmt::format("|{}", std::string(widths[i] + 2, '-'))
                              : fmt::format("|{}:", std::string(widths[i] + 1, '-'));
  }
  table += "|\n";
  std::for_each(lines.begin() + 1, lines.end(), add);
  return table;
}

std::string Ratio(const std::optional<double>& value) {
  return value ? fmt::format("{:.2f}", *value) : "-";
}

// "fa1, f16 (default, best)": what the engine was told.
std::string SettingText(const Row& row) {
  std::string text = row.setting.name.empty()
                         ? row.setting.kv
                         : fmt::format("{}, {}", row.setting.name, row.setting.kv);
  if (row.setting.is_default || row.peer_best) {
    text += fmt::format(" ({}{}{})", row.setting.is_default ? "default" : "",
                        row.setting.is_default && row.peer_best ? ", " : "",
                        row.peer_best ? "best" : "");
  }
  return text;
}

Cells SpeedLine(const Row& row) {
  Cells line = {row.setting.engine, SettingText(row), std::to_string(row.threads), row.test};
  if (!row.skipped.empty()) {
    line.insert(line.end(), {"skipped", "-", "-", "-", "-", "-", "-", "-", "-", "-"});
    return line;
  }
  const bench::Spread& speed = row.tokens_per_second;
  const auto share = [](const std::optional<double>& value) {
    return value ? fmt::format("{:.0f}%", 100 * *value) : std::string("-");
  };
  line.insert(
      line.end(),
      {fmt::format("{:.2f}", speed.median), fmt::format("{:.2f}-{:.2f}", speed.min, speed.max),
       Ratio(row.ratio_to_peer), Ratio(row.ratio_to_peer_default), Ratio(row.ratio_to_full),
       Ratio(row.predicted_ratio_to_full),
       row.kv_bytes_per_token ? HumanBytes(static_cast<std::uint64_t>(*row.kv_bytes_per_token))
                              : "-",
       row.gb_per_second ? fmt::format("{:.2f}", *row.gb_per_second) : "-",
       row.probe_gb_per_second ? fmt::format("{:.2f}", *row.probe_gb_per_second) : "-",
       share(row.roofline_share)});
  return line;
}

// Stages by their time in all rows, longest first; "rest" last.
std::vector<std::string> StageNames(const std::vector<Row>& rows, std::string_view phase) {
  std::map<std::string, double> sums;
  for (const Row& row : rows) {
    if (row.test.starts_with(phase)) {
      for (const auto& [name, seconds] : row.stage_seconds) {
        sums[name] += seconds;
      }
    }
  }
  std::vector<std::string> names;
  for (const auto& [name, sum] : sums) {
    names.push_back(name);
  }
  std::ranges::sort(names, [&](const std::string& a, const std::string& b) {
    return (a == "rest") != (b == "rest") ? b == "rest" : sums[a] > sums[b];
  });
  return names;
}

// Stage times of the rows of a phase; empty when no row has any.
std::string StageTable(const std::vector<Row>& rows, std::string_view phase) {
  const std::vector<std::string> names = StageNames(rows, phase);
  std::vector<Cells> lines = {{"method", "threads", "test"}};
  lines[0].insert(lines[0].end(), names.begin(), names.end());
  for (const Row& row : rows) {
    if (!row.test.starts_with(phase) || row.stage_seconds.empty()) {
      continue;
    }
    Cells line = {row.setting.kv, std::to_string(row.threads), row.test};
    for (const std::string& name : names) {
      const auto found = row.stage_seconds.find(name);
      line.push_back(found == row.stage_seconds.end() ? "-"
                                                      : fmt::format("{:.3f}", 1e3 * found->second));
    }
    lines.push_back(std::move(line));
  }
  return lines.size() == 1 ? ""
                           : "\nMilliseconds of a token by stage:\n\n" + MarkdownTable(lines, 3);
}

std::string HeaderText(const BenchReport& report) {
  const ModelInfo& m = report.model;
  std::string text = fmt::format(
      "rkv {}, {} ({}, {} of weights a token), KV {}, {}\n{}; cache filled by {}\n", report.version,
      m.path.empty() ? m.name : m.path, m.weight_types, HumanBytes(report.weight_bytes_per_token),
      KvTypeName(report.settings.kv_type), report.cpu, report.tokens, report.fill);
  for (const std::string& peer : report.peers) {
    text += peer + "\n";
  }
  for (const BenchTeam& team : report.teams) {
    if (team.dram_gb_per_second.median > 0) {
      text += fmt::format("{} threads read {} at {:.2f} GB/s ({:.2f}-{:.2f})\n", team.threads,
                          HumanBytes(team.dram_probe_bytes), team.dram_gb_per_second.median,
                          team.dram_gb_per_second.min, team.dram_gb_per_second.max);
    }
  }
  return text;
}

std::string CsvText(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    quoted += c;
    if (c == '"') {
      quoted += c;
    }
  }
  return quoted + "\"";
}

std::string CsvNumber(const std::optional<double>& value) {
  return value ? fmt::format("{:.6g}", *value) : "";
}

Cells CsvLine(const BenchReport& report, const Row& row) {
  const bench::Spread& speed = row.tokens_per_second;
  const ModelInfo& m = report.model;
  return {CsvText(m.path.empty() ? m.name : m.path),
          CsvText(report.cpu),
          CsvText(row.setting.engine),
          CsvText(row.setting.name),
          CsvText(row.setting.kv),
          CsvText(row.test),
          std::to_string(row.depth),
          std::to_string(row.threads),
          fmt::format("{:.6g}", speed.median),
          fmt::format("{:.6g}", speed.min),
          fmt::format("{:.6g}", speed.max),
          CsvNumber(row.ratio_to_peer),
          CsvNumber(row.ratio_to_peer_default),
          CsvNumber(row.ratio_to_full),
          CsvNumber(row.predicted_ratio_to_full),
          std::to_string(row.setting.weight_bytes),
          CsvNumber(row.kv_bytes_per_token),
          CsvNumber(row.gb_per_second),
          CsvNumber(row.probe_gb_per_second),
          CsvNumber(row.roofline_share),
          CsvText(row.skipped)};
}

}  // namespace

std::string BenchMarkdown(const BenchReport& report) {
  std::vector<Cells> lines = {{"engine", "setting", "threads", "test", "t/s", "min-max", "x peer",
                               "x default", "x full", "x full, limit", "KV/token", "GB/s", "probe",
                               "of limit"}};
  for (const Row& row : report.rows) {
    lines.push_back(SpeedLine(row));
  }
  return HeaderText(report) + "\n" + MarkdownTable(lines, 4) + StageTable(report.rows, "pp") +
         StageTable(report.rows, "tg");
}

std::string BenchCsv(const BenchReport& report) {
  const std::vector<std::string> columns = {"model",
                                            "cpu",
                                            "engine",
                                            "setting",
                                            "kv",
                                            "test",
                                            "depth",
                                            "threads",
                                            "tokens_per_second_median",
                                            "tokens_per_second_min",
                                            "tokens_per_second_max",
                                            "ratio_to_peer",
                                            "ratio_to_peer_default",
                                            "ratio_to_full",
                                            "predicted_ratio_to_full",
                                            "weight_bytes_per_token",
                                            "kv_bytes_per_token",
                                            "gb_per_second",
                                            "probe_gb_per_second",
                                            "roofline_share",
                                            "skipped"};
  std::string text = fmt::format("{}", fmt::join(columns, ","));
  std::vector<std::string> stages = StageNames(report.rows, "");
  for (const std::string& stage : stages) {
    text += fmt::format(",stage_{}", stage);
  }
  text += "\n";
  for (const Row& row : report.rows) {
    text += fmt::format("{}", fmt::join(CsvLine(report, row), ","));
    for (const std::string& stage : stages) {
      const auto found = row.stage_seconds.find(stage);
      text += found == row.stage_seconds.end() ? "," : fmt::format(",{:.6g}", found->second);
    }
    text += "\n";
  }
  return text;
}

std::string FormatBench(const BenchReport& report, BenchFormat format) {
  switch (format) {
    case BenchFormat::kMarkdown:
      return BenchMarkdown(report);
    case BenchFormat::kJson:
      return BenchJson(report);
    case BenchFormat::kCsv:
      return BenchCsv(report);
    case BenchFormat::kJsonLines:
      break;
  }
  return BenchJsonLines(report);
}

}  // namespace rkv::cli
