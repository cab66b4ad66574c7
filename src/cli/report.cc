#include "cli/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <utility>

namespace rkv::cli {
namespace {

std::string ReadProcStatus() {
  std::ifstream file("/proc/self/status");
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace

Result<Report> MakeReport(const Engine& engine, const Session& session,
                          const SessionOptions& options, GenerateResult result,
                          SessionStats stats) {
  const Result<MemoryPlan> plan = engine.PlanPrompt(options, stats.prompt_tokens);
  if (!plan) {
    return plan.error();
  }
  const std::string status = ReadProcStatus();
  Report report;
  report.model = engine.model().path;
  report.method = options.policy;
  report.policy = session.policy();
  report.generated_tokens = result.tokens.size();
  report.result = std::move(result);
  report.stats = std::move(stats);
  report.settings = engine.options();
  report.weights_bytes = engine.model().file_bytes;
  report.packed_bytes = engine.model().packed_bytes;
  report.scratch_bytes = plan->scratch;
  report.rss_bytes = StatusBytes(status, "VmRSS");
  report.rss_peak_bytes = StatusBytes(status, "VmHWM");
  report.rss_file_bytes = StatusBytes(status, "RssFile");
  return report;
}

SessionStats TurnStats(const SessionStats& before, const SessionStats& after) {
  SessionStats turn = after;
  turn.prompt_tokens -= before.prompt_tokens;
  turn.generated_tokens -= before.generated_tokens;
  turn.prefill_seconds -= before.prefill_seconds;
  turn.decode_seconds -= before.decode_seconds;
  for (const auto& [stage, seconds] : before.stage_seconds) {
    turn.stage_seconds[stage] -= seconds;
  }
  std::erase_if(turn.warnings, [&before](const std::string& warning) {
    return std::ranges::find(before.warnings, warning) != before.warnings.end();
  });
  return turn;
}

double PerSecond(std::int32_t tokens, double seconds) {
  return seconds > 0 ? tokens / seconds : 0.0;
}

std::string_view StopReasonName(StopReason reason) {
  switch (reason) {
    case StopReason::kEndOfGeneration:
      return "end_of_generation";
    case StopReason::kStopString:
      return "stop_string";
    case StopReason::kMaxTokens:
      return "max_tokens";
    case StopReason::kContextFull:
      break;
  }
  return "context_full";
}

std::size_t StatusBytes(std::string_view status, std::string_view key) {
  const std::string label = fmt::format("\n{}:", key);
  const std::size_t line = status.find(label);
  if (line == std::string_view::npos) {
    return 0;
  }
  const std::size_t digits = status.find_first_of("0123456789", line);
  std::size_t kib = 0;
  if (digits != std::string_view::npos) {
    std::from_chars(status.data() + digits, status.data() + status.size(), kib);
  }
  return kib * 1024;
}

}  // namespace rkv::cli
