#include "attention/ref/kernels.h"

namespace rkv::attention::ref {

void PrefillTileRows(const PrefillTile& tile, const kv::HeadView& head, Scratch& scratch) {
  Scratch::Frame frame(scratch);
  const auto width = static_cast<std::size_t>(head.head_dim);
  const auto group = static_cast<std::size_t>(tile.group);
  const PartialSoftmax state{frame.Array<float>(group * width), frame.Array<float>(group),
                             frame.Array<float>(group)};
  for (std::int32_t i = 0; i < tile.tokens; ++i) {
    const auto token = static_cast<std::size_t>(i);
    DecodeRows({tile.q + token * tile.q_stride, tile.group}, head,
               {nullptr, tile.first_row + i + 1}, tile.scale, state);
    FinishPartial(state, tile.group, head.head_dim, tile.out + token * tile.out_stride);
  }
}

}  // namespace rkv::attention::ref
