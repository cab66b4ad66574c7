// What the commands share: opening the engine, options of a session, one answer.
#ifndef RKV_CLI_ANSWER_H_
#define RKV_CLI_ANSWER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "cli/api.h"
#include "cli/console.h"
#include "cli/options.h"

namespace rkv::cli {

// Opens the model of -m or the default one; prints a warning for settings that cannot be as asked.
// Errors: those of FindDefaultModel and Engine::Open.
Result<std::unique_ptr<Engine>> OpenEngine(const Options& options, const EngineApi& api,
                                           Console& console);

// What a conversation starts with.
struct Opened {
  std::string document;  // empty without -f
  std::unique_ptr<Engine> engine;
};

// Reads the document, then opens the engine. Errors: those of ReadDocument and OpenEngine.
Result<Opened> OpenWithDocument(const Options& options, const EngineApi& api, Console& console);

// Options of a session whose prompt has `prompt_tokens`: tokens to generate (m of the budget
// formulas) are the planned ones, but no more than the context has room for.
SessionOptions SessionOptionsFor(const Options& options, const std::string& policy,
                                 std::int32_t context, std::int32_t prompt_tokens);

// The tokens to generate that a method plans for, before a context limits them; -n -1 counts as
// 1024.
std::int32_t PlannedTokens(const Options& options);

// The cache of a model in an engine with these settings, for ExplainPolicy; its lengths are the
// settings' context and the default answer.
ExplainShape ExplainShapeOf(const ModelInfo& model, const EngineOptions& settings);

// Generation with what only the model decides filled in: -1 becomes the context.
GenerateOptions GenerateOptionsFor(const Options& options, std::int32_t context);

// The seed of -s, or a fresh one.
std::uint64_t ChooseSeed(const Options& options);

// Session::Generate that Ctrl-C and a failed write cancel. `stream`: where text goes as it comes,
// may be null. `text` receives what was generated, also after an error. With max_tokens 0 nothing
// runs.
Result<GenerateResult> Answer(Session& session, const GenerateOptions& options, Output* stream,
                              std::string* text);

// Ends a printed answer with a newline, unless it has one or is empty.
void EndLine(Output& out, std::string_view text);

}  // namespace rkv::cli

#endif  // RKV_CLI_ANSWER_H_
