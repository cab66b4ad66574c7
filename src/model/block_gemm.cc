#include "model/block_gemm.h"

#include <initializer_list>

#include "base/check.h"
#include "model/block_kernel.h"

namespace rkv::model {

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
  return static_cast<std::size_t>(in / kPackedBlock) * PanelBlockBytes(kind);
}

std::size_t AllPanelBytes(PanelKind kind, std::int32_t in, std::int32_t out) {
  return static_cast<std::size_t>(PanelCount(out)) * PanelBytes(kind, in);
}

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
