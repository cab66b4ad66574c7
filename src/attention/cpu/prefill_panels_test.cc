#include "attention/cpu/prefill_panels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "attention/backend.h"
#include "attention/cpu/targets.h"
#include "support/hwy_targets.h"
#include "support/random.h"
#include "support/test_head.h"

namespace rkv::attention::cpu {
namespace {

using test::ForEachTarget;
using test::Nmse;
using test::TestHead;

struct Case {
  std::int32_t group;
  std::int32_t head_dim;
  std::int32_t first_row;
  std::int32_t tokens;
  kv::Codec codec;
};

using Kernel = void (*)(const PrefillTile&, const kv::HeadView&, Scratch&);

// Queries and outputs of a run of tokens, with room between tokens that must stay untouched.
struct Prompt {
  Prompt(Rng& rng, const Case& c, float scale)
      : group(c.group),
        stride(static_cast<std::size_t>(c.group * c.head_dim) + 5),
        q(test::NormalVector(rng, static_cast<std::size_t>(c.tokens) * stride, scale)),
        head_dim(c.head_dim) {}

  // Attention of tokens [first, first + tokens) of the run, whose token 0 is stored at `row`.
  std::vector<float> Attend(Kernel kernel, const kv::HeadView& head, std::int32_t row,
                            std::int32_t first, std::int32_t tokens) const {
    std::vector<float> out(static_cast<std::size_t>(tokens) * stride, 99.0f);
    Scratch scratch;
    const PrefillTile tile{
        q.data() + static_cast<std::size_t>(first) * stride, stride,     tokens, group, row + first,
        1.0f / std::sqrt(static_cast<float>(head_dim)),      out.data(), stride};
    kernel(tile, head, scratch);
    return out;
  }

  std::int32_t group;
  std::size_t stride;
  std::vector<float> q;
  std::int32_t head_dim;
};

std::vector<Case> Cases() {
  const kv::Codec codecs[] = {kv::Codec::kF16, kv::Codec::kBf16, kv::Codec::kF32, kv::Codec::kQ8};
  const std::int32_t firsts[] = {0, 1, 63, 250, 255, 256, 257, 511, 530};
  const std::int32_t tokens[] = {1, 2, 5, 17, 31, 8, 3};
  std::vector<Case> cases;
  for (const std::int32_t head_dim : {64, 72, 80, 96, 128, 256, 6}) {
    for (const std::int32_t group : {1, 2, 3, 4, 7, 8}) {
      const std::size_t i = cases.size();
      cases.push_back({group, head_dim, firsts[i % std::size(firsts)],
                       tokens[i % std::size(tokens)], codecs[i % std::size(codecs)]});
    }
  }
  cases.push_back({3, 64, 0, 300, kv::Codec::kF16});
  return cases;
}

TEST(PrefillByPanels, EqualsThePlainKernel) {
  Rng rng(1);
  for (const Case& c : Cases()) {
    const TestHead head = TestHead::Random(rng, c.head_dim, c.codec, c.first_row + c.tokens);
    const Prompt prompt(rng, c, 2.0f);
    const auto expected =
        prompt.Attend(RefBackend().prefill_tile, head.view(), c.first_row, 0, c.tokens);
    ForEachTarget([&] {
      SCOPED_TRACE(testing::Message() << c.group << " heads of " << c.head_dim << ", " << c.tokens
                                      << " tokens from row " << c.first_row);
      const auto actual = prompt.Attend(PrefillByPanels, head.view(), c.first_row, 0, c.tokens);
      EXPECT_LE(Nmse(expected, actual), 1e-12);
      for (std::size_t i = prompt.stride - 5; i < actual.size(); ++i) {
        if (i % prompt.stride >= prompt.stride - 5) {
          ASSERT_EQ(actual[i], 99.0f) << "wrote between two tokens";
        }
      }
    });
  }
}

TEST(PrefillByPanels, DoesNotDependOnHowThePromptIsCut) {
  Rng rng(2);
  const Case c{3, 64, 200, 101, kv::Codec::kF16};
  const TestHead head = TestHead::Random(rng, c.head_dim, c.codec, c.first_row + c.tokens);
  const Prompt prompt(rng, c, 2.0f);
  ForEachTarget([&] {
    const auto whole = prompt.Attend(PrefillByPanels, head.view(), c.first_row, 0, c.tokens);
    for (const std::int32_t size : {1, 7, 32, 100}) {
      for (std::int32_t first = 0; first < c.tokens; first += size) {
        const std::int32_t tokens = std::min(size, c.tokens - first);
        const auto part = prompt.Attend(PrefillByPanels, head.view(), c.first_row, first, tokens);
        const auto begin = whole.begin() + first * static_cast<std::ptrdiff_t>(prompt.stride);
        // Every token runs through the same key tiles in the same order: equal bit for bit.
        ASSERT_TRUE(std::equal(part.begin(), part.end(), begin))
            << size << " tokens from " << first;
      }
    }
  });
}

TEST(PrefillByPanels, EarlierTokensDoNotSeeLaterRows) {
  Rng rng(3);
  const Case c{2, 64, 240, 40, kv::Codec::kF16};
  TestHead head = TestHead::Random(rng, c.head_dim, c.codec, c.first_row + c.tokens);
  const Prompt prompt(rng, c, 1.0f);
  std::vector<std::vector<float>> before;
  ForEachTarget([&] {
    before.push_back(prompt.Attend(PrefillByPanels, head.view(), c.first_row, 0, c.tokens));
  });
  const std::int32_t changed = 23;
  head.SetRow(c.first_row + changed, test::NormalVector(rng, 64, 100.0f),
              test::NormalVector(rng, 64, 100.0f));
  std::size_t target = 0;
  ForEachTarget([&] {
    const auto after = prompt.Attend(PrefillByPanels, head.view(), c.first_row, 0, c.tokens);
    const auto& old = before[target++];
    const auto cut = static_cast<std::ptrdiff_t>(changed * prompt.stride);
    EXPECT_TRUE(std::equal(old.begin(), old.begin() + cut, after.begin()));
    EXPECT_FALSE(std::equal(old.begin() + cut, old.end(), after.begin() + cut));
  });
}

TEST(PrefillByPanels, SurvivesHugeAndEqualScores) {
  Rng rng(4);
  const Case c{1, 64, 300, 20, kv::Codec::kF32};
  for (const float key_scale : {0.0f, 300.0f}) {  // all scores 0; scores around +-1e4
    const TestHead head = TestHead::Random(rng, 64, c.codec, c.first_row + c.tokens, key_scale);
    const Prompt prompt(rng, c, 40.0f);
    const auto expected =
        prompt.Attend(RefBackend().prefill_tile, head.view(), c.first_row, 0, c.tokens);
    ForEachTarget([&] {
      const auto actual = prompt.Attend(PrefillByPanels, head.view(), c.first_row, 0, c.tokens);
      // Scores of 1e4 carry an f32 rounding error of 1e-3, which enters near-ties as it is.
      EXPECT_LE(Nmse(expected, actual), key_scale == 0.0f ? 1e-12 : 1e-6);
    });
  }
}

}  // namespace
}  // namespace rkv::attention::cpu
