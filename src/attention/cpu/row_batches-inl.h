// Walking over rows in batches, one batch prefetched ahead, and the products of a batch's keys with
// the queries of a group; shared by decoding and row scores.
#if defined(RKV_ATTENTION_CPU_ROW_BATCHES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RKV_ATTENTION_CPU_ROW_BATCHES_INL_H_
#undef RKV_ATTENTION_CPU_ROW_BATCHES_INL_H_
#else
#define RKV_ATTENTION_CPU_ROW_BATCHES_INL_H_
#endif

#include <algorithm>
#include <cstddef>

#include "attention/backend.h"
#include "attention/cpu/simd-inl.h"
#include "attention/cpu/weighted_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rkv::attention::cpu {
namespace HWY_NAMESPACE {

// Rows that are worked on together: 8 KiB of a 64-wide f16 head, well inside the L1 cache, and as
// far ahead as the prefetches run.
inline constexpr std::size_t kBatch = 32;

// Rows whose products with H heads are summed at once: as many sums as there are registers for.
constexpr int RowsAtOnce(int heads) {
  return heads <= 3 || (heads <= 7 && HWY_TARGET <= HWY_AVX3) ? 4 : 2;
}

// Where the rows of one batch lie. Entries behind `count` repeat its last row, so that kernels may
// read rows in fours.
struct Batch {
  const std::byte* rows[kBatch];
  std::size_t first = 0;  // entry of the list
  std::size_t count = 0;

  void Fill(const kv::HeadView& head, const RowList& list, std::size_t from) {
    first = from;
    count = std::min(kBatch, static_cast<std::size_t>(list.count) - first);
    for (std::size_t i = 0; i < count; ++i) {
      rows[i] = head.Key(list.list != nullptr ? list.list[first + i]
                                              : static_cast<std::int32_t>(first + i));
    }
    std::fill(rows + count, rows + kBatch, rows[count - 1]);
  }
};

// scores[h * kBatch + row] for the rows [row, row + R), whose products with the queries of H heads
// are spread over the lanes of sum[h][r].
template <int H, int R, class D, class V>
HWY_INLINE void StoreScores(D d, const V (&sum)[H][R], float scale, std::size_t row,
                            float* HWY_RESTRICT scores) {
  static_assert(R == 4 || H % 4 == 0, "sums are folded in fours, of rows or of heads");
  if constexpr (R == 4) {
    for (int h = 0; h < H; ++h) {
      StoreFourSums(d, sum[h], scale, scores + h * kBatch + row);
    }
  } else {
    for (int r = 0; r < R; ++r) {
      for (int h = 0; h < H; h += 4) {
        const V heads[4] = {sum[h][r], sum[h + 1][r], sum[h + 2][r], sum[h + 3][r]};
        HWY_ALIGN float sums[4];
        StoreFourSums(d, heads, scale, sums);
        for (int i = 0; i < 4; ++i) {
          scores[(h + i) * kBatch + row + r] = sums[i];
        }
      }
    }
  }
}

// scores[h * kBatch + i] = scale * q_h . key i for H heads and all rows of the batch, rounded up to
// fours.
template <kv::Codec C, int H, class D, class Prefetch>
HWY_INLINE void ScoreBatch(D d, const float* q, std::size_t head_dim, const Batch& batch,
                           float scale, float* HWY_RESTRICT scores, const Prefetch& prefetch) {
  constexpr int kRows = RowsAtOnce(H);
  const std::size_t N = hn::Lanes(d);
  for (std::size_t i = 0; i < batch.count; i += kRows) {
    for (std::size_t r = 0; r < kRows; ++r) {
      prefetch(i + r);
    }
    hn::Vec<D> sum[H][kRows];
    for (int h = 0; h < H; ++h) {
      for (int r = 0; r < kRows; ++r) {
        sum[h][r] = hn::Zero(d);
      }
    }
    for (std::size_t x = 0; x < head_dim; x += N) {
      // The fewer of queries and keys stay in registers, the others pass by.
      if constexpr (H < kRows) {
        hn::Vec<D> query[H];
        for (int h = 0; h < H; ++h) {
          query[h] = hn::LoadU(d, q + h * head_dim + x);
        }
        for (int r = 0; r < kRows; ++r) {
          const auto key = LoadKey<C>(d, batch.rows[i + r], head_dim, x);
          for (int h = 0; h < H; ++h) {
            sum[h][r] = hn::MulAdd(query[h], key, sum[h][r]);
          }
        }
      } else {
        hn::Vec<D> key[kRows];
        for (int r = 0; r < kRows; ++r) {
          key[r] = LoadKey<C>(d, batch.rows[i + r], head_dim, x);
        }
        for (int h = 0; h < H; ++h) {
          const auto query = hn::LoadU(d, q + h * head_dim + x);
          for (int r = 0; r < kRows; ++r) {
            sum[h][r] = hn::MulAdd(query, key[r], sum[h][r]);
          }
        }
      }
    }
    StoreScores<H, kRows>(d, sum, scale, i, scores);
  }
}

// body(batch, next) for all batches of `rows`; `next` is the batch that follows, whose rows the
// body is to prefetch (behind the last batch: that one again). `bytes` of every row of the first
// batch are prefetched here.
template <class Body>
HWY_INLINE void ForEachBatch(const kv::HeadView& head, const RowList& rows, std::size_t bytes,
                             const Body& body) {
  const auto count = static_cast<std::size_t>(rows.count);
  Batch batches[2];
  if (count > 0) {
    batches[0].Fill(head, rows, 0);
    const PrefetchRows prefetch{batches[0].rows, 0, bytes};
    for (std::size_t i = 0; i < batches[0].count; ++i) {
      prefetch(i);
    }
  }
  std::size_t now = 0;
  for (std::size_t first = 0; first < count; first += kBatch) {
    Batch& next = batches[1 - now];
    if (first + kBatch < count) {
      next.Fill(head, rows, first + kBatch);
    } else {
      next = batches[now];
    }
    body(batches[now], next);
    now = 1 - now;
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace rkv::attention::cpu
HWY_AFTER_NAMESPACE();

#endif  // RKV_ATTENTION_CPU_ROW_BATCHES_INL_H_
