// decode_kernels KERNEL: runs one decode kernel on a fixed input, once to fill scratch and once
// within MeasuredKernel, whose instructions callgrind counts.
#include <ggml.h>

#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "attention/backend.h"
#include "base/rng.h"
#include "model/packed_dot.h"
#include "support/test_head.h"

namespace rkv {
namespace {

using model::BestBlockIsa;
using model::BlockIsa;
using model::PackedMatrix;
using model::RoundedInput;

constexpr std::int32_t kHeadDim = 64;
constexpr std::int32_t kGroup = 3;
constexpr std::int32_t kRows = 2048;

// One head of the SmolLM2 kind, its index and one token's query.
struct Input {
  Rng rng{1};
  test::TestHead head = test::TestHead::Random(rng, kHeadDim, kv::Codec::kF16, kRows);
  test::TestIndex index{head, 2};
  std::vector<float> q = test::NormalVector(rng, kGroup* kHeadDim);
  std::vector<float> acc = std::vector<float>(kGroup * kHeadDim);
  std::vector<float> max = std::vector<float>(kGroup);
  std::vector<float> sum = std::vector<float>(kGroup);
  std::vector<float> scores = std::vector<float>(kRows / 2);
  std::vector<std::int32_t> list = std::vector<std::int32_t>(kRows);
  Scratch scratch;

  attention::GroupQuery query() const { return {q.data(), kGroup}; }
  attention::PartialSoftmax state() { return {acc.data(), max.data(), sum.data()}; }
};

void DenseRows(Input& in) {
  attention::CpuBackend().decode_rows(in.query(), in.head.view(), {nullptr, kRows}, 0.125f,
                                      in.state());
}

void SparseRows(Input& in) {
  for (std::int32_t i = 0; i < 256; ++i) {
    in.list[static_cast<std::size_t>(i)] = i * 8 + i % 5;
  }
  attention::CpuBackend().decode_rows(in.query(), in.head.view(), {in.list.data(), 256}, 0.125f,
                                      in.state());
}

void ChunkScores(Input& in) {
  attention::CpuBackend().chunk_scores(in.query(), in.index.view(), 41, in.scores, nullptr,
                                       in.scratch);
}

void TopK(Input& in) {
  for (std::size_t i = 0; i < in.scores.size(); ++i) {
    in.scores[i] = static_cast<float>(i * 7919 % 1024);
  }
  attention::CpuBackend().top_k(in.scores, 128, in.list.data(), in.scratch);
}

// 64 x 576 weights of a type, packed, times one token.
template <ggml_type kType>
void PackedDot(Input& in) {
  constexpr std::int32_t kIn = kType == GGML_TYPE_Q4_K || kType == GGML_TYPE_Q6_K ? 768 : 576;
  static const std::vector<std::byte> panels(model::PackedMatrixBytes(kType, kIn, 64),
                                             std::byte{1});
  static const std::vector<float> x = [] {
    Rng rng(2);
    return test::NormalVector(rng, kIn);
  }();
  const PackedMatrix weights{kType, panels.data(), kIn, 64};
  const BlockIsa target = BestBlockIsa();
  Scratch::Frame frame(in.scratch);
  const RoundedInput rounded = model::RoundInput(target, x.data(), kIn, frame);
  model::DotPanels(target, weights, 0, weights.panel_count(), &rounded, 1, in.scores.data(), 64);
}

const std::map<std::string, std::function<void(Input&)>>& Kernels() {
  static const std::map<std::string, std::function<void(Input&)>> kernels = {
      {"dense_rows", DenseRows},
      {"sparse_rows", SparseRows},
      {"chunk_scores", ChunkScores},
      {"top_k", TopK},
      {"packed_dot_q4_1", PackedDot<GGML_TYPE_Q4_1>},
      {"packed_dot_q5_0", PackedDot<GGML_TYPE_Q5_0>},
      {"packed_dot_q4_k", PackedDot<GGML_TYPE_Q4_K>},
      {"packed_dot_q6_k", PackedDot<GGML_TYPE_Q6_K>},
  };
  return kernels;
}

}  // namespace
}  // namespace rkv

// What callgrind collects. Not inlined, by this name.
extern "C" __attribute__((noinline)) void MeasuredKernel(
    const std::function<void(rkv::Input&)>& run, rkv::Input& input) {
  run(input);
}

int main(int argc, char** argv) {
  if (argc == 1) {
    for (const auto& [name, run] : rkv::Kernels()) {
      std::printf("%s\n", name.c_str());
    }
    return 0;
  }
  const auto kernel = rkv::Kernels().find(argv[1]);
  if (argc != 2 || kernel == rkv::Kernels().end()) {
    std::fprintf(stderr, "usage: decode_kernels [KERNEL]\n");
    return 2;
  }
  rkv::Input input;
  kernel->second(input);  // fills scratch and static inputs, and picks the instruction set
  MeasuredKernel(kernel->second, input);
  return 0;
}
