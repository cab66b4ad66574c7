// How scores become rows: pooled row scores after a prompt, chunk scores at a step.
#ifndef RKV_POLICY_STAGES_H_
#define RKV_POLICY_STAGES_H_

#include <cstdint>
#include <span>
#include <vector>

#include "attention/backend.h"
#include "base/scratch.h"

namespace rkv::policy {

// Stage 1: the rows of one kv_head that survive the prompt.
//   mass: [rows - window] f32, attention of the window queries summed over the group.
// Returns ascending rows: the prompt_budget - window best by max-pooled mass, then the window rows.
// Ties: higher unpooled mass, then lower row. prompt_budget >= mass.size() + window keeps all.
// Pure. Source: policy specification 2.1, stage 1, steps 4 and 5.
std::vector<std::int32_t> SnapKvRows(std::span<const float> mass, std::int32_t window,
                                     std::int32_t kernel, std::int32_t prompt_budget);

// Stage 2, step 7: the min(k, rows) best rows when all rows of a chunk share the score u[chunk].
// Whole chunks in order (u descending, chunk ascending) while they fit, then the first rows of the
// next. Appends nothing but rows of `rows`, ascending, to `out` (cleared first).
void ExpandChunks(const attention::Backend& backend, std::span<const float> u,
                  std::int32_t chunk_rows, std::int32_t rows, std::int32_t k,
                  std::vector<std::int32_t>& out, Scratch& scratch);

}  // namespace rkv::policy

#endif  // RKV_POLICY_STAGES_H_
