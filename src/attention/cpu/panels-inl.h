// Register-blocked products of query rows with key tiles, shared by prefill and window mass.
//
// A key tile is expanded to f32 once and cut into panels: panel p holds channel by channel the keys
// [p * PanelWidth(), (p + 1) * PanelWidth()) of the tile. Query rows are cut into blocks of
// kBlockQueries, also channel by channel. A block times a panel then runs out of registers.
#if defined(RKV_ATTENTION_CPU_PANELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RKV_ATTENTION_CPU_PANELS_INL_H_
#undef RKV_ATTENTION_CPU_PANELS_INL_H_
#else
#define RKV_ATTENTION_CPU_PANELS_INL_H_
#endif

#include <algorithm>
#include <cstddef>

#include "attention/cpu/simd-inl.h"
#include "kv/head_view.h"

HWY_BEFORE_NAMESPACE();
namespace rkv::attention::cpu {
namespace HWY_NAMESPACE {

// 12 sums of 6 x 2 vectors fill 16 registers, 24 of 12 x 2 fill 32.
inline constexpr std::size_t kBlockQueries = HWY_TARGET <= HWY_AVX3 ? 12 : 6;
// Rows [0, kTileKeys), [kTileKeys, 2 * kTileKeys), …: keys and values of a 64-wide head take 128
// KiB in f32, a block's scores stay in the L1 cache.
inline constexpr std::size_t kTileKeys = 256;

using DPanel = hn::ScalableTag<float>;
// Keys are packed in fours, also by the scalar form.
inline constexpr std::size_t kPanelVectors = HWY_TARGET == HWY_SCALAR ? 4 : 2;
HWY_INLINE std::size_t PanelWidth() { return kPanelVectors * hn::Lanes(DPanel()); }
HWY_INLINE std::size_t RoundUpToPanel(std::size_t n) {
  return (n + PanelWidth() - 1) / PanelWidth() * PanelWidth();
}

// Expands a stored key, or value, of `count` numbers in codec C.
template <kv::Codec C, kv::Part P = kv::Part::kKey>
HWY_INLINE void ExpandNumbers(const std::byte* from, std::size_t count, float* to) {
  const auto load = [&](auto d, std::size_t x) HWY_ATTR {
    if constexpr (P == kv::Part::kKey) {
      return LoadKey<C>(d, from, count, x);
    } else {
      return LoadValue<C>(d, from, count, x);
    }
  };
  const DPanel d;
  const std::size_t N = hn::Lanes(d);
  std::size_t x = 0;
  for (; x + N <= count; x += N) {
    hn::StoreU(load(d, x), d, to + x);
  }
  const hn::CappedTag<float, 2> d2;
  for (; x < count; x += hn::Lanes(d2)) {
    hn::StoreU(load(d2, x), d2, to + x);
  }
}

// Writes four keys of [head_dim] f32, `stride` numbers apart, as columns [0, 4) of a panel.
HWY_INLINE void TransposeFour(const float* keys, std::size_t stride, std::size_t head_dim,
                              float* panel) {
  const std::size_t width = PanelWidth();
  std::size_t x = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::FixedTag<float, 4> d;
  const hn::RepartitionToWide<decltype(d)> dw;
  for (; x + 4 <= head_dim; x += 4) {
    const auto k0 = hn::LoadU(d, keys + x);
    const auto k1 = hn::LoadU(d, keys + stride + x);
    const auto k2 = hn::LoadU(d, keys + 2 * stride + x);
    const auto k3 = hn::LoadU(d, keys + 3 * stride + x);
    const auto low01 = hn::BitCast(dw, hn::InterleaveLower(d, k0, k1));
    const auto low23 = hn::BitCast(dw, hn::InterleaveLower(d, k2, k3));
    const auto high01 = hn::BitCast(dw, hn::InterleaveUpper(d, k0, k1));
    const auto high23 = hn::BitCast(dw, hn::InterleaveUpper(d, k2, k3));
    float* to = panel + x * width;
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dw, low01, low23)), d, to);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dw, low01, low23)), d, to + width);
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dw, high01, high23)), d, to + 2 * width);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dw, high01, high23)), d, to + 3 * width);
  }
#endif
  for (; x < head_dim; ++x) {
    for (std::size_t i = 0; i < 4; ++i) {
      panel[x * width + i] = keys[i * stride + x];
    }
  }
}

// Packs the keys of rows [first, first + count) into panels; columns behind them are zero.
// rows_f32: [PanelWidth()][head_dim] of scratch.
template <kv::Codec C>
HWY_INLINE void PackKeys(const kv::HeadView& head, std::size_t first, std::size_t count,
                         float* rows_f32, float* panels) {
  const auto head_dim = static_cast<std::size_t>(head.head_dim);
  const std::size_t width = PanelWidth();
  for (std::size_t at = 0; at < count; at += width) {
    const std::size_t valid = std::min(width, count - at);
    for (std::size_t i = 0; i < valid; ++i) {
      ExpandNumbers<C>(head.Key(static_cast<std::int32_t>(first + at + i)), head_dim,
                       rows_f32 + i * head_dim);
    }
    std::fill(rows_f32 + valid * head_dim, rows_f32 + width * head_dim, 0.0f);
    for (std::size_t i = 0; i < width; i += 4) {
      TransposeFour(rows_f32 + i * head_dim, head_dim, head_dim, panels + at * head_dim + i);
    }
  }
}

// Where stacked query row `row` = token * group + head lies: q + token * stride + head * head_dim.
struct QueryRows {
  const float* q;
  std::size_t stride;
  std::size_t group;
  std::size_t head_dim;
  std::size_t count;  // tokens * group

  HWY_INLINE const float* Row(std::size_t row) const {
    return q + row / group * stride + row % group * head_dim;
  }
  std::size_t blocks() const { return (count + kBlockQueries - 1) / kBlockQueries; }
};

// Packs every block as [head_dim][kBlockQueries], times `factor`; rows behind the last are zero.
HWY_INLINE void PackQueries(const QueryRows& queries, float factor, float* blocks) {
  for (std::size_t row = 0; row < queries.blocks() * kBlockQueries; ++row) {
    float* to =
        blocks + row / kBlockQueries * kBlockQueries * queries.head_dim + row % kBlockQueries;
    const float* from = row < queries.count ? queries.Row(row) : nullptr;
    for (std::size_t x = 0; x < queries.head_dim; ++x) {
      to[x * kBlockQueries] = from != nullptr ? factor * from[x] : 0.0f;
    }
  }
}

// out[i * out_stride + j] (+)= sum over k of a(i, k) * panel[k * PanelWidth() + j], for the
// kBlockQueries rows i and the PanelWidth() columns j; a(i, k) = a[i * row_step + k * step].
// With `rescale` the old content counts rescale[i] times, else not at all.
HWY_INLINE void MultiplyPanel(const float* HWY_RESTRICT a, std::size_t row_step, std::size_t step,
                              std::size_t depth, const float* HWY_RESTRICT panel,
                              const float* rescale, float* HWY_RESTRICT out,
                              std::size_t out_stride) {
  const DPanel d;
  const std::size_t N = hn::Lanes(d);
  hn::Vec<DPanel> sum[kBlockQueries][kPanelVectors];
  for (std::size_t i = 0; i < kBlockQueries; ++i) {
    for (std::size_t v = 0; v < kPanelVectors; ++v) {
      sum[i][v] = rescale == nullptr
                      ? hn::Zero(d)
                      : hn::Mul(hn::Set(d, rescale[i]), hn::LoadU(d, out + i * out_stride + v * N));
    }
  }
  for (std::size_t k = 0; k < depth; ++k) {
    hn::Vec<DPanel> column[kPanelVectors];
    for (std::size_t v = 0; v < kPanelVectors; ++v) {
      column[v] = hn::LoadU(d, panel + (k * kPanelVectors + v) * N);
    }
    for (std::size_t i = 0; i < kBlockQueries; ++i) {
      const auto factor = hn::Set(d, a[i * row_step + k * step]);
      for (std::size_t v = 0; v < kPanelVectors; ++v) {
        sum[i][v] = hn::MulAdd(factor, column[v], sum[i][v]);
      }
    }
  }
  for (std::size_t i = 0; i < kBlockQueries; ++i) {
    for (std::size_t v = 0; v < kPanelVectors; ++v) {
      hn::StoreU(sum[i][v], d, out + i * out_stride + v * N);
    }
  }
}

// scores[i * kTileKeys + j] = query i of the block . key j of the tile, for j < RoundUp(keys).
HWY_INLINE void ScoreBlock(const float* block, const float* panels, std::size_t head_dim,
                           std::size_t keys, float* scores) {
  for (std::size_t j = 0; j < keys; j += PanelWidth()) {
    MultiplyPanel(block, 1, kBlockQueries, head_dim, panels + j * head_dim, nullptr, scores + j,
                  kTileKeys);
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace rkv::attention::cpu
HWY_AFTER_NAMESPACE();

#endif  // RKV_ATTENTION_CPU_PANELS_INL_H_
