#include <gtest/gtest.h>

#include <cmath>
#include <limits>
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

// Owns a PartialSoftmax, filled with numbers that a kernel must overwrite.
struct State {
  State(std::int32_t group, std::int32_t head_dim)
      : acc(static_cast<std::size_t>(group * head_dim), 7.0f),
        max(static_cast<std::size_t>(group), 7.0f),
        sum(static_cast<std::size_t>(group), 7.0f) {}
  PartialSoftmax view() { return {acc.data(), max.data(), sum.data()}; }

  std::vector<float> acc;
  std::vector<float> max;
  std::vector<float> sum;
};

struct Case {
  std::int32_t group;
  std::int32_t head_dim;
  std::int32_t rows;
  kv::Codec codec;
};

std::vector<float> Finish(State& state, const Case& c) {
  std::vector<float> out(state.acc.size());
  FinishPartial(state.view(), c.group, c.head_dim, out.data());
  return out;
}

// Random shapes: every group and width against a spread of row counts and codecs.
std::vector<Case> Cases() {
  const kv::Codec codecs[] = {kv::Codec::kF16, kv::Codec::kBf16, kv::Codec::kF32, kv::Codec::kQ8};
  const std::int32_t rows[] = {1, 3, 31, 32, 33, 63, 64, 65, 200, 401};
  std::vector<Case> cases;
  for (const std::int32_t head_dim : {64, 72, 80, 96, 128, 256, 2, 6}) {
    for (const std::int32_t group : {1, 2, 3, 4, 5, 7, 8}) {
      const std::size_t i = cases.size();
      cases.push_back({group, head_dim, rows[i % std::size(rows)], codecs[i % std::size(codecs)]});
    }
  }
  cases.push_back({64, 64, 70, kv::Codec::kF16});
  cases.push_back({3, 64, 1500, kv::Codec::kF16});
  return cases;
}

float Scale(std::int32_t head_dim) { return 1.0f / std::sqrt(static_cast<float>(head_dim)); }

void ExpectSameState(const Case& c, const GroupQuery& query, const kv::HeadView& head,
                     const RowList& rows) {
  State expected(c.group, c.head_dim);
  State actual(c.group, c.head_dim);
  RefBackend().decode_rows(query, head, rows, Scale(c.head_dim), expected.view());
  CpuBackend().decode_rows(query, head, rows, Scale(c.head_dim), actual.view());
  EXPECT_LE(Nmse(Finish(expected, c), Finish(actual, c)), 1e-11);
  EXPECT_LE(Nmse(expected.acc, actual.acc), 1e-11);
  EXPECT_LE(Nmse(expected.sum, actual.sum), 1e-11);
  EXPECT_LE(Nmse(expected.max, actual.max), 1e-11);
}

TEST(DecodeRows, EqualsThePlainKernelOnRangesAndLists) {
  Rng rng(1);
  for (const Case& c : Cases()) {
    const TestHead head = TestHead::Random(rng, c.head_dim, c.codec, c.rows);
    const auto q = test::NormalVector(rng, static_cast<std::size_t>(c.group * c.head_dim), 2.0f);
    const GroupQuery query{q.data(), c.group};
    const auto list = test::RandomSubset(rng, c.rows, (c.rows + 1) / 2);
    ForEachTarget([&] {
      SCOPED_TRACE(testing::Message() << c.group << " heads of " << c.head_dim << ", " << c.rows
                                      << " rows in " << kv::CodecName(c.codec));
      ExpectSameState(c, query, head.view(), {nullptr, c.rows});
      ExpectSameState(c, query, head.view(), {list.data(), static_cast<std::int32_t>(list.size())});
    });
  }
}

TEST(DecodeRows, GivesAnEmptyStateForNoRows) {
  const TestHead head(64, kv::Codec::kF16, 10);
  const std::vector<float> q(2 * 64, 1.0f);
  for (const Backend* backend : {&RefBackend(), &CpuBackend()}) {
    ForEachTarget([&] {
      State state(2, 64);
      backend->decode_rows({q.data(), 2}, head.view(), {nullptr, 0}, 1.0f, state.view());
      EXPECT_EQ(state.acc, std::vector<float>(128, 0.0f));
      EXPECT_EQ(state.sum, std::vector<float>(2, 0.0f));
      EXPECT_EQ(state.max, std::vector<float>(2, -std::numeric_limits<float>::infinity()));
      EXPECT_EQ(Finish(state, {2, 64, 0, kv::Codec::kF16}), std::vector<float>(128, 0.0f));
    });
  }
}

TEST(DecodeRows, MergedSplitsEqualTheWhole) {
  Rng rng(2);
  const Case c{3, 64, 700, kv::Codec::kF16};
  const TestHead head = TestHead::Random(rng, c.head_dim, c.codec, c.rows);
  const auto q = test::NormalVector(rng, 3 * 64, 3.0f);
  std::vector<std::int32_t> all(700);
  std::iota(all.begin(), all.end(), 0);
  for (const Backend* backend : {&RefBackend(), &CpuBackend()}) {
    State whole(c.group, c.head_dim);
    backend->decode_rows({q.data(), 3}, head.view(), {nullptr, 700}, 0.125f, whole.view());
    for (const std::vector<std::int32_t>& cuts :
         {std::vector<std::int32_t>{0, 0, 700}, {0, 1, 699, 700}, {0, 350, 350, 700, 700}}) {
      State merged(c.group, c.head_dim);
      backend->decode_rows({q.data(), 3}, head.view(), {nullptr, 0}, 0.125f, merged.view());
      for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
        State part(c.group, c.head_dim);
        backend->decode_rows({q.data(), 3}, head.view(),
                             {all.data() + cuts[i], cuts[i + 1] - cuts[i]}, 0.125f, part.view());
        MergePartial(part.view(), c.group, c.head_dim, merged.view());
      }
      EXPECT_LE(Nmse(Finish(whole, c), Finish(merged, c)), 1e-12);
      EXPECT_EQ(whole.max, merged.max);
    }
  }
}

TEST(DecodeRows, PicksTheGreatestOfHugeScores) {
  // Scores of +-1e4: all weight falls on one row and nothing overflows.
  const Case c{2, 64, 100, kv::Codec::kF32};
  TestHead head(c.head_dim, c.codec, c.rows);
  Rng rng(3);
  for (std::int32_t row = 0; row < c.rows; ++row) {
    std::vector<float> key(64, 0.0f);
    key[0] = row == 57 ? 1.0f : -1.0f;
    head.SetRow(row, key, test::NormalVector(rng, 64));
  }
  std::vector<float> q(2 * 64, 0.0f);
  q[0] = 1e4f;
  q[64] = -1e4f;  // the second head likes every row but that one, all the same
  State expected(c.group, c.head_dim);
  RefBackend().decode_rows({q.data(), 2}, head.view(), {nullptr, 100}, 1.0f, expected.view());
  ForEachTarget([&] {
    State state(c.group, c.head_dim);
    CpuBackend().decode_rows({q.data(), 2}, head.view(), {nullptr, 100}, 1.0f, state.view());
    EXPECT_FLOAT_EQ(state.max[0], 1e4f);
    EXPECT_FLOAT_EQ(state.sum[0], 1.0f);
    EXPECT_FLOAT_EQ(state.sum[1], 99.0f);
    EXPECT_LE(Nmse(Finish(expected, c), Finish(state, c)), 1e-12);
  });
}

TEST(MergePartial, LeavesTwoEmptyStatesEmpty) {
  const float infinity = std::numeric_limits<float>::infinity();
  State a(1, 2);
  a.acc = {0.0f, 0.0f};
  a.sum = {0.0f};
  a.max = {-infinity};
  State b = a;
  MergePartial(a.view(), 1, 2, b.view());
  EXPECT_EQ(b.acc, a.acc);
  EXPECT_EQ(b.sum, a.sum);
  EXPECT_EQ(b.max, a.max);
}

TEST(MergePartial, AddsStatesWorkedOutByHand) {
  State a(1, 2);  // one row, score ln 2, value (1, 0)
  a.acc = {1.0f, 0.0f};
  a.sum = {1.0f};
  a.max = {std::log(2.0f)};
  State b(1, 2);  // one row, score 0, value (0, 3)
  b.acc = {0.0f, 3.0f};
  b.sum = {1.0f};
  b.max = {0.0f};
  MergePartial(a.view(), 1, 2, b.view());
  std::vector<float> out(2);
  FinishPartial(b.view(), 1, 2, out.data());
  EXPECT_FLOAT_EQ(out[0], 2.0f / 3.0f);
  EXPECT_FLOAT_EQ(out[1], 1.0f);
}

}  // namespace
}  // namespace rkv::attention
