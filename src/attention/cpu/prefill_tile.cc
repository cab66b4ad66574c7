#include "attention/cpu/kernels.h"
#include "attention/cpu/prefill_gemm.h"
#include "attention/cpu/prefill_panels.h"
#include "base/gemm.h"

namespace rkv::attention::cpu {

void PrefillTileRows(const PrefillTile& tile, const kv::HeadView& head, Scratch& scratch) {
  if (tile.tokens <= 0 || tile.group <= 0) {
    return;
  }
  if (HasBf16Gemm()) {
    PrefillByGemm(tile, head, GemmBf16, scratch);
  } else {
    PrefillByPanels(tile, head, scratch);
  }
}

}  // namespace rkv::attention::cpu
