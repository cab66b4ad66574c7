#include "engine/model_info.h"

#include <fmt/format.h>

namespace rkv::engine {
namespace {

std::string DescribeRope(const model::RopeParams& rope) {
  std::string text = fmt::format("{}, base {}, {} dimensions",
                                 rope.order == model::RopeOrder::kNeox ? "neox" : "norm",
                                 rope.freq_base, rope.dims);
  if (!rope.freq_factors.empty()) {
    text += ", frequency factors (llama3)";
  }
  switch (rope.scaling) {
    case model::RopeScaling::kLinear:
      text += fmt::format(", linear scaling {}", 1.0f / rope.freq_scale);
      break;
    case model::RopeScaling::kYarn:
      text += fmt::format(", yarn scaling {} of {} tokens", 1.0f / rope.freq_scale,
                          rope.original_context);
      break;
    case model::RopeScaling::kNone:
      break;
  }
  return text;
}

}  // namespace

ModelInfo DescribeModel(const model::Model& model, kv::Codec codec) {
  const model::HyperParams& params = model.params();
  ModelInfo info;
  info.path = model.path();
  info.name = params.name;
  info.architecture = params.architecture;
  info.weight_types = model.weight_types();
  info.parameters = model.parameter_count();
  info.file_bytes = model.file_bytes();
  info.layers = params.layers;
  info.embd = params.embd;
  info.heads = params.heads;
  info.kv_heads = params.kv_heads;
  info.head_dim = params.head_dim;
  info.ff = params.ff;
  info.vocab = params.vocab;
  info.trained_context = params.context;
  info.rope = DescribeRope(params.rope);
  info.kv_bytes_per_token = static_cast<std::size_t>(params.layers) *
                            static_cast<std::size_t>(params.kv_heads) *
                            kv::RowBytes(codec, params.head_dim);
  return info;
}

std::string ModelIdentity(const ModelInfo& info) {
  return fmt::format("{} {} {}x{}x{} d{} e{} v{}", info.architecture, info.name, info.layers,
                     info.heads, info.kv_heads, info.head_dim, info.embd, info.vocab);
}

}  // namespace rkv::engine
