// rkv run: questions about a document, in one session a method; by one method, or two from the same
// prefill.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
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

// A method with its session and what was said in it.
struct Contestant {
  SessionOptions options;
  std::unique_ptr<Session> session;
  std::vector<ChatMessage> history;  // stays empty with --raw
  std::vector<Report> reports;       // one an answer
};

// Asks every contestant all questions: each is a turn, the first holds the document.
class Questioning {
 public:
  Questioning(const Options& options, Engine& engine, const std::string& document, Console& console)
      : options_(options),
        engine_(engine),
        document_(document),
        console_(console),
        questions_(options.prompts.empty() ? std::vector<std::string>{""} : options.prompts),
        generate_(GenerateOptionsFor(options, engine.options().context)) {
    generate_.sampler.seed = ChooseSeed(options);
  }

  Status Run();

 private:
  // The first prompt of a conversation, shared by all.
  std::vector<ChatMessage> Opening() const;
  Status Begin();
  Status AddContestants(std::int32_t prompt_tokens);
  // A later prompt.
  Status Continue(Contestant& contestant, const std::string& question);
  Status Ask(Contestant& contestant, const std::string& question);
  // One answer, streamed unless it goes into JSON. `before`: of the session, before the prompt.
  Status Reply(Contestant& contestant, const std::string& question, const SessionStats& before);
  std::string Headings(const Contestant& contestant, const std::string& question) const;
  void Print();

  const Options& options_;
  Engine& engine_;
  const std::string& document_;
  Console& console_;
  std::vector<std::string> questions_;
  GenerateOptions generate_;
  std::vector<Contestant> contestants_;
};

std::vector<ChatMessage> Questioning::Opening() const {
  std::vector<ChatMessage> messages;
  if (!options_.system.empty()) {
    messages.push_back({"system", options_.system});
  }
  messages.push_back({"user", JoinDocument(document_, questions_.front())});
  return messages;
}

Status Questioning::AddContestants(std::int32_t prompt_tokens) {
  std::vector<std::string> methods = {options_.policy};
  if (!options_.compare.empty()) {
    methods.push_back(options_.compare);
  }
  for (const std::string& method : methods) {
    SessionOptions session_options =
        SessionOptionsFor(options_, method, engine_.options().context, prompt_tokens);
    Result<std::unique_ptr<Session>> session = engine_.NewSession(session_options);
    if (!session) {
      return session.error();
    }
    contestants_.push_back({std::move(session_options), *std::move(session), {}, {}});
  }
  return {};
}

Status Questioning::Begin() {
  const std::vector<ChatMessage> opening = options_.raw ? std::vector<ChatMessage>() : Opening();
  const Result<std::vector<Token>> tokens =
      options_.raw ? engine_.Tokenize(document_ + questions_.front(), true, false)
                   : engine_.TokenizeChat(opening, options_.chat_template);
  if (!tokens) {
    return tokens.error();
  }
  Status status = AddContestants(static_cast<std::int32_t>(tokens->size()));
  if (!status.ok()) {
    return status;
  }
  std::vector<Session*> sessions;
  for (Contestant& contestant : contestants_) {
    contestant.history = opening;
    sessions.push_back(contestant.session.get());
  }
  return PrefillWithProgress(engine_, sessions, *tokens, console_);
}

Status Questioning::Continue(Contestant& contestant, const std::string& question) {
  const ChatMessage next = {"user", question};
  const Result<std::vector<Token>> tokens =
      options_.raw ? engine_.Tokenize(question, false, false)
                   : engine_.TokenizeChatTurn(contestant.history, next, options_.chat_template);
  if (!tokens) {
    return tokens.error();
  }
  if (!options_.raw) {
    contestant.history.push_back(next);
  }
  Session* const session = contestant.session.get();
  return PrefillWithProgress(engine_, {&session, 1}, *tokens, console_);
}

Status Questioning::Ask(Contestant& contestant, const std::string& question) {
  SessionStats before;
  if (!contestant.reports.empty()) {
    before = contestant.session->stats();
    const Status status = Continue(contestant, question);
    if (!status.ok()) {
      return Status(status.code(), fmt::format("--prompt '{}': {}", question, status.message()));
    }
  }
  return Reply(contestant, question, before);
}

// The question stands once above the answers of all methods.
std::string Questioning::Headings(const Contestant& contestant, const std::string& question) const {
  std::string text;
  if (questions_.size() > 1 && &contestant == &contestants_.front()) {
    text = contestant.reports.empty() ? "> " : "\n> ";
    for (const char c : question) {
      text += c == '\n' ? std::string("\n> ") : std::string(1, c);
    }
    text += "\n";
  }
  if (!options_.compare.empty()) {
    text += fmt::format("== {} ==\n", contestant.options.policy);
  }
  return text;
}

Status Questioning::Reply(Contestant& contestant, const std::string& question,
                          const SessionStats& before) {
  Output* const out = options_.json ? nullptr : &console_.out;
  if (out != nullptr) {
    out->Write(Headings(contestant, question));
  }
  std::string text;
  Result<GenerateResult> result = Answer(*contestant.session, generate_, out, &text);
  if (out != nullptr) {
    EndLine(*out, text);
  }
  if (!result) {
    return result.error();
  }
  Result<Report> report =
      MakeReport(engine_, *contestant.session, contestant.options, *std::move(result),
                 TurnStats(before, contestant.session->stats()));
  if (!report) {
    return report.error();
  }
  report->prompt = question;
  report->seed = generate_.sampler.seed;
  contestant.reports.push_back(*std::move(report));
  if (!options_.raw) {
    contestant.history.push_back({"assistant", text});
  }
  return {};
}

void Questioning::Print() {
  std::vector<Report> sessions;  // the last answer, with the counts of the whole session
  std::vector<std::vector<Report>> runs;
  std::vector<std::string> warned;
  for (Contestant& contestant : contestants_) {
    Report report = contestant.reports.back();
    report.stats = contestant.session->stats();
    report.generated_tokens = 0;
    for (const Report& answer : contestant.reports) {
      report.generated_tokens += answer.generated_tokens;
    }
    for (const std::string& warning : report.stats.warnings) {
      if (std::ranges::find(warned, warning) == warned.end()) {
        PrintWarning(console_, warning);
        warned.push_back(warning);
      }
    }
    sessions.push_back(std::move(report));
    runs.push_back(std::move(contestant.reports));
  }
  if (options_.json) {
    console_.out.Write(RunJson(runs, options_.verbose));
    return;
  }
  console_.err.Write(fmt::format("\n{}", StatsTable(sessions)));
  for (const Report& report : sessions) {
    if (options_.verbose) {
      console_.err.Write(fmt::format("\n{}\n{}", report.policy, StageTable(report)));
    }
  }
}

Status Questioning::Run() {
  Status status = Begin();
  for (const std::string& question : questions_) {
    for (Contestant& contestant : contestants_) {
      if (status.ok()) {
        status = Ask(contestant, question);
      }
    }
    ++generate_.sampler.seed;  // a repeated question may get another answer
  }
  if (status.ok()) {
    Print();
  }
  return status;
}

}  // namespace

int Run(const Options& options, const EngineApi& api, Console& console) {
  const Result<Opened> opened = OpenWithDocument(options, api, console);
  if (!opened) {
    return Fail(console, opened.error());
  }
  const Status status = Questioning(options, *opened->engine, opened->document, console).Run();
  return status.ok() ? kExitOk : Fail(console, status);
}

}  // namespace rkv::cli
