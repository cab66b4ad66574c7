#include "model/block_gemm.h"

#include <initializer_list>

#include "base/check.h"
#include "model/block_kernel.h"

namespace rkv::model {

bool HasBlockIsa([[maybe_unused]] BlockIsa isa) {
#if defined(__x86_64__)
  switch (isa) {
    case BlockIsa::kVnni:
      return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
    case BlockIsa::kAvx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    case BlockIsa::kNone:
      return false;
  }
#endif
  return false;
}

PanelForm BestPanelForm(std::uint32_t type) {
  for (const BlockIsa isa : {BlockIsa::kVnni, BlockIsa::kAvx2}) {
    if (const PanelForm form = PanelFormFor(type, isa);
        form.isa != BlockIsa::kNone && HasBlockIsa(isa)) {
      return form;
    }
  }
  return {};
}

std::size_t PanelBytes(PanelKind kind, std::int32_t in) {
  return static_cast<std::size_t>(in / kGemmBlock) * PanelBlockBytes(kind);
}

std::size_t AllPanelBytes(PanelKind kind, std::int32_t in, std::int32_t out) {
  return static_cast<std::size_t>(PanelCount(out)) * PanelBytes(kind, in);
}

std::int32_t PanelCount(std::int32_t out) { return (out + kPanelRows - 1) / kPanelRows; }

void BlockGemm(const PanelWeights& weights, const RoundedRows& x, const BlockTile& tile,
               const float* bias, float* y, std::size_t y_stride) {
  Check(weights.in == x.in, "a product of different widths");
  switch (weights.form.isa) {
    case BlockIsa::kVnni:
      return BlockGemmVnni(weights, x, tile, bias, y, y_stride);
    case BlockIsa::kAvx2:
      return BlockGemmAvx2(weights, x, tile, bias, y, y_stride);
    case BlockIsa::kNone:
      Check(false, "weights that cannot be packed");
  }
}

}  // namespace rkv::model
