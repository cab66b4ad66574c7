#include "cli/answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <random>

#include "base/text.h"
#include "base/thread_pool.h"
#include "cli/default_model.h"
#include "cli/document.h"
#include "cli/parse_value.h"
#include "cli/signals.h"

namespace rkv::cli {
namespace {

constexpr std::int32_t kAssumedTokens = 1024;  // m of the budget formulas when -n is -1

void WarnAboutThreads(const Options& options, Console& console) {
  const int cpus = DefaultThreads();
  const int threads = options.engine.threads == 0 ? cpus : options.engine.threads;
  if (threads > cpus) {
    PrintWarning(console, fmt::format("{} threads on {} CPUs are slower than {}: leave out -t",
                                      threads, cpus, cpus));
  }
  if (options.threads_batch != 0 && options.threads_batch != threads) {
    PrintWarning(console, fmt::format("-tb {} has no effect: prefill and decode share {} threads",
                                      options.threads_batch, threads));
  }
}

// The user may not know which model was taken.
Status WithPath(const Status& status, const std::string& path) {
  return status.message().find(path) != std::string::npos
             ? status
             : Status(status.code(), fmt::format("{}: {}", path, status.message()));
}

void PrintSettings(const Engine& engine, const Options& options, Console& console) {
  const ModelInfo& m = engine.model();
  const EngineOptions& o = engine.options();
  console.err.Write(fmt::format(
      "model    {} ({}, {}, {})\nsettings {} threads, context {}, KV {}, compute {}, pieces of {} "
      "tokens\nmethod   {}\n",
      m.path, m.architecture, m.weight_types, HumanBytes(m.file_bytes), o.threads, o.context,
      KvTypeName(o.kv_type), ComputeName(o.compute), o.piece_tokens, options.policy));
}

}  // namespace

Result<std::unique_ptr<Engine>> OpenEngine(const Options& options, const EngineApi& api,
                                           Console& console) {
  EngineOptions engine_options = options.engine;
  if (engine_options.model_path.empty()) {
    const Result<std::string> found = FindDefaultModel(ProjectRoots(api.source_dir));
    if (!found) {
      return found.error();
    }
    engine_options.model_path = *found;
  }
  WarnAboutThreads(options, console);
  Result<std::unique_ptr<Engine>> engine = api.open(engine_options);
  if (!engine) {
    return WithPath(engine.error(), engine_options.model_path);
  }
  if (options.verbose) {
    PrintSettings(**engine, options, console);
  }
  return engine;
}

Result<Opened> OpenWithDocument(const Options& options, const EngineApi& api, Console& console) {
  Opened opened;
  if (!options.file.empty()) {
    Result<std::string> text = ReadDocument(options.file, console.in.fd());
    if (!text) {
      return text.error();
    }
    opened.document = *std::move(text);
  }
  Result<std::unique_ptr<Engine>> engine = OpenEngine(options, api, console);
  if (!engine) {
    return engine.error();
  }
  opened.engine = *std::move(engine);
  return opened;
}

std::int32_t PlannedTokens(const Options& options) {
  const std::int32_t asked = options.generate.max_tokens;
  return asked < 0 ? kAssumedTokens : asked;
}

ExplainShape ExplainShapeOf(const ModelInfo& model, const EngineOptions& settings) {
  ExplainShape shape;
  shape.context = settings.context;
  shape.layers = model.layers;
  shape.kv_heads = model.kv_heads;
  shape.group = model.heads / std::max(model.kv_heads, 1);
  shape.head_dim = model.head_dim;
  shape.kv_type = settings.kv_type;
  return shape;
}

SessionOptions SessionOptionsFor(const Options& options, const std::string& policy,
                                 std::int32_t context, std::int32_t prompt_tokens) {
  const std::int32_t room = std::max(context - prompt_tokens, 1);
  const bool multi_turn = options.command == Command::kChat || options.prompts.size() > 1;
  return {policy, std::clamp(PlannedTokens(options), 1, room), multi_turn};
}

GenerateOptions GenerateOptionsFor(const Options& options, std::int32_t context) {
  GenerateOptions generate = options.generate;
  if (generate.max_tokens < 0) {
    generate.max_tokens = std::numeric_limits<std::int32_t>::max();
  }
  if (generate.sampler.repeat_last_n < 0) {
    generate.sampler.repeat_last_n = context;
  }
  return generate;
}

std::uint64_t ChooseSeed(const Options& options) {
  return options.random_seed ? std::random_device{}() : options.generate.sampler.seed;
}

Result<GenerateResult> Answer(Session& session, const GenerateOptions& options, Output* stream,
                              std::string* text) {
  text->clear();
  if (options.max_tokens == 0) {
    return GenerateResult{};
  }
  return session.Generate(options, [stream, text](const std::string& piece) {
    *text += piece;
    if (stream != nullptr && !stream->Write(piece)) {
      return false;
    }
    return !Interrupted();
  });
}

void EndLine(Output& out, std::string_view text) {
  if (!text.empty() && !text.ends_with('\n')) {
    out.Write("\n");
  }
}

}  // namespace rkv::cli
