#include "attention/cpu/kernels.h"
#include "attention/cpu/prefill_gemm.h"
#include "attention/cpu/prefill_int16.h"
#include "attention/cpu/prefill_panels.h"
#include "base/gemm.h"

namespace rkv::attention::cpu {

// Where the kernel of a prompt tile is chosen. Rows in f32 ask for exact products; else the fastest
// form of numbers wins: bf16 in matrix units, 16-bit integers, bf16 in vectors, f32.
void PrefillTileRows(const PrefillTile& tile, const kv::HeadView& head, Scratch& scratch) {
  if (tile.tokens <= 0 || tile.group <= 0) {
    return;
  }
  if (head.codec == kv::Codec::kF32) {
    PrefillByPanels(tile, head, scratch);
  } else if (HasMatrixUnits()) {
    PrefillByGemm(tile, head, GemmBf16, scratch);
  } else if (HasInt16Prefill(head.head_dim)) {
    PrefillByInt16(tile, head, scratch);
  } else if (HasBf16Gemm()) {
    PrefillByGemm(tile, head, GemmBf16, scratch);
  } else {
    PrefillByPanels(tile, head, scratch);
  }
}

}  // namespace rkv::attention::cpu
