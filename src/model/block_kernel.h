// The kernels behind BlockGemm, one for each instruction set. Private to it.
#ifndef RKV_MODEL_BLOCK_KERNEL_H_
#define RKV_MODEL_BLOCK_KERNEL_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "model/block_gemm.h"
#include "model/packed_matrix.h"

namespace rkv::model {

inline constexpr std::size_t kGroupInputs = 4;  // inputs whose products one instruction sums
inline constexpr std::size_t kBlockGroups = kGemmBlock / kGroupInputs;
inline constexpr std::size_t kGroupBytes = kGroupInputs * kPanelRows;
inline constexpr std::size_t kByteCount = kBlockGroups * kGroupBytes;
inline constexpr std::size_t kFloatsBytes = kPanelRows * sizeof(float);

constexpr std::size_t PanelBlockBytes(PanelKind kind) {
  return kByteCount + (kind == PanelKind::kCentred ? 1 : 2) * kFloatsBytes;
}

// As BlockGemm, for forms of their instruction set.
void BlockGemmVnni(const PanelWeights& weights, const RoundedRows& x, const BlockTile& tile,
                   const float* bias, float* y, std::size_t y_stride);
void BlockGemmAvx2(const PanelWeights& weights, const RoundedRows& x, const BlockTile& tile,
                   const float* bias, float* y, std::size_t y_stride);

// Writes a token's results for those rows of `panel` that exist.
inline void StorePanelRows(const PanelWeights& weights, std::int32_t panel, const float* sums,
                           const float* bias, float* y) {
  const std::int32_t first = panel * kPanelRows;
  const std::int32_t rows = std::min(kPanelRows, weights.out - first);
  for (std::int32_t row = 0; row < rows; ++row) {
    y[first + row] = sums[row] + (bias == nullptr ? 0.0f : bias[first + row]);
  }
}

}  // namespace rkv::model

#endif  // RKV_MODEL_BLOCK_KERNEL_H_
