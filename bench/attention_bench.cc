// Attention kernels of the cpu backend on one thread, at the shapes of a 135M-parameter model
// (head_dim 64, groups of 3) and its neighbours. Heads are visited in turn so that rows come from
// memory, as they do while decoding.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "attention/backend.h"
#include "base/check.h"
#include "base/gemm.h"
#include "kv/block_pool.h"
#include "kv/head_store.h"
#include "kv/memory_meter.h"
#include "support/random.h"
#include "support/test_head.h"

namespace rkv {
namespace {

constexpr kv::Codec kCodec = kv::Codec::kF16;
constexpr auto kF16 = static_cast<std::int64_t>(kv::Codec::kF16);
constexpr auto kQ8 = static_cast<std::int64_t>(kv::Codec::kQ8);

// Heads of equal content in the memory that the engine uses (huge pages where the system gives
// them).
class Heads {
 public:
  // As many as it takes to fill `bytes`, at least one.
  Heads(std::int32_t head_dim, std::int32_t rows, std::size_t bytes, kv::Codec codec = kCodec)
      : pool_(kv::HeadStore::BlockBytes(head_dim, codec)) {
    Rng rng(1);
    const test::TestHead first = test::TestHead::Random(rng, head_dim, codec, rows);
    const std::size_t row_bytes = first.view().row_bytes();
    do {
      stores_.emplace_back(head_dim, codec, pool_, meter_);
      Check(stores_.back().Extend(rows, 0).has_value(), "no memory for the rows");
      for (std::int32_t row = 0; row < rows; ++row) {
        std::copy_n(first.view().Key(row), row_bytes, stores_.back().MutableRow(row));
      }
    } while (stores_.size() * static_cast<std::size_t>(rows) * row_bytes < bytes);
  }

  std::size_t size() const { return stores_.size(); }
  kv::HeadView view(std::size_t i) const { return stores_[i].view(); }

 private:
  kv::MemoryMeter meter_;
  kv::BlockPool pool_;
  std::vector<kv::HeadStore> stores_;
};

// head_dim, group, stored rows, rows read, MiB of heads that take turns, codec: of what a model
// reads.
void RowReads(benchmark::internal::Benchmark* b) {
  for (const std::int64_t codec : {kF16, kQ8}) {
    for (const auto& [head_dim, group] : {std::pair{64, 1}, {64, 3}, {64, 7}, {128, 4}}) {
      b->Args({head_dim, group, 7500, 7500, 128, codec});
      b->Args({head_dim, group, 1000, 1000, 0, codec});
    }
    b->Args({64, 3, 2400, 256, 128, codec});
  }
}

// Args: head_dim, group, stored rows, rows read (all when equal, else a random ascending list), MiB
// of heads that take turns (0: one head, from the cache), codec. items: rows.
void DecodeRows(benchmark::State& state) {
  const auto head_dim = static_cast<std::int32_t>(state.range(0));
  const auto group = static_cast<std::int32_t>(state.range(1));
  const auto rows = static_cast<std::int32_t>(state.range(2));
  const auto read = static_cast<std::int32_t>(state.range(3));
  const auto codec = static_cast<kv::Codec>(state.range(5));
  const Heads heads(head_dim, rows, static_cast<std::size_t>(state.range(4)) << 20, codec);
  Rng rng(2);
  const auto q = test::NormalVector(rng, static_cast<std::size_t>(group * head_dim));
  const auto list = test::RandomSubset(rng, rows, read);
  std::vector<float> acc(q.size());
  std::vector<float> max(static_cast<std::size_t>(group));
  std::vector<float> sum(static_cast<std::size_t>(group));
  std::size_t head = 0;
  for (auto _ : state) {
    attention::CpuBackend().decode_rows({q.data(), group}, heads.view(head),
                                        {read == rows ? nullptr : list.data(), read}, 0.125f,
                                        {acc.data(), max.data(), sum.data()});
    benchmark::DoNotOptimize(acc.data());
    head = (head + 1) % heads.size();
  }
  const auto row_bytes = static_cast<std::int64_t>(kv::RowBytes(codec, head_dim));
  state.SetBytesProcessed(state.iterations() * read * row_bytes);
  state.SetItemsProcessed(state.iterations() * read);
}
BENCHMARK(DecodeRows)->Apply(RowReads);

// Args: head_dim, group, stored rows, rows scored (all when equal, else a random ascending list),
// MiB of heads that take turns (0: one head, from the cache), codec. items: rows; bytes: of keys.
void ScoreRows(benchmark::State& state) {
  const auto head_dim = static_cast<std::int32_t>(state.range(0));
  const auto group = static_cast<std::int32_t>(state.range(1));
  const auto rows = static_cast<std::int32_t>(state.range(2));
  const auto read = static_cast<std::int32_t>(state.range(3));
  const auto codec = static_cast<kv::Codec>(state.range(5));
  const Heads heads(head_dim, rows, static_cast<std::size_t>(state.range(4)) << 20, codec);
  Rng rng(7);
  const auto q = test::NormalVector(rng, static_cast<std::size_t>(group * head_dim));
  const auto list = test::RandomSubset(rng, rows, read);
  std::vector<float> scores(static_cast<std::size_t>(group * read));
  std::size_t head = 0;
  for (auto _ : state) {
    attention::CpuBackend().score_rows({q.data(), group}, heads.view(head),
                                       {read == rows ? nullptr : list.data(), read}, 0.125f,
                                       scores.data());
    benchmark::DoNotOptimize(scores.data());
    head = (head + 1) % heads.size();
  }
  const auto key_bytes = static_cast<std::int64_t>(kv::StoredBytes(codec, head_dim));
  state.SetBytesProcessed(state.iterations() * read * key_bytes);
  state.SetItemsProcessed(state.iterations() * read);
}
BENCHMARK(ScoreRows)->Apply(RowReads);

// Args: head_dim, group, first row, tokens.
void PrefillTile(benchmark::State& state) {
  UseOneGemmThread();
  const auto head_dim = static_cast<std::int32_t>(state.range(0));
  const auto group = static_cast<std::int32_t>(state.range(1));
  const auto first = static_cast<std::int32_t>(state.range(2));
  const auto tokens = static_cast<std::int32_t>(state.range(3));
  const Heads heads(head_dim, first + tokens, 0);
  Rng rng(3);
  const auto stride = static_cast<std::size_t>(group * head_dim);
  const auto q = test::NormalVector(rng, stride * static_cast<std::size_t>(tokens));
  std::vector<float> out(q.size());
  Scratch scratch;
  for (auto _ : state) {
    attention::CpuBackend().prefill_tile(
        {q.data(), stride, tokens, group, first, 0.125f, out.data(), stride}, heads.view(0),
        scratch);
    benchmark::DoNotOptimize(out.data());
  }
  const double rows = first + 0.5 * (tokens + 1);
  state.counters["flops"] = benchmark::Counter(4.0 * rows * tokens * group * head_dim,
                                               benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(PrefillTile)
    ->Args({64, 3, 7000, 128})
    ->Args({64, 3, 7000, 512})
    ->Args({64, 3, 0, 512})
    ->Args({64, 7, 7000, 128})
    ->Args({128, 4, 7000, 128});

// Args: head_dim, group, rows, window tokens.
void WindowMass(benchmark::State& state) {
  const auto head_dim = static_cast<std::int32_t>(state.range(0));
  const auto group = static_cast<std::int32_t>(state.range(1));
  const auto rows = static_cast<std::int32_t>(state.range(2));
  const auto tokens = static_cast<std::int32_t>(state.range(3));
  const Heads heads(head_dim, rows, 0);
  Rng rng(4);
  const auto stride = static_cast<std::size_t>(group * head_dim);
  const auto q = test::NormalVector(rng, stride * static_cast<std::size_t>(tokens));
  std::vector<float> mass(static_cast<std::size_t>(rows - tokens));
  Scratch scratch;
  for (auto _ : state) {
    attention::CpuBackend().window_mass({q.data(), stride, tokens, group, 0.125f}, heads.view(0),
                                        mass, scratch);
    benchmark::DoNotOptimize(mass.data());
  }
}
BENCHMARK(WindowMass)->Args({64, 3, 7500, 32})->Unit(benchmark::kMillisecond);

// Args: head_dim, group, first row, tokens, band (-1: no near sums). flops: as if every score were
// computed once, to compare with PrefillTile, where scores are half the work.
void ColumnMass(benchmark::State& state) {
  const auto head_dim = static_cast<std::int32_t>(state.range(0));
  const auto group = static_cast<std::int32_t>(state.range(1));
  const auto first = static_cast<std::int32_t>(state.range(2));
  const auto tokens = static_cast<std::int32_t>(state.range(3));
  const auto band = static_cast<std::int32_t>(state.range(4));
  const Heads heads(head_dim, first + tokens, 0);
  Rng rng(8);
  const auto stride = static_cast<std::size_t>(group * head_dim);
  const auto q = test::NormalVector(rng, stride * static_cast<std::size_t>(tokens));
  std::vector<float> all(static_cast<std::size_t>(first + tokens));
  std::vector<float> near(all.size());
  Scratch scratch;
  for (auto _ : state) {
    attention::CpuBackend().column_mass(
        {q.data(), stride, tokens, group, first, 0.125f, nullptr, 0}, heads.view(0), band,
        all.data(), band < 0 ? nullptr : near.data(), scratch);
    benchmark::DoNotOptimize(all.data());
  }
  const double rows = first + 0.5 * (tokens + 1);
  state.counters["flops"] = benchmark::Counter(2.0 * rows * tokens * group * head_dim,
                                               benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(ColumnMass)
    ->Args({64, 3, 7000, 128, -1})
    ->Args({64, 3, 7000, 512, -1})
    ->Args({64, 3, 7000, 512, 1000})
    ->Args({64, 3, 0, 512, -1})
    ->Args({64, 7, 7000, 128, -1})
    ->Args({128, 4, 7000, 128, -1});

// Args: head_dim, group, chunks, channels.
void ChunkScores(benchmark::State& state) {
  const auto head_dim = static_cast<std::int32_t>(state.range(0));
  const auto group = static_cast<std::int32_t>(state.range(1));
  const auto chunks = static_cast<std::int32_t>(state.range(2));
  const auto channels = static_cast<std::int32_t>(state.range(3));
  Rng rng(5);
  const test::TestHead head = test::TestHead::Random(rng, head_dim, kCodec, 3 * chunks);
  const test::TestIndex index(head, 3);
  const auto q = test::NormalVector(rng, static_cast<std::size_t>(group * head_dim));
  std::vector<float> u(static_cast<std::size_t>(chunks));
  Scratch scratch;
  for (auto _ : state) {
    attention::CpuBackend().chunk_scores({q.data(), group}, index.view(), channels, u, nullptr,
                                         scratch);
    benchmark::DoNotOptimize(u.data());
  }
}
BENCHMARK(ChunkScores)->Args({64, 3, 800, 41})->Args({64, 7, 1000, 40})->Args({128, 4, 1000, 67});

// Args: scores, k. 48 different inputs: a branch predictor must not learn them.
void TopK(benchmark::State& state) {
  const auto n = static_cast<std::size_t>(state.range(0));
  const auto k = static_cast<std::int32_t>(state.range(1));
  Rng rng(6);
  std::vector<std::vector<float>> inputs(48);
  for (auto& scores : inputs) {
    scores = test::NormalVector(rng, n);
    for (float& score : scores) {
      score = std::exp(2.0f * score);
    }
  }
  std::vector<std::int32_t> out(n);
  Scratch scratch;
  std::size_t input = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(attention::CpuBackend().top_k(inputs[input], k, out.data(), scratch));
    input = (input + 1) % inputs.size();
  }
}
BENCHMARK(TopK)->Args({800, 86})->Args({1024, 256})->Args({4096, 256})->Args({16384, 2048});

}  // namespace
}  // namespace rkv

BENCHMARK_MAIN();
