// kept_rows: the rows that a method keeps of given keys and queries, for bench/kvpress_check.py.
// usage: kept_rows FILE METHOD
//
// FILE is a line of six numbers, "layers kv_heads group head_dim rows window", then f32 in the
// machine's byte order: keys [layers][kv_heads][rows][head_dim] and the queries of the last
// `window` rows [layers][kv_heads * group][window][head_dim]; all after RoPE. Values are zeros.
// Prints {"method", "prompt_budget", "kept": [layers][kv_heads][rows kept]}.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kv/head_store.h"
#include "policy/policy.h"

namespace rkv::policy {
namespace {

std::size_t Size(std::int64_t n) { return static_cast<std::size_t>(n); }

struct Tensors {
  std::int32_t layers = 0, kv_heads = 0, group = 0, head_dim = 0, rows = 0, window = 0;
  std::vector<float> keys;
  std::vector<float> queries;

  // [rows][head_dim] of one kv_head.
  std::span<const float> Keys(std::int32_t layer, std::int32_t kv_head) const {
    const std::size_t head = Size(rows) * Size(head_dim);
    return std::span(keys).subspan(Size(layer * kv_heads + kv_head) * head, head);
  }
  // The last `tokens` queries of one kv_head's group, [tokens][group][head_dim] as kernels want it.
  std::vector<float> Window(std::int32_t layer, std::int32_t kv_head, std::int32_t tokens) const {
    std::vector<float> out;
    for (std::int32_t i = window - tokens; i < window; ++i) {
      for (std::int32_t g = 0; g < group; ++g) {
        const std::int32_t head = (layer * kv_heads + kv_head) * group + g;
        const auto row =
            std::span(queries).subspan(Size(head * window + i) * Size(head_dim), Size(head_dim));
        out.insert(out.end(), row.begin(), row.end());
      }
    }
    return out;
  }
};

Result<Tensors> Read(const char* path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return Status(Code::kNotFound, "cannot be read");
  }
  Tensors in;
  file >> in.layers >> in.kv_heads >> in.group >> in.head_dim >> in.rows >> in.window;
  for (const std::int32_t n : {in.layers, in.kv_heads, in.group, in.head_dim, in.rows, in.window}) {
    if (!file || n < 1 || n > 65536 || in.window > in.rows) {
      return Status(Code::kDataLoss, "not a line of six numbers from 1 to 65536, window <= rows");
    }
  }
  file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  const auto heads = std::int64_t{in.layers} * in.kv_heads;
  for (auto& [to, rows] : {std::pair(&in.keys, heads * in.rows),
                           std::pair(&in.queries, heads * in.group * in.window)}) {
    to->resize(Size(rows * in.head_dim));
    file.read(reinterpret_cast<char*>(to->data()),
              static_cast<std::streamsize>(to->size() * sizeof(float)));
  }
  if (!file || file.peek() != std::ifstream::traits_type::eof()) {
    return Status(Code::kDataLoss, "more or fewer numbers than its first line says");
  }
  return in;
}

// One layer after another, as the engine runs a policy at the end of a prompt.
class Runner {
 public:
  Runner(const Tensors& in, const Policy& policy)
      : in_(in),
        policy_(policy),
        shape_(policy.Plan({.prompt_tokens = in.rows,
                            .max_new_tokens = 1,
                            .head_dim = in.head_dim,
                            .group = in.group,
                            .kv_heads = in.kv_heads,
                            .layers = in.layers})),
        needs_(policy.needs(shape_)),
        pool_(kv::HeadStore::BlockBytes(in.head_dim, kv::Codec::kF32)) {}

  const TurnShape& shape() const { return shape_; }

  // [layers][kv_heads]
  Result<std::vector<std::vector<Rows>>> Run() {
    if (Status status = policy_.CheckShape(shape_); !status.ok()) {
      return status;
    }
    if (needs_.column_mass || needs_.query_gram || needs_.residual_cosine || needs_.all_layers) {
      return Status(Code::kUnsupported, "this method needs more than a window of queries");
    }
    if (needs_.window > in_.window) {
      return Status(Code::kInvalidArgument, "the method's window is longer than the file's");
    }
    std::vector<std::vector<Rows>> kept;
    for (std::int32_t layer = 0; layer < in_.layers; ++layer) {
      std::vector<Rows> keep(Size(in_.kv_heads));
      if (Status status = Evict(layer, kept, keep); !status.ok()) {
        return status;
      }
      kept.push_back(std::move(keep));
    }
    return kept;
  }

 private:
  Status Fill(std::int32_t layer, std::vector<kv::HeadStore>& stores) {
    const auto d = Size(in_.head_dim);
    const std::vector<float> value(d);
    for (std::int32_t h = 0; h < in_.kv_heads; ++h) {
      kv::HeadStore& store = stores.emplace_back(in_.head_dim, kv::Codec::kF32, pool_, meter_);
      const Result<std::int32_t> first = store.Extend(in_.rows, 0);
      if (!first) {
        return first.error();
      }
      for (std::int32_t row = 0; row < in_.rows; ++row) {
        store.WriteRow(row, in_.Keys(layer, h).subspan(Size(row) * d, d), value);
      }
    }
    return {};
  }

  Status Evict(std::int32_t layer, const std::vector<std::vector<Rows>>& earlier,
               std::vector<Rows>& keep) {
    std::vector<kv::HeadStore> stores;
    if (Status status = Fill(layer, stores); !status.ok()) {
      return status;
    }
    std::vector<HeadPrefill> heads(keep.size());
    std::vector<std::vector<float>> queries(keep.size()), scores(keep.size());
    LayerPrefill in;
    in.shape = shape_;
    in.layer = layer;
    in.turn_tokens = in_.rows;
    in.heads = heads;
    in.earlier = earlier;
    in.backend = &attention::CpuBackend();
    in.scratch = &scratch_;
    for (std::size_t h = 0; h < heads.size(); ++h) {
      HeadPrefill& head = heads[h];
      head.kv_head = static_cast<std::int32_t>(h);
      head.view = stores[h].view();
      queries[h] = in_.Window(layer, head.kv_head, needs_.window);
      head.window = {queries[h].data(), Size(in_.group) * Size(in_.head_dim), needs_.window,
                     in_.group, 1.0f / std::sqrt(static_cast<float>(in_.head_dim))};
      policy_.Score(in, head, scores[h]);
      head.scores = scores[h];
    }
    return policy_.Evict(in, keep);
  }

  const Tensors& in_;
  const Policy& policy_;
  TurnShape shape_;
  Needs needs_;
  kv::BlockPool pool_;
  kv::MemoryMeter meter_;
  Scratch scratch_;
};

void Print(const Policy& policy, const TurnShape& shape,
           const std::vector<std::vector<Rows>>& kept) {
  std::printf("{\"method\": \"%s\", \"prompt_budget\": %d, \"kept\": [", policy.spec().c_str(),
              shape.prompt_budget);
  for (std::size_t layer = 0; layer < kept.size(); ++layer) {
    std::printf("%s[", layer == 0 ? "" : ", ");
    for (std::size_t h = 0; h < kept[layer].size(); ++h) {
      std::printf("%s[", h == 0 ? "" : ", ");
      const Rows& rows = kept[layer][h];
      const std::size_t count = rows.all ? Size(shape.prompt_tokens) : rows.list.size();
      for (std::size_t i = 0; i < count; ++i) {
        std::printf("%s%d", i == 0 ? "" : ", ",
                    rows.all ? static_cast<std::int32_t>(i) : rows.list[i]);
      }
      std::printf("]");
    }
    std::printf("]");
  }
  std::printf("]}\n");
}

int Fail(const std::string& what) {
  std::fprintf(stderr, "kept_rows: %s\n", what.c_str());
  return 1;
}

int Main(const char* path, const char* method) {
  const Result<Tensors> in = Read(path);
  if (!in) {
    return Fail(std::string(path) + ": " + in.error().message());
  }
  const Result<std::unique_ptr<const Policy>> policy = MakePolicy(method);
  if (!policy) {
    return Fail(policy.error().message());
  }
  Runner runner(*in, **policy);
  const Result<std::vector<std::vector<Rows>>> kept = runner.Run();
  if (!kept) {
    return Fail(kept.error().message());
  }
  Print(**policy, runner.shape(), *kept);
  return 0;
}

}  // namespace
}  // namespace rkv::policy

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: kept_rows FILE METHOD\n");
    return 2;
  }
  return rkv::policy::Main(argv[1], argv[2]);
}
