#include "attention/backend.h"

#include "attention/ref/kernels.h"

namespace rkv::attention {

const Backend& RefBackend() {
  static constexpr Backend kBackend{
      .name = "ref",
      .store_rows = ref::StoreRows,
      .prefill_tile = ref::PrefillTileRows,
      .decode_rows = ref::DecodeRows,
      .score_rows = ref::ScoreRows,
      .window_mass = ref::WindowMass,
      .column_mass = ref::ColumnMass,
      .chunk_scores = ref::ChunkScores,
      .top_k = ref::TopK,
  };
  return kBackend;
}

}  // namespace rkv::attention
