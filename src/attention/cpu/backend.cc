#include "attention/backend.h"

#include "attention/cpu/kernels.h"

namespace rkv::attention {

const Backend& CpuBackend() {
  static constexpr Backend kBackend{
      .name = "cpu",
      .store_rows = cpu::StoreRows,
      .prefill_tile = cpu::PrefillTileRows,
      .decode_rows = cpu::DecodeRows,
      .score_rows = cpu::ScoreRows,
      .window_mass = cpu::WindowMass,
      .column_mass = cpu::ColumnMass,
      .chunk_scores = cpu::ChunkScores,
      .top_k = cpu::TopK,
  };
  return kBackend;
}

}  // namespace rkv::attention
