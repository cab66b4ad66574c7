#include "cli/bench_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <utility>

#include "cli/parse_value.h"

namespace rkv::cli {
namespace {

using Text = std::string_view;

constexpr std::int64_t kMaxTokens = 16'777'216;
constexpr std::int64_t kMaxThreads = 4096;
constexpr std::int64_t kMaxRepetitions = 10'000;
constexpr Text kNoLlama = "-";
constexpr CommandSet kBench = In(Command::kBench);

constexpr Text kTests = "Tests";
constexpr Text kContest = "Methods and peers";
constexpr Text kOutput = "Output";

std::vector<Text> Split(Text text, char separator) {
  std::vector<Text> parts;
  while (true) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == Text::npos) {
      return parts;
    }
    text.remove_prefix(end + 1);
  }
}

Status StoreCounts(Text value, std::int64_t low, std::int64_t high,
                   std::vector<std::int32_t>& out) {
  for (const Text part : Split(value, ',')) {
    const Result<std::int64_t> count = ParseInt(part, low, high);
    if (!count) {
      return count.error();
    }
    out.push_back(static_cast<std::int32_t>(*count));
  }
  return {};
}

Status StoreTokens(Text value, std::vector<std::int32_t>& out) {
  return StoreCounts(value, 0, kMaxTokens, out);
}

Status StoreNames(Text value, std::vector<std::string>& out) {
  for (const Text part : Split(value, ',')) {
    if (part.empty()) {
      return Status(Code::kInvalidArgument, fmt::format("'{}' has an empty name", value));
    }
    out.emplace_back(part);
  }
  return {};
}

Status StoreText(Text value, std::string& out) {
  if (value.empty()) {
    return Status(Code::kInvalidArgument, "the value is empty");
  }
  out = value;
  return {};
}

Status StoreMethods(Text value, Options& o) {
  const Result<std::vector<std::string>> methods = SplitMethods(value);
  if (!methods) {
    return methods.error();
  }
  o.bench.methods.insert(o.bench.methods.end(), methods->begin(), methods->end());
  return {};
}

Status StoreRepetitions(Text value, Options& o) {
  const Result<std::int64_t> count = ParseInt(value, 1, kMaxRepetitions);
  if (!count) {
    return count.error();
  }
  o.bench.repetitions = static_cast<int>(*count);
  return {};
}

Status StoreSeed(Text value, Options& o) {
  const Result<std::int64_t> seed = ParseInt(value, 0, std::numeric_limits<std::int64_t>::max());
  if (!seed) {
    return seed.error();
  }
  o.bench.seed = static_cast<std::uint64_t>(*seed);
  return {};
}

Status StoreFormat(Text value, Options& o) {
  static constexpr std::array<std::pair<Text, BenchFormat>, 4> kFormats = {
      {{"md", BenchFormat::kMarkdown},
       {"json", BenchFormat::kJson},
       {"csv", BenchFormat::kCsv},
       {"jsonl", BenchFormat::kJsonLines}}};
  for (const auto& [name, format] : kFormats) {
    if (value == name) {
      o.bench.format = format;
      return {};
    }
  }
  return Status(Code::kInvalidArgument, fmt::format("'{}' is not md, json, csv or jsonl", value));
}

Status StoreFill(Text value, Options& o) {
  if (value != "prompt" && value != "random") {
    return Status(Code::kInvalidArgument, fmt::format("'{}' is not prompt or random", value));
  }
  o.bench.random_fill = value == "random";
  return {};
}

const std::array kFlags = {
    Flag{"-p,--n-prompt", "", "N,..", "tokens of prompt tests, 0 = none (512)", kTests, kBench,
         kNoLlama, FlagValue::kRequired, FlagRepeat::kAll,
         [](Text v, Options& o) { return StoreTokens(v, o.bench.prompt_tokens); }},
    Flag{"-n,--n-gen", "", "N,..", "tokens of decode tests, 0 = none (128)", kTests, kBench,
         kNoLlama, FlagValue::kRequired, FlagRepeat::kAll,
         [](Text v, Options& o) { return StoreTokens(v, o.bench.decode_tokens); }},
    Flag{"-d,--n-depth", "", "N,..", "tokens in the cache before a test (0)", kTests, kBench,
         kNoLlama, FlagValue::kRequired, FlagRepeat::kAll,
         [](Text v, Options& o) { return StoreTokens(v, o.bench.depths); }},
    Flag{"-r,--repetitions", "", "N", "timed turns of each setting in each test (5)", kTests,
         kBench, kNoLlama, FlagValue::kRequired, FlagRepeat::kLastWins, StoreRepetitions},
    Flag{"-t,--threads", "", "N,..", "threads, 0 = the CPUs this process may use (0)", kTests,
         kBench, "", FlagValue::kRequired, FlagRepeat::kAll,
         [](Text v, Options& o) { return StoreCounts(v, 0, kMaxThreads, o.bench.threads); }},
    Flag{"--no-warmup", "", "", "do not run each test for a moment first", kTests, kBench, kNoLlama,
         FlagValue::kNone, FlagRepeat::kLastWins,
         [](Text v, Options& o) {
           const Result<bool> off = ParseSwitch(v);
           o.bench.warmup = off ? !*off : o.bench.warmup;
           return off ? Status() : off.error();
         }},
    Flag{"-f,--file", "", "FILE",
         "text to take tokens from, repeated as needed (seeded random ids)", kTests, kBench,
         kNoLlama, FlagValue::kRequired, FlagRepeat::kError,
         [](Text v, Options& o) { return StoreText(v, o.file); }},
    Flag{"-s,--seed", "", "N", "of random ids and rows (1)", kTests, kBench, kNoLlama,
         FlagValue::kRequired, FlagRepeat::kLastWins, StoreSeed},
    Flag{"--fill", "", "prompt|random",
         "how our cache gets its depth: computed, or random rows at once (prompt)", kTests, kBench,
         kNoLlama, FlagValue::kRequired, FlagRepeat::kLastWins, StoreFill},
    Flag{"--shape", "", "NAME",
         "random 4-bit weights of this shape instead of -m; implies --fill random", kTests, kBench,
         kNoLlama, FlagValue::kRequired, FlagRepeat::kLastWins,
         [](Text v, Options& o) { return StoreText(v, o.bench.shape); }},

    Flag{
        "--kv", "", "METHOD,..",
        "methods, also by ';' or by giving the flag again; a piece that is no key=value begins the "
        "next one (full,rocketkv:budget=1024)",
        kContest, kBench, kNoLlama, FlagValue::kRequired, FlagRepeat::kAll, StoreMethods},
    Flag{"--peer", "", "NAME,..", "llama.cpp, openvino: take turns with them (none)", kContest,
         kBench, kNoLlama, FlagValue::kRequired, FlagRepeat::kAll,
         [](Text v, Options& o) { return StoreNames(v, o.bench.peers); }},
    Flag{"--peer-settings", "", "NAME,..",
         "llama.cpp: default, fa0, fa1, fa1-q8_0; openvino: u8, f16, u8-evict (all)", kContest,
         kBench, kNoLlama, FlagValue::kRequired, FlagRepeat::kAll,
         [](Text v, Options& o) { return StoreNames(v, o.bench.peer_settings); }},
    Flag{"--peer-model", "", "FILE", "openvino's copy of the model, Q8_0: bench/requantize (-m)",
         kContest, kBench, kNoLlama, FlagValue::kRequired, FlagRepeat::kLastWins,
         [](Text v, Options& o) { return StoreText(v, o.bench.peer_model); }},
    Flag{"--peer-python", "", "FILE", "interpreter that has openvino-genai (python3)", kContest,
         kBench, kNoLlama, FlagValue::kRequired, FlagRepeat::kLastWins,
         [](Text v, Options& o) { return StoreText(v, o.bench.peer_python); }},
    Flag{"--peer-script", "", "FILE", "openvino's side (bench/openvino_peer.py of the source)",
         kContest, kBench, kNoLlama, FlagValue::kRequired, FlagRepeat::kLastWins,
         [](Text v, Options& o) { return StoreText(v, o.bench.peer_script); }},

    Flag{"-o,--output", "", "md|json|csv|jsonl", "format of the results (md)", kOutput, kBench,
         kNoLlama, FlagValue::kRequired, FlagRepeat::kLastWins, StoreFormat},
};

template <class T>
void Default(std::vector<T>& list, std::vector<T> values) {
  if (list.empty()) {
    list = std::move(values);
  }
}

}  // namespace

std::span<const Flag> BenchFlags() { return kFlags; }

Result<std::vector<std::string>> SplitMethods(std::string_view text) {
  std::vector<std::string> methods;
  for (const Text group : Split(text, ';')) {
    bool first = true;
    for (const Text piece : Split(group, ',')) {
      const bool option = !first && piece.find('=') < piece.find(':');
      if (piece.empty()) {
        return Status(Code::kInvalidArgument, fmt::format("'{}' has an empty method", text));
      }
      if (option) {
        methods.back() += fmt::format(",{}", piece);
      } else {
        methods.emplace_back(piece);
      }
      first = false;
    }
  }
  return methods;
}

Status FinishBenchOptions(Options& options) {
  BenchOptions& bench = options.bench;
  Default(bench.prompt_tokens, {512});
  Default(bench.decode_tokens, {128});
  Default(bench.depths, {0});
  Default(bench.threads, {0});
  Default(bench.methods, {"full", "rocketkv:budget=1024"});
  const auto none = [](const std::vector<std::int32_t>& counts) {
    return std::ranges::all_of(counts, [](std::int32_t count) { return count == 0; });
  };
  if (none(bench.prompt_tokens) && none(bench.decode_tokens)) {
    return Status(Code::kInvalidArgument, "nothing to time: -p and -n are both 0");
  }
  if (!bench.peer_settings.empty() && bench.peers.empty()) {
    return Status(Code::kInvalidArgument, "--peer-settings needs --peer");
  }
  if (bench.shape.empty()) {
    return {};
  }
  bench.random_fill = true;
  if (!options.engine.model_path.empty() || !bench.peers.empty() || !options.file.empty()) {
    return Status(Code::kInvalidArgument,
                  "--shape has no model file and no tokenizer: drop -m, --peer and -f");
  }
  return {};
}

}  // namespace rkv::cli
