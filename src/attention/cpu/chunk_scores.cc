// HSA scores of all chunks of one KV head. Policy specification 2.1, stage 2, steps 1 to 6.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "attention/cpu/kernels.h"
#include "attention/cpu/targets.h"
#include "base/check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/cpu/chunk_scores.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "attention/cpu/simd-inl.h"
#include "attention/cpu/weighted_rows-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace rkv::attention::cpu {
namespace HWY_NAMESPACE {

// The streams to read and what to multiply them with.
struct Selection {
  const std::byte** streams;  // [channels], minima or maxima of one channel each
  float* weights;             // [group][channels], the query's numbers
  float* temperatures;        // [group]
  std::size_t channels;
};

// Step 1: writes the `channels` channels with the largest sum over heads of |q|, ascending.
// keys: [head_dim] of scratch.
HWY_INLINE void ChooseChannels(const GroupQuery& query, std::size_t head_dim, std::size_t channels,
                               std::uint64_t* keys, std::uint32_t* chosen) {
  for (std::size_t x = 0; x < head_dim; ++x) {
    float loudness = 0.0f;
    for (std::size_t h = 0; h < static_cast<std::size_t>(query.group); ++h) {
      loudness += std::fabs(query.q[h * head_dim + x]);
    }
    // Non-negative floats order like their bits; the lower channel wins a tie.
    std::uint32_t bits;
    std::memcpy(&bits, &loudness, sizeof(bits));
    keys[x] = (std::uint64_t{bits} << 32) | (0xffffffffu - x);
  }
  if (channels < head_dim) {
    std::nth_element(keys, keys + channels - 1, keys + head_dim, std::greater<>());
  }
  for (std::size_t i = 0; i < channels; ++i) {
    chosen[i] = 0xffffffffu - static_cast<std::uint32_t>(keys[i]);
  }
  std::sort(chosen, chosen + channels);
}

// Steps 2 and 4 for the chosen channels.
HWY_INLINE void FillSelection(const GroupQuery& query, const kv::IndexView& index,
                              const std::uint32_t* chosen, Selection& selection) {
  const auto head_dim = static_cast<std::size_t>(index.head_dim);
  const auto group = static_cast<std::size_t>(query.group);
  for (std::size_t i = 0; i < selection.channels; ++i) {
    const auto x = static_cast<std::int32_t>(chosen[i]);
    float sign = 0.0f;
    for (std::size_t h = 0; h < group; ++h) {
      const float number = query.q[h * head_dim + chosen[i]];
      selection.weights[h * selection.channels + i] = number;
      sign += number;
    }
    selection.streams[i] = sign > 0.0f ? index.Max(x) : index.Min(x);
  }
  for (std::size_t h = 0; h < group; ++h) {
    double all = 0.0;
    double part = 0.0;
    for (std::size_t x = 0; x < head_dim; ++x) {
      all += std::fabs(query.q[h * head_dim + x]);
    }
    for (std::size_t i = 0; i < selection.channels; ++i) {
      part += std::fabs(selection.weights[h * selection.channels + i]);
    }
    // A head without weight in the chosen channels scores all chunks alike, at any temperature.
    const double share = part == 0.0 ? 1.0 : part / all;
    selection.temperatures[h] = static_cast<float>(std::sqrt(index.head_dim * share));
  }
}

// Step 3 for H heads and W vectors of chunks from `first` on: z[h * stride + first + …].
template <kv::Codec C, int H, int W, class D>
HWY_INLINE void EstimateChunks(D d, const Selection& selection, std::size_t head, std::size_t first,
                               float* z, std::size_t stride) {
  const std::size_t bytes = W * hn::Lanes(d) * kv::CodecBytes(C);
  const RowSet set{selection.streams, selection.channels, first * kv::CodecBytes(C)};
  const Weights weights{selection.weights + head * selection.channels, selection.channels};
  SumWeightedRows<false, C, H, W>(d, set, weights, z + head * stride + first, stride,
                                  PrefetchRows{selection.streams, set.offset + bytes, bytes});
}

// Step 3 for H heads and all chunks. A last tile that is not full starts earlier and repeats
// chunks: every chunk's sum runs over the same channels in the same order, whatever its tile.
// REQUIRES: chunks >= SumVectors(H) * Lanes.
template <kv::Codec C, int H>
HWY_INLINE void EstimateHeads(const Selection& selection, std::size_t head, std::size_t chunks,
                              std::size_t stride, float* z) {
  const hn::ScalableTag<float> d;
  const std::size_t wide = SumVectors(H) * hn::Lanes(d);
  std::size_t b = 0;
  for (; b + wide <= chunks; b += wide) {
    EstimateChunks<C, H, SumVectors(H)>(d, selection, head, b, z, stride);
  }
  if (b < chunks) {
    EstimateChunks<C, H, SumVectors(H)>(d, selection, head, chunks - wide, z, stride);
  }
}

// Step 3 for few chunks.
template <kv::Codec C>
HWY_INLINE void EstimateFew(const Selection& selection, std::size_t head, std::size_t chunks,
                            std::size_t stride, float* z) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> d1;
  const std::size_t N = hn::Lanes(d);
  std::size_t b = 0;
  for (; b + N <= chunks; b += N) {
    EstimateChunks<C, 1, 1>(d, selection, head, b, z, stride);
  }
  for (; b < chunks; ++b) {
    EstimateChunks<C, 1, 1>(d1, selection, head, b, z, stride);
  }
}

template <kv::Codec C>
HWY_INLINE void EstimateAll(const Selection& selection, std::size_t group, std::size_t chunks,
                            std::size_t stride, float* z) {
  if (chunks >= SumVectors(1) * hn::Lanes(hn::ScalableTag<float>())) {
    ForEachHeadTile(group, [&](std::size_t head, auto heads) HWY_ATTR {
      EstimateHeads<C, decltype(heads)::kValue>(selection, head, chunks, stride, z);
    });
  } else {
    for (std::size_t head = 0; head < group; ++head) {
      EstimateFew<C>(selection, head, chunks, stride, z);
    }
  }
}

// Steps 5 and 6 for one head: z becomes exp((z - max) / temperature); returns one over the
// softmax's denominator, where a chunk counts as many times as it has rows. z: [padded], -infinity
// behind the chunks.
HWY_INLINE float ExponentiateChunks(float* z, std::size_t padded, float temperature,
                                    const kv::IndexView& index) {
  const hn::ScalableTag<float> d;
  const std::size_t N = hn::Lanes(d);
  auto top = hn::Set(d, -std::numeric_limits<float>::infinity());
  for (std::size_t b = 0; b < padded; b += N) {
    top = hn::Max(top, hn::Load(d, z + b));
  }
  top = hn::MaxOfLanes(d, top);
  const auto inverse = hn::Set(d, 1.0f / temperature);
  auto sum = hn::Zero(d);
  for (std::size_t b = 0; b < padded; b += N) {
    const auto e = ExpOfNegative(d, hn::Mul(hn::Sub(hn::Load(d, z + b), top), inverse));
    hn::Store(e, d, z + b);
    sum = hn::Add(sum, e);
  }
  const std::int32_t last = index.chunks() - 1;
  const auto missing = static_cast<float>(index.chunk_rows * index.chunks() - index.rows);
  const float rows = static_cast<float>(index.chunk_rows) * hn::GetLane(hn::SumOfLanes(d, sum));
  return 1.0f / (rows - missing * z[last]);
}

// u = sum over heads of e_h * inverse_h; e: [group][padded].
HWY_INLINE void SumHeads(const float* e, std::size_t padded, const float* inverse,
                         std::size_t group, std::span<float> u) {
  const hn::ScalableTag<float> d;
  const std::size_t N = hn::Lanes(d);
  for (std::size_t b = 0; b < u.size(); b += N) {
    auto sum = hn::Zero(d);
    for (std::size_t h = 0; h < group; ++h) {
      sum = hn::MulAdd(hn::Set(d, inverse[h]), hn::Load(d, e + h * padded + b), sum);
    }
    if (b + N <= u.size()) {
      hn::StoreU(sum, d, u.data() + b);
    } else {
      HWY_ALIGN float tail[hn::MaxLanes(hn::ScalableTag<float>())];
      hn::Store(sum, d, tail);
      std::copy_n(tail, u.size() - b, u.data() + b);
    }
  }
}

// by_head[h][b] = e_h * inverse_h.
HWY_INLINE void ScaleHeads(const float* e, std::size_t padded, const float* inverse,
                           std::size_t group, std::size_t chunks, float* by_head) {
  for (std::size_t h = 0; h < group; ++h) {
    const float scale = inverse[h];
    std::transform(e + h * padded, e + h * padded + chunks, by_head + h * chunks,
                   [scale](float v) { return v * scale; });
  }
}

void ChunkScoresImpl(const GroupQuery& query, const kv::IndexView& index, std::size_t channels,
                     std::span<float> u, float* by_head, Scratch& scratch) {
  const auto head_dim = static_cast<std::size_t>(index.head_dim);
  const auto group = static_cast<std::size_t>(query.group);
  const std::size_t padded = (u.size() + 15) / 16 * 16;
  Scratch::Frame frame(scratch);
  Selection selection{frame.Array<const std::byte*>(channels), frame.Array<float>(group * channels),
                      frame.Array<float>(group), channels};
  auto* chosen = frame.Array<std::uint32_t>(channels);
  ChooseChannels(query, head_dim, channels, frame.Array<std::uint64_t>(head_dim), chosen);
  FillSelection(query, index, chosen, selection);
  auto* z = frame.Array<float>(group * padded);
  auto* inverse = frame.Array<float>(group);
  switch (index.codec) {
    case kv::Codec::kF32:
      EstimateAll<kv::Codec::kF32>(selection, group, u.size(), padded, z);
      break;
    case kv::Codec::kF16:
      EstimateAll<kv::Codec::kF16>(selection, group, u.size(), padded, z);
      break;
    case kv::Codec::kBf16:
      EstimateAll<kv::Codec::kBf16>(selection, group, u.size(), padded, z);
      break;
    case kv::Codec::kQ8:
      Check(false, "an index holds no integers");
      break;
  }
  for (std::size_t h = 0; h < group; ++h) {
    std::fill(z + h * padded + u.size(), z + (h + 1) * padded,
              -std::numeric_limits<float>::infinity());
    inverse[h] = ExponentiateChunks(z + h * padded, padded, selection.temperatures[h], index);
  }
  SumHeads(z, padded, inverse, group, u);
  if (by_head != nullptr) {
    ScaleHeads(z, padded, inverse, group, u.size(), by_head);
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace rkv::attention::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rkv::attention::cpu {

HWY_EXPORT(ChunkScoresImpl);

void ChunkScores(const GroupQuery& query, const kv::IndexView& index, std::int32_t channels,
                 std::span<float> u, float* by_head, Scratch& scratch) {
  if (!u.empty()) {
    HWY_DYNAMIC_DISPATCH(ChunkScoresImpl)
    (query, index, static_cast<std::size_t>(channels), u, by_head, scratch);
  }
}

}  // namespace rkv::attention::cpu
#endif  // HWY_ONCE
