#include "cli/args.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cctype>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"
#include "cli/bench_flags.h"
#include "cli/flags.h"
#include "cli/plain_args.h"

namespace rkv::cli {
namespace {

struct CommandName {
  Command command;
  std::string_view name;
  std::string_view help;
};

constexpr std::array<CommandName, 7> kCommands = {{
    {Command::kRun, "run", "answer questions about a document"},
    {Command::kChat, "chat", "talk; one compressed session for all turns"},
    {Command::kInfo, "info", "facts about a model and what a method would keep"},
    {Command::kBench, "bench", "speed of methods and of other engines, in turns"},
    {Command::kCalibrate, "calibrate", "measure a model's heads for a method: rkv calibrate duo"},
    {Command::kPolicies, "policies", "KV-cache methods and their options"},
    {Command::kHelp, "help", "help of a command: rkv help run"},
}};

constexpr std::string_view kExamples =
    "Examples:\n"
    "  rkv run -f report.txt -p \"What was decided?\"\n"
    "  rkv run -f report.txt -p \"What was decided?\" -p \"By whom?\"\n"
    "  rkv run -m model.gguf -f report.txt -p \"What was decided?\" --kv rocketkv:budget=512 "
    "--compare full\n"
    "  rkv chat -f report.txt --kv hsa:budget=1024\n"
    "  rkv policies --explain rocketkv:budget=1024 --context 65536\n"
    "  rkv bench -d 4096 --kv full,rocketkv:budget=512 --peer llama.cpp\n";

constexpr std::string_view kEnvironment =
    "Every flag can be given as RKV_<FLAG> (RKV_CTX_SIZE=8192); for llama.cpp's flags\n"
    "LLAMA_ARG_<FLAG> is read after that. Exit codes: 0 ok, 1 error, 2 usage, 130 Ctrl-C.";

Status Usage(std::string message) { return Status(Code::kInvalidArgument, std::move(message)); }

std::vector<const Flag*> FlagsOf(Command command) {
  std::vector<const Flag*> flags;
  for (const Flag& flag : Flags()) {
    if ((flag.commands & In(command)) != 0) {
      flags.push_back(&flag);
    }
  }
  return flags;
}

// The parser of one command. `options` receives each flag's CLI11 object.
std::unique_ptr<CLI::App> BuildApp(Command command,
                                   std::vector<std::pair<const Flag*, CLI::Option*>>* options) {
  const auto* const entry =
      std::ranges::find_if(kCommands, [&](const CommandName& c) { return c.command == command; });
  auto app = std::make_unique<CLI::App>(fmt::format("rkv {}: {}", entry->name, entry->help),
                                        fmt::format("rkv {}", entry->name));
  app->get_formatter()->column_width(36);
  app->set_help_flag("-h,--help", "this text");
  app->footer(std::string(kEnvironment));
  for (const Flag* flag : FlagsOf(command)) {
    const std::string names(flag->names);
    const std::string help(flag->help);
    CLI::Option* option =
        flag->value == FlagValue::kNone ? app->add_flag(names, help) : app->add_option(names, help);
    std::string text(flag->placeholder);
    if (!flag->alias.empty()) {
      text += fmt::format(" (or {})", flag->alias);
    }
    option->group(std::string(flag->group))->option_text(text);
    option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    options->emplace_back(flag, option);
  }
  return app;
}

// Variables that may hold a flag's value, first to last.
std::vector<std::string> EnvNames(const Flag& flag) {
  std::vector<std::string> longs;
  for (const std::string& name : CLI::detail::split(std::string(flag.names), ',')) {
    if (name.starts_with("--")) {
      longs.push_back(name.substr(2));
    }
  }
  std::vector<std::string> names;
  const auto add = [&names](const std::string& prefix, std::string name) {
    std::ranges::transform(name, name.begin(), [](unsigned char c) {
      return c == '-' ? '_' : static_cast<char>(std::toupper(c));
    });
    names.push_back(prefix + name);
  };
  for (const std::string& name : longs) {
    add("RKV_", name);
  }
  if (flag.llama_env == "-") {
    return names;
  }
  for (const std::string& name : longs) {
    add("LLAMA_ARG_", name);
  }
  if (!flag.llama_env.empty()) {
    add("LLAMA_ARG_", std::string(flag.llama_env));
  }
  return names;
}

Status Assign(const Flag& flag, std::string_view source, std::string_view value, Options& options) {
  const Status status = flag.assign(value, options);
  return status.ok() ? status : Usage(fmt::format("{}: {}", source, status.message()));
}

Status AssignFromEnv(const Flag& flag, const GetEnv& get_env, Options& options) {
  for (const std::string& name : EnvNames(flag)) {
    const char* const value = get_env(name.c_str());
    if (value != nullptr && *value != '\0') {
      return Assign(flag, name, value, options);
    }
  }
  return {};
}

Status AssignFlag(const Flag& flag, const CLI::Option& parsed, const GetEnv& get_env,
                  Options& options) {
  const std::vector<std::string>& values = parsed.results();
  if (values.empty()) {
    return AssignFromEnv(flag, get_env, options);
  }
  if (values.size() > 1 && flag.repeat == FlagRepeat::kError) {
    return Usage(fmt::format("{} is given more than once", LongName(flag)));
  }
  const std::size_t first = flag.repeat == FlagRepeat::kAll ? 0 : values.size() - 1;
  for (std::size_t i = first; i < values.size(); ++i) {
    const Status status = Assign(flag, LongName(flag), values[i], options);
    if (!status.ok()) {
      return status;
    }
  }
  return {};
}

// What no single flag shows to be wrong.
Status CheckTogether(const Options& o) {
  // Where only numbers are asked for, -ctk alone stands for both.
  const bool key_type_is_both = o.command == Command::kPolicies && o.value_type == KvType::kAuto;
  if (o.engine.kv_type != o.value_type && !key_type_is_both) {
    return Usage(
        "--cache-type-k and --cache-type-v differ: keys and values are stored in one type, "
        "give both the same");
  }
  if (o.raw && (!o.system.empty() || !o.chat_template.empty())) {
    return Usage("--raw has no chat template: drop --system-prompt and --chat-template");
  }
  if (o.command == Command::kRun && o.file.empty() &&
      (o.prompts.empty() || o.prompts == std::vector<std::string>{""})) {
    return Usage("nothing to answer: give -p TEXT, -f FILE or both");
  }
  if (o.prompts.size() > 1 && std::ranges::find(o.prompts, "") != o.prompts.end()) {
    return Usage("--prompt: one of several questions is empty, each needs a text");
  }
  if (o.command == Command::kChat && o.file == "-") {
    return Usage("-f -: chat reads its messages from standard input, give a file");
  }
  if (o.command == Command::kCalibrate && o.output.empty()) {
    return Usage("nowhere to write the head table: give -o FILE");
  }
  return {};
}

Result<Options> ParseCommand(Command command, std::span<const std::string> args,
                             const GetEnv& get_env) {
  Options options;
  options.command = command;
  Result<std::vector<std::string>> plain = PlainArgs(FlagsOf(command), command, args);
  if (!plain) {
    return plain.error();
  }
  std::vector<std::pair<const Flag*, CLI::Option*>> parsed;
  const std::unique_ptr<CLI::App> app = BuildApp(command, &parsed);
  try {
    std::ranges::reverse(*plain);  // CLI11 takes its arguments from the back
    app->parse(std::move(*plain));
  } catch (const CLI::CallForHelp&) {
    options.command = Command::kHelp;
    options.help_topic = command;
    return options;
  } catch (const CLI::Error& error) {
    return Usage(error.what());
  }
  for (const auto& [flag, option] : parsed) {
    const Status status = AssignFlag(*flag, *option, get_env, options);
    if (!status.ok()) {
      return status;
    }
  }
  Status status = CheckTogether(options);
  if (status.ok() && command == Command::kBench) {
    status = FinishBenchOptions(options);
  }
  if (!status.ok()) {
    return status;
  }
  const int piece = options.ubatch_tokens != 0 ? options.ubatch_tokens : options.batch_tokens;
  options.engine.piece_tokens = piece != 0 ? piece : options.engine.piece_tokens;
  return options;
}

// "calibrate METHOD" and flags.
Result<Options> ParseCalibrate(std::span<const std::string> args, const GetEnv& get_env) {
  const bool named = !args.empty() && !args.front().starts_with("-");
  Result<Options> options = ParseCommand(Command::kCalibrate, args.subspan(named ? 1 : 0), get_env);
  if (options && options->command == Command::kCalibrate) {
    if (!named) {
      return Usage("calibrate needs a method first: rkv calibrate duo -m FILE -o FILE");
    }
    options->calibrate = args.front();
  }
  return options;
}

Result<Command> CommandNamed(std::string_view word) {
  std::vector<std::string_view> names;
  for (const CommandName& entry : kCommands) {
    if (entry.name == word) {
      return entry.command;
    }
    names.push_back(entry.name);
  }
  if (word.starts_with("-")) {
    return Usage(fmt::format("a command comes first ({}), then {}", fmt::join(names, ", "), word));
  }
  const std::string_view nearest = NearestName(word, names);
  const std::string hint = nearest.empty() ? fmt::format("; there are {}", fmt::join(names, ", "))
                                           : fmt::format("; did you mean {}?", nearest);
  return Usage(fmt::format("there is no command '{}'{}", word, hint));
}

}  // namespace

Result<Options> ParseArgs(std::span<const std::string> args, const GetEnv& get_env) {
  Options options;
  if (args.empty()) {
    return options;
  }
  const std::string& word = args.front();
  if (word == "--version") {
    options.command = Command::kVersion;
    return options;
  }
  options.command = Command::kHelp;
  if (word == "-h" || word == "--help") {
    return options;
  }
  const Result<Command> command = CommandNamed(word);
  if (!command) {
    return command.error();
  }
  if (*command == Command::kCalibrate) {
    return ParseCalibrate(args.subspan(1), get_env);
  }
  if (*command != Command::kHelp) {
    return ParseCommand(*command, args.subspan(1), get_env);
  }
  if (args.size() > 1 && args[1] != "help") {
    const Result<Command> topic = CommandNamed(args[1]);
    if (!topic) {
      return topic.error();
    }
    options.help_topic = *topic;
  }
  return options;
}

std::string HelpText(Command command) {
  if (command != Command::kNone) {
    std::vector<std::pair<const Flag*, CLI::Option*>> options;
    return BuildApp(command, &options)->help();
  }
  std::string text =
      "rkv: long-context answers whose memory and speed follow a token budget\n"
      "Usage: rkv COMMAND [OPTIONS]\n\nCommands:\n";
  for (const CommandName& entry : kCommands) {
    text += fmt::format("  {:<10}{}\n", entry.name, entry.help);
  }
  return text + fmt::format("\nrkv COMMAND --help lists a command's options; rkv --version.\n\n{}",
                            kExamples);
}

}  // namespace rkv::cli
