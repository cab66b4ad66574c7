#include "model/packed_dot.h"

#include <ggml.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace rkv::model {
namespace {

const PackedKernels& KernelsOf(BlockIsa target) {
  Check(target != BlockIsa::kNone, "no kernel for packed weights");
  return target == BlockIsa::kAvx2 ? PackedKernelsAvx2() : PackedKernelsAvx512Vnni();
}

}  // namespace

bool HasPackedDot(BlockIsa target, std::uint32_t type, std::int32_t in) {
  return target != BlockIsa::kNone && HasPackedLayout(type, in) &&
         (target != BlockIsa::kAvx2 || type != GGML_TYPE_Q8_0);
}

RoundedInput RoundInput(BlockIsa target, const float* x, std::int32_t in, Scratch::Frame& frame) {
  const auto count = static_cast<std::size_t>(in);
  auto* bytes = frame.Array<std::int8_t>(count);
  auto* scales = frame.Array<float>(count / 32);
  auto* sums = frame.Array<float>(count / 16);
  KernelsOf(target).round(x, count, bytes, scales, sums);
  return {bytes, scales, sums};
}

void DotPanels(BlockIsa target, const PackedMatrix& weights, std::int64_t first, std::int64_t end,
               const RoundedInput* x, std::int32_t tokens, float* y, std::size_t y_stride) {
  const PackedKernels& kernels = KernelsOf(target);
  const std::size_t panel_bytes = PackedPanelBytes(weights.type, weights.in);
  for (std::int64_t panel = first; panel < end; ++panel) {
    alignas(64) float out[kPackedTokens * kPackedRows];
    kernels.dot(weights.type, weights.panels + static_cast<std::size_t>(panel) * panel_bytes,
                static_cast<std::size_t>(weights.in / kPackedBlock), x, tokens, out);
    const std::int64_t row = panel * kPackedRows;
    const auto rows =
        static_cast<std::size_t>(std::min<std::int64_t>(kPackedRows, weights.out - row));
    for (std::int32_t t = 0; t < tokens; ++t) {
      std::memcpy(y + static_cast<std::size_t>(t) * y_stride + row, out + t * kPackedRows,
                  rows * sizeof(float));
    }
  }
}

}  // namespace rkv::model
