// PackedMatrix: quantised weights in a second layout, sixteen rows side by side, so that decode
// dots them as fast as memory delivers them.
#ifndef RKV_MODEL_PACKED_MATRIX_H_
#define RKV_MODEL_PACKED_MATRIX_H_

#include <cstddef>
#include <cstdint>

namespace rkv::model {

// Rows that one panel interleaves: the 32-bit lanes of an AVX-512 vector.
inline constexpr std::int32_t kPackedRows = 16;
// Weights that share a scale with the same number of activations.
inline constexpr std::int32_t kPackedBlock = 32;

// Where the parts of a panel lie, in bytes. A panel is a run of units, a unit a header and `blocks`
// blocks of 32 inputs x 16 rows:
//   header  f16 scales of the 16 rows (K types), then f16 scales of their minima (Q4_K, Q5_K)
//   low     4 groups x 16 rows x 4 bytes: a byte holds the low 4 bits of input 4 g + j of its row
//           and, in its high half, of input 16 + 4 g + j. Q8_0: 8 groups of whole bytes, each 128
//           more than the weight.
//   high    bit g of byte 4 row + j: the fifth bit of input 4 g + j (5-bit types). Q6_K: bits
//           2 g, 2 g + 1 of byte 4 row + j: bits 5 and 6 of input 4 g + j, then as many bytes for
//           the inputs from 16 on.
//   scales  f16 scales, f16 minima (Q4_1, Q5_1); u8 scales, u8 minima (Q4_K, Q5_K); i8 scales of
//           inputs 0 to 15 and 16 to 31 (Q6_K).
// As compact as ggml's layout, up to 3 % (K types).
struct PanelLayout {
  std::size_t header = 0;
  std::size_t low = 0;
  std::size_t high = 0;
  std::size_t scales = 0;
  std::size_t blocks = 1;

  constexpr std::size_t block_bytes() const { return low + high + scales; }
  constexpr std::size_t unit_bytes() const { return header + blocks * block_bytes(); }
  constexpr std::int32_t unit_inputs() const {
    return static_cast<std::int32_t>(blocks) * kPackedBlock;
  }
};

// The layout of a ggml_type's panels; low is 0 for types that have none: those that exist are Q4_0,
// Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K.
PanelLayout LayoutOf(std::uint32_t type);

// Whether weights of this ggml_type with `in` inputs can be packed.
bool HasPackedLayout(std::uint32_t type, std::int32_t in);

// Panels of a matrix with `out` rows.
constexpr std::int32_t PanelCount(std::int32_t out) {
  return (out + kPackedRows - 1) / kPackedRows;
}

// Panel p holds rows [16 p, 16 p + 16); rows behind the last are zero.
struct PackedMatrix {
  std::uint32_t type = 0;  // ggml_type
  const std::byte* panels = nullptr;
  std::int32_t in = 0;
  std::int32_t out = 0;

  std::int64_t panel_count() const { return PanelCount(out); }
};

std::size_t PackedPanelBytes(std::uint32_t type, std::int32_t in);
std::size_t PackedMatrixBytes(std::uint32_t type, std::int32_t in, std::int32_t out);

// Packs one panel from `rows` (1 to 16) rows in ggml's layout, `row_bytes` apart. The weights stay
// exactly what they were. REQUIRES: HasPackedLayout(type, in).
void PackRows(std::uint32_t type, const std::byte* weights, std::size_t row_bytes,
              std::int32_t rows, std::int32_t in, std::byte* panel);

// What is taken from every byte of the type: weight = scale * (byte - centre) + minimum.
std::int32_t PackedCentre(std::uint32_t type);

// One block of a panel, unpacked.
struct UnpackedBlock {
  std::uint8_t bytes[kPackedBlock / 4][4 * kPackedRows];  // input 4 g + j of row r: [g][4 r + j]
  float scale[2][kPackedRows];                            // of inputs 0 to 15, 16 to 31
  float minimum[kPackedRows];
};
// Block `block` (of in / 32) of a panel. Plain loops: the definition of the layout.
void UnpackBlock(std::uint32_t type, const std::byte* panel, std::size_t block, UnpackedBlock& out);

// The rows of a panel as f32, [16][in]; rows behind the last are zero.
void UnpackRows(const PackedMatrix& weights, std::int64_t panel, float* out);

}  // namespace rkv::model

#endif  // RKV_MODEL_PACKED_MATRIX_H_
