// What tests of selectors share: a step over given keys, plain scores, and properties of every
// selector (policy specification 0.4).
#ifndef RKV_TESTS_SUPPORT_SELECTION_H_
#define RKV_TESTS_SUPPORT_SELECTION_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "support/policy_layer.h"
#include "support/test_head.h"

namespace rkv::test {

using List = std::vector<std::int32_t>;

// One KV head with the given keys (the last is the current token's) and queries [group][head_dim],
// and a state of `spec` over it.
class GivenStep {
 public:
  GivenStep(std::string_view spec, const std::vector<std::vector<float>>& keys,
            std::vector<float> queries, std::int32_t group,
            const attention::Backend& backend = attention::CpuBackend())
      : policy_(MakePolicy(spec)),
        head_(static_cast<std::int32_t>(keys[0].size()), kv::Codec::kF32,
              static_cast<std::int32_t>(keys.size())),
        queries_(std::move(queries)),
        backend_(backend) {
    for (std::size_t row = 0; row < keys.size(); ++row) {
      head_.SetRow(static_cast<std::int32_t>(row), keys[row],
                   std::vector<float>(keys[0].size(), static_cast<float>(row)));
    }
    shape_ = policy_->Plan({.prompt_tokens = static_cast<std::int32_t>(keys.size()),
                            .head_dim = static_cast<std::int32_t>(keys[0].size()),
                            .group = group});
    state_ = policy_->NewState({.turn = &shape_, .codec = kv::Codec::kF32, .meter = &meter_});
    if (state_ != nullptr) {
      EXPECT_TRUE(state_->Build({.rows = head_.view()}).ok());
    }
  }

  policy::Rows Select() {
    policy::HeadDecode in;
    in.shape = &shape_;
    in.rows = head_.view();
    in.position = in.rows.slots - 1;
    in.state = state_.get();
    in.query = {queries_.data(), shape_.group};
    in.scale = 1.0f / std::sqrt(static_cast<float>(shape_.head_dim));
    in.backend = &backend_;
    in.scratch = &scratch_;
    policy::Rows read;
    EXPECT_TRUE(policy_->Select(in, read).ok());
    return read;
  }

 private:
  std::unique_ptr<const policy::Policy> policy_;
  TestHead head_;
  std::vector<float> queries_;
  const attention::Backend& backend_;
  kv::MemoryMeter meter_;
  policy::TurnShape shape_;
  std::unique_ptr<policy::HeadState> state_;
  Scratch scratch_;
};

// Policy specification, vector E1: six keys of four numbers, two query heads.
inline GivenStep E1(std::string_view spec) {
  return GivenStep(
      spec,
      {{2, 0, 1, 0}, {0, 1, 0, 2}, {1, -1, 0, 0}, {3, 1, -1, 1}, {-1, 2, 0, 1}, {0, 0, 2, -1}},
      {2, -1, .5f, 1, 1, 1, .5f, -3}, 2);
}

// Keys of all slots in f32.
inline std::vector<std::vector<float>> KeysOf(const kv::SlotView& rows) {
  std::vector<std::vector<float>> keys(static_cast<std::size_t>(rows.slots));
  for (std::int32_t slot = 0; slot < rows.slots; ++slot) {
    keys[static_cast<std::size_t>(slot)].resize(static_cast<std::size_t>(rows.head.head_dim));
    kv::DecodeRow(rows.head.codec, rows.Key(slot), keys[static_cast<std::size_t>(slot)]);
  }
  return keys;
}

// Adds the softmax of z to sum.
inline void AddSoftmax(const std::vector<double>& z, std::vector<double>& sum) {
  const double top = *std::ranges::max_element(z);
  double norm = 0;
  for (const double v : z) {
    norm += std::exp(v - top);
  }
  sum.resize(z.size());
  for (std::size_t j = 0; j < z.size(); ++j) {
    sum[j] += std::exp(z[j] - top) / norm;
  }
}

// Exact attention of the current query, summed over the heads [first, first + count).
inline std::vector<double> ExactMass(const PolicyLayer& layer, std::int32_t first,
                                     std::int32_t count) {
  const std::vector<double> logits = layer.Logits(0);
  const std::size_t n = static_cast<std::size_t>(layer.slots(0).slots);
  std::vector<double> sum;
  for (std::size_t g = static_cast<std::size_t>(first); count > 0; ++g, --count) {
    const auto begin = logits.begin() + static_cast<std::ptrdiff_t>(g * n);
    AddSoftmax({begin, begin + static_cast<std::ptrdiff_t>(n)}, sum);
  }
  return sum;
}

// The k best of scores, higher first, then lower index; ascending.
inline List BestOf(const std::vector<double>& scores, std::int32_t k) {
  List order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](std::int32_t a, std::int32_t b) {
    return scores[static_cast<std::size_t>(a)] > scores[static_cast<std::size_t>(b)];
  });
  order.resize(std::min(order.size(), static_cast<std::size_t>(k)));
  std::ranges::sort(order);
  return order;
}

// U4: ascending, unique, live.
inline void ExpectValid(const policy::Rows& read, std::int32_t group, std::int32_t slots) {
  ASSERT_FALSE(read.all);
  for (std::int32_t g = 0; g < group; ++g) {
    const attention::RowList rows = read.Of(g, slots);
    ASSERT_GT(rows.count, 0);
    ASSERT_GE(rows.list[0], 0);
    ASSERT_LT(rows.list[rows.count - 1], slots);
    for (std::int32_t i = 1; i < rows.count; ++i) {
      ASSERT_LT(rows.list[i - 1], rows.list[i]);
    }
  }
}

// U5: rows in another order, but for the last one, are chosen alike.
inline void ExpectPermutes(std::string_view spec) {
  Rng rng(3);
  for (const std::int32_t group : {1, 3, 8}) {
    std::vector<std::vector<float>> keys;
    for (int row = 0; row < 200; ++row) {
      keys.push_back(NormalVector(rng, 32));
    }
    const auto queries = NormalVector(rng, 32 * static_cast<std::size_t>(group));
    List order(keys.size());
    std::iota(order.begin(), order.end(), 0);
    for (std::size_t i = order.size() - 2; i > 0; --i) {
      std::swap(order[i], order[rng.Below(i + 1)]);
    }
    std::vector<std::vector<float>> shuffled;
    for (const std::int32_t row : order) {
      shuffled.push_back(keys[static_cast<std::size_t>(row)]);
    }
    const policy::Rows plain = GivenStep(spec, keys, queries, group).Select();
    const policy::Rows mixed = GivenStep(spec, shuffled, queries, group).Select();
    ASSERT_FALSE(plain.all) << spec;
    List back;
    for (const std::int32_t slot : mixed.list) {
      back.push_back(order[static_cast<std::size_t>(slot)]);
    }
    std::ranges::sort(back);
    EXPECT_EQ(back, plain.list) << spec;
  }
}

// U1 and U4 around every boundary of a budget of 16 rows, U8 at the last step of an answer: the
// traffic of that step is what Explain says, within `rounding` rows' worth.
inline void ExpectSelectorProperties(const std::string& method, double rounding,
                                     bool counts_rows = true) {
  for (const std::int32_t group : {1, 2, 7, 8}) {
    for (const std::int32_t tokens : {1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 300}) {
      const policy::TurnShape shape = {
          .prompt_tokens = tokens, .max_new_tokens = 3, .head_dim = 64, .group = group};
      PolicyLayer layer(
          method + (method.find(":") == std::string::npos ? ":" : ",") + "bypass=1,budget=16",
          {.shape = shape});
      layer.Prompt(tokens);
      policy::Rows read;
      for (int i = 0; i < 3; ++i) {
        read = layer.Step()[0];
      }
      const auto pairs = layer.policy().Explain(layer.shape());
      const std::map<std::string, double> explained(pairs.begin(), pairs.end());
      const std::int32_t slots = tokens + 3;
      SCOPED_TRACE(testing::Message() << method << ", group " << group << ", slots " << slots);
      ASSERT_EQ(read.all, explained.at("reads_all") == 1.0);
      if (read.all) {
        continue;
      }
      ExpectValid(read, group, slots);
      const double row_bytes = 2.0 * 64 * sizeof(float);
      EXPECT_NEAR(read.estimate_bytes / row_bytes, explained.at("estimation_traffic"), rounding);
      double rows = 0;
      for (std::int32_t g = 0; g < (read.heads.empty() ? 1 : group); ++g) {
        rows += read.Of(g, slots).count;
      }
      if (counts_rows) {
        EXPECT_NEAR(explained.at("total_traffic") - explained.at("estimation_traffic"), rows, 1e-6);
      }
    }
  }
}

}  // namespace rkv::test

#endif  // RKV_TESTS_SUPPORT_SELECTION_H_
