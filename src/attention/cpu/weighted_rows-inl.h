// Weighted sums of stored rows: values by softmax weights, index channels by query numbers.
#if defined(RKV_ATTENTION_CPU_WEIGHTED_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RKV_ATTENTION_CPU_WEIGHTED_ROWS_INL_H_
#undef RKV_ATTENTION_CPU_WEIGHTED_ROWS_INL_H_
#else
#define RKV_ATTENTION_CPU_WEIGHTED_ROWS_INL_H_
#endif

#include <cstddef>

#include "attention/cpu/simd-inl.h"
#include "hwy/cache_control.h"

HWY_BEFORE_NAMESPACE();
namespace rkv::attention::cpu {
namespace HWY_NAMESPACE {

// Heads that share one reading of the rows.
inline constexpr int kMaxTileHeads = HWY_TARGET <= HWY_AVX3 ? 8 : 4;

// Vectors of a row that are summed at once for that many heads: as many sums as registers allow
// beside the weights and the numbers just read.
constexpr int SumVectors(int heads) {
  if (heads == 1) {
    return 8;
  }
  return heads <= 3 || (heads <= 7 && HWY_TARGET <= HWY_AVX3) ? 4 : 2;
}

template <int H>
struct HeadCount {
  static constexpr int kValue = H;
};

// body(HeadCount<heads>()). REQUIRES: 1 <= heads <= kMaxTileHeads.
template <class Body>
HWY_INLINE void WithHeadCount(std::size_t heads, const Body& body) {
  switch (heads) {
    case 1:
      return body(HeadCount<1>());
    case 2:
      return body(HeadCount<2>());
    case 3:
      return body(HeadCount<3>());
    case 4:
      return body(HeadCount<4>());
    default:
      break;
  }
  if constexpr (kMaxTileHeads > 4) {
    switch (heads) {
      case 5:
        return body(HeadCount<5>());
      case 6:
        return body(HeadCount<6>());
      case 7:
        return body(HeadCount<7>());
      default:
        return body(HeadCount<8>());
    }
  }
}

// body(first, HeadCount) for tiles of nearly equal size that cover `group` heads.
template <class Body>
HWY_INLINE void ForEachHeadTile(std::size_t group, const Body& body) {
  std::size_t tiles = (group + kMaxTileHeads - 1) / kMaxTileHeads;
  for (std::size_t first = 0; first < group; --tiles) {
    const std::size_t size = (group - first + tiles - 1) / tiles;
    WithHeadCount(size, [&](auto heads) HWY_ATTR { body(first, heads); });
    first += size;
  }
}

struct NoPrefetch {
  HWY_INLINE void operator()(std::size_t /*row*/) const {}
};

// Touches `bytes` of next[i] at `offset` while row i is worked on.
struct PrefetchRows {
  const std::byte* const* next;
  std::size_t offset;
  std::size_t bytes;

  HWY_INLINE void operator()(std::size_t i) const {
    for (std::size_t b = 0; b < bytes; b += 64) {
      hwy::Prefetch(next[i] + offset + b);
    }
  }
};

// Numbers of several rows, read at one offset.
struct RowSet {
  const std::byte* const* rows;
  std::size_t count;
  std::size_t offset;  // bytes
};

// One weight a row for each head: weight of row i for head h at data[h * stride + i].
struct Weights {
  const float* data;
  std::size_t stride;
};

// out[h * out_stride + x] = (kAdd: +=) sum over i of weight(h, i) * row i [x] for H heads and W
// vectors of x.
template <bool kAdd, kv::Codec C, int H, int W, class D, class Prefetch>
HWY_INLINE void SumWeightedRows(D d, const RowSet& set, const Weights& weights, float* out,
                                std::size_t out_stride, const Prefetch& prefetch) {
  const std::size_t N = hn::Lanes(d);
  hn::Vec<D> sum[H][W];
  for (int h = 0; h < H; ++h) {
    for (int w = 0; w < W; ++w) {
      sum[h][w] = kAdd ? hn::LoadU(d, out + h * out_stride + w * N) : hn::Zero(d);
    }
  }
  for (std::size_t i = 0; i < set.count; ++i) {
    prefetch(i);
    const std::byte* row = set.rows[i] + set.offset;
    hn::Vec<D> weight[H];
    for (int h = 0; h < H; ++h) {
      weight[h] = hn::Set(d, weights.data[h * weights.stride + i]);
    }
    for (int w = 0; w < W; ++w) {
      const hn::Vec<D> x = LoadNumbers<C>(d, row + w * N * kv::CodecBytes(C));
      for (int h = 0; h < H; ++h) {
        sum[h][w] = hn::MulAdd(weight[h], x, sum[h][w]);
      }
    }
  }
  for (int h = 0; h < H; ++h) {
    for (int w = 0; w < W; ++w) {
      hn::StoreU(sum[h][w], d, out + h * out_stride + w * N);
    }
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace rkv::attention::cpu
HWY_AFTER_NAMESPACE();

#endif  // RKV_ATTENTION_CPU_WEIGHTED_ROWS_INL_H_
