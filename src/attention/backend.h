// Backend: the attention kernels as one table of plain functions on views. No policy, no model.
#ifndef RKV_ATTENTION_BACKEND_H_
#define RKV_ATTENTION_BACKEND_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "base/scratch.h"
#include "kv/head_view.h"

namespace rkv::attention {

// The rows a kernel reads: list[0, count) ascending, or rows [0, count) when list is null.
struct RowList {
  const std::int32_t* list = nullptr;
  std::int32_t count = 0;
};

// Query heads of one group at one position. Shared by all kernels that serve one decoded token.
struct GroupQuery {
  const float* q = nullptr;  // [group][head_dim] f32, after RoPE
  std::int32_t group = 1;
};

// Softmax attention of a group over part of the rows, in a form that merges exactly:
// out = acc / sum is the attention over these rows, exp(max) its scale. Empty: acc 0, sum 0,
// max -infinity.
struct PartialSoftmax {
  float* acc = nullptr;  // [group][head_dim], sum of exp(score - max) * value
  float* max = nullptr;  // [group]
  float* sum = nullptr;  // [group], sum of exp(score - max)
};

// A run of prompt tokens against one kv_head. Token i of the run is stored at row first_row + i and
// attends to rows [0, first_row + i].
struct PrefillTile {
  const float* q = nullptr;  // token i, head g: q + i * q_stride + g * head_dim
  std::size_t q_stride = 0;  // numbers between two tokens
  std::int32_t tokens = 0;
  std::int32_t group = 1;
  std::int32_t first_row = 0;
  float scale = 1.0f;    // of the scores, 1 / sqrt(head_dim) in most models
  float* out = nullptr;  // as q, with out_stride
  std::size_t out_stride = 0;
};

// The last `tokens` prompt tokens of one kv_head, stored in its last `tokens` rows.
struct WindowQuery {
  const float* q = nullptr;  // token i, head g: q + i * q_stride + g * head_dim
  std::size_t q_stride = 0;
  std::int32_t tokens = 0;
  std::int32_t group = 1;
  float scale = 1.0f;
};

// Every function is pure and thread-safe; `scratch` belongs to the calling thread.
// Scores and sums are f32 whatever the codec. head_dim is any multiple of 2; the "cpu" backend is
// fastest where it is a multiple of 16.
struct Backend {
  std::string_view name;  // "ref", "cpu"

  // Writes f32 keys and values of `tokens` rows, [tokens][head_dim] with the given strides, to
  // their places in the codec. `rows[i]` is the place of token i (key then value).
  void (*store_rows)(kv::Codec codec, std::int32_t head_dim, const float* keys, const float* values,
                     std::size_t stride, std::span<std::byte* const> rows);

  // Exact causal attention of one tile; bound by compute: tokens * group * rows * head_dim * 4
  // flop.
  void (*prefill_tile)(const PrefillTile& tile, const kv::HeadView& head, Scratch& scratch);

  // Attention of one token's group over `rows`; bound by bytes: count * row_bytes, read once for
  // the whole group.
  void (*decode_rows)(const GroupQuery& query, const kv::HeadView& head, const RowList& rows,
                      float scale, const PartialSoftmax& out);

  // scores[g * rows.count + i] = scale * (q_g . key of row i of `rows`), for every head g of the
  // group. scores: [group][rows.count]. Bound by bytes: reads each key, half of row_bytes, once for
  // the whole group.
  void (*score_rows)(const GroupQuery& query, const kv::HeadView& head, const RowList& rows,
                     float scale, float* scores);

  // mass[j] = sum over the group's heads and the window's tokens of the attention weight on row j,
  // for j in [0, head.rows - window.tokens); the denominator covers the whole causal row.
  // mass: [head.rows - tokens]. Policy specification 2.1, stage 1, steps 2 and 3.
  void (*window_mass)(const WindowQuery& window, const kv::HeadView& head, std::span<float> mass,
                      Scratch& scratch);

  // all[j] = sum over the tile's tokens and the group's heads of the attention weight on row j, for
  // j in [0, first_row + tokens); every token's softmax is that of prefill_tile, and tile.out is
  // not used. near[j], unless `near` is null: the part of that sum from tokens i with
  // (first_row + i) - j < band, the local band, in which a token's own row counts. Both are
  // overwritten. `all` sums up to tokens * group, and the sums of the tiles of a prompt add up to
  // the prompt's. all, near: [first_row + tokens].
  // Bound by compute: scores twice and no values, about the time of prefill_tile; give it several
  // hundred query rows. The "cpu" backend may multiply rows that are not f32 in 16-bit integers:
  // the relative error of a weight is then about 1e-5 of scale * |q| * |key|.
  // Source: accumulated attention of H2O, arXiv:2306.14048; by distance, FastGen, arXiv:2310.01801.
  void (*column_mass)(const PrefillTile& tile, const kv::HeadView& head, std::int32_t band,
                      float* all, float* near, Scratch& scratch);

  // HSA scores: u[b] for every chunk b, from the `channels` channels with the largest
  // sum over heads of |q|. u: [index.chunks()]. Policy specification 2.1, stage 2, steps 1 to 6.
  // REQUIRES: 1 <= channels <= head_dim.
  void (*chunk_scores)(const GroupQuery& query, const kv::IndexView& index, std::int32_t channels,
                       std::span<float> u, Scratch& scratch);

  // The min(k, n) best of n scores, ascending indices to `out`, their number returned.
  // Order: higher score, then lower index; NaN last. O(n).
  std::int32_t (*top_k)(std::span<const float> scores, std::int32_t k, std::int32_t* out,
                        Scratch& scratch);
};

// Plain loops with double sums: the oracle of every test.
const Backend& RefBackend();
// Highway kernels, dispatched to this CPU's best instruction set; GEMM by oneDNN.
const Backend& CpuBackend();

// Merges `from` into `into`: the result is the attention over both sets of rows. Exact, in any
// order up to rounding; empty states are neutral.
void MergePartial(const PartialSoftmax& from, std::int32_t group, std::int32_t head_dim,
                  const PartialSoftmax& into);

// out[g][x] = acc / sum; zeros where no row was attended.
void FinishPartial(const PartialSoftmax& state, std::int32_t group, std::int32_t head_dim,
                   float* out);

}  // namespace rkv::attention

#endif  // RKV_ATTENTION_BACKEND_H_
