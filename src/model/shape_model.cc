#include "model/shape_model.h"

#include <fmt/format.h>
#include <ggml.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <new>
#include <numbers>
#include <utility>

#include "base/check.h"
#include "base/half.h"
#include "base/rng.h"
#include "base/thread_pool.h"

namespace rkv::model {
namespace {

constexpr std::size_t kLine = 64;

struct Shape {
  std::string_view name;
  std::string_view architecture;
  std::int32_t layers, heads, kv_heads, head_dim, embd, ff, vocab;
  bool tied, qkv_bias, llama3_factors;
  float rope_base, rms_eps;
};

constexpr std::array<Shape, 3> kShapes = {{
    {"smollm2-135m", "llama", 30, 9, 3, 64, 576, 1536, 49152, true, false, false, 100000.0f, 1e-5f},
    {"qwen2.5-0.5b", "qwen2", 24, 14, 2, 64, 896, 4864, 151936, true, true, false, 1e6f, 1e-6f},
    {"llama-8b", "llama", 32, 32, 8, 128, 4096, 14336, 128256, false, false, true, 500000.0f,
     1e-5f},
}};

HyperParams ParamsOf(const Shape& shape, std::int32_t context) {
  HyperParams p;
  p.architecture = shape.architecture;
  p.name = fmt::format("{}, random weights", shape.name);
  p.layers = shape.layers;
  p.embd = shape.embd;
  p.heads = shape.heads;
  p.kv_heads = shape.kv_heads;
  p.head_dim = shape.head_dim;
  p.ff = shape.ff;
  p.vocab = shape.vocab;
  p.context = context;
  p.rms_eps = shape.rms_eps;
  p.attention_scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
  for (const Architecture& architecture : Architectures()) {
    if (architecture.name == shape.architecture) {
      p.rope.order = architecture.rope_order;
    }
  }
  p.rope.dims = shape.head_dim;
  p.rope.freq_base = shape.rope_base;
  p.rope.original_context = context;
  return p;
}

class TensorList {
 public:
  explicit TensorList(ShapePlan& plan) : plan_(plan) {}

  void Matrix(const std::string& name, std::int32_t in, std::int32_t out) {
    Add(name + ".weight", GGML_TYPE_Q4_0, {in, out});
  }
  void Vector(const std::string& name, std::int32_t size) { Add(name, GGML_TYPE_F32, {size}); }

 private:
  void Add(std::string name, ggml_type type, std::vector<std::int64_t> dims) {
    std::size_t bytes = ggml_row_size(type, dims[0]);
    bytes *= dims.size() > 1 ? static_cast<std::size_t>(dims[1]) : 1;
    plan_.tensors.push_back(
        {std::move(name), static_cast<std::uint32_t>(type), std::move(dims), bytes, {}});
    plan_.bytes += (bytes + kLine - 1) / kLine * kLine;
  }

  ShapePlan& plan_;
};

void ListTensors(const Shape& shape, ShapePlan& plan) {
  const HyperParams& p = plan.params;
  TensorList list(plan);
  list.Matrix("token_embd", p.embd, p.vocab);
  list.Vector("output_norm.weight", p.embd);
  if (!shape.tied) {
    list.Matrix("output", p.embd, p.vocab);
  }
  if (shape.llama3_factors) {
    list.Vector("rope_freqs.weight", p.rope.dims / 2);
  }
  for (std::int32_t i = 0; i < p.layers; ++i) {
    const std::string prefix = fmt::format("blk.{}.", i);
    list.Vector(prefix + "attn_norm.weight", p.embd);
    list.Matrix(prefix + "attn_q", p.embd, p.q_width());
    list.Matrix(prefix + "attn_k", p.embd, p.kv_width());
    list.Matrix(prefix + "attn_v", p.embd, p.kv_width());
    if (shape.qkv_bias) {
      list.Vector(prefix + "attn_q.bias", p.q_width());
      list.Vector(prefix + "attn_k.bias", p.kv_width());
      list.Vector(prefix + "attn_v.bias", p.kv_width());
    }
    list.Matrix(prefix + "attn_output", p.q_width(), p.embd);
    list.Vector(prefix + "ffn_norm.weight", p.embd);
    list.Matrix(prefix + "ffn_gate", p.embd, p.ff);
    list.Matrix(prefix + "ffn_up", p.embd, p.ff);
    list.Matrix(prefix + "ffn_down", p.ff, p.embd);
  }
}

constexpr std::int64_t kBlockWeights = 32;  // of Q4_0: an f16 scale, then 32 numbers of 4 bits
constexpr std::size_t kBlockBytes = 18;
// A prime, so that rows that follow each other begin at different blocks of the pattern.
constexpr std::size_t kPatternBlocks = 65521;

// Random blocks for rows of `in` numbers: mean 0 and standard deviation about 1 / sqrt(in), so that
// a product keeps the size of its input.
std::vector<std::byte> RandomBlocks(std::int64_t in) {
  constexpr float kDeviation = 4.32f;  // of a uniform integer from -7 to 7
  Rng rng(static_cast<std::uint64_t>(in));
  std::vector<std::byte> blocks(kPatternBlocks * kBlockBytes);
  for (std::size_t b = 0; b < kPatternBlocks; ++b) {
    std::byte* block = blocks.data() + b * kBlockBytes;
    const float scale = (0.75f + 0.5f * rng.Uniform()) / kDeviation;
    const std::uint16_t bits = F32ToF16(scale / std::sqrt(static_cast<float>(in)));
    std::memcpy(block, &bits, sizeof bits);
    for (std::size_t i = sizeof bits; i < kBlockBytes; ++i) {  // -8 is left out: the mean is 0
      block[i] = static_cast<std::byte>((1 + rng.Below(15)) | (1 + rng.Below(15)) << 4);
    }
  }
  return blocks;
}

// The divisors of Llama 3.1's rope scaling: factor 8 for waves longer than the 8192 tokens of the
// first training, none for those below a quarter of it, a blend between.
// Source: meta-llama/llama-models, "apply_scaling".
float Llama3Factor(const RopeParams& rope, std::int32_t pair) {
  const double exponent = 2.0 * pair / rope.dims;
  const double wave = 2.0 * std::numbers::pi * std::pow(double{rope.freq_base}, exponent);
  const double smooth = std::clamp((8192.0 / wave - 1.0) / 3.0, 0.0, 1.0);
  return static_cast<float>(1.0 / ((1.0 - smooth) / 8.0 + smooth));
}

void FillVector(const HyperParams& params, const GgufTensor& tensor, float* out) {
  Rng rng(tensor.name.size() + tensor.bytes);
  for (std::int32_t i = 0; i < tensor.dims[0]; ++i) {
    out[i] = 1.0f;
    if (tensor.name.ends_with(".bias")) {
      out[i] = rng.Normal();
    } else if (tensor.name == "rope_freqs.weight") {
      out[i] = Llama3Factor(params.rope, i);
    }
  }
}

// A stretch of blocks of one matrix.
struct FillTask {
  const std::vector<std::byte>* pattern;
  std::size_t first;  // block of the pattern
  std::size_t bytes;
  std::byte* to;
};

void FillBlocks(const FillTask& task) {
  std::size_t from = task.first % kPatternBlocks * kBlockBytes;
  for (std::size_t done = 0; done < task.bytes;) {
    const std::size_t piece = std::min(task.bytes - done, task.pattern->size() - from);
    std::memcpy(task.to + done, task.pattern->data() + from, piece);
    done += piece;
    from = 0;
  }
}

void FillWeights(ShapePlan& plan, std::byte* memory, int threads) {
  constexpr std::size_t kTaskBlocks = 1 << 17;  // 2.25 MiB
  std::map<std::int64_t, std::vector<std::byte>> patterns;
  std::vector<FillTask> tasks;
  std::size_t first = 0;
  for (GgufTensor& tensor : plan.tensors) {
    tensor.data = {memory, tensor.bytes};
    if (tensor.dims.size() == 1) {
      FillVector(plan.params, tensor, reinterpret_cast<float*>(memory));
    } else {
      std::vector<std::byte>& pattern = patterns[tensor.dims[0]];
      if (pattern.empty()) {
        pattern = RandomBlocks(tensor.dims[0]);
      }
      const std::size_t blocks = tensor.bytes / kBlockBytes;
      for (std::size_t b = 0; b < blocks; b += kTaskBlocks) {
        tasks.push_back({&pattern, first + b, std::min(kTaskBlocks, blocks - b) * kBlockBytes,
                         memory + b * kBlockBytes});
      }
      first += blocks;
    }
    memory += (tensor.bytes + kLine - 1) / kLine * kLine;
  }
  ThreadPool pool(threads);
  pool.ParallelFor(static_cast<std::int64_t>(tasks.size()),
                   [&](std::int64_t task, const ThreadPool::Worker&) {
                     FillBlocks(tasks[static_cast<std::size_t>(task)]);
                   });
}

Status NoText() {
  return {Code::kUnsupported, "a model made from a shape has no tokenizer: give ids, not text"};
}

// The tokenizer of a model without vocabulary: ids have no text and never end an answer.
class NoTokenizer final : public Tokenizer {
 public:
  explicit NoTokenizer(std::int32_t vocab) : vocab_(vocab) {}

  std::int32_t vocab_size() const override { return vocab_; }
  Result<std::vector<Token>> Encode(std::string_view, bool, bool) const override {
    return NoText();
  }
  std::string Piece(Token, bool) const override { return {}; }
  bool IsEndOfGeneration(Token) const override { return false; }
  bool IsControl(Token) const override { return false; }
  Token bos() const override { return -1; }
  Token eos() const override { return -1; }
  bool adds_bos() const override { return false; }
  std::string chat_template_source() const override { return {}; }
  Result<std::vector<Token>> EncodeChat(std::span<const ChatMessage>,
                                        std::string_view) const override {
    return NoText();
  }
  Result<std::vector<Token>> EncodeChatTurn(std::span<const ChatMessage>, const ChatMessage&,
                                            std::string_view) const override {
    return NoText();
  }

 private:
  std::int32_t vocab_;
};

}  // namespace

std::vector<std::string> KnownShapes() {
  std::vector<std::string> names;
  for (const Shape& shape : kShapes) {
    names.emplace_back(shape.name);
  }
  return names;
}

Result<ShapePlan> PlanShape(std::string_view shape, std::int32_t context) {
  constexpr std::int32_t kMaxContext = 1 << 30;
  const auto* const found = std::find_if(kShapes.begin(), kShapes.end(),
                                         [&](const Shape& known) { return known.name == shape; });
  if (found == kShapes.end()) {
    return Status(Code::kInvalidArgument, fmt::format("unknown shape '{}'; known: {}", shape,
                                                      fmt::join(KnownShapes(), ", ")));
  }
  if (context < 0 || context > kMaxContext) {
    return Status(Code::kInvalidArgument, fmt::format("the context of a shape must be from 0 "
                                                      "(131072) to {}, got {}",
                                                      kMaxContext, context));
  }
  ShapePlan plan;
  plan.params = ParamsOf(*found, context == 0 ? 131072 : context);
  ListTensors(*found, plan);
  return plan;
}

Result<std::unique_ptr<Model>> MakeShapeModel(ShapePlan plan, int threads) try {
  static_assert(kBlockWeights * 4 / 8 + 2 == kBlockBytes);
  Check(ggml_type_size(GGML_TYPE_Q4_0) == kBlockBytes &&
            ggml_blck_size(GGML_TYPE_Q4_0) == kBlockWeights,
        "Q4_0 blocks are not what this file writes");
  Result<Buffer> memory = Buffer::Allocate(plan.bytes);
  if (!memory) {
    return memory.error();
  }
  FillWeights(plan, memory->data(), threads);
  auto tokenizer = std::make_unique<NoTokenizer>(plan.params.vocab);
  return Model::FromTensors(std::move(plan.params), std::move(plan.tensors), *std::move(memory),
                            std::move(tokenizer));
} catch (const std::bad_alloc&) {
  return Status(Code::kResourceExhausted, "not enough memory for the model's tensors");
}

}  // namespace rkv::model
