// LRQK. Policy specification 2.17.
#include "policy/lrqk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "policy/composed_state.h"
#include "support/selection.h"

namespace rkv::policy {
namespace {

using test::List;
using ::testing::HasSubstr;
using Matrix = std::vector<std::vector<float>>;

constexpr TurnShape kShape = {
    .prompt_tokens = 300, .max_new_tokens = 8, .head_dim = 16, .group = 2};

Matrix Normal(Rng& rng, std::int32_t rows, std::int32_t d) {
  Matrix out;
  for (std::int32_t i = 0; i < rows; ++i) {
    out.push_back(test::NormalVector(rng, static_cast<std::size_t>(d)));
    for (std::int32_t x = 0; x < d; ++x) {  // a spectrum that falls
      out.back()[static_cast<std::size_t>(x)] *= 4.0f / static_cast<float>(1 + x);
    }
  }
  return out;
}

Matrix Product(const Matrix& a, const Matrix& b) {
  Matrix out(a.size(), std::vector<float>(b[0].size(), 0.0f));
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t k = 0; k < b.size(); ++k) {
      for (std::size_t j = 0; j < b[0].size(); ++j) {
        out[i][j] += a[i][k] * b[k][j];
      }
    }
  }
  return out;
}

std::vector<double> GramOf(const Matrix& m) {
  const std::size_t d = m[0].size();
  std::vector<double> gram(d * d, 0.0);
  for (const auto& row : m) {
    for (std::size_t i = 0; i < d * d; ++i) {
      gram[i] += static_cast<double>(row[i / d]) * row[i % d];
    }
  }
  return gram;
}

// |Q K^T - (Q M_Q)(K M_K)^T| / |Q K^T|, Frobenius.
double Error(const Matrix& q, const Matrix& k, const QueryKeyFactors& factors) {
  const std::size_t d = q[0].size();
  const std::size_t rank = factors.query.size() / d;
  const auto project = [&](const Matrix& m, const std::vector<float>& by) {
    Matrix columns(d, std::vector<float>(rank));
    for (std::size_t i = 0; i < by.size(); ++i) {
      columns[i / rank][i % rank] = by[i];
    }
    return Product(m, columns);
  };
  const Matrix a = project(q, factors.query);
  const Matrix b = project(k, factors.key);
  double error = 0;
  double all = 0;
  for (std::size_t i = 0; i < q.size(); ++i) {
    for (std::size_t j = 0; j < k.size(); ++j) {
      const double exact = std::inner_product(q[i].begin(), q[i].end(), k[j].begin(), 0.0);
      const double near = std::inner_product(a[i].begin(), a[i].end(), b[j].begin(), 0.0);
      error += (exact - near) * (exact - near);
      all += exact * exact;
    }
  }
  return std::sqrt(error / all);
}

TEST(QueryKeyFactors, RecoverDataOfThatRank) {
  Rng rng(1);
  const Matrix q = Product(Normal(rng, 60, 5), Normal(rng, 5, 16));
  const Matrix k = Product(Normal(rng, 80, 5), Normal(rng, 5, 16));
  const auto query = GramOf(q);
  const auto key = GramOf(k);
  EXPECT_LT(Error(q, k, ClosedFactors({query, key, 16}, 5)), 1e-4);
  EXPECT_LT(Error(q, k, AlternatingFactors({query, key, 16}, 5, 2)), 1e-3);
}

TEST(QueryKeyFactors, TheClosedFormIsBestAndSweepsComeCloser) {
  Rng rng(2);
  for (const std::int32_t rank : {1, 2, 5, 12}) {
    const Matrix q = Normal(rng, 100, 16);
    const Matrix k = Normal(rng, 120, 16);
    const auto query = GramOf(q);
    const auto key = GramOf(k);
    const QueryKeyGrams grams = {query, key, 16};
    const double closed = Error(q, k, ClosedFactors(grams, rank));
    const double one = Error(q, k, AlternatingFactors(grams, rank, 1));
    const double eight = Error(q, k, AlternatingFactors(grams, rank, 8));
    EXPECT_GT(closed, 1e-3);
    EXPECT_LE(closed, eight * (1 + 1e-6));
    EXPECT_LE(eight, one * (1 + 1e-6));
    EXPECT_LT(eight, 1.6 * closed);
  }
}

TEST(QueryKeyFactors, AllNumbersAreExactAndNoDataIsNoTrouble) {
  Rng rng(3);
  const Matrix q = Normal(rng, 30, 16);
  const Matrix k = Normal(rng, 30, 16);
  const auto query = GramOf(q);
  const auto key = GramOf(k);
  EXPECT_LT(Error(q, k, ClosedFactors({query, key, 16}, 16)), 1e-4);
  EXPECT_LT(Error(q, k, AlternatingFactors({query, key, 16}, 16, 2)), 1e-2);
  const std::vector<double> none(256, 0.0);
  EXPECT_LT(Error(q, k, ClosedFactors({none, none, 16}, 16)), 1e-4);
}

const LrqkState& StateOf(test::PolicyLayer& layer) {
  return static_cast<const LrqkState&>(
      *static_cast<const ComposedState&>(*layer.state(0)).selector);
}

// The code of a slot as f32.
std::vector<float> Code(const kv::IndexView& codes, std::int32_t slot) {
  std::vector<float> out(static_cast<std::size_t>(codes.head_dim));
  for (std::int32_t x = 0; x < codes.head_dim; ++x) {
    kv::DecodeRow(codes.codec,
                  codes.Min(x) + static_cast<std::size_t>(slot) * kv::CodecBytes(codes.codec),
                  std::span(out).subspan(static_cast<std::size_t>(x), 1));
  }
  return out;
}

TEST(Lrqk, ReadsTheBestRowsByProjectionAndTheLastOnes) {
  for (const auto& [group, head_dim] : {std::pair(1, 64), {2, 128}, {3, 16}, {8, 80}}) {
    for (const char* solver : {"closed", "als"}) {
      TurnShape shape = kShape;
      shape.group = group;
      shape.head_dim = head_dim;
      test::PolicyLayer layer(std::string("lrqk:budget=80,topr=5,lite=7,bypass=1,solver=") + solver,
                              {.shape = shape});
      for (int turn = 0; turn < 2; ++turn) {
        layer.Prompt(300);
        layer.Step();
        const Rows read = layer.Step()[0];
        const std::int32_t slots = layer.slots(0).slots;
        std::vector<float> q(static_cast<std::size_t>(group * 5));
        StateOf(layer).Project({layer.query(0).data(), group}, layer.scale(), q);
        std::vector<double> u;
        for (std::size_t g = 0; g < static_cast<std::size_t>(group); ++g) {
          std::vector<double> z;
          for (std::int32_t slot = 0; slot < slots; ++slot) {
            const std::vector<float> code = Code(StateOf(layer).codes(), slot);
            z.push_back(std::inner_product(code.begin(), code.end(), q.data() + 5 * g, 0.0));
          }
          test::AddSoftmax(z, u);
        }
        std::fill(u.end() - 7, u.end(), 1e9);
        EXPECT_EQ(read.list, test::BestOf(u, 40)) << group << solver << turn;
      }
    }
  }
}

TEST(Lrqk, AllNumbersFindTheExactBest) {
  test::PolicyLayer layer("lrqk:budget=80,topr=16,lite=1,bypass=1", {.shape = kShape});
  layer.Prompt(300);
  std::int32_t same = 0;
  for (int i = 0; i < 5; ++i) {
    const List read = layer.Step()[0].list;
    std::vector<double> exact = test::ExactMass(layer, 0, 2);
    exact.back() = 9;
    List both;
    std::ranges::set_intersection(read, test::BestOf(exact, 40), std::back_inserter(both));
    same += static_cast<std::int32_t>(both.size());
  }
  EXPECT_GE(same, 199);  // but for ties within rounding
}

TEST(Lrqk, LaterPromptsAddTheirQueries) {
  test::PolicyLayer layer("lrqk:budget=80,topr=4,bypass=1", {.shape = kShape});
  layer.Prompt(300);
  const std::vector<float> first = Code(StateOf(layer).codes(), 10);
  layer.Step();
  layer.Prompt(2);  // two queries change little of what three hundred said
  const std::vector<float> second = Code(StateOf(layer).codes(), 10);
  EXPECT_NE(first, second);
  test::PolicyLayer alone("lrqk:budget=80,topr=4,bypass=1", {.shape = kShape, .seed = 9});
  alone.Prompt(2);
  EXPECT_TRUE(alone.Step()[0].all);  // too short to select
}

TEST(LrqkState, FollowsTheSlots) {  // U7
  kv::MemoryMeter meter;
  Rng rng(4);
  const test::TestHead rows = test::TestHead::Random(rng, 16, kv::Codec::kF16, 200);
  const auto view = [&](std::int32_t slots) {
    kv::HeadView head = rows.view();
    head.rows = slots;
    return kv::SlotView(head);
  };
  {
    LrqkState state({.turn = &kShape, .codec = kv::Codec::kF16, .meter = &meter}, 5, 0);
    ASSERT_TRUE(state.Build({.rows = view(100), .spare_rows = 3}).ok());
    EXPECT_EQ(meter.index_bytes() / 4096, LrqkState::Bytes(16, kv::Codec::kF16, 5, 103) / 4096);
    ASSERT_TRUE(state.Append(view(200)).ok());
    ASSERT_EQ(state.codes().rows, 200);
    const std::vector<float> at150 = Code(state.codes(), 150);
    state.Truncate(view(120));
    EXPECT_EQ(state.codes().rows, 120);
    ASSERT_TRUE(state.Append(view(200)).ok());
    EXPECT_EQ(Code(state.codes(), 150), at150);
    ASSERT_TRUE(state.Keep(view(3), List{1, 150, 199}).ok());
    EXPECT_EQ(state.codes().rows, 3);
    EXPECT_EQ(Code(state.codes(), 1), at150);
    LrqkState empty({.turn = &kShape, .codec = kv::Codec::kF16, .meter = &meter}, 5, 2);
    ASSERT_TRUE(empty.Append(view(1)).ok());  // of no prompt
    EXPECT_EQ(empty.codes().rows, 1);
  }
  EXPECT_EQ(meter.index_bytes(), 0u);
}

TEST(Lrqk, NumbersFollowFromTheBudget) {
  const TurnShape shape = {.prompt_tokens = 16256, .max_new_tokens = 128, .head_dim = 128};
  const auto explained = [&](std::string_view spec) {
    const auto policy = test::MakePolicy(spec);
    const auto pairs = policy->Explain(policy->Plan(shape));
    return std::map<std::string, double>(pairs.begin(), pairs.end());
  };
  auto at = explained("lrqk:budget=512");
  EXPECT_EQ(at["topr"], 4);
  EXPECT_EQ(at["lite"], 64);
  EXPECT_EQ(at["topk"], 192);
  EXPECT_NEAR(at["total_traffic"], 512, 1e-6);
  at = explained("lrqk:budget=100");
  EXPECT_EQ(at["topr"], 1);
  EXPECT_EQ(at["lite"], 25);
  EXPECT_EQ(at["topk"], 25);
}

TEST(Lrqk, PropertiesOfEverySelector) {
  test::ExpectPermutes("lrqk:topk=39,lite=1,topr=6,bypass=1");
  test::ExpectSelectorProperties("lrqk", 0.001);
  test::ExpectSelectorProperties("lrqk:solver=als,sweeps=1", 0.001);
}

TEST(Lrqk, WorksBehindAnEvictor) {
  test::PolicyLayer layer("evict=snapkv,select=lrqk,budget=40,prompt_budget=150,bypass=1",
                          {.shape = kShape});
  layer.Prompt(300);
  const Rows read = layer.Step()[0];
  test::ExpectValid(read, 1, 151);
  EXPECT_EQ(read.list.size(), 20u);
}

TEST(Lrqk, RefusesWhatDoesNotFit) {
  const auto message = [](std::string_view spec) {
    const auto policy = test::MakePolicy(spec);
    return policy->CheckShape(policy->Plan(kShape)).message();
  };
  EXPECT_THAT(message("lrqk:topr=17"), HasSubstr("option 'topr' is '17'"));
  EXPECT_THAT(message("lrqk:budget=80,lite=41"), HasSubstr("option 'lite' is '41'"));
  EXPECT_FALSE(MakePolicy("lrqk:solver=magic"));
  EXPECT_FALSE(MakePolicy("lrqk:sweeps=0"));
}

}  // namespace
}  // namespace rkv::policy
