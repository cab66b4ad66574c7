#include "attention/cpu/kernels.h"
#include "attention/cpu/mass_columns.h"

namespace rkv::attention::cpu {

void ColumnMass(const PrefillTile& tile, const kv::HeadView& head, std::int32_t band, float* all,
                float* near, Scratch& scratch) {
  const auto rows = static_cast<std::size_t>(tile.first_row + tile.tokens);
  MassOfColumns(tile, head, {rows, band, all, near}, scratch);
}

// The window is a tile whose own rows are left out of the sums.
void WindowMass(const WindowQuery& window, const kv::HeadView& head, std::span<float> mass,
                Scratch& scratch) {
  const PrefillTile tile{.q = window.q,
                         .q_stride = window.q_stride,
                         .tokens = window.tokens,
                         .group = window.group,
                         .first_row = head.rows - window.tokens,
                         .scale = window.scale};
  MassOfColumns(tile, head, {mass.size(), 0, mass.data(), nullptr}, scratch);
}

}  // namespace rkv::attention::cpu
