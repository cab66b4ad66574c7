// What `rkv bench` is asked for beyond the options that it shares with the other commands.
#ifndef RKV_CLI_BENCH_OPTIONS_H_
#define RKV_CLI_BENCH_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

namespace rkv::cli {

enum class BenchFormat : std::uint8_t { kMarkdown, kJson, kCsv, kJsonLines };

// Lists are empty until a flag gives them: FinishBenchOptions puts in the defaults.
struct BenchOptions {
  std::vector<std::int32_t> prompt_tokens;
  std::vector<std::int32_t> decode_tokens;
  std::vector<std::int32_t> depths;
  std::vector<std::int32_t> threads;  // 0: the CPUs this process may use
  std::vector<std::string> methods;
  int repetitions = 5;
  bool warmup = true;
  BenchFormat format = BenchFormat::kMarkdown;
  bool random_fill = false;
  std::string shape;
  std::uint64_t seed = 1;

  std::vector<std::string> peers;
  std::vector<std::string> peer_settings;
  std::string peer_model;
  std::string peer_python = "python3";
  std::string peer_script;
};

}  // namespace rkv::cli

#endif  // RKV_CLI_BENCH_OPTIONS_H_
