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
};

// Backend::column_mass for the rows of `columns`; the softmax still runs over all rows that a token
// sees. All in f32, in two passes over key tiles: log-sum-exp of every query row, then the
// normalised weights summed by column. Key tiles start at row 0 whatever the prompt tile. Scratch:
// the queries in f32 and 256 keys.
void MassOfColumns(const PrefillTile& tile, const kv::HeadView& head, const MassColumns& columns,
                   Scratch& scratch);

}  // namespace rkv::attention::cpu

#endif  // RKV_ATTENTION_CPU_MASS_COLUMNS_H_
