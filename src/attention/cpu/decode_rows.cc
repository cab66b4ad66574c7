#include <algorithm>
#include <limits>

#include "attention/cpu/kernels.h"
#include "attention/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/cpu/decode_rows.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "attention/cpu/row_batches-inl.h"
#include "attention/cpu/simd-inl.h"
#include "attention/cpu/weighted_rows-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace rkv::attention::cpu {
namespace HWY_NAMESPACE {

// One step of the online softmax: turns `scores` of a batch into weights and takes them into the
// state of one head.
template <class D>
HWY_INLINE void TakeScores(D d, float* HWY_RESTRICT scores, std::size_t count, std::size_t head_dim,
                           float* acc, float* max, float* sum) {
  const hn::ScalableTag<float> full;
  const std::size_t N = hn::Lanes(full);
  const std::size_t padded = (count + N - 1) / N * N;
  std::fill(scores + count, scores + padded, -std::numeric_limits<float>::infinity());
  auto top = hn::Set(full, *max);
  for (std::size_t i = 0; i < padded; i += N) {
    top = hn::Max(top, hn::LoadU(full, scores + i));
  }
  top = hn::MaxOfLanes(full, top);
  const float new_max = hn::GetLane(top);
  if (new_max > *max) {
    const float shrink =
        hn::GetLane(ExpOfNegative(full, hn::Sub(hn::Set(full, *max), hn::Set(full, new_max))));
    for (std::size_t x = 0; x < head_dim; x += hn::Lanes(d)) {
      hn::StoreU(hn::Mul(hn::LoadU(d, acc + x), hn::Set(d, shrink)), d, acc + x);
    }
    *sum *= shrink;
    *max = new_max;
  }
  auto total = hn::Zero(full);
  for (std::size_t i = 0; i < padded; i += N) {
    const auto weight = ExpOfNegative(full, hn::Sub(hn::LoadU(full, scores + i), top));
    hn::StoreU(weight, full, scores + i);
    total = hn::Add(total, weight);
  }
  *sum += hn::GetLane(hn::SumOfLanes(full, total));
}

// acc_h += sum of weight(h, i) * value i, for as many channels from *first on as pieces of W
// vectors cover; moves *first behind them. The piece that starts at channel 0 prefetches.
template <kv::Codec C, int H, int W, class D, class Prefetch>
HWY_INLINE void AddValuePieces(D d, const Batch& batch, std::size_t head_dim, const float* weights,
                               float* acc, const Prefetch& prefetch, std::size_t* first) {
  const std::size_t piece = W * hn::Lanes(d);
  const Weights by_row{weights, kBatch};
  for (std::size_t& x = *first; x + piece <= head_dim; x += piece) {
    const std::size_t value = kv::StoredBytes(C, static_cast<std::int32_t>(head_dim));
    const RowSet set{batch.rows, batch.count, value + x * kv::CodecBytes(C)};
    if (x == 0) {
      SumWeightedRows<true, C, H, W>(d, set, by_row, acc, head_dim, prefetch);
    } else {
      SumWeightedRows<true, C, H, W>(d, set, by_row, acc + x, head_dim, NoPrefetch());
    }
  }
}

// acc_h += sum of weight(h, i) * value i.
template <kv::Codec C, int H, class D, class Prefetch>
HWY_INLINE void AddValues(D d, const Batch& batch, std::size_t head_dim, const float* weights,
                          float* acc, const Prefetch& prefetch) {
  constexpr int kVectors = SumVectors(H);
  std::size_t x = 0;
  AddValuePieces<C, H, kVectors>(d, batch, head_dim, weights, acc, prefetch, &x);
  AddValuePieces<C, H, kVectors / 2>(d, batch, head_dim, weights, acc, prefetch, &x);
  AddValuePieces<C, H, 1>(d, batch, head_dim, weights, acc, prefetch, &x);
}

// kQ8: multiplies the weights of H heads by the scales of the values.
template <int H>
HWY_INLINE void TakeValueScales(const kv::HeadView& head, const Batch& batch, float* weights) {
  for (std::size_t i = 0; i < batch.count; ++i) {
    const float scale =
        ScaleAt(batch.rows[i] + head.value_offset(), static_cast<std::size_t>(head.head_dim), 0);
    for (std::size_t h = 0; h < H; ++h) {
      weights[h * kBatch + i] *= scale;
    }
  }
}

struct DecodeArgs {
  const GroupQuery& query;
  const kv::HeadView& head;
  const RowList& rows;
  float scale;
  const PartialSoftmax& out;
};

// Scores, softmax and values of one batch for heads [first, first + H).
template <kv::Codec C, int H, class D>
HWY_NOINLINE void DecodeBatch(D d, const DecodeArgs& args, std::size_t first, const Batch& batch,
                              const Batch& next) {
  const auto head_dim = static_cast<std::size_t>(args.head.head_dim);
  HWY_ALIGN float scores[H * kBatch];
  const float* q = args.query.q + first * head_dim;
  float* acc = args.out.acc + first * head_dim;
  const std::size_t half_row = args.head.value_offset();
  if (first == 0) {
    ScoreBatch<C, H>(d, q, head_dim, batch, args.scale, scores,
                     PrefetchRows{next.rows, 0, half_row});
  } else {
    ScoreBatch<C, H>(d, q, head_dim, batch, args.scale, scores, NoPrefetch());
  }
  for (std::size_t h = 0; h < H; ++h) {
    TakeScores(d, scores + h * kBatch, batch.count, head_dim, acc + h * head_dim,
               args.out.max + first + h, args.out.sum + first + h);
  }
  if constexpr (C == kv::Codec::kQ8) {
    TakeValueScales<H>(args.head, batch, scores);
  }
  if (first == 0) {
    AddValues<C, H>(d, batch, head_dim, scores, acc, PrefetchRows{next.rows, half_row, half_row});
  } else {
    AddValues<C, H>(d, batch, head_dim, scores, acc, NoPrefetch());
  }
}

// All heads of the group on one batch.
template <kv::Codec C, class D>
HWY_INLINE void DecodeGroup(D d, const DecodeArgs& args, const Batch& batch, const Batch& next) {
  const auto group = static_cast<std::size_t>(args.query.group);
  if constexpr (hn::MaxLanes(D()) >= 4) {
    ForEachHeadTile(group, [&](std::size_t first, auto heads) HWY_ATTR {
      DecodeBatch<C, decltype(heads)::kValue>(d, args, first, batch, next);
    });
  } else {
    for (std::size_t head = 0; head < group; ++head) {
      DecodeBatch<C, 1>(d, args, head, batch, next);
    }
  }
}

template <kv::Codec C, class D>
HWY_INLINE void DecodeAll(D d, const DecodeArgs& args) {
  ForEachBatch(args.head, args.rows, args.head.row_bytes(),
               [&](const Batch& batch, const Batch& next)
                   HWY_ATTR { DecodeGroup<C>(d, args, batch, next); });
}

template <kv::Codec C>
HWY_INLINE void DecodeWithCodec(const DecodeArgs& args) {
  const hn::ScalableTag<float> d;
  if (static_cast<std::size_t>(args.head.head_dim) % hn::Lanes(d) == 0) {
    DecodeAll<C>(d, args);
  } else {
    DecodeAll<C>(hn::CappedTag<float, 2>(), args);
  }
}

void DecodeRowsImpl(const GroupQuery& query, const kv::HeadView& head, const RowList& rows,
                    float scale, const PartialSoftmax& out) {
  const auto group = static_cast<std::size_t>(query.group);
  std::fill_n(out.acc, group * static_cast<std::size_t>(head.head_dim), 0.0f);
  std::fill_n(out.max, group, -std::numeric_limits<float>::infinity());
  std::fill_n(out.sum, group, 0.0f);
  const DecodeArgs args{query, head, rows, scale, out};
  switch (args.head.codec) {
    case kv::Codec::kF32:
      return DecodeWithCodec<kv::Codec::kF32>(args);
    case kv::Codec::kF16:
      return DecodeWithCodec<kv::Codec::kF16>(args);
    case kv::Codec::kBf16:
      return DecodeWithCodec<kv::Codec::kBf16>(args);
    case kv::Codec::kQ8:
      return DecodeWithCodec<kv::Codec::kQ8>(args);
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace rkv::attention::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rkv::attention::cpu {

HWY_EXPORT(DecodeRowsImpl);

void DecodeRows(const GroupQuery& query, const kv::HeadView& head, const RowList& rows, float scale,
                const PartialSoftmax& out) {
  HWY_DYNAMIC_DISPATCH(DecodeRowsImpl)(query, head, rows, scale, out);
}

}  // namespace rkv::attention::cpu
#endif  // HWY_ONCE
