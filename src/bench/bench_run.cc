#include "bench/bench_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

namespace rkv::bench {
namespace {

constexpr std::int32_t kWarmupPromptTokens = 64;
constexpr std::int32_t kWarmupDecodeTokens = 2;

std::string Label(const Cell& cell, const Setting& setting, std::string_view what) {
  return fmt::format("{}, {}{}{} {}, {}", TestName(cell), setting.engine,
                     setting.name.empty() ? "" : " ", setting.name, setting.kv, what);
}

class Runner {
 public:
  Runner(std::span<Racer* const> racers, const RunOptions& options, StreamProbe& probe,
         BusyWatch& watch)
      : racers_(racers), options_(options), probe_(probe), watch_(watch) {}

  RunResult Run(std::span<const Cell> cells) {
    for (const Racer* racer : racers_) {
      steps_ +=
          static_cast<std::int64_t>(cells.size() * racer->settings().size()) * options_.repetitions;
    }
    for (const Cell& cell : cells) {
      result_.cells.push_back(NewResult(cell));
      result_.status = RunCell(result_.cells.back());
      if (!result_.status.ok()) {
        break;
      }
    }
    return std::move(result_);
  }

 private:
  CellResult NewResult(const Cell& cell) const {
    CellResult result = {cell, {}};
    for (const Racer* racer : racers_) {
      for (const Setting& setting : racer->settings()) {
        result.entries.emplace_back().setting = setting;
      }
    }
    return result;
  }

  Status RunCell(CellResult& result) {
    // Filling the cache in front of a prompt test has touched everything already.
    const bool filled = result.cell.phase == Phase::kPrompt && result.cell.depth > 0;
    if (options_.warmup && !filled) {
      const Status status = Round(result, true, "warm-up");
      if (!status.ok()) {
        return status;
      }
    }
    for (int repetition = 1; repetition <= options_.repetitions; ++repetition) {
      const Status status =
          Round(result, false, fmt::format("{} of {}", repetition, options_.repetitions));
      if (!status.ok()) {
        return status;
      }
      Probe(result);
    }
    return {};
  }

  // One turn of every setting.
  Status Round(CellResult& result, bool warmup, const std::string& what) {
    const Cell& cell = result.cell;
    const Start start = {StartDepth(cell), cell.phase == Phase::kDecode ? cell.tokens : 1};
    std::size_t first = 0;
    for (Racer* racer : racers_) {
      const std::size_t count = racer->settings().size();
      const std::span<Entry> entries = std::span(result.entries).subspan(first, count);
      first += count;
      if (std::ranges::all_of(entries, [](const Entry& e) { return !e.skipped.empty(); })) {
        continue;
      }
      Announce(Label(cell, racer->settings()[0], "filling"));
      Status status = racer->Fill(start);
      for (std::size_t i = 0; i < count && status.ok(); ++i) {
        Announce(Label(cell, entries[i].setting, what));
        status = warmup ? WarmUp(*racer, i, cell) : Turn(*racer, i, cell, entries[i]);
        done_ += warmup ? 0 : 1;
      }
      if (!status.ok()) {
        return status;
      }
    }
    return {};
  }

  // Touches what the timed calls touch; a setting that cannot do the test will say so there.
  static Status WarmUp(Racer& racer, std::size_t setting, const Cell& cell) {
    const Result<Sample> sample =
        cell.phase == Phase::kPrompt
            ? racer.TimePrompt(setting, std::min(cell.tokens, kWarmupPromptTokens))
            : racer.TimeDecode(setting, std::min(cell.tokens, kWarmupDecodeTokens));
    return sample || sample.error().code() == Code::kUnsupported ? Status() : sample.error();
  }

  Status Turn(Racer& racer, std::size_t setting, const Cell& cell, Entry& entry) {
    if (!entry.skipped.empty()) {
      return {};
    }
    watch_.Begin(ChildSeconds());
    const Result<Sample> sample = cell.phase == Phase::kPrompt
                                      ? racer.TimePrompt(setting, cell.tokens)
                                      : racer.TimeDecode(setting, cell.tokens);
    watch_.End(ChildSeconds());
    if (!sample) {
      if (sample.error().code() != Code::kUnsupported) {
        return sample.error();
      }
      entry.skipped = sample.error().message();
      return {};
    }
    entry.tokens_per_second.push_back(sample->seconds > 0 ? cell.tokens / sample->seconds : 0);
    entry.kv_bytes_per_token = sample->kv_bytes_per_token;
    for (const auto& [stage, seconds] : sample->stage_seconds) {
      entry.stage_seconds[stage] += seconds / cell.tokens;
    }
    return {};
  }

  double ChildSeconds() const {
    double seconds = 0;
    for (const Racer* racer : racers_) {
      seconds += racer->child_cpu_seconds();
    }
    return seconds;
  }

  void Probe(CellResult& result) {
    if (result.cell.phase != Phase::kDecode) {
      return;
    }
    for (Entry& entry : result.entries) {
      const auto bytes = static_cast<double>(entry.setting.weight_bytes) + entry.kv_bytes_per_token;
      if (entry.skipped.empty() && entry.setting.weight_bytes > 0) {
        entry.probe_gb_per_second.push_back(probe_.Pass(static_cast<std::size_t>(bytes)));
      }
    }
    result_.dram_gb_per_second.push_back(probe_.Pass(probe_.capacity()));
  }

  void Announce(std::string label) const {
    if (options_.on_step) {
      options_.on_step({std::move(label), done_, steps_});
    }
  }

  std::span<Racer* const> racers_;
  const RunOptions& options_;
  StreamProbe& probe_;
  BusyWatch& watch_;
  RunResult result_;
  std::int64_t done_ = 0;
  std::int64_t steps_ = 0;
};

}  // namespace

RunResult RunCells(std::span<const Cell> cells, std::span<Racer* const> racers,
                   const RunOptions& options, StreamProbe& probe, BusyWatch& watch) {
  return Runner(racers, options, probe, watch).Run(cells);
}

}  // namespace rkv::bench
