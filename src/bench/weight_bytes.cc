#include "bench/weight_bytes.h"

#include <gguf.h>

#include <algorithm>
#include <memory>
#include <string_view>

namespace rkv::bench {
namespace {

struct FreeGguf {
  void operator()(gguf_context* p) const { gguf_free(p); }
};

}  // namespace

std::uint64_t EstimateWeightBytes(const ModelInfo& model) {
  const auto embd = static_cast<double>(model.embd);
  const double q = static_cast<double>(model.heads) * model.head_dim;
  const double kv = static_cast<double>(model.kv_heads) * model.head_dim;
  const double layers = model.layers * (embd * (2 * q + 2 * kv + 3.0 * model.ff + 2));
  const double table = embd * model.vocab;
  const auto all = static_cast<double>(model.parameters);
  const bool two_tables = all - layers > 1.5 * table;
  const double read = two_tables ? (all - table) / std::max(all, 1.0) : 1.0;
  return static_cast<std::uint64_t>(static_cast<double>(model.file_bytes) * read);
}

std::uint64_t WeightBytesPerToken(const ModelInfo& model) {
  if (model.path.empty()) {
    return EstimateWeightBytes(model);
  }
  const std::unique_ptr<gguf_context, FreeGguf> file(
      gguf_init_from_file(model.path.c_str(), {.no_alloc = true, .ctx = nullptr}));
  if (file == nullptr) {
    return EstimateWeightBytes(model);
  }
  std::uint64_t bytes = 0;
  for (std::int64_t i = 0; i < gguf_get_n_tensors(file.get()); ++i) {
    bytes += gguf_get_tensor_size(file.get(), i);
  }
  const std::int64_t table = gguf_find_tensor(file.get(), "token_embd.weight");
  if (table >= 0 && gguf_find_tensor(file.get(), "output.weight") >= 0) {
    bytes -= gguf_get_tensor_size(file.get(), table);
  }
  return bytes;
}

}  // namespace rkv::bench
