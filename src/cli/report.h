// What one answer cost, in one place for the JSON object and the table.
#ifndef RKV_CLI_REPORT_H_
#define RKV_CLI_REPORT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "rkv/engine.h"

namespace rkv::cli {

struct Report {
  std::string prompt;  // the question, in a run of several
  std::string model;   // the file
  std::string method;  // the method string as the user wrote it
  std::string policy;  // with every option spelled out
  GenerateResult result;
  std::size_t generated_tokens = 0;  // in the time that `stats` are of
  SessionStats stats;
  EngineOptions settings;  // as in effect
  std::uint64_t seed = 0;
  std::size_t weights_bytes = 0;
  std::size_t packed_bytes = 0;  // weights in a layout of this CPU, besides the mapped file
  std::size_t scratch_bytes = 0;
  std::size_t rss_bytes = 0;
  std::size_t rss_peak_bytes = 0;
  std::size_t rss_file_bytes = 0;  // of rss_bytes: mapped files, the weights that were touched
};

// The report of an answer that a session has just given. `stats` of the session, or the part of
// them that belongs to this turn. Scratch is that of a prompt of stats.prompt_tokens. Errors: those
// of Engine::PlanPrompt.
Result<Report> MakeReport(const Engine& engine, const Session& session,
                          const SessionOptions& options, GenerateResult result, SessionStats stats);

// Counts and times of one turn: differences; everything else as it is after the turn.
SessionStats TurnStats(const SessionStats& before, const SessionStats& after);

// tokens / seconds; 0 when nothing was timed.
double PerSecond(std::int32_t tokens, double seconds);

// "end_of_generation", "stop_string", "max_tokens", "context_full".
std::string_view StopReasonName(StopReason reason);

// Bytes of a "VmRSS" or "VmHWM" line, not the first, of /proc/self/status; `status` is its text.
std::size_t StatusBytes(std::string_view status, std::string_view key);

}  // namespace rkv::cli

#endif  // RKV_CLI_REPORT_H_
