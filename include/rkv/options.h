// Options and small value types of the public API.
#ifndef RKV_OPTIONS_H_
#define RKV_OPTIONS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace rkv {

using Token = std::int32_t;

// How linear layers compute. kAuto: prompts by GEMM (bf16 where the CPU has it; else 4- and 5-bit
// weights with activations of 8 bits, others in f32), decode by quantised dot products. kF32:
// weights expanded, everything in f32; the slow reference.
enum class Compute : std::uint8_t { kAuto, kF32 };

// How keys and values are stored. kAuto: f16, or f32 when Compute is kF32. kQ8: integers of 8 bits
// with a scale for every 16 numbers of a key and one for a value; about 9 bits a number.
enum class KvType : std::uint8_t { kAuto, kF16, kBf16, kF32, kQ8 };

struct EngineOptions {
  std::string model_path = {};
  int threads = 0;           // 0: the CPUs this process may use
  std::int32_t context = 0;  // tokens a session may hold; 0: the model's trained context
  Compute compute = Compute::kAuto;
  KvType kv_type = KvType::kAuto;
  // Whether weights are laid out anew at the start, where this CPU then decodes faster; they then
  // are in memory of this process instead of the mapped file. Not with Compute::kF32.
  bool repack = true;
  std::int32_t piece_tokens = 1024;  // tokens of a prefill piece, [1, 65536]
  std::size_t memory_limit = 0;      // bytes a session may need beyond the weights; 0: what is free
};

struct ChatMessage {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

// One step of a running prefill.
struct PrefillProgress {
  std::int32_t layer = 0;  // [0, layers)
  std::int32_t layers = 0;
  std::int32_t tokens_done = 0;  // of this layer
  std::int32_t tokens = 0;
};
// Called on the calling thread before and after each piece of each layer; returning false cancels.
using ProgressCallback = std::function<bool(const PrefillProgress&)>;

// llama.cpp's names and defaults. The repeat penalty counts prompt tokens too.
struct SamplerOptions {
  float temperature = 0.8f;     // 0: greedy
  std::int32_t top_k = 40;      // 0: off
  float top_p = 0.95f;          // 1: off
  float min_p = 0.05f;          // 0: off
  float repeat_penalty = 1.0f;  // 1: off
  std::int32_t repeat_last_n = 64;
  std::uint64_t seed = 0;
};

struct GenerateOptions {
  std::int32_t max_tokens = 256;
  SamplerOptions sampler;
  std::vector<std::string> stop;  // text ends right before the first of them
  bool ignore_eos = false;
};

enum class StopReason : std::uint8_t { kEndOfGeneration, kStopString, kMaxTokens, kContextFull };

// Called after every token with the whole UTF-8 text that has become certain, often none; returning
// false cancels.
using TextCallback = std::function<bool(const std::string& text)>;

}  // namespace rkv

#endif  // RKV_OPTIONS_H_
