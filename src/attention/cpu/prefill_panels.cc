#include "attention/cpu/prefill_panels.h"

#include <algorithm>

#include "attention/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/cpu/prefill_panels.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "attention/cpu/online_softmax-inl.h"
#include "attention/cpu/panels-inl.h"
#include "attention/cpu/simd-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace rkv::attention::cpu {
namespace HWY_NAMESPACE {

// One key tile in f32.
struct KeyTile {
  std::size_t first;    // row
  const float* keys;    // panels of keys
  const float* values;  // panels of channels: [channels / PanelWidth()][kTileKeys][PanelWidth()]
};

// Packs the values of rows [first, first + count); channels behind head_dim are zero.
// row_f32: [RoundUpToPanel(head_dim)].
template <kv::Codec C>
HWY_INLINE void PackValues(const kv::HeadView& head, std::size_t first, std::size_t count,
                           float* row_f32, float* panels) {
  const auto head_dim = static_cast<std::size_t>(head.head_dim);
  const std::size_t width = PanelWidth();
  const std::size_t channels = RoundUpToPanel(head_dim);
  std::fill(row_f32 + head_dim, row_f32 + channels, 0.0f);
  for (std::size_t j = 0; j < count; ++j) {
    ExpandNumbers<C, kv::Part::kValue>(head.Value(static_cast<std::int32_t>(first + j)), head_dim,
                                       row_f32);
    for (std::size_t x = 0; x < channels; x += width) {
      std::copy_n(row_f32 + x, width, panels + x * kTileKeys + j * width);
    }
  }
}

// Working memory of one tile of the prompt.
struct PrefillWork {
  std::size_t channels;  // head_dim rounded up to whole panels
  float* queries;        // packed blocks
  float* sums;           // [blocks][kBlockQueries][channels], weighted values
  BlockState* states;    // [blocks]
  float* scores;         // [kBlockQueries][kTileKeys]
};

// Attention of one block of query rows over the visible part of one key tile.
HWY_INLINE void AttendBlock(const QueryRows& rows, std::size_t first_row, const KeyTile& tile,
                            std::size_t block, const PrefillWork& work) {
  std::size_t visible[kBlockQueries];
  std::size_t keys = 0;
  for (std::size_t i = 0; i < kBlockQueries; ++i) {
    const std::size_t row = std::min(block * kBlockQueries + i, rows.count - 1);
    visible[i] = VisibleKeys(row, rows.group, first_row, tile.first);
    keys = std::max(keys, visible[i]);
  }
  if (keys == 0) {
    return;
  }
  ScoreBlock(work.queries + block * kBlockQueries * rows.head_dim, tile.keys, rows.head_dim, keys,
             work.scores);
  float shrink[kBlockQueries];
  TakeTile(work.scores, visible, keys, work.states[block], shrink);
  float* sums = work.sums + block * kBlockQueries * work.channels;
  for (std::size_t x = 0; x < work.channels; x += PanelWidth()) {
    MultiplyPanel(work.scores, kTileKeys, 1, keys, tile.values + x * kTileKeys, shrink, sums + x,
                  work.channels);
  }
}

HWY_INLINE void WriteOutputs(const PrefillTile& tile, const QueryRows& rows,
                             const PrefillWork& work) {
  for (std::size_t row = 0; row < rows.count; ++row) {
    const BlockState& state = work.states[row / kBlockQueries];
    const float inverse = 1.0f / state.sum[row % kBlockQueries];
    const float* sums = work.sums + row * work.channels;
    float* out = tile.out + row / rows.group * tile.out_stride + row % rows.group * rows.head_dim;
    for (std::size_t x = 0; x < rows.head_dim; ++x) {
      out[x] = sums[x] * inverse;
    }
  }
}

template <kv::Codec C>
HWY_INLINE void PrefillWithCodec(const PrefillTile& tile, const kv::HeadView& head,
                                 Scratch& scratch) {
  const auto head_dim = static_cast<std::size_t>(head.head_dim);
  const auto group = static_cast<std::size_t>(tile.group);
  const auto first_row = static_cast<std::size_t>(tile.first_row);
  const auto tokens = static_cast<std::size_t>(tile.tokens);
  const QueryRows rows{tile.q, tile.q_stride, group, head_dim, tokens * group};
  Scratch::Frame frame(scratch);
  const std::size_t channels = RoundUpToPanel(head_dim);
  const std::size_t padded_rows = rows.blocks() * kBlockQueries;
  const PrefillWork work{channels, frame.Array<float>(padded_rows * head_dim),
                         frame.Array<float>(padded_rows * channels),
                         frame.Array<BlockState>(rows.blocks()),
                         frame.Array<float>(kBlockQueries * kTileKeys)};
  float* keys = frame.Array<float>(kTileKeys * head_dim);
  float* values = frame.Array<float>(kTileKeys * channels);
  float* rows_f32 = frame.Array<float>(PanelWidth() * channels);
  PackQueries(rows, tile.scale * kLog2E, work.queries);
  std::fill_n(work.sums, padded_rows * channels, 0.0f);
  std::for_each_n(work.states, rows.blocks(), [](BlockState& state) { state.Clear(); });
  const std::size_t all_rows = first_row + tokens;
  for (std::size_t first = 0; first < all_rows; first += kTileKeys) {
    const std::size_t count = std::min(kTileKeys, all_rows - first);
    PackKeys<C>(head, first, count, rows_f32, keys);
    PackValues<C>(head, first, count, rows_f32, values);
    const KeyTile key_tile{first, keys, values};
    for (std::size_t block = 0; block < rows.blocks(); ++block) {
      AttendBlock(rows, first_row, key_tile, block, work);
    }
  }
  WriteOutputs(tile, rows, work);
}

void PrefillByPanelsImpl(const PrefillTile& tile, const kv::HeadView& head, Scratch& scratch) {
  switch (head.codec) {
    case kv::Codec::kF32:
      return PrefillWithCodec<kv::Codec::kF32>(tile, head, scratch);
    case kv::Codec::kF16:
      return PrefillWithCodec<kv::Codec::kF16>(tile, head, scratch);
    case kv::Codec::kBf16:
      return PrefillWithCodec<kv::Codec::kBf16>(tile, head, scratch);
    case kv::Codec::kQ8:
      return PrefillWithCodec<kv::Codec::kQ8>(tile, head, scratch);
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace rkv::attention::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rkv::attention::cpu {

HWY_EXPORT(PrefillByPanelsImpl);

void PrefillByPanels(const PrefillTile& tile, const kv::HeadView& head, Scratch& scratch) {
  HWY_DYNAMIC_DISPATCH(PrefillByPanelsImpl)(tile, head, scratch);
}

}  // namespace rkv::attention::cpu
#endif  // HWY_ONCE
