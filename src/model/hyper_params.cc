#include "model/hyper_params.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "base/text.h"
#include "model/gguf_types.h"

namespace rkv::model {
namespace {

constexpr std::array kArchitectures = {
    Architecture{"llama", RopeOrder::kNorm},
    Architecture{"qwen2", RopeOrder::kNeox},
};

// Far above any model, far below where products of two of them leave 64 bits.
constexpr std::int64_t kMaxWidth = std::int64_t{1} << 24;
constexpr std::int64_t kMaxLayers = 10000;
constexpr std::int64_t kMaxHeads = 65536;
constexpr std::int64_t kMaxHeadDim = 1024;

// Reads keys of one architecture. The first error sticks, later reads give harmless values, so that
// callers read a whole struct and check once.
class KeyReader {
 public:
  KeyReader(const GgufFile& file, std::string_view architecture)
      : file_(file), prefix_(std::string(architecture) + '.') {}

  const Status& status() const { return status_; }
  bool Has(std::string_view key) const { return file_.FindValue(prefix_ + std::string(key)); }

  void Fail(Code code, std::string message) {
    if (status_.ok()) {
      status_ = Status(code, "GGUF: " + std::move(message));
    }
  }

  void Refuse(std::string_view key, std::string_view why) {
    Fail(Code::kUnsupported, fmt::format("key '{}{}': {}", prefix_, key, why));
  }

  // An integer of [min, max], or an array of `array_length` equal ones.
  std::int32_t Int(std::string_view key, std::int64_t min, std::int64_t max,
                   std::int64_t array_length = 0) {
    const std::string name = prefix_ + std::string(key);
    const GgufValue* value = file_.FindValue(name);
    const auto* array = value == nullptr ? nullptr : std::get_if<GgufArray>(value);
    const Result<std::int64_t> number = array != nullptr && array_length > 0
                                            ? Uniform(*array, key, array_length)
                                            : GetInt(file_, name);
    if (!number) {
      status_ = status_.ok() ? AsDataLoss(number.error()) : status_;
      return static_cast<std::int32_t>(min);
    }
    if (*number < min || *number > max) {
      Fail(Code::kDataLoss,
           fmt::format("key '{}' is {}, allowed are {} to {}", name, *number, min, max));
      return static_cast<std::int32_t>(min);
    }
    return static_cast<std::int32_t>(*number);
  }

  std::int32_t IntOr(std::string_view key, std::int64_t missing, std::int64_t min,
                     std::int64_t max) {
    return Has(key) ? Int(key, min, max) : static_cast<std::int32_t>(missing);
  }

  // A finite number above `low`.
  float Float(std::string_view key, double low) {
    const std::string name = prefix_ + std::string(key);
    const Result<double> number = GetFloat(file_, name);
    if (!number) {
      status_ = status_.ok() ? AsDataLoss(number.error()) : status_;
      return 1.0f;
    }
    if (!(*number > low) || *number > std::numeric_limits<float>::max()) {
      Fail(Code::kDataLoss,
           fmt::format("key '{}' is {}, must be a number above {}", name, *number, low));
      return 1.0f;
    }
    return static_cast<float>(*number);
  }

  float FloatOr(std::string_view key, float missing, double low) {
    return Has(key) ? Float(key, low) : missing;
  }

  std::string_view StringOr(std::string_view key, std::string_view missing) {
    if (!Has(key)) {
      return missing;
    }
    const Result<std::string_view> text = GetString(file_, prefix_ + std::string(key));
    if (!text) {
      status_ = status_.ok() ? text.error() : status_;
      return missing;
    }
    return *text;
  }

  bool BoolOr(std::string_view key, bool missing) {
    const GgufValue* value = file_.FindValue(prefix_ + std::string(key));
    const bool* flag = value == nullptr ? nullptr : std::get_if<bool>(value);
    if (value != nullptr && flag == nullptr) {
      Fail(Code::kDataLoss, fmt::format("key '{}{}' is not a bool", prefix_, key));
    }
    return flag == nullptr ? missing : *flag;
  }

 private:
  // A key that must be there and is not makes the file a bad one.
  static Status AsDataLoss(const Status& status) {
    return status.code() == Code::kNotFound ? Status(Code::kDataLoss, status.message()) : status;
  }

  Result<std::int64_t> Uniform(const GgufArray& array, std::string_view key,
                               std::int64_t length) const {
    const auto type = static_cast<GgufType>(array.type);
    if ((type != GgufType::kI32 && type != GgufType::kU32) ||
        array.count != static_cast<std::uint64_t>(length)) {
      return Status(Code::kDataLoss,
                    fmt::format("GGUF: key '{}{}' is not an array of {} 32-bit integers", prefix_,
                                key, length));
    }
    std::int32_t first = 0;
    std::memcpy(&first, array.bytes.data(), sizeof first);
    for (std::size_t i = 1; i < array.count; ++i) {
      std::int32_t value = 0;
      std::memcpy(&value, array.bytes.data() + i * sizeof value, sizeof value);
      if (value != first) {
        return Status(Code::kUnsupported,
                      fmt::format("GGUF: key '{}{}' differs between layers ({} and {})", prefix_,
                                  key, first, value));
      }
    }
    return first;
  }

  const GgufFile& file_;
  std::string prefix_;
  Status status_;
};

// What llama.cpp hands to ggml's rope for the same keys. Source: llama.cpp, load_hparams and the
// constructor of llama_context.
RopeParams ReadRope(KeyReader& keys, RopeOrder order, const HyperParams& params) {
  RopeParams rope;
  rope.order = order;
  rope.dims = keys.IntOr("rope.dimension_count", params.head_dim, 2, params.head_dim);
  if (rope.dims % 2 != 0) {
    keys.Fail(Code::kDataLoss, fmt::format("rope.dimension_count is odd: {}", rope.dims));
  }
  rope.freq_base = keys.FloatOr("rope.freq_base", 10000.0f, 1.0);
  const std::string_view type = keys.StringOr("rope.scaling.type", "linear");
  if (type == "yarn") {
    rope.scaling = RopeScaling::kYarn;
  } else if (type != "none" && type != "linear") {
    keys.Refuse("rope.scaling.type", fmt::format("'{}', supported are none, linear and yarn",
                                                 ReplaceInvalidUtf8(type.substr(0, 40))));
  }
  const std::string_view factor_key =
      keys.Has("rope.scaling.factor") ? "rope.scaling.factor" : "rope.scale_linear";
  const float factor = keys.Has(factor_key) ? keys.Float(factor_key, -1e-30) : 0.0f;
  if (type != "none" && factor != 0.0f) {  // 0: no scaling
    rope.freq_scale = 1.0f / factor;
  }
  if (type == "linear" && rope.freq_scale != 1.0f) {
    rope.scaling = RopeScaling::kLinear;
  }
  rope.original_context = keys.IntOr("rope.scaling.original_context_length", params.context, 1,
                                     std::numeric_limits<std::int32_t>::max());
  // libllama reads rope.scaling.yarn_{ext_factor,attn_factor,beta_fast,beta_slow} for none of these
  // architectures, so a file's values must not count here either.
  rope.ext_factor = type == "yarn" ? 1.0f : 0.0f;
  if (rope.ext_factor != 0.0f) {
    // The rotation itself multiplies by 1 + 0.1 ln(factor); this leaves yarn's magnitude once.
    const float stretch = 1.0f / rope.freq_scale;
    const float magnitude = stretch <= 1.0f ? 1.0f : 0.1f * std::log(stretch) + 1.0f;
    rope.attn_factor = magnitude * (1.0f / (1.0f + 0.1f * std::log(stretch)));
  }
  rope.attn_factor *= keys.FloatOr("rope.scaling.attn_factor", 1.0f, 0.0);
  return rope;
}

void ReadHeads(KeyReader& keys, HyperParams& out) {
  out.heads = keys.Int("attention.head_count", 1, kMaxHeads, out.layers);
  out.kv_heads = keys.Has("attention.head_count_kv")
                     ? keys.Int("attention.head_count_kv", 1, kMaxHeads, out.layers)
                     : out.heads;
  if (out.heads % out.kv_heads != 0) {
    keys.Fail(Code::kDataLoss, fmt::format("attention.head_count {} is not a multiple of "
                                           "attention.head_count_kv {}",
                                           out.heads, out.kv_heads));
  }
  if (!keys.Has("attention.key_length") && out.embd % out.heads != 0) {
    keys.Fail(Code::kDataLoss,
              fmt::format("embedding_length {} is not a multiple of attention.head_count {}",
                          out.embd, out.heads));
  }
  out.head_dim = keys.IntOr("attention.key_length", out.embd / out.heads, 1, kMaxHeadDim);
  if (out.head_dim < 2 || out.head_dim > kMaxHeadDim || out.head_dim % 2 != 0) {
    keys.Fail(Code::kDataLoss, fmt::format("heads of {} numbers, allowed are even numbers to {}",
                                           out.head_dim, kMaxHeadDim));
  }
  const std::int32_t value_length =
      keys.IntOr("attention.value_length", out.head_dim, 1, kMaxHeadDim);
  if (value_length != out.head_dim) {
    keys.Refuse("attention.value_length", fmt::format("V heads of {} numbers beside K heads of {}",
                                                      value_length, out.head_dim));
  }
}

// Features of other models that would change what is computed.
void RefuseUnsupported(KeyReader& keys) {
  if (keys.IntOr("expert_count", 0, 0, std::numeric_limits<std::int32_t>::max()) != 0) {
    keys.Refuse("expert_count", "mixtures of experts are not supported");
  }
  if (!keys.BoolOr("attention.causal", true)) {
    keys.Refuse("attention.causal", "models that look ahead are not supported");
  }
}

std::string ArchitectureNames() {
  std::string names;
  for (const Architecture& architecture : kArchitectures) {
    names += (names.empty() ? "" : ", ") + std::string(architecture.name);
  }
  return names;
}

Result<const Architecture*> FindArchitecture(const GgufFile& file) {
  const Result<std::string_view> name = GetString(file, "general.architecture");
  if (!name) {
    return Status(Code::kDataLoss, name.error().message());
  }
  for (const Architecture& architecture : kArchitectures) {
    if (architecture.name == *name) {
      return &architecture;
    }
  }
  return Status(Code::kUnsupported,
                fmt::format("GGUF: architecture '{}' is not supported, supported are {}",
                            ReplaceInvalidUtf8(name->substr(0, 40)), ArchitectureNames()));
}

}  // namespace

std::span<const Architecture> Architectures() { return kArchitectures; }

Result<HyperParams> ReadHyperParams(const GgufFile& file) {
  const Result<const Architecture*> architecture = FindArchitecture(file);
  if (!architecture) {
    return architecture.error();
  }
  KeyReader keys(file, (*architecture)->name);
  RefuseUnsupported(keys);
  HyperParams out;
  out.architecture = (*architecture)->name;
  if (const Result<std::string_view> name = GetString(file, "general.name"); name) {
    out.name = ReplaceInvalidUtf8(*name);
  }
  constexpr std::int64_t kMax = std::numeric_limits<std::int32_t>::max();
  out.layers = keys.Int("block_count", 1, kMaxLayers);
  out.embd = keys.Int("embedding_length", 1, kMaxWidth);
  out.ff = keys.Int("feed_forward_length", 1, kMaxWidth, out.layers);
  out.context = keys.Int("context_length", 1, kMax);
  out.rms_eps = keys.Float("attention.layer_norm_rms_epsilon", 0.0);
  ReadHeads(keys, out);
  out.rope = ReadRope(keys, (*architecture)->rope_order, out);
  out.attention_scale = keys.FloatOr("attention.scale", 0.0f, -1e-30);
  if (out.attention_scale == 0.0f) {  // the usual one, also when the file says 0
    out.attention_scale = 1.0f / std::sqrt(static_cast<float>(out.head_dim));
  }
  const GgufValue* tokens = file.FindValue("tokenizer.ggml.tokens");
  const auto* array = tokens == nullptr ? nullptr : std::get_if<GgufArray>(tokens);
  if (array == nullptr || array->count == 0 || array->count > static_cast<std::uint64_t>(kMax)) {
    keys.Fail(Code::kDataLoss, "key 'tokenizer.ggml.tokens' is no list of tokens");
  } else {
    out.vocab = static_cast<std::int32_t>(array->count);
  }
  if (!keys.status().ok()) {
    return keys.status();
  }
  return out;
}

}  // namespace rkv::model
