// Products of 4- and 5-bit block-quantised weights with 8-bit activations, for prompts on CPUs that
// multiply no bf16: twice the rate of an f32 product there, with llama.cpp's rounding of
// activations.
#ifndef RKV_MODEL_BLOCK_GEMM_H_
#define RKV_MODEL_BLOCK_GEMM_H_

#include <cstddef>
#include <cstdint>

#include "base/scratch.h"

namespace rkv::model {

// Numbers that share one scale, in weights and activations.
inline constexpr std::int32_t kGemmBlock = 32;
// Outputs (weight rows) that one panel interleaves.
inline constexpr std::int32_t kPanelRows = 16;

// Whether this CPU has the instructions (AVX2 and FMA).
bool HasBlockGemm();
// Whether weights of this ggml_type can be packed: Q4_0, Q4_1, Q5_0, Q5_1.
bool IsBlockGemmType(std::uint32_t type);

// Weights of one matrix as panels. Panel p holds rows [16 p, 16 p + 16) (missing ones are zero),
// one block of 32 inputs after the other: 8 groups of 4 inputs x 16 rows x 4 unsigned bytes, then
// 16 scales, then 16 minima, both f32. A weight is scale * byte + minimum.
struct PackedWeights {
  const std::byte* panels = nullptr;
  std::int32_t in = 0;  // a multiple of kGemmBlock
  std::int32_t out = 0;
  bool five_bits = false;
};

std::size_t PanelBytes(std::int32_t in);
// Bytes of all panels.
std::size_t PackedBytes(std::int32_t in, std::int32_t out);

// Packs one panel from `rows` (1 to 16) weight rows of the type, `row_bytes` apart.
// REQUIRES: IsBlockGemmType(type), in a multiple of kGemmBlock.
void PackPanel(std::uint32_t type, const std::byte* weights, std::size_t row_bytes,
               std::int32_t rows, std::int32_t in, std::byte* panel);

// y[t][0, out) = W x[t] for `tokens` rows. Each block of 32 activations is rounded to 8 bits with
// its own scale. A token's result does not depend on the other tokens. Thread-safe. REQUIRES:
// HasBlockGemm().
void BlockGemm(const PackedWeights& weights, const float* x, std::size_t x_stride,
               std::int32_t tokens, float* y, std::size_t y_stride, Scratch& scratch);

}  // namespace rkv::model

#endif  // RKV_MODEL_BLOCK_GEMM_H_
