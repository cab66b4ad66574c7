// Causal attention of a prompt tile in 16-bit integers, for CPUs with AVX-512 VNNI.
#ifndef RKV_ATTENTION_CPU_PREFILL_INT16_H_
#define RKV_ATTENTION_CPU_PREFILL_INT16_H_

#include <cstdint>

#include "attention/backend.h"

namespace rkv::attention::cpu {

// Whether this CPU has the instructions and heads of this width are whole vectors.
bool HasInt16Prefill(std::int32_t head_dim);

// As Backend::prefill_tile, at twice the rate of f32. Products are of 16-bit integers and summed
// exactly in 32 bits; they cannot overflow, whatever the input:
//   scores   query and key rows are scaled to a length of 46,000, so that their product stays below
//            2^31 by Cauchy-Schwarz; a score's error is about 1e-5 of the product of the lengths.
//   values   a row is scaled to 12 bits and its weight takes the scale; weights have 13 bits of the
//            greatest in 256 keys: 64 products of both stay below 2^31.
// So weights are exact to 2^-14 of the greatest contribution among their 256 keys, which leaves the
// small ones next to an attention sink alone. Relative error of the result about 3e-4, as of f16.
// Numbers that are not finite give NaN in every row that sees them.
// Key tiles start at row 0 whatever the prompt tile, and each row is scaled by itself: a token's
// result does not depend on how the prompt is cut nor on later rows, bit for bit. Packing the rows
// costs about as much as 20 query rows: give it several hundred.
// REQUIRES: HasInt16Prefill(head.head_dim), tile.tokens and tile.group > 0.
void PrefillByInt16(const PrefillTile& tile, const kv::HeadView& head, Scratch& scratch);

}  // namespace rkv::attention::cpu

#endif  // RKV_ATTENTION_CPU_PREFILL_INT16_H_
