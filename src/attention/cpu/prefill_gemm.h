// Causal attention of a prompt tile by bf16 matrix products, for CPUs that have them in hardware.
#ifndef RKV_ATTENTION_CPU_PREFILL_GEMM_H_
#define RKV_ATTENTION_CPU_PREFILL_GEMM_H_

#include <cstdint>

#include "attention/backend.h"
#include "base/gemm.h"

namespace rkv::attention::cpu {

// The contract of GemmBf16 in base/gemm.h.
using Bf16Product = void (*)(const GemmShape& shape, const std::uint16_t* a, const std::uint16_t* b,
                             float* c);

// As Backend::prefill_tile. Queries, keys, values and weights are rounded to bf16, sums are f32:
// relative error about 2^-8 of single weights. REQUIRES: tile.tokens and tile.group > 0.
void PrefillByGemm(const PrefillTile& tile, const kv::HeadView& head, Bf16Product product,
                   Scratch& scratch);

}  // namespace rkv::attention::cpu

#endif  // RKV_ATTENTION_CPU_PREFILL_GEMM_H_
