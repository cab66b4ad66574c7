// rkv bench: speed of methods and of other engines, in turns.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "bench/bench_run.h"
#include "bench/machine.h"
#include "cli/answer.h"
#include "cli/bench_report.h"
#include "cli/bench_setup.h"
#include "cli/commands.h"
#include "cli/document.h"
#include "cli/exit_codes.h"
#include "cli/signals.h"

namespace rkv::cli {
namespace {

constexpr std::size_t kProgressColumns = 78;
constexpr const char* kEraseLine = "\r\x1b[K";

void ShowStep(const bench::Step& step, Console& console) {
  if (console.err.terminal()) {
    const std::string line = fmt::format("{}/{} {}", step.done, step.steps, step.label);
    console.err.Write(kEraseLine + line.substr(0, kProgressColumns));
  }
}

bool Decodes(const bench::Cell& cell) { return cell.phase == bench::Phase::kDecode; }

BenchReport NewReport(const Options& options, const EngineApi& api) {
  BenchReport report;
  report.version = api.version;
  report.cpu = bench::CpuName();
  report.fill = options.bench.random_fill ? "random" : "prompt";
  report.tokens = options.file.empty() ? fmt::format("random ids, seed {}", options.bench.seed)
                                       : fmt::format("ids of {}", options.file);
  report.repetitions = options.bench.repetitions;
  return report;
}

void AddWarning(std::string warning, Console& console, BenchReport& report) {
  PrintWarning(console, warning);
  report.warnings.push_back(std::move(warning));
}

void DescribeContest(const Contest& contest, BenchReport& report) {
  report.model = contest.engine->model();
  report.settings = contest.engine->options();
  report.weight_bytes_per_token = contest.weight_bytes;
  report.peers.clear();
  for (const auto& racer : contest.racers) {
    if (!racer->version().empty()) {
      report.peers.push_back(racer->version());
    }
  }
}

void AddRows(const bench::RunResult& result, int threads, Console& console, BenchReport& report) {
  for (const bench::CellResult& cell : result.cells) {
    for (bench::Row& row :
         bench::MakeRows(cell, ExplainShapeOf(report.model, report.settings), threads)) {
      if (!row.skipped.empty()) {
        AddWarning(fmt::format("{}, {} {}: {}", row.test, row.setting.engine, row.setting.name,
                               row.skipped),
                   console, report);
      }
      report.rows.push_back(std::move(row));
    }
  }
}

// All tests by one number of threads.
Status RunTeam(const Options& options, const ContestPlan& plan, const EngineApi& api,
               Console& console, BenchReport& report) {
  const Result<std::unique_ptr<Contest>> contest = OpenContest(options, plan, api, console);
  if (!contest) {
    return contest.error();
  }
  DescribeContest(**contest, report);
  std::vector<bench::Racer*> racers;
  for (const auto& racer : (*contest)->racers) {
    racers.push_back(racer.get());
  }
  const int threads = report.settings.threads;
  bench::StreamProbe probe(threads, std::ranges::any_of(plan.cells, Decodes) ? api.probe_bytes : 0);
  bench::BusyWatch watch;
  const bench::RunOptions run = {
      .repetitions = options.bench.repetitions,
      .warmup = options.bench.warmup,
      .stop = Interrupted,
      .on_step = [&console](const bench::Step& step) { ShowStep(step, console); }};
  const bench::RunResult result = bench::RunCells(plan.cells, racers, run, probe, watch);
  if (console.err.terminal()) {
    console.err.Write(kEraseLine);
  }
  AddRows(result, threads, console, report);
  for (std::string& warning : watch.Warnings()) {
    AddWarning(std::move(warning), console, report);
  }
  report.teams.push_back({threads, probe.capacity(), bench::SpreadOf(result.dram_gb_per_second),
                          watch.others(), watch.steal()});
  return result.status;
}

Status RunTeams(const Options& options, const EngineApi& api, Console& console,
                BenchReport& report) {
  ContestPlan plan;
  plan.cells = bench::PlanCells(
      {options.bench.prompt_tokens, options.bench.decode_tokens, options.bench.depths});
  if (!options.file.empty()) {
    Result<std::string> text = ReadDocument(options.file, console.in.fd());
    if (!text) {
      return text.error();
    }
    plan.text = *std::move(text);
  }
  for (const std::int32_t threads : options.bench.threads) {
    plan.threads = threads;
    const Status status = RunTeam(options, plan, api, console, report);
    if (!status.ok()) {
      return status;
    }
  }
  return {};
}

}  // namespace

int Bench(const Options& options, const EngineApi& api, Console& console) {
  BenchReport report = NewReport(options, api);
  const Status status = RunTeams(options, api, console, report);
  if (status.ok() || !report.rows.empty()) {
    console.out.Write(FormatBench(report, options.bench.format));
  }
  return status.ok() ? kExitOk : Fail(console, status);
}

}  // namespace rkv::cli
