// rkv run: one question about a document, by one method or two from the same prefill.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/answer.h"
#include "cli/commands.h"
#include "cli/document.h"
#include "cli/exit_codes.h"
#include "cli/json_output.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "cli/stats_table.h"

namespace rkv::cli {
namespace {

Result<std::vector<Token>> PromptTokens(const Engine& engine, const Options& options,
                                        const std::string& document) {
  if (options.raw) {
    return engine.Tokenize(document + options.prompt, true, false);
  }
  std::vector<ChatMessage> messages;
  if (!options.system.empty()) {
    messages.push_back({"system", options.system});
  }
  messages.push_back({"user", JoinDocument(document, options.prompt)});
  return engine.TokenizeChat(messages, options.chat_template);
}

// The sessions of one prompt and what belongs to them.
struct Contestant {
  SessionOptions options;
  std::unique_ptr<Session> session;
};

Result<std::vector<Contestant>> NewContestants(Engine& engine, const Options& options,
                                               std::int32_t prompt_tokens) {
  std::vector<std::string> methods = {options.policy};
  if (!options.compare.empty()) {
    methods.push_back(options.compare);
  }
  std::vector<Contestant> contestants;
  for (const std::string& method : methods) {
    SessionOptions session_options =
        SessionOptionsFor(options, method, engine.options().context, prompt_tokens);
    Result<std::unique_ptr<Session>> session = engine.NewSession(session_options);
    if (!session) {
      return session.error();
    }
    contestants.push_back({std::move(session_options), *std::move(session)});
  }
  return contestants;
}

Result<std::vector<Contestant>> Prefill(Engine& engine, const Options& options,
                                        const std::vector<Token>& tokens, Console& console) {
  Result<std::vector<Contestant>> contestants =
      NewContestants(engine, options, static_cast<std::int32_t>(tokens.size()));
  if (!contestants) {
    return contestants;
  }
  std::vector<Session*> sessions;
  for (const Contestant& contestant : *contestants) {
    sessions.push_back(contestant.session.get());
  }
  const Status status = PrefillWithProgress(engine, sessions, tokens, console);
  if (!status.ok()) {
    return status;
  }
  return contestants;
}

// One answer, streamed unless it goes into JSON.
Result<Report> Generate(const Engine& engine, const Contestant& contestant, const Options& options,
                        const GenerateOptions& generate, Console& console) {
  if (!options.json && !options.compare.empty()) {
    console.out.Write(fmt::format("== {} ==\n", contestant.options.policy));
  }
  std::string text;
  Result<GenerateResult> result =
      Answer(*contestant.session, generate, options.json ? nullptr : &console.out, &text);
  if (!options.json) {
    EndLine(console.out, text);
  }
  if (!result) {
    return result.error();
  }
  Result<Report> report = MakeReport(engine, *contestant.session, contestant.options,
                                     *std::move(result), contestant.session->stats());
  if (report) {
    report->seed = generate.sampler.seed;
  }
  return report;
}

void PrintReports(const std::vector<Report>& reports, const Options& options, Console& console) {
  std::vector<std::string> warned;
  for (const Report& report : reports) {
    for (const std::string& warning : report.stats.warnings) {
      if (std::find(warned.begin(), warned.end(), warning) == warned.end()) {
        PrintWarning(console, warning);
        warned.push_back(warning);
      }
    }
  }
  if (options.json) {
    console.out.Write(options.compare.empty() ? ReportJson(reports.front(), options.verbose)
                                              : RunsJson(reports, options.verbose));
    return;
  }
  console.err.Write(fmt::format("\n{}", StatsTable(reports)));
  for (const Report& report : reports) {
    if (options.verbose) {
      console.err.Write(fmt::format("\n{}\n{}", report.policy, StageTable(report)));
    }
  }
}

Status Run(Engine& engine, const Options& options, const std::string& document, Console& console) {
  const Result<std::vector<Token>> tokens = PromptTokens(engine, options, document);
  if (!tokens) {
    return tokens.error();
  }
  const Result<std::vector<Contestant>> contestants = Prefill(engine, options, *tokens, console);
  if (!contestants) {
    return contestants.error();
  }
  GenerateOptions generate = GenerateOptionsFor(options, engine.options().context);
  generate.sampler.seed = ChooseSeed(options);
  std::vector<Report> reports;
  for (const Contestant& contestant : *contestants) {
    Result<Report> report = Generate(engine, contestant, options, generate, console);
    if (!report) {
      return report.error();
    }
    reports.push_back(*std::move(report));
  }
  PrintReports(reports, options, console);
  return {};
}

}  // namespace

int Run(const Options& options, const EngineApi& api, Console& console) {
  std::string document;
  if (!options.file.empty()) {
    Result<std::string> text = ReadDocument(options.file, console.in.fd());
    if (!text) {
      return Fail(console, text.error());
    }
    document = *std::move(text);
  }
  const Result<std::unique_ptr<Engine>> engine = OpenEngine(options, api, console);
  if (!engine) {
    return Fail(console, engine.error());
  }
  const Status status = Run(**engine, options, document, console);
  return status.ok() ? kExitOk : Fail(console, status);
}

}  // namespace rkv::cli
