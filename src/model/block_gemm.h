// Products of block-quantised weights with 8-bit activations, for prompts on CPUs without matrix
// units: several times the rate of an f32 product, with llama.cpp's rounding of activations.
#ifndef RKV_MODEL_BLOCK_GEMM_H_
#define RKV_MODEL_BLOCK_GEMM_H_

#include <cstddef>
#include <cstdint>

#include "model/block_isa.h"
#include "model/packed_matrix.h"

namespace rkv::model {

// What a byte of a panel stands for.
enum class PanelKind : std::uint8_t {
  kMinimum,    // scale * byte + minimum
  kCentred,    // scale * (byte - 128)
  kCentred16,  // the same, with a scale for every 16 inputs
};

// How a matrix is multiplied; isa kNone: not at all.
struct PanelForm {
  BlockIsa isa = BlockIsa::kNone;
  PanelKind kind = PanelKind::kMinimum;
  bool five_bits = false;  // kAvx2: bytes are below 32, else below 16
};
// The form for weights of this ggml_type. kVnni takes Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K and
// Q6_K; kAvx2 those of 4 and 5 bits, always as kMinimum.
PanelForm PanelFormFor(std::uint32_t type, BlockIsa isa);
// The form with the best instructions of this CPU.
PanelForm BestPanelForm(std::uint32_t type);

// Weights of one matrix as panels. Panel p holds rows [16 p, 16 p + 16) (missing ones are zero),
// one block of 32 inputs after the other: 8 groups of 4 inputs x 16 rows x 4 unsigned bytes, then
// 16 scales in f32 (kCentred16: 16 of the first half, 16 of the second), then, with kMinimum, 16
// minima.
struct PanelWeights {
  const std::byte* panels = nullptr;
  std::int32_t in = 0;  // a multiple of kPackedBlock
  std::int32_t out = 0;
  PanelForm form;
};

std::size_t PanelBytes(PanelKind kind, std::int32_t in);
// Bytes of all panels.
std::size_t AllPanelBytes(PanelKind kind, std::int32_t in, std::int32_t out);

// Expands one panel of weights of the type from its packed layout (packed_matrix.h).
// REQUIRES: a form that the type has, HasPackedLayout(type, in).
void ExpandPanel(std::uint32_t type, const std::byte* packed, std::int32_t in, PanelForm form,
                 std::byte* panel);

// Activations in 8 bits, each block of 32 with its own scale: value = scale * byte. Views of one
// piece of memory.
struct RoundedRows {
  std::int8_t* bytes = nullptr;        // [token][in]
  float* scales = nullptr;             // [token][in / 32]
  float* sums = nullptr;               // [token][in / 32], scale * sum of the block's bytes
  std::int32_t* zeros = nullptr;       // [token][in / 32], -128 * sum of the block's bytes
  std::int32_t* half_zeros = nullptr;  // [token][in / 16], of every 16 bytes
  std::int32_t in = 0;

  static std::size_t Bytes(std::int32_t in, std::int32_t tokens);
  // `memory`: Bytes(in, tokens). REQUIRES: in a multiple of kPackedBlock.
  static RoundedRows In(std::byte* memory, std::int32_t in, std::int32_t tokens);
  // Rounds x[0, in) as row `token`. A NaN makes its block NaN. Thread-safe for different tokens.
  // REQUIRES: HasBlockIsa(kAvx2).
  void Round(std::int32_t token, const float* x) const;
};

// A part of a product: tokens [first_token, first_token + tokens) and panels likewise.
struct BlockTile {
  std::int32_t first_token = 0;
  std::int32_t tokens = 0;
  std::int32_t first_panel = 0;
  std::int32_t panels = 0;
};

// y[t * y_stride + row] = (W x[t])[row] (+ bias[row] unless null) for the tile's tokens t and rows.
// A token's result does not depend on the other tokens. Thread-safe.
// REQUIRES: HasBlockIsa(weights.form.isa).
void BlockGemm(const PanelWeights& weights, const RoundedRows& x, const BlockTile& tile,
               const float* bias, float* y, std::size_t y_stride);

}  // namespace rkv::model

#endif  // RKV_MODEL_BLOCK_GEMM_H_
