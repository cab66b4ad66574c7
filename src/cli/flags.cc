#include "cli/flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "base/text.h"
#include "cli/bench_flags.h"
#include "cli/parse_value.h"

namespace rkv::cli {
namespace {

using Text = std::string_view;

constexpr std::int64_t kMaxInt = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kMaxPiece = 65536;
constexpr std::int64_t kMaxThreads = 4096;
constexpr std::int64_t kMaxPenaltyTokens = 1'000'000;
constexpr float kMinTopP = 1e-6F;  // 0 would leave no token at all

constexpr CommandSet kGenerating = In(Command::kRun) | In(Command::kChat);
constexpr CommandSet kModel = kGenerating | In(Command::kInfo);
constexpr CommandSet kLoading = kModel | In(Command::kCalibrate);
constexpr CommandSet kEngines = kLoading | In(Command::kBench);
constexpr CommandSet kAll = kModel | In(Command::kPolicies);
constexpr CommandSet kShapes = kEngines | In(Command::kPolicies);  // policies: for --explain

constexpr Text kNoLlama = "-";

template <class T, class U>
Status Store(const Result<T>& parsed, U& out) {
  if (!parsed) {
    return parsed.error();
  }
  out = static_cast<U>(*parsed);
  return {};
}

// Text that becomes tokens. Checked here because it is on the command line.
Status StoreText(Text value, std::string& out) {
  const std::size_t bad = FindInvalidUtf8(value);
  if (bad != Text::npos) {
    return Status(Code::kInvalidArgument, "not UTF-8 at byte " + std::to_string(bad));
  }
  out = value;
  return {};
}

// A name that cannot be empty.
Status StoreName(Text value, std::string& out) {
  if (value.empty()) {
    return Status(Code::kInvalidArgument, "the value is empty");
  }
  out = value;
  return {};
}

Status StoreSeed(Text value, Options& o) {
  o.random_seed = value == "-1";
  if (o.random_seed) {
    return {};
  }
  const Result<std::int64_t> seed = ParseInt(value, -1, std::numeric_limits<std::int64_t>::max());
  return Store(seed, o.generate.sampler.seed);
}

// llama.cpp takes -1 for "as many as there are"; 0 says the same here.
Status StoreThreads(Text value, int& out) {
  const Result<std::int64_t> threads = ParseInt(value, -1, kMaxThreads);
  if (!threads) {
    return threads.error();
  }
  out = static_cast<int>(std::max<std::int64_t>(*threads, 0));
  return {};
}

Status StoreFlashAttention(Text value, Options& /*options*/) {
  static constexpr std::array<Text, 3> kValues = {"on", "off", "auto"};
  if (std::ranges::find(kValues, value) == kValues.end()) {
    return Status(Code::kInvalidArgument, fmt::format("'{}' is not on, off or auto", value));
  }
  return {};
}

Status StoreStop(Text value, Options& o) {
  std::string stop;
  Status status = StoreText(value, stop);
  if (status.ok()) {
    status = StoreName(value, stop);
  }
  if (status.ok()) {
    o.generate.stop.push_back(stop);
  }
  return status;
}

Status StoreSwitch(Text value, bool& out) { return Store(ParseSwitch(value), out); }

constexpr Text kInput = "Input";
constexpr Text kMethod = "KV-cache method";
constexpr Text kEngine = "Model and engine";
constexpr Text kSampling = "Generation";
constexpr Text kOutput = "Output";

const std::array kFlags = {
    Flag{"-p,--prompt", "", "TEXT", "question; with -f it follows the document. More of them are asked in later turns", kInput,
         In(Command::kRun), kNoLlama, FlagValue::kRequired, FlagRepeat::kAll,
         [](Text v, Options& o) { return StoreText(v, o.prompts.emplace_back()); }},
    Flag{"-f,--file", "", "FILE", "document, UTF-8; - reads standard input (run only)", kInput,
         kGenerating | In(Command::kCalibrate), kNoLlama, FlagValue::kRequired, FlagRepeat::kError,
         [](Text v, Options& o) { return StoreName(v, o.file); }},
    Flag{"-o,--output", "", "FILE", "where the head table goes; - is standard output", kOutput,
         In(Command::kCalibrate), kNoLlama, FlagValue::kRequired, FlagRepeat::kError,
         [](Text v, Options& o) { return StoreName(v, o.output); }},
    Flag{"--system-prompt", "-sys", "TEXT", "system message", kInput, kGenerating, kNoLlama,
         FlagValue::kRequired, FlagRepeat::kError,
         [](Text v, Options& o) { return StoreText(v, o.system); }},
    Flag{"--raw", "", "", "no chat template: document, then prompt, as one text", kInput,
         In(Command::kRun), kNoLlama, FlagValue::kNone, FlagRepeat::kLastWins,
         [](Text v, Options& o) { return StoreSwitch(v, o.raw); }},
    Flag{"--chat-template", "", "NAME", "a known template's name instead of the model's own",
         kInput, kGenerating, "", FlagValue::kRequired, FlagRepeat::kLastWins,
         [](Text v, Options& o) { return StoreName(v, o.chat_template); }},

    Flag{"--kv", "", "METHOD", "name:option=value,… (rocketkv:budget=1024); see rkv policies",
         kMethod, kModel, kNoLlama, FlagValue::kRequired, FlagRepeat::kLastWins,
         [](Text v, Options& o) { return StoreName(v, o.policy); }},
    Flag{"--compare", "", "METHOD", "second method, from the same prefill", kMethod,
         In(Command::kRun), kNoLlama, FlagValue::kRequired, FlagRepeat::kLastWins,
         [](Text v, Options& o) { return StoreName(v, o.compare); }},
    Flag{"--explain", "", "METHOD",
         "the numbers that this method derives, for an 8B model's shape or that of -m, beside "
         "Full-KV's",
         kMethod, In(Command::kPolicies), kNoLlama, FlagValue::kRequired, FlagRepeat::kLastWins,
         [](Text v, Options& o) { return StoreName(v, o.explain); }},

    Flag{"-m,--model", "", "FILE", "GGUF model; a bare argument ending in .gguf is taken too",
         kEngine, kShapes, "", FlagValue::kRequired, FlagRepeat::kError,
         [](Text v, Options& o) { return StoreName(v, o.engine.model_path); }},
    Flag{"-c,--ctx-size,--context,--max-model-len", "", "N",
 "context in tokens, 0 = the model's (0); without a model 32768",
         kEngine, kAll | kLoading, "", FlagValue::kRequired, FlagRepeat::kLastWins,
         [](Text v, Options& o) { return Store(ParseInt(v, 0, kMaxInt), o.engine.context); }},
    Flag{"-t,--threads", "", "N", "threads, 0 or -1 = the CPUs this process may use (0)", kEngine,
         kLoading, "", FlagValue::kRequired, FlagRepeat::kLastWins,
         [](Text v, Options& o) { return StoreThreads(v, o.engine.threads); }},
    Flag{"--threads-batch", "-tb", "N", "accepted; prefill and decode share the -t threads",
         kEngine, kModel, "", FlagValue::kRequired, FlagRepeat::kLastWins,
         [](Text v, Options& o) { return StoreThreads(v, o.threads_batch); }},
    Flag{"-b,--batch-size", "", "N", "tokens of a prefill piece (1024)", kEngine, kEngines, "BATCH",
         FlagValue::kRequired, FlagRepeat::kLastWins,
         [](Text v, Options& o) { return Store(ParseInt(v, 1, kMaxPiece), o.batch_tokens); }},
    Flag{"--ubatch-size", "-ub", "N", "the same; counts when both are given", kEngine, kEngines,
         "UBATCH", FlagValue::kRequired, FlagRepeat::kLastWins,
         [](Text v, Options& o) { return Store(ParseInt(v, 1, kMaxPiece), o.ubatch_tokens); }},
    Flag{"--cache-type-k", "-ctk", "TYPE",
         "stored keys: f16, bf16, f32, q8, auto = f16, or f32 with --compute f32", kEngine, kShapes,
         "", FlagValue::kRequired, FlagRepeat::kLastWins,
         [](Text v, Options& o) { return Store(ParseKvType(v), o.engine.kv_type); }},
    Flag{"--cache-type-v", "-ctv", "TYPE", "stored values: must be the same as of keys", kEngine,
         kShapes, "", FlagValue::kRequired, FlagRepeat::kLastWins,
         [](Text v, Options& o) { return Store(ParseKvType(v), o.value_type); }},
    Flag{"--flash-attn", "-fa", "on|off|auto", "accepted, no effect here: attention is one kernel",
         kEngine, kModel, "", FlagValue::kOptional, FlagRepeat::kLastWins, StoreFlashAttention},
    Flag{"--compute", "", "auto|f32", "arithmetic of linear layers; f32 is the slow reference",
         kEngine, kEngines, kNoLlama, FlagValue::kRequired, FlagRepeat::kLastWins,
         [](Text v, Options& o) { return Store(ParseCompute(v), o.engine.compute); }},
    Flag{"--no-repack", "-nr", "",
         "decode from the mapped file, not from a copy in the layout that this CPU reads fastest",
         kEngine, kEngines, "", FlagValue::kNone, FlagRepeat::kLastWins,
         [](Text, Options& o) {
           o.engine.repack = false;
           return Status();
         }},
    Flag{"--mem-limit", "", "BYTES", "memory beyond the weights, with K, M, G (what is free)",
         kEngine, kEngines, kNoLlama, FlagValue::kRequired, FlagRepeat::kLastWins,
         [](Text v, Options& o) { return Store(ParseBytes(v), o.engine.memory_limit); }},

    Flag{"-n,--predict,--n-predict", "", "N", "tokens to generate, -1 = until an end (256)",
         kSampling, kAll, "", FlagValue::kRequired, FlagRepeat::kLastWins,
         [](Text v, Options& o) { return Store(ParseInt(v, -1, kMaxInt), o.generate.max_tokens); }},
    Flag{"-s,--seed", "", "N", "seed of the sampler, -1 = random (-1)", kSampling, kGenerating, "",
         FlagValue::kRequired, FlagRepeat::kLastWins, StoreSeed},
    Flag{"--temp", "", "X", "temperature, 0 = greedy (0.8)", kSampling, kGenerating, "",
         FlagValue::kRequired, FlagRepeat::kLastWins,
         [](Text v,
            Options& o) { return Store(ParseFloat(v, 0, 100), o.generate.sampler.temperature); }},
    Flag{"--top-k", "", "N", "0 = off (40)", kSampling, kGenerating, "", FlagValue::kRequired,
         FlagRepeat::kLastWins,
         [](Text v,
            Options& o) { return Store(ParseInt(v, 0, kMaxInt), o.generate.sampler.top_k); }},
    Flag{"--top-p", "", "X", "1 = off (0.95)", kSampling, kGenerating, "", FlagValue::kRequired,
         FlagRepeat::kLastWins,
         [](Text v,
            Options& o) { return Store(ParseFloat(v, kMinTopP, 1), o.generate.sampler.top_p); }},
    Flag{"--min-p", "", "X", "0 = off (0.05)", kSampling, kGenerating, "", FlagValue::kRequired,
         FlagRepeat::kLastWins,
         [](Text v, Options& o) { return Store(ParseFloat(v, 0, 1), o.generate.sampler.min_p); }},
    Flag{"--repeat-penalty", "", "X", "1 = off (1.0)", kSampling, kGenerating, "",
         FlagValue::kRequired, FlagRepeat::kLastWins,
         [](Text v,
            Options&
                o) { return Store(ParseFloat(v, 0.01F, 10), o.generate.sampler.repeat_penalty); }},
    Flag{"--repeat-last-n", "", "N", "tokens that the penalty looks at, -1 = the context (64)",
         kSampling, kGenerating, "", FlagValue::kRequired, FlagRepeat::kLastWins,
         [](Text v, Options& o) {
           return Store(ParseInt(v, -1, kMaxPenaltyTokens), o.generate.sampler.repeat_last_n);
         }},
    Flag{"-r,--reverse-prompt", "", "TEXT", "stop before this text; may be given again", kSampling,
         kGenerating, "", FlagValue::kRequired, FlagRepeat::kAll, StoreStop},
    Flag{"--ignore-eos", "", "", "go on after the model's end token", kSampling, kGenerating, "",
         FlagValue::kNone, FlagRepeat::kLastWins,
         [](Text v, Options& o) { return StoreSwitch(v, o.generate.ignore_eos); }},

    Flag{"--json", "", "", "JSON on standard output", kOutput, kAll, kNoLlama, FlagValue::kNone,
         FlagRepeat::kLastWins, [](Text v, Options& o) { return StoreSwitch(v, o.json); }},
    Flag{"-v,--verbose", "", "", "settings and stage times on standard error; token ids in JSON",
         kOutput, kModel, kNoLlama, FlagValue::kNone, FlagRepeat::kLastWins,
         [](Text v, Options& o) { return StoreSwitch(v, o.verbose); }},
};

}  // namespace

std::span<const Flag> Flags() {
  static const std::vector<Flag> kAllFlags = [] {
    std::vector<Flag> flags(BenchFlags().begin(), BenchFlags().end());
    flags.insert(flags.end(), kFlags.begin(), kFlags.end());
    return flags;
  }();
  return kAllFlags;
}

std::string_view LongName(const Flag& flag) {
  const std::size_t start = flag.names.find("--");
  return flag.names.substr(start, flag.names.find(',', start) - start);
}

}  // namespace rkv::cli
