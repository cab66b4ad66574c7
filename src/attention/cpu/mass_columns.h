// Causal attention weights of a run of tokens, summed by row of the cache.
#ifndef RKV_ATTENTION_CPU_MASS_COLUMNS_H_
#define RKV_ATTENTION_CPU_MASS_COLUMNS_H_

#include <cstddef>
#include <cstdint>

#include "attention/backend.h"

namespace rkv::attention::cpu {

// The rows whose sums are wanted, and where they go.
struct MassColumns {
  std::size_t count;  // rows [0, count), at most tile.first_row + tile.tokens
  std::int64_t band;  // a token is near the `band` rows that end with its own
  float* all;         // [count] sums of the weights
  float* near;        // [count] of those from near tokens; may be null

  // The band as a number of rows, 0 where no near sums are wanted.
  std::size_t NearRows() const {
    return near == nullptr || band <= 0 ? 0 : static_cast<std::size_t>(band);
  }
};

// Backend::column_mass for the rows of `columns`; the softmax still runs over all rows that a token
// sees. Two passes over key tiles: log-sum-exp of every query row, then the normalised weights
// summed by column. Key tiles start at row 0 whatever the prompt tile. Scratch: the queries, their
// states and 256 keys. REQUIRES: tile.tokens and tile.group > 0.

// All in f32.
void MassByPanels(const PrefillTile& tile, const kv::HeadView& head, const MassColumns& columns,
                  Scratch& scratch);

// Scores of 16-bit integers as in PrefillByInt16, at twice the rate of f32: a score's error is
// about 1e-5 of the product of the lengths, and so is the relative error of its weight.
// REQUIRES: HasInt16Prefill(head.head_dim).
void MassByInt16(const PrefillTile& tile, const kv::HeadView& head, const MassColumns& columns,
                 Scratch& scratch);

}  // namespace rkv::attention::cpu

#endif  // RKV_ATTENTION_CPU_MASS_COLUMNS_H_
