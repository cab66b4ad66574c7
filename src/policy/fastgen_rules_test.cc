// FastGen's rules against their definition on whole attention matrices.
#include "policy/fastgen_rules.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "support/prompt_attention.h"
#include "support/test_head.h"

namespace rkv::policy {
namespace {

using test::Attention;
using test::ClassAt;
using test::Classes;
using List = std::vector<std::int32_t>;

// One head of such a prompt.
struct Profiled {
  Profiled(std::int32_t tokens, std::int32_t group, const FastGenCounts& counts, std::uint64_t seed)
      : attention(tokens, group, counts.local, seed), classes(Classes(tokens)) {
    const test::TestHead rows(2, kv::Codec::kF32, tokens);
    HeadPrefill head;
    head.view = rows.view();
    head.column_mass = attention.column;
    head.near_mass = attention.near;
    LayerPrefill layer;
    layer.shape.group = group;
    layer.turn_tokens = tokens;
    layer.heads = {&head, 1};
    layer.classes = classes;
    profile = ProfileHead(layer, head, counts);
  }
  Attention attention;
  std::vector<TokenClass> classes;
  FastGenProfile profile;
};

TEST(FastGenProfile, TheSpecificationsExample) {
  FastGenProfile head;
  head.recovery = {.70, .80, .96, .98, 1};
  EXPECT_EQ(head.First(.95), kFrequent);
  EXPECT_EQ(head.First(0), kSpecialRows);
  EXPECT_EQ(head.First(.7), kSpecialRows);
  EXPECT_EQ(head.First(.97), kLocal);
  EXPECT_EQ(head.First(1), kEverything);
  EXPECT_EQ(head.First(1.5), kEverything);
}

TEST(FastGenProfile, IsWhatTheDefinitionSays) {
  std::uint64_t seed = 0;
  for (const std::int32_t group : {1, 3, 8}) {
    for (const std::int32_t tokens : {1, 2, 9, 10, 11, 90}) {
      const FastGenCounts counts = {.sinks = 2, .local = 10, .frequent = 12};
      const Profiled head(tokens, group, counts, ++seed);
      const auto& [rows, recovery] = head.profile;
      for (std::size_t c = 0; c < kFastGenRules; ++c) {
        double sum = 0;
        for (std::int32_t i = 0; i < tokens; ++i) {
          for (std::int32_t j = 0; j <= i; ++j) {
            // C4's band moves with the query; its other rows are those of C3.
            const bool kept = c == kEverything ||
                              std::ranges::binary_search(rows[std::min<std::size_t>(c, 2)], j) ||
                              (c == kLocal && i - j < counts.local);
            sum += kept ? head.attention
                              .weights[static_cast<std::size_t>(i)][static_cast<std::size_t>(j)]
                        : 0;
          }
        }
        EXPECT_NEAR(recovery[c], sum / (tokens * group), 1e-5) << c;
        EXPECT_TRUE(c == 0 || recovery[c] >= recovery[c - 1]);
        EXPECT_TRUE(c == 0 || std::ranges::includes(rows[c], rows[c - 1]));
      }
      List order;  // words by attention
      for (std::int32_t p = 0; p < tokens; ++p) {
        const bool special = p < 2 || ClassAt(p) == TokenClass::kSpecial;
        EXPECT_EQ(std::ranges::binary_search(rows[0], p), special);
        EXPECT_EQ(std::ranges::binary_search(rows[1], p),
                  special || ClassAt(p) == TokenClass::kPunctuation);
        EXPECT_TRUE(p < tokens - 10 || std::ranges::binary_search(rows[3], p));
        if (!std::ranges::binary_search(rows[1], p)) {
          order.push_back(p);
        }
      }
      std::ranges::sort(order, [&](std::int32_t a, std::int32_t b) {
        return head.attention.column[static_cast<std::size_t>(a)] >
               head.attention.column[static_cast<std::size_t>(b)];
      });
      order.resize(std::min<std::size_t>(order.size(), 12));
      EXPECT_EQ(rows[2].size(), rows[1].size() + order.size());
      EXPECT_TRUE(std::ranges::all_of(
          order, [&](std::int32_t p) { return std::ranges::binary_search(rows[2], p); }));
    }
  }
}

TEST(FastGenCounts, FrequentRowsTakeWhatTheOthersLeave) {
  const FastGenCounts counts = {.sinks = 4, .local = 20, .frequent = 15, .room = 40};
  EXPECT_EQ(counts.FrequentRows(0), 15);
  EXPECT_EQ(counts.FrequentRows(5), 15);
  EXPECT_EQ(counts.FrequentRows(6), 14);
  EXPECT_EQ(counts.FrequentRows(20), 0);
  EXPECT_EQ(counts.FrequentRows(30), 0);
  EXPECT_EQ((FastGenCounts{.local = 20, .frequent = 15}.FrequentRows(100)), 15);
}

TEST(FastGenCounts, RowsAtTheEndOfAnAnswer) {
  const FastGenCounts counts = {.sinks = 4, .local = 20, .frequent = 15, .room = 40};
  EXPECT_EQ(counts.RowsAtEnd(kFrequent, 30, 50), 30);
  EXPECT_EQ(counts.RowsAtEnd(kLocal, 30, 50), 40);
  EXPECT_EQ(counts.RowsAtEnd(kLocal, 30, 5), 35);
  EXPECT_EQ(counts.RowsAtEnd(kLocal, 45, 50), 45);
  EXPECT_EQ(counts.RowsAtEnd(kEverything, 30, 50), 80);
}

TEST(FitRules, CheapRulesFirstThenEverythingForTheWorstHeads) {
  const FastGenCounts counts = {.sinks = 1, .local = 6, .frequent = 9};
  std::vector<FastGenProfile> heads;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    heads.push_back(Profiled(60, 1, counts, seed).profile);
  }
  const auto total = [&](const std::vector<FastGenRule>& rules) {
    std::int64_t sum = 0;
    for (std::size_t h = 0; h < rules.size(); ++h) {
      sum +=
          static_cast<std::int64_t>(heads[h].rows[rules[h]].size()) + (rules[h] >= kLocal ? 7 : 0);
    }
    return sum;
  };
  const std::vector<FastGenRule> none(5, kSpecialRows);
  for (const double threshold : {0.2, 0.5, 0.95}) {
    std::int64_t before = 0;
    for (std::int64_t rows = 0; rows <= 5 * 67 + 3; ++rows) {
      const std::vector<FastGenRule> rules = FitRules(heads, counts, threshold, rows, 7);
      EXPECT_TRUE(total(rules) <= rows || rules == none) << rows;
      EXPECT_GE(total(rules), before) << "more room is never used for less";
      before = rows < 5 * 67 ? total(rules) : 0;
      // A head that has everything without need is worse off without it than any that has not.
      for (std::size_t a = 0; a < 5 && rows < 5 * 67; ++a) {
        EXPECT_TRUE(rules[a] != kEverything || heads[a].recovery[kLocal] < threshold);
        for (std::size_t b = 0; b < 5; ++b) {
          EXPECT_TRUE(rules[a] != kEverything || rules[b] == kEverything ||
                      heads[a].recovery[kLocal] <= heads[b].recovery[kLocal]);
        }
      }
    }
  }
  EXPECT_EQ(FitRules(heads, counts, 0.95, 5 * 67, 7), std::vector<FastGenRule>(5, kEverything));
}

}  // namespace
}  // namespace rkv::policy
