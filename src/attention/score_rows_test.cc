#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "attention/backend.h"
#include "attention/cpu/targets.h"
#include "support/hwy_targets.h"
#include "support/random.h"
#include "support/test_head.h"

namespace rkv::attention {
namespace {

using test::ForEachTarget;
using test::Nmse;
using test::TestHead;

constexpr kv::Codec kCodecs[] = {kv::Codec::kF16, kv::Codec::kBf16, kv::Codec::kF32,
                                 kv::Codec::kQ8};

// The scores, and behind them a number that no kernel may touch.
std::vector<float> Scores(const Backend& backend, const GroupQuery& query, const kv::HeadView& head,
                          const RowList& rows, float scale = 0.125f) {
  std::vector<float> scores(static_cast<std::size_t>(query.group * rows.count) + 1, 99.0f);
  backend.score_rows(query, head, rows, scale, scores.data());
  EXPECT_EQ(scores.back(), 99.0f);
  scores.pop_back();
  return scores;
}

void ExpectSameScores(const GroupQuery& query, const kv::HeadView& head, const RowList& rows) {
  const auto expected = Scores(RefBackend(), query, head, rows);
  const auto actual = Scores(CpuBackend(), query, head, rows);
  EXPECT_LE(Nmse(expected, actual), 1e-12);
}

TEST(ScoreRows, EqualsThePlainKernelOnRangesAndLists) {
  // Round the batches of 32 rows, the fours of a batch and the 64 rows of a block.
  const std::int32_t counts[] = {1, 2, 3, 4, 5, 31, 32, 33, 35, 63, 64, 65, 127, 128, 129, 401};
  Rng rng(1);
  std::size_t i = 0;
  for (const std::int32_t head_dim : {64, 72, 80, 96, 128, 256, 2, 6}) {
    for (std::int32_t group = 1; group <= 9; ++group, ++i) {
      const std::int32_t rows = counts[i % std::size(counts)];
      // Another codec for the same group in the next width.
      const kv::Codec codec = kCodecs[i % std::size(kCodecs)];
      const TestHead head = TestHead::Random(rng, head_dim, codec, rows);
      const auto q = test::NormalVector(rng, static_cast<std::size_t>(group * head_dim), 2.0f);
      const auto list = test::RandomSubset(rng, rows, (rows + 1) / 2);
      ForEachTarget([&] {
        SCOPED_TRACE(testing::Message() << group << " heads of " << head_dim << ", " << rows
                                        << " rows in " << kv::CodecName(codec));
        ExpectSameScores({q.data(), group}, head.view(), {nullptr, rows});
        ExpectSameScores({q.data(), group}, head.view(),
                         {list.data(), static_cast<std::int32_t>(list.size())});
      });
    }
  }
}

TEST(ScoreRows, EqualsThePlainKernelInEveryCodecAndCount) {
  Rng rng(2);
  for (const kv::Codec codec : kCodecs) {
    const TestHead head = TestHead::Random(rng, 64, codec, 100);
    const auto q = test::NormalVector(rng, 3 * 64, 2.0f);
    ForEachTarget([&] {
      for (std::int32_t count = 0; count <= 100; ++count) {
        SCOPED_TRACE(testing::Message() << count << " rows in " << kv::CodecName(codec));
        ExpectSameScores({q.data(), 3}, head.view(), {nullptr, count});
      }
    });
  }
}

TEST(ScoreRows, WritesNothingForNoRows) {
  const TestHead head(64, kv::Codec::kF16, 10);
  const std::vector<float> q(2 * 64, 1.0f);
  for (const Backend* backend : {&RefBackend(), &CpuBackend()}) {
    ForEachTarget([&] {
      float score = 99.0f;
      backend->score_rows({q.data(), 2}, head.view(), {nullptr, 0}, 1.0f, &score);
      EXPECT_EQ(score, 99.0f);
    });
  }
}

TEST(ScoreRows, MultipliesNumbersWorkedOutByHand) {
  TestHead head(2, kv::Codec::kF32, 3);
  const std::vector<float> zero(2, 0.0f);
  head.SetRow(0, std::vector<float>{1.0f, 2.0f}, zero);
  head.SetRow(1, std::vector<float>{-3.0f, 0.5f}, zero);
  head.SetRow(2, std::vector<float>{0.0f, 4.0f}, zero);
  const std::vector<float> q{1.0f, 10.0f, 2.0f, -1.0f};  // two heads
  const std::int32_t list[] = {0, 2};
  for (const Backend* backend : {&RefBackend(), &CpuBackend()}) {
    ForEachTarget([&] {
      EXPECT_EQ(Scores(*backend, {q.data(), 2}, head.view(), {nullptr, 3}, 0.5f),
                (std::vector<float>{10.5f, 1.0f, 20.0f, 0.0f, -3.25f, -2.0f}));
      EXPECT_EQ(Scores(*backend, {q.data(), 2}, head.view(), {list, 2}, 0.5f),
                (std::vector<float>{10.5f, 20.0f, 0.0f, -2.0f}));
    });
  }
}

TEST(ScoreRows, ScoresARowAlikeInAnyList) {
  Rng rng(3);
  const TestHead head = TestHead::Random(rng, 64, kv::Codec::kF16, 200);
  const auto q = test::NormalVector(rng, 4 * 64);
  const auto list = test::RandomSubset(rng, 200, 77);
  ForEachTarget([&] {
    const auto all = Scores(CpuBackend(), {q.data(), 4}, head.view(), {nullptr, 200});
    const auto some = Scores(CpuBackend(), {q.data(), 4}, head.view(), {list.data(), 77});
    for (std::size_t g = 0; g < 4; ++g) {
      for (std::size_t i = 0; i < list.size(); ++i) {
        EXPECT_EQ(some[g * 77 + i], all[g * 200 + static_cast<std::size_t>(list[i])]);
      }
    }
  });
}

}  // namespace
}  // namespace rkv::attention
