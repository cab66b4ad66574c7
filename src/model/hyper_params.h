// HyperParams: the numbers of a dense decoder, read from GGUF metadata.
#ifndef RKV_MODEL_HYPER_PARAMS_H_
#define RKV_MODEL_HYPER_PARAMS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/gguf.h"
#include "rkv/status.h"

namespace rkv::model {

enum class RopeOrder : std::uint8_t { kNorm, kNeox };  // pairs (2i, 2i + 1) or (i, i + n / 2)
enum class RopeScaling : std::uint8_t { kNone, kLinear, kYarn };

// One row of the table of architectures: what differs between families of one forward pass.
struct Architecture {
  std::string_view name;  // general.architecture
  RopeOrder rope_order;
};

// All supported architectures.
std::span<const Architecture> Architectures();

struct RopeParams {
  RopeOrder order = RopeOrder::kNorm;
  RopeScaling scaling = RopeScaling::kNone;
  std::int32_t dims = 0;  // rotated numbers of a head (n_rot)
  float freq_base = 10000.0f;
  float freq_scale = 1.0f;   // 1 / factor
  float ext_factor = 0.0f;   // yarn mix: 1 with yarn, else 0
  float attn_factor = 1.0f;  // magnitude of cos and sin (before yarn's own)
  float beta_fast = 32.0f;
  float beta_slow = 1.0f;
  std::int32_t original_context = 0;
  std::vector<float> freq_factors;  // [dims / 2] divisors (llama3), or empty
};

struct HyperParams {
  std::string architecture;
  std::string name;  // general.name, or empty
  std::int32_t layers = 0;
  std::int32_t embd = 0;      // width of the hidden state
  std::int32_t heads = 0;     // H
  std::int32_t kv_heads = 0;  // Hkv
  std::int32_t head_dim = 0;  // d
  std::int32_t ff = 0;
  std::int32_t vocab = 0;
  std::int32_t context = 0;  // trained context length
  float rms_eps = 1e-5f;
  float attention_scale = 0.0f;  // of the scores
  RopeParams rope;

  std::int32_t group() const { return heads / kv_heads; }
  std::int32_t q_width() const { return heads * head_dim; }
  std::int32_t kv_width() const { return kv_heads * head_dim; }
};

// Errors: kUnsupported names an unknown architecture and lists the supported ones, or names the
// feature that is missing (per-layer head counts, experts, other V width, sliding window, …);
// kDataLoss names a missing or bad key with its value.
Result<HyperParams> ReadHyperParams(const GgufFile& file);

}  // namespace rkv::model

#endif  // RKV_MODEL_HYPER_PARAMS_H_
