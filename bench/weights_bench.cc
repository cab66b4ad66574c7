// Decode's products of weights: the packed layout against ggml's vec_dot, one thread, bytes a
// second.
#include <benchmark/benchmark.h>
#include <ggml-cpu.h>
#include <ggml.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/rng.h"
#include "model/packed_dot.h"

namespace rkv::model {
namespace {

constexpr std::int32_t kIn = 1024;

// Weights of `megabytes` in ggml's layout: 64 random rows again and again.
struct Weights {
  Weights(ggml_type t, std::int64_t megabytes) : type(t), row_bytes(ggml_row_size(t, kIn)) {
    constexpr std::size_t kRandomRows = 64;
    Rng rng(1);
    std::vector<float> values(kRandomRows * kIn);
    std::generate(values.begin(), values.end(), [&] { return rng.Normal(); });
    std::vector<std::byte> pattern(kRandomRows * row_bytes);
    ggml_quantize_chunk(type, values.data(), pattern.data(), 0, kRandomRows, kIn, nullptr);
    const std::size_t repeats = static_cast<std::size_t>(megabytes) * 1000000 / pattern.size() + 1;
    for (std::size_t i = 0; i < repeats; ++i) {
      bytes.insert(bytes.end(), pattern.begin(), pattern.end());
    }
    rows = static_cast<std::int32_t>(repeats * kRandomRows);
    x.assign(values.begin(), values.begin() + kIn);
  }

  ggml_type type;
  std::size_t row_bytes;
  std::int32_t rows;
  std::vector<std::byte> bytes;
  std::vector<float> x;
};

void VecDot(benchmark::State& state) {
  ggml_cpu_init();
  const Weights w(static_cast<ggml_type>(state.range(0)), state.range(1));
  const auto& traits = *ggml_get_type_traits_cpu(w.type);
  std::vector<std::byte> input(ggml_row_size(traits.vec_dot_type, kIn));
  ggml_get_type_traits_cpu(traits.vec_dot_type)->from_float(w.x.data(), input.data(), kIn);
  std::vector<float> y(static_cast<std::size_t>(w.rows));
  for (auto _ : state) {
    for (std::size_t row = 0; row < y.size(); ++row) {
      traits.vec_dot(kIn, &y[row], 0, &w.bytes[row * w.row_bytes], 0, input.data(), 0, 1);
    }
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(w.bytes.size()));
  state.SetLabel(ggml_type_name(w.type));
}

void Packed(benchmark::State& state, BlockIsa target) {
  ggml_cpu_init();
  const Weights w(static_cast<ggml_type>(state.range(0)), state.range(1));
  if (target > BestBlockIsa() || !HasPackedDot(target, w.type, kIn)) {
    state.SkipWithError("no kernel");
    return;
  }
  std::vector<std::byte> panels(PackedMatrixBytes(w.type, kIn, w.rows));
  const std::size_t panel_bytes = PackedPanelBytes(w.type, kIn);
  for (std::int32_t row = 0; row < w.rows; row += kPackedRows) {
    PackRows(w.type, &w.bytes[static_cast<std::size_t>(row) * w.row_bytes], w.row_bytes,
             kPackedRows, kIn, &panels[static_cast<std::size_t>(row / kPackedRows) * panel_bytes]);
  }
  const PackedMatrix matrix{w.type, panels.data(), kIn, w.rows};
  Scratch scratch;
  Scratch::Frame frame(scratch);
  const RoundedInput input = RoundInput(target, w.x.data(), kIn, frame);
  std::vector<float> y(static_cast<std::size_t>(w.rows));
  for (auto _ : state) {
    DotPanels(target, matrix, 0, matrix.panel_count(), &input, 1, y.data(), y.size());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(panels.size()));
  state.SetLabel(ggml_type_name(w.type));
}

// In the second-level cache, and far beyond it.
void Arguments(benchmark::internal::Benchmark* benchmark) {
  for (const ggml_type type : {GGML_TYPE_Q4_0, GGML_TYPE_Q4_1, GGML_TYPE_Q5_0, GGML_TYPE_Q5_1,
                               GGML_TYPE_Q8_0, GGML_TYPE_Q4_K, GGML_TYPE_Q5_K, GGML_TYPE_Q6_K}) {
    for (const std::int64_t megabytes : {1, 200}) {
      benchmark->Args({type, megabytes});
    }
  }
}

BENCHMARK(VecDot)->Apply(Arguments);
BENCHMARK_CAPTURE(Packed, avx2, BlockIsa::kAvx2)->Apply(Arguments);
BENCHMARK_CAPTURE(Packed, avx512_vnni, BlockIsa::kVnni)->Apply(Arguments);

}  // namespace
}  // namespace rkv::model

BENCHMARK_MAIN();
