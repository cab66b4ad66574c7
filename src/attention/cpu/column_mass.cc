#include <algorithm>

#include "attention/cpu/kernels.h"
#include "attention/cpu/mass_columns.h"
#include "attention/cpu/prefill_int16.h"

namespace rkv::attention::cpu {

// Rows in f32 ask for exact products; else the fastest form of numbers wins.
void ColumnMass(const PrefillTile& tile, const kv::HeadView& head, std::int32_t band, float* all,
                float* near, Scratch& scratch) {
  const MassColumns columns{static_cast<std::size_t>(tile.first_row + tile.tokens), band, all,
                            near};
  if (tile.tokens <= 0 || tile.group <= 0) {
    std::fill_n(all, columns.count, 0.0f);
    if (near != nullptr) {
      std::fill_n(near, columns.count, 0.0f);
    }
  } else if (head.codec != kv::Codec::kF32 && HasInt16Prefill(head.head_dim)) {
    MassByInt16(tile, head, columns, scratch);
  } else {
    MassByPanels(tile, head, columns, scratch);
  }
}

// The window is a tile whose own rows are left out of the sums. It has few query rows: packing the
// keys in integers would cost more than it saves.
void WindowMass(const WindowQuery& window, const kv::HeadView& head, std::span<float> mass,
                Scratch& scratch) {
  if (window.tokens <= 0 || window.group <= 0) {
    std::fill(mass.begin(), mass.end(), 0.0f);
    return;
  }
  const PrefillTile tile{.q = window.q,
                         .q_stride = window.q_stride,
                         .tokens = window.tokens,
                         .group = window.group,
                         .first_row = head.rows - window.tokens,
                         .scale = window.scale};
  MassByPanels(tile, head, {mass.size(), 0, mass.data(), nullptr}, scratch);
}

}  // namespace rkv::attention::cpu
