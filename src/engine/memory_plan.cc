#include "engine/memory_plan.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>

#include "engine/low_rank_keys.h"
#include "engine/prompt_sums.h"
#include "kv/block_pool.h"
#include "kv/head_store.h"
#include "model/expanded_linear.h"

namespace rkv::engine {
namespace {

std::size_t Size(std::int64_t n) { return static_cast<std::size_t>(n); }

// Blocks and positions of `rows` rows in every kv_head of one layer.
std::size_t LayerRowBytes(const Runtime& runtime, std::int64_t rows) {
  const model::HyperParams& params = runtime.params();
  const std::size_t block =
      kv::BlockPool::BytesOf(kv::HeadStore::BlockBytes(params.head_dim, runtime.codec));
  const std::size_t blocks = Size((rows + kv::kBlockRows - 1) / kv::kBlockRows);
  return Size(params.kv_heads) * (blocks * block + Size(rows) * sizeof(std::int32_t));
}

std::size_t ExpandedLayerBytes(const Runtime& runtime) {
  std::size_t most = 0;
  for (std::int32_t l = 0; l < runtime.params().layers; ++l) {
    const model::LayerWeights& w = runtime.model->layer(l);
    std::size_t sum = 0;
    for (const model::Linear* linear : {&w.q, &w.k, &w.v, &w.o, &w.gate, &w.up, &w.down}) {
      sum += model::ExpandedLinear::Bytes(*linear, runtime.compute);
    }
    most = std::max(most, sum);
  }
  return most;
}

// A number from a one-line file, or `missing`.
std::size_t ReadNumber(const std::string& path, std::size_t missing) {
  std::ifstream file(path);
  std::size_t value = 0;
  return file >> value ? value : missing;
}

constexpr std::size_t kUnlimited = std::numeric_limits<std::size_t>::max();

std::size_t SystemAvailable() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  std::size_t kib = 0;
  std::string unit;
  while (file >> key >> kib) {
    std::getline(file, unit);
    if (key == "MemAvailable:") {
      return kib * 1024;
    }
  }
  return kUnlimited;
}

// The sum of `keys` in a file of "key number" lines.
std::size_t SumOfKeys(const std::string& path, std::initializer_list<std::string_view> keys) {
  std::ifstream file(path);
  std::string key;
  std::size_t value = 0;
  std::size_t sum = 0;
  while (file >> key >> value) {
    sum += std::ranges::find(keys, key) != keys.end() ? value : 0;
  }
  return sum;
}

// What one control group still allows. Cached file pages (the mapped weights) can be dropped.
std::size_t GroupAvailable(const std::string& folder) {
  const std::size_t limit = ReadNumber(folder + "/memory.max", kUnlimited);  // "max": unlimited
  if (limit == kUnlimited) {
    return kUnlimited;
  }
  const std::size_t used = ReadNumber(folder + "/memory.current", 0);
  const std::size_t cached = SumOfKeys(folder + "/memory.stat", {"active_file", "inactive_file"});
  return limit - std::min(limit, used - std::min(used, cached));
}

// The least of this process's control group (version 2) and those above it.
std::size_t GroupsAvailable() {
  std::ifstream file("/proc/self/cgroup");
  std::string path;
  std::getline(file, path);  // "0::/some/group"
  path = path.starts_with("0::/") ? path.substr(3) : "/";
  const std::string root = "/sys/fs/cgroup";
  std::size_t least = GroupAvailable(root);
  for (; path.size() > 1; path.resize(path.rfind('/'))) {
    least = std::min(least, GroupAvailable(root + path));
  }
  return least;
}

std::size_t AddressSpaceAvailable() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return kUnlimited;
  }
  const std::size_t pages = ReadNumber("/proc/self/statm", 0);
  const std::size_t used = pages * Size(sysconf(_SC_PAGESIZE));
  return limit.rlim_cur - std::min<std::size_t>(limit.rlim_cur, used);
}

}  // namespace

std::size_t RoundedInputBytes(const model::HyperParams& params, std::int32_t piece_tokens) {
  return std::max({model::MatMulBytes(params.embd, piece_tokens),
                   model::MatMulBytes(params.q_width(), piece_tokens),
                   model::MatMulBytes(params.ff, piece_tokens)});
}

std::size_t PrefillScratchBytes(const Runtime& runtime, std::int32_t held_rows, std::int32_t tokens,
                                std::int32_t window) {
  const model::HyperParams& params = runtime.params();
  const std::int32_t piece = std::min(runtime.piece_tokens, tokens);
  const std::int64_t per_piece_token =
      params.embd * 2LL + params.q_width() * 2LL + params.kv_width() * 2LL + params.ff * 2LL;
  const std::int64_t floats = static_cast<std::int64_t>(tokens) * (params.embd + params.rope.dims) +
                              piece * per_piece_token +
                              static_cast<std::int64_t>(window) * params.q_width() +
                              (window > 0 ? static_cast<std::int64_t>(params.kv_heads) *
                                                (static_cast<std::int64_t>(held_rows) + tokens)
                                          : 0) +
                              params.vocab;
  // Of a thread: tiles of the attention kernels, and the window's queries as one of them packs
  // them.
  const std::size_t thread_bytes = (std::size_t{4} << 20) + Size(window) * Size(params.group()) *
                                                                Size(params.head_dim) *
                                                                sizeof(float);
  return Size(floats) * sizeof(float) + ExpandedLayerBytes(runtime) +
         RoundedInputBytes(params, piece) + Size(runtime.pool->threads()) * thread_bytes;
}

MemoryPlan PlanMemory(const Runtime& runtime, const policy::Policy& policy,
                      const policy::TurnShape& shape, std::int32_t held_rows, std::int32_t tokens) {
  const model::HyperParams& params = runtime.params();
  const policy::Needs needs = policy.needs(shape);
  const std::int64_t turn_rows = static_cast<std::int64_t>(held_rows) + tokens;
  const std::int64_t kept = policy.RowsKept(shape, turn_rows) + shape.max_new_tokens;
  MemoryPlan plan;
  plan.kv_kept = Size(params.layers) * LayerRowBytes(runtime, kept);
  plan.kv_layer = LayerRowBytes(runtime, turn_rows) * (needs.all_layers ? Size(params.layers) : 1);
  const std::size_t list_bytes = needs.park ? Size(kept) * sizeof(std::int32_t) : 0;
  plan.kv_index = Size(params.layers) * Size(params.kv_heads) *
                  (policy.StateBytes(shape, runtime.codec, kept) + list_bytes);
  plan.scratch = PrefillScratchBytes(runtime, held_rows, tokens, std::min(needs.window, tokens)) +
                 PromptSums::Bytes(runtime, needs, held_rows, tokens) +
                 (needs.key_rank > 0 ? ReduceKeysBytes(runtime) : 0);
  return plan;
}

std::size_t AvailableMemory() {
  return std::min({SystemAvailable(), GroupsAvailable(), AddressSpaceAvailable()});
}

}  // namespace rkv::engine
