// The kernels behind BlockGemm, one for each instruction set. Private to it.
#ifndef RKV_MODEL_BLOCK_KERNEL_H_
#define RKV_MODEL_BLOCK_KERNEL_H_

#include <cstddef>
#include <cstdint>

#include "model/block_gemm.h"
#include "model/packed_matrix.h"

namespace rkv::model {

inline constexpr std::size_t kGroupInputs = 4;  // inputs whose products one instruction sums
inline constexpr std::size_t kBlockGroups = kPackedBlock / kGroupInputs;
inline constexpr std::size_t kGroupBytes = kGroupInputs * kPackedRows;
inline constexpr std::size_t kByteCount = kBlockGroups * kGroupBytes;
inline constexpr std::size_t kFloatsBytes = kPackedRows * sizeof(float);

constexpr std::size_t PanelBlockBytes(PanelKind kind) {
  return kByteCount + (kind == PanelKind::kCentred ? 1 : 2) * kFloatsBytes;
}

// As BlockGemm, for forms of their instruction set.
void BlockGemmVnni(const PanelWeights& weights, const RoundedRows& x, const BlockTile& tile,
                   const float* bias, float* y, std::size_t y_stride);
void BlockGemmAvx2(const PanelWeights& weights, const RoundedRows& x, const BlockTile& tile,
                   const float* bias, float* y, std::size_t y_stride);

}  // namespace rkv::model

#endif  // RKV_MODEL_BLOCK_KERNEL_H_
