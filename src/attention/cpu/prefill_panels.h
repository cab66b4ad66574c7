// Causal attention of a prompt tile in f32 on the vector units.
#ifndef RKV_ATTENTION_CPU_PREFILL_PANELS_H_
#define RKV_ATTENTION_CPU_PREFILL_PANELS_H_

#include "attention/backend.h"

namespace rkv::attention::cpu {

// As Backend::prefill_tile, all in f32: blocks of query rows against key tiles, online softmax in
// between. Key tiles start at row 0 whatever the prompt tile, so the result for a token does not
// depend on how the prompt is cut, bit for bit. Expanding the rows to f32 costs about as much as
// 15 query rows: give it a hundred or more. REQUIRES: tile.tokens and tile.group > 0.
// Source: FlashAttention, arXiv:2205.14135.
void PrefillByPanels(const PrefillTile& tile, const kv::HeadView& head, Scratch& scratch);

}  // namespace rkv::attention::cpu

#endif  // RKV_ATTENTION_CPU_PREFILL_PANELS_H_
