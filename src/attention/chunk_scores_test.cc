#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
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
using test::TestIndex;
using testing::ElementsAre;
using testing::FloatNear;
using testing::Pointwise;

std::vector<float> Scores(const Backend& backend, const std::vector<float>& q, std::int32_t group,
                          const kv::IndexView& index, std::int32_t channels) {
  Scratch scratch;
  std::vector<float> u(static_cast<std::size_t>(index.chunks()), 99.0f);
  std::vector<float> heads(static_cast<std::size_t>(group) * u.size(), 99.0f);
  backend.chunk_scores({q.data(), group}, index, channels, u, heads.data(), scratch);
  for (std::size_t b = 0; b < u.size(); ++b) {  // u is the sum of the heads' own
    float sum = 0;
    for (std::size_t at = b; at < heads.size(); at += u.size()) {
      sum += heads[at];
    }
    EXPECT_NEAR(u[b], sum, 1e-5f * sum);
  }
  return u;
}

TEST(ChunkScores, EqualThePlainKernel) {
  Rng rng(1);
  const kv::Codec codecs[] = {kv::Codec::kF16, kv::Codec::kBf16, kv::Codec::kF32, kv::Codec::kQ8};
  int i = 0;
  for (const std::int32_t head_dim : {64, 72, 80, 96, 128, 256, 6}) {
    for (const std::int32_t group : {1, 2, 3, 4, 7, 8}) {
      const std::int32_t chunk_rows = 1 + i % 4;
      const std::int32_t rows = test::IntBetween(rng, 1, i % 3 == 0 ? 40 : 700);
      const TestHead head = TestHead::Random(rng, head_dim, codecs[i % std::size(codecs)], rows);
      const TestIndex index(head, chunk_rows);
      const auto q = test::NormalVector(rng, static_cast<std::size_t>(group * head_dim), 2.0f);
      const std::int32_t channels = test::IntBetween(rng, 1, head_dim);
      const auto expected = Scores(RefBackend(), q, group, index.view(), channels);
      ForEachTarget([&] {
        SCOPED_TRACE(testing::Message() << group << " heads of " << head_dim << ", " << rows
                                        << " rows in chunks of " << chunk_rows);
        EXPECT_LE(Nmse(expected, Scores(CpuBackend(), q, group, index.view(), channels)), 1e-11);
      });
      ++i;
    }
  }
}

// Policy specification, vector E1.
class ChunkScoresE1 : public testing::Test {
 protected:
  ChunkScoresE1() : head_(4, kv::Codec::kF16, 6) {
    const float keys[6][4] = {{2, 0, 1, 0},  {0, 1, 0, 2},  {1, -1, 0, 0},
                              {3, 1, -1, 1}, {-1, 2, 0, 1}, {0, 0, 2, -1}};
    for (std::int32_t row = 0; row < 6; ++row) {
      head_.SetRow(row, keys[row], keys[row]);
    }
  }

  TestHead head_;
  const std::vector<float> q_ = {2, -1, .5f, 1, 1, 1, .5f, -3};
};

TEST_F(ChunkScoresE1, WithTwoChannelsAndChunksOfTwo) {
  const TestIndex index(head_, 2);
  for (const Backend* backend : {&RefBackend(), &CpuBackend()}) {
    ForEachTarget([&] {
      EXPECT_THAT(Scores(*backend, q_, 2, index.view(), 2),
                  ElementsAre(FloatNear(.2212f, 1e-4f), FloatNear(.5780f, 1e-4f),
                              FloatNear(.2008f, 1e-4f)));
    });
  }
}

TEST_F(ChunkScoresE1, WithAllChannelsAndSingleRowsIsTheExactSoftmax) {
  const TestIndex index(head_, 1);
  for (const Backend* backend : {&RefBackend(), &CpuBackend()}) {
    ForEachTarget([&] {
      EXPECT_THAT(Scores(*backend, q_, 2, index.view(), 4),
                  Pointwise(FloatNear(1e-4f), {.5485f, .0568f, .2114f, .5759f, .0339f, .5736f}));
    });
  }
}

TEST_F(ChunkScoresE1, WithTwoChannelsAndSingleRowsIsSparQ) {
  const TestIndex index(head_, 1);
  for (const Backend* backend : {&RefBackend(), &CpuBackend()}) {
    ForEachTarget([&] {
      EXPECT_THAT(Scores(*backend, q_, 2, index.view(), 2),
                  Pointwise(FloatNear(1e-4f), {.3957f, .0394f, .1872f, .8724f, .0139f, .4914f}));
    });
  }
}

TEST(ChunkScores, AddUpToTheNumberOfHeads) {
  // Each head's softmax runs over rows: the last, partial chunk counts for its own rows only.
  Rng rng(2);
  const TestHead head = TestHead::Random(rng, 64, kv::Codec::kF16, 100);
  const TestIndex index(head, 3);
  const auto q = test::NormalVector(rng, 3 * 64);
  ForEachTarget([&] {
    const auto u = Scores(CpuBackend(), q, 3, index.view(), 40);
    double sum = 0.0;
    for (std::size_t b = 0; b < u.size(); ++b) {
      sum += u[b] * (b + 1 == u.size() ? 1.0 : 3.0);
    }
    EXPECT_NEAR(sum, 3.0, 1e-5);
  });
}

TEST(ChunkScores, TakeTheLowerChannelOnATie) {
  TestHead head(2, kv::Codec::kF32, 2);
  head.SetRow(0, std::vector<float>{1, 0}, std::vector<float>{0, 0});
  head.SetRow(1, std::vector<float>{0, 5}, std::vector<float>{0, 0});
  const TestIndex index(head, 1);
  for (const Backend* backend : {&RefBackend(), &CpuBackend()}) {
    const auto u = Scores(*backend, {1.0f, -1.0f}, 1, index.view(), 1);
    EXPECT_GT(u[0], u[1]);
  }
}

TEST(ChunkScores, AreEvenForASilentQuery) {
  Rng rng(3);
  const TestHead head = TestHead::Random(rng, 64, kv::Codec::kF16, 10);
  const TestIndex index(head, 1);
  for (const Backend* backend : {&RefBackend(), &CpuBackend()}) {
    EXPECT_THAT(Scores(*backend, std::vector<float>(64, 0.0f), 1, index.view(), 5),
                testing::Each(testing::FloatEq(0.1f)));
  }
}

TEST(ChunkScores, AreEvenForAHeadThatIsSilentInTheChosenChannels) {
  TestHead head(2, kv::Codec::kF32, 2);
  head.SetRow(0, std::vector<float>{1, 0}, std::vector<float>{0, 0});
  head.SetRow(1, std::vector<float>{0, 5}, std::vector<float>{0, 0});
  const TestIndex index(head, 1);
  for (const Backend* backend : {&RefBackend(), &CpuBackend()}) {
    const auto u = Scores(*backend, {9.0f, 0.0f, 0.0f, 1.0f}, 2, index.view(), 1);
    EXPECT_GT(u[0], u[1]);
    EXPECT_NEAR(u[0] + u[1], 2.0f, 1e-5f);
    EXPECT_GE(u[1], 0.5f);  // the silent head's even share
  }
}

TEST(ChunkScores, StayFiniteForHugeQueries) {
  Rng rng(4);
  const TestHead head = TestHead::Random(rng, 64, kv::Codec::kF16, 90, 100.0f);
  const TestIndex index(head, 2);
  const auto q = test::NormalVector(rng, 2 * 64, 1000.0f);
  const auto expected = Scores(RefBackend(), q, 2, index.view(), 30);
  ForEachTarget(
      [&] { EXPECT_LE(Nmse(expected, Scores(CpuBackend(), q, 2, index.view(), 30)), 1e-6); });
}

}  // namespace
}  // namespace rkv::attention
