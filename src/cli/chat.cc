// rkv chat: a conversation in one session.
#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "cli/answer.h"
#include "cli/commands.h"
#include "cli/document.h"
#include "cli/exit_codes.h"
#include "cli/json_output.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "cli/signals.h"
#include "cli/stats_table.h"

namespace rkv::cli {
namespace {

class Conversation {
 public:
  Conversation(const Options& options, Engine& engine, std::string document, Console& console)
      : options_(options),
        engine_(engine),
        document_(std::move(document)),
        console_(console),
        generate_(GenerateOptionsFor(options, engine.options().context)) {
    generate_.sampler.seed = ChooseSeed(options);
    if (!options.system.empty()) {
      history_.push_back({"system", options.system});
    }
  }

  int Loop();

 private:
  // One line of input. Errors end the conversation.
  Status Handle(const std::string& line);
  Status Turn(const std::string& line);
  Result<std::vector<Token>> TurnTokens(const ChatMessage& next) const;
  Status Prefill(const std::vector<Token>& tokens);
  Status Reply(const SessionStats& before);
  void PrintReport(const Report& report);
  void PrintStats();

  // At a terminal Ctrl-C ends an answer, elsewhere the program.
  Status CancelledTurn(const Status& status) {
    if (!Interrupted() || !console_.in.terminal()) {
      return status;
    }
    console_.err.Write("\n");
    return {};
  }

  const Options& options_;
  Engine& engine_;
  std::string document_;  // joins the first message that the session takes
  Console& console_;
  GenerateOptions generate_;
  std::vector<ChatMessage> history_;
  SessionOptions session_options_;
  std::unique_ptr<Session> session_;  // null before the first turn and after a lost prefill
  std::optional<Report> last_;        // of the newest finished answer
  std::size_t generated_tokens_ = 0;  // of all finished answers
  bool over_ = false;
};

int Conversation::Loop() {
  while (!over_) {
    if (console_.out.error() != 0) {
      return kExitError;  // nobody reads the answers
    }
    if (console_.in.terminal()) {
      ClearInterrupt();  // it was for the answer that has just ended
      console_.err.Write("> ");
    }
    const Result<std::optional<std::string>> line = console_.in.Next();
    Status status;
    if (!line) {
      status = line.error();
    } else if (*line) {
      status = Handle(**line);
    } else {
      break;
    }
    if (!status.ok()) {
      return Fail(console_, status);
    }
  }
  if (!options_.json) {
    PrintStats();
  }
  return kExitOk;
}

Status Conversation::Handle(const std::string& line) {
  if (line.find_first_not_of(" \t") == std::string::npos) {
    return {};
  }
  if (line == "/exit" || line == "/quit") {
    over_ = true;
    return {};
  }
  if (line == "/stats") {
    PrintStats();
    return {};
  }
  const std::size_t bad = FindInvalidUtf8(line);
  if (bad == std::string::npos) {
    return Turn(line);
  }
  const Status status(Code::kInvalidArgument,
                      fmt::format("the message is not UTF-8 at byte {}", bad));
  if (console_.in.terminal()) {
    PrintError(console_, status.message());
    return {};
  }
  return status;
}

Result<std::vector<Token>> Conversation::TurnTokens(const ChatMessage& next) const {
  if (session_ != nullptr) {
    return engine_.TokenizeChatTurn(history_, next, options_.chat_template);
  }
  std::vector<ChatMessage> messages = history_;
  messages.push_back(next);
  return engine_.TokenizeChat(messages, options_.chat_template);
}

Status Conversation::Prefill(const std::vector<Token>& tokens) {
  const std::int32_t context = engine_.options().context;
  const std::size_t seen = session_ == nullptr ? 0 : static_cast<std::size_t>(session_->position());
  if (seen + tokens.size() >= static_cast<std::size_t>(context)) {
    return Status(
        Code::kInvalidArgument,
        fmt::format("the context is full: {} tokens of conversation and {} of this message "
                    "do not fit {}; start again or give a larger -c",
                    seen, tokens.size(), context));
  }
  if (session_ == nullptr) {
    session_options_ = SessionOptionsFor(options_, options_.policy, context,
                                         static_cast<std::int32_t>(tokens.size()));
    Result<std::unique_ptr<Session>> session = engine_.NewSession(session_options_);
    if (!session) {
      return session.error();
    }
    session_ = *std::move(session);
  }
  Session* const session = session_.get();
  return PrefillWithProgress(engine_, {&session, 1}, tokens, console_);
}

Status Conversation::Turn(const std::string& line) {
  const ChatMessage next = {"user", JoinDocument(document_, line)};
  const Result<std::vector<Token>> tokens = TurnTokens(next);
  if (!tokens) {
    return tokens.error();
  }
  const SessionStats before = session_ == nullptr ? SessionStats() : session_->stats();
  const Status prefilled = Prefill(*tokens);
  if (!prefilled.ok()) {
    session_.reset();  // a cancelled one is lost; the next turn prefills the whole history again
    return CancelledTurn(prefilled);
  }
  document_.clear();
  history_.push_back(next);
  return Reply(before);
}

Status Conversation::Reply(const SessionStats& before) {
  std::string text;
  Result<GenerateResult> result =
      Answer(*session_, generate_, options_.json ? nullptr : &console_.out, &text);
  if (!options_.json) {
    EndLine(console_.out, text);
  }
  history_.push_back({"assistant", text});
  if (!result) {
    return CancelledTurn(result.error());
  }
  const bool full = result->stop_reason == StopReason::kContextFull;
  Result<Report> report = MakeReport(engine_, *session_, session_options_, *std::move(result),
                                     TurnStats(before, session_->stats()));
  if (!report) {
    return report.error();
  }
  report->seed = generate_.sampler.seed++;  // a repeated question may get another answer
  generated_tokens_ += report->generated_tokens;
  PrintReport(*report);
  last_ = *std::move(report);
  if (full) {
    return Status(Code::kResourceExhausted,
                  fmt::format("the context of {} tokens is full; start again or give a larger -c",
                              engine_.options().context));
  }
  return {};
}

void Conversation::PrintReport(const Report& report) {
  for (const std::string& warning : report.stats.warnings) {
    PrintWarning(console_, warning);
  }
  if (options_.json) {
    console_.out.Write(ReportJsonLine(report, options_.verbose));
  }
}

void Conversation::PrintStats() {
  if (!last_) {
    return;
  }
  // The last answer, with the counts of the whole session.
  Report report = *last_;
  report.generated_tokens = generated_tokens_;
  if (session_ != nullptr) {
    report.stats = session_->stats();
  }
  console_.err.Write(fmt::format("\n{}", StatsTable({&report, 1})));
}

}  // namespace

int Chat(const Options& options, const EngineApi& api, Console& console) {
  Result<Opened> opened = OpenWithDocument(options, api, console);
  if (!opened) {
    return Fail(console, opened.error());
  }
  return Conversation(options, *opened->engine, std::move(opened->document), console).Loop();
}

}  // namespace rkv::cli
