// rkv calibrate: measures a model's heads once, for methods that take a head table.
#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "cli/answer.h"
#include "cli/atomic_file.h"
#include "cli/commands.h"
#include "cli/document.h"
#include "cli/exit_codes.h"
#include "cli/signals.h"

namespace rkv::cli {
namespace {

constexpr const char* kEraseLine = "\r\x1b[K";

// The head scores; shows layers on a terminal meanwhile.
Result<HeadScores> Measure(Engine& engine, const Options& options,
                           const std::vector<std::string>& texts, Console& console) {
  const auto show = [&](const PrefillProgress& progress) {
    if (console.err.terminal()) {
      console.err.Write(
          fmt::format("{}calibrate: layer {} of {}", kEraseLine, progress.layer, progress.layers));
    }
    return !Interrupted();
  };
  Result<HeadScores> scores = engine.CalibrateHeads(options.calibrate, texts, show);
  if (console.err.terminal()) {
    console.err.Write(kEraseLine);
  }
  return scores;
}

Status Calibrate(Engine& engine, const Options& options, Console& console) {
  std::vector<std::string> texts;
  if (!options.file.empty()) {
    Result<std::string> document = ReadDocument(options.file, console.in.fd());
    if (!document) {
      return document.error();
    }
    texts.push_back(*std::move(document));
  }
  const bool standard = options.output == "-";
  AtomicFile file;  // before the long part
  if (Status status = standard ? Status() : file.Open(options.output); !status.ok()) {
    return status;
  }
  const Result<HeadScores> scores = Measure(engine, options, texts, console);
  if (!scores) {
    return scores.error();
  }
  if (standard) {
    console.out.Write(scores->json);
    return {};
  }
  Status status = file.Commit(scores->json);
  if (status.ok()) {
    console.err.Write(fmt::format(
        "{} layers x {} KV heads of {} to {}; use it as --kv {}:table={}\n", scores->layers,
        scores->kv_heads, scores->model, options.output, scores->method, options.output));
  }
  return status;
}

}  // namespace

int Calibrate(const Options& options, const EngineApi& api, Console& console) {
  const Result<std::unique_ptr<Engine>> engine = OpenEngine(options, api, console);
  if (!engine) {
    return Fail(console, engine.error());
  }
  const Status status = Calibrate(**engine, options, console);
  return status.ok() ? kExitOk : Fail(console, status);
}

}  // namespace rkv::cli
