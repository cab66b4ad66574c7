#include "model/model.h"

#include <fmt/format.h>
#include <ggml-cpu.h>
#include <ggml.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <new>
#include <set>
#include <string_view>
#include <utility>

#include "model/gguf.h"
#include "model/pack_weights.h"

namespace rkv::model {
namespace {

Status Bad(std::string message) { return {Code::kDataLoss, "GGUF: " + std::move(message)}; }

// Takes tensors out of a file by name, checked against the shape that the hyper-parameters say. The
// first error sticks; later calls give empty tensors.
class TensorReader {
 public:
  explicit TensorReader(const GgufFile& file) : file_(file) {}

  const Status& status() const { return status_; }

  bool Has(const std::string& name) const { return file_.FindTensor(name) != nullptr; }

  // A matrix [out][in] with its optional bias [out]: `name`.weight and `name`.bias.
  Linear Matrix(const std::string& name, std::int32_t in, std::int32_t out) {
    Linear linear;
    linear.name = name + ".weight";
    linear.in = in;
    linear.out = out;
    const GgufTensor* tensor = Take(linear.name, {in, out});
    if (tensor == nullptr) {
      return linear;
    }
    const auto type = static_cast<ggml_type>(tensor->type);
    const auto* cpu = ggml_get_type_traits_cpu(type);
    const bool expands = type == GGML_TYPE_F32 || ggml_get_type_traits(type)->to_float != nullptr;
    const auto* partner =
        cpu->vec_dot == nullptr ? nullptr : ggml_get_type_traits_cpu(cpu->vec_dot_type);
    if (!expands || partner == nullptr ||
        (cpu->vec_dot_type != GGML_TYPE_F32 && partner->from_float == nullptr) ||
        in % ggml_blck_size(cpu->vec_dot_type) != 0) {
      Fail({Code::kUnsupported, fmt::format("GGUF: tensor '{}' has type {}, which cannot be "
                                            "multiplied",
                                            linear.name, ggml_type_name(type))});
      return linear;
    }
    linear.type = tensor->type;
    linear.data = tensor->data.data();
    linear.row_bytes = ggml_row_size(type, in);
    if (Has(name + ".bias")) {
      linear.bias = Vector(name + ".bias", out);
    }
    return linear;
  }

  // A vector expanded to f32.
  std::vector<float> Vector(const std::string& name, std::int32_t size) {
    std::vector<float> out(static_cast<std::size_t>(size));
    const GgufTensor* tensor = Take(name, {size});
    if (tensor == nullptr) {
      return out;
    }
    const auto type = static_cast<ggml_type>(tensor->type);
    if (type != GGML_TYPE_F32 && ggml_get_type_traits(type)->to_float == nullptr) {
      Fail({Code::kUnsupported, fmt::format("GGUF: tensor '{}' has type {}, which is no vector's",
                                            name, ggml_type_name(type))});
      return out;
    }
    Linear row;  // one row
    row.type = tensor->type;
    row.data = tensor->data.data();
    row.row_bytes = tensor->bytes;
    row.in = size;
    row.out = 1;
    ExpandRow(row, 0, out);
    return out;
  }

  // A tensor that no layer asked for would change what the model computes.
  void CheckAllTaken() {
    for (const GgufTensor& tensor : file_.tensors) {
      const std::string_view name = tensor.name;
      const bool constant = name.find("rot_embd") != std::string_view::npos ||
                            name.find("rotary_emb.inv_freq") != std::string_view::npos;
      if (!constant && taken_.count(name) == 0) {
        Fail({Code::kUnsupported,
              fmt::format("GGUF: tensor '{}' is unknown for this architecture", name)});
      }
    }
  }

  void Fail(Status status) {
    if (status_.ok()) {
      status_ = std::move(status);
    }
  }

 private:
  const GgufTensor* Take(const std::string& name, const std::vector<std::int64_t>& dims) {
    const GgufTensor* tensor = file_.FindTensor(name);
    if (tensor == nullptr) {
      Fail(Bad(fmt::format("tensor '{}' is missing", name)));
      return nullptr;
    }
    std::vector<std::int64_t> found = tensor->dims;
    while (found.size() > dims.size() && found.back() == 1) {  // [n, 1] is [n]
      found.pop_back();
    }
    if (found != dims) {
      Fail(Bad(fmt::format("tensor '{}' has shape [{}], expected [{}]", name,
                           fmt::join(tensor->dims, ", "), fmt::join(dims, ", "))));
      return nullptr;
    }
    taken_.insert(tensor->name);
    return tensor;
  }

  const GgufFile& file_;
  std::set<std::string_view> taken_;
  Status status_;
};

LayerWeights ReadLayer(TensorReader& tensors, const HyperParams& p, std::int32_t layer) {
  const std::string prefix = fmt::format("blk.{}.", layer);
  LayerWeights out;
  out.attn_norm = tensors.Vector(prefix + "attn_norm.weight", p.embd);
  out.q = tensors.Matrix(prefix + "attn_q", p.embd, p.q_width());
  out.k = tensors.Matrix(prefix + "attn_k", p.embd, p.kv_width());
  out.v = tensors.Matrix(prefix + "attn_v", p.embd, p.kv_width());
  out.o = tensors.Matrix(prefix + "attn_output", p.q_width(), p.embd);
  out.ffn_norm = tensors.Vector(prefix + "ffn_norm.weight", p.embd);
  out.gate = tensors.Matrix(prefix + "ffn_gate", p.embd, p.ff);
  out.up = tensors.Matrix(prefix + "ffn_up", p.embd, p.ff);
  out.down = tensors.Matrix(prefix + "ffn_down", p.ff, p.embd);
  return out;
}

// The divisors of llama3's rope scaling, if the file has them.
std::vector<float> ReadFreqFactors(TensorReader& tensors, std::int32_t pairs) {
  const std::string name = "rope_freqs.weight";
  if (!tensors.Has(name)) {
    return {};
  }
  std::vector<float> factors = tensors.Vector(name, pairs);
  for (const float factor : factors) {
    if (tensors.status().ok() && !(std::isfinite(factor) && factor > 0.0f)) {
      tensors.Fail(Bad(fmt::format("tensor '{}' holds {}", name, factor)));
    }
  }
  return factors;
}

std::uint64_t CountParameters(const GgufFile& file) {
  std::uint64_t sum = 0;
  for (const GgufTensor& tensor : file.tensors) {
    std::uint64_t numbers = 1;
    for (const std::int64_t dim : tensor.dims) {
      numbers *= static_cast<std::uint64_t>(dim);
    }
    sum += numbers;
  }
  return sum;
}

}  // namespace

Model::~Model() = default;

Result<std::unique_ptr<Model>> Model::Load(const std::string& path) try {
  Result<MappedFile> mapped = MappedFile::Open(path);
  if (!mapped) {
    return mapped.error();
  }
  std::unique_ptr<Model> model(new Model());
  model->path_ = path;
  model->mapped_ = *std::move(mapped);
  if (Status status = model->ReadFile(); !status.ok()) {
    return status;
  }
  Result<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::Load(path);
  if (!tokenizer) {
    return tokenizer.error();
  }
  model->tokenizer_ = *std::move(tokenizer);
  if (model->tokenizer_->vocab_size() != model->params_.vocab) {
    return Bad(fmt::format("the tokenizer has {} tokens, the file lists {}",
                           model->tokenizer_->vocab_size(), model->params_.vocab));
  }
  return model;
} catch (const std::bad_alloc&) {
  return Status(Code::kResourceExhausted, fmt::format("not enough memory to load '{}'", path));
}

Result<std::unique_ptr<Model>> Model::FromTensors(HyperParams params,
                                                  std::vector<GgufTensor> tensors, Buffer memory,
                                                  std::unique_ptr<Tokenizer> tokenizer) {
  std::unique_ptr<Model> model(new Model());
  model->params_ = std::move(params);
  model->memory_ = std::move(memory);
  model->gguf_.tensors = std::move(tensors);
  for (std::size_t i = 0; i < model->gguf_.tensors.size(); ++i) {
    model->gguf_.tensor_index[model->gguf_.tensors[i].name] = i;
  }
  if (Status status = model->ReadTensors(); !status.ok()) {
    return status;
  }
  model->rope_ = std::make_unique<Rope>(model->params_.rope);
  model->tokenizer_ = std::move(tokenizer);
  model->parameters_ = CountParameters(model->gguf_);
  return model;
}

Status Model::ReadFile() {
  Result<GgufFile> gguf = ParseGguf(mapped_.bytes());
  if (!gguf) {
    return gguf.error();
  }
  gguf_ = *std::move(gguf);
  // The architecture first: of an unsupported model its name says more than its tokenizer.
  Result<HyperParams> params = ReadHyperParams(gguf_);
  if (!params) {
    return params.error();
  }
  params_ = *std::move(params);
  if (Status status = CheckTokenizerKeys(gguf_); !status.ok()) {
    return status;
  }
  if (Status status = ReadTensors(); !status.ok()) {
    return status;
  }
  rope_ = std::make_unique<Rope>(params_.rope);
  parameters_ = CountParameters(gguf_);
  const std::span<const std::byte> bytes = mapped_.bytes();
  // A hint only: reads the file ahead of the first prompt.
  madvise(const_cast<std::byte*>(bytes.data()), bytes.size(), MADV_WILLNEED);
  return {};
}

Status Model::ReadTensors() {
  TensorReader tensors(gguf_);
  embedding_ = tensors.Matrix("token_embd", params_.embd, params_.vocab);
  output_norm_ = tensors.Vector("output_norm.weight", params_.embd);
  output_ = tensors.Has("output.weight") ? tensors.Matrix("output", params_.embd, params_.vocab)
                                         : embedding_;
  params_.rope.freq_factors = ReadFreqFactors(tensors, params_.rope.dims / 2);
  for (std::int32_t i = 0; i < params_.layers && tensors.status().ok(); ++i) {
    layers_.push_back(ReadLayer(tensors, params_, i));
  }
  if (tensors.status().ok()) {
    tensors.CheckAllTaken();
  }
  return tensors.status();
}

std::vector<Linear*> Model::Matrices() {
  std::vector<Linear*> out;
  for (LayerWeights& w : layers_) {
    out.insert(out.end(), {&w.q, &w.k, &w.v, &w.o, &w.gate, &w.up, &w.down});
  }
  out.push_back(&output_);
  return out;
}

std::size_t Model::BytesToPack() { return PackedWeightBytes(Matrices()); }

Status Model::Pack(ThreadPool& pool) {
  // A tied output shares its bytes with the embedding, whose rows are read now and then: a mapped
  // file brings them back, other memory would not.
  const bool keep_output = mapped_.bytes().empty() && output_.data == embedding_.data;
  Result<Buffer> packed = PackWeights(Matrices(), pool, [&](std::span<const std::byte> bytes) {
    if (!keep_output || bytes.data() != output_.data) {
      ReleasePages(bytes);
    }
  });
  if (!packed) {
    return packed.error();
  }
  packed_ = *std::move(packed);
  return {};
}

// Gives back the whole pages within `bytes`.
void Model::ReleasePages(std::span<const std::byte> bytes) {
  constexpr std::size_t kPage = 4096;
  const std::span<const std::byte> all =
      mapped_.bytes().empty() ? std::span<const std::byte>(memory_.data(), memory_.size())
                              : mapped_.bytes();
  const auto begin = static_cast<std::size_t>(bytes.data() - all.data());
  const std::size_t first = (begin + kPage - 1) / kPage * kPage;
  const std::size_t end = (begin + bytes.size()) / kPage * kPage;
  if (end <= first) {
    return;
  }
  if (mapped_.bytes().empty()) {
    memory_.Discard(first, end - first);
  } else {
    madvise(const_cast<std::byte*>(all.data() + first), end - first, MADV_DONTNEED);
  }
}

std::string Model::weight_types() const {
  std::map<std::uint32_t, std::size_t> bytes_of;
  for (const GgufTensor& tensor : gguf_.tensors) {
    if (tensor.dims.size() > 1) {
      bytes_of[tensor.type] += tensor.bytes;
    }
  }
  std::vector<std::pair<std::size_t, std::uint32_t>> order;
  for (const auto& [type, bytes] : bytes_of) {
    order.emplace_back(bytes, type);
  }
  std::sort(order.rbegin(), order.rend());
  std::string names;
  for (const auto& [bytes, type] : order) {
    std::string name = ggml_type_name(static_cast<ggml_type>(type));
    std::transform(name.begin(), name.end(), name.begin(),
                   [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
    names += (names.empty() ? "" : ", ") + name;
  }
  return names;
}

}  // namespace rkv::model
