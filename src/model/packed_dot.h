// Products of packed weights with a few tokens' activations: decode's linear layers.
#ifndef RKV_MODEL_PACKED_DOT_H_
#define RKV_MODEL_PACKED_DOT_H_

#include <cstddef>
#include <cstdint>

#include "base/scratch.h"
#include "model/block_isa.h"
#include "model/packed_matrix.h"

namespace rkv::model {

// Activations rounded to 8 bits, one scale for 32 of them as in ggml's Q8_0:
// value = scale * byte, byte in [-127, 127].
struct RoundedInput {
  const std::int8_t* bytes = nullptr;  // [in]
  const float* scales = nullptr;       // [in / 32]
  const float* sums = nullptr;         // [in / 16], of the bytes
};

// Whether the target's kernels take the type: all with a layout, but for Q8_0 with AVX2, whose
// products of bytes overflow; ggml's dot product serves it at full bandwidth there.
bool HasPackedDot(BlockIsa target, std::uint32_t type, std::int32_t in);

// Rounds x [in] into arrays of `frame`. A block with a NaN gets a NaN scale, so that it stays
// visible. REQUIRES: in is a multiple of 32, target is not kNone and this CPU has it.
RoundedInput RoundInput(BlockIsa target, const float* x, std::int32_t in, Scratch::Frame& frame);

// Tokens of one kernel call.
inline constexpr std::int32_t kPackedTokens = 4;

// y[t][row] = row of panels [first, end) . x[t] for `tokens` (1 to kPackedTokens) tokens; y holds
// `out` numbers a token, y_stride apart. Each panel is read once for all tokens; a token's result
// does not depend on the others. Bound by bytes. Thread-safe.
// REQUIRES: HasPackedDot(target, weights.type, weights.in).
void DotPanels(BlockIsa target, const PackedMatrix& weights, std::int64_t first, std::int64_t end,
               const RoundedInput* x, std::int32_t tokens, float* y, std::size_t y_stride);

// The kernels of one instruction set.
struct PackedKernels {
  void (*round)(const float* x, std::size_t in, std::int8_t* bytes, float* scales, float* sums);
  // One panel; out [tokens][16].
  void (*dot)(std::uint32_t type, const std::byte* panel, std::size_t blocks, const RoundedInput* x,
              std::int32_t tokens, float* out);
};
const PackedKernels& PackedKernelsAvx2();
const PackedKernels& PackedKernelsAvx512Vnni();

}  // namespace rkv::model

#endif  // RKV_MODEL_PACKED_DOT_H_
