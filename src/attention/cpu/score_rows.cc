// Scores of rows against the queries of a group.
#include <algorithm>

#include "attention/cpu/kernels.h"
#include "attention/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/cpu/score_rows.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "attention/cpu/row_batches-inl.h"
#include "attention/cpu/simd-inl.h"
#include "attention/cpu/weighted_rows-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace rkv::attention::cpu {
namespace HWY_NAMESPACE {

struct ScoreArgs {
  const GroupQuery& query;
  const kv::HeadView& head;
  const RowList& rows;
  float scale;
  float* scores;  // [group][rows.count]
};

// Scores of one batch for heads [head, head + H). The first heads prefetch the keys of the next
// batch.
template <kv::Codec C, int H, class D>
HWY_NOINLINE void ScoreHeads(D d, const ScoreArgs& args, std::size_t head, const Batch& batch,
                             const Batch& next) {
  const auto head_dim = static_cast<std::size_t>(args.head.head_dim);
  const auto stride = static_cast<std::size_t>(args.rows.count);
  // By way of the stack: sums are stored in fours, also behind the last row.
  HWY_ALIGN float scores[H * kBatch];
  const float* q = args.query.q + head * head_dim;
  if (head == 0) {
    ScoreBatch<C, H>(d, q, head_dim, batch, args.scale, scores,
                     PrefetchRows{next.rows, 0, args.head.value_offset()});
  } else {
    ScoreBatch<C, H>(d, q, head_dim, batch, args.scale, scores, NoPrefetch());
  }
  for (std::size_t h = 0; h < H; ++h) {
    std::copy_n(scores + h * kBatch, batch.count, args.scores + (head + h) * stride + batch.first);
  }
}

template <kv::Codec C, class D>
HWY_INLINE void ScoreAll(D d, const ScoreArgs& args) {
  const auto group = static_cast<std::size_t>(args.query.group);
  ForEachBatch(args.head, args.rows, args.head.value_offset(),
               [&](const Batch& batch, const Batch& next) HWY_ATTR {
                 if constexpr (hn::MaxLanes(D()) >= 4) {
                   ForEachHeadTile(group, [&](std::size_t head, auto heads) HWY_ATTR {
                     ScoreHeads<C, decltype(heads)::kValue>(d, args, head, batch, next);
                   });
                 } else {
                   for (std::size_t head = 0; head < group; ++head) {
                     ScoreHeads<C, 1>(d, args, head, batch, next);
                   }
                 }
               });
}

template <kv::Codec C>
HWY_INLINE void ScoreWithCodec(const ScoreArgs& args) {
  const hn::ScalableTag<float> d;
  if (static_cast<std::size_t>(args.head.head_dim) % hn::Lanes(d) == 0) {
    ScoreAll<C>(d, args);
  } else {
    ScoreAll<C>(hn::CappedTag<float, 2>(), args);
  }
}

void ScoreRowsImpl(const GroupQuery& query, const kv::HeadView& head, const RowList& rows,
                   float scale, float* scores) {
  const ScoreArgs args{query, head, rows, scale, scores};
  switch (head.codec) {
    case kv::Codec::kF32:
      return ScoreWithCodec<kv::Codec::kF32>(args);
    case kv::Codec::kF16:
      return ScoreWithCodec<kv::Codec::kF16>(args);
    case kv::Codec::kBf16:
      return ScoreWithCodec<kv::Codec::kBf16>(args);
    case kv::Codec::kQ8:
      return ScoreWithCodec<kv::Codec::kQ8>(args);
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace rkv::attention::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rkv::attention::cpu {

HWY_EXPORT(ScoreRowsImpl);

void ScoreRows(const GroupQuery& query, const kv::HeadView& head, const RowList& rows, float scale,
               float* scores) {
  HWY_DYNAMIC_DISPATCH(ScoreRowsImpl)(query, head, rows, scale, scores);
}

}  // namespace rkv::attention::cpu
#endif  // HWY_ONCE
