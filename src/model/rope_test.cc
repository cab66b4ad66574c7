#include "model/rope.h"

#include <ggml-cpu.h>
#include <ggml.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <numbers>

#include "base/rng.h"

namespace rkv::model {
namespace {

constexpr std::int32_t kHeads = 3;

struct RopeCase {
  const char* name;
  RopeParams params;
  std::int32_t head_dim;
  double tolerance = 1e-5;
};
std::ostream& operator<<(std::ostream& out, const RopeCase& c) { return out << c.name; }

RopeParams Params(RopeOrder order, std::int32_t dims, float base) {
  RopeParams params;
  params.order = order;
  params.dims = dims;
  params.freq_base = base;
  params.original_context = 4096;
  return params;
}

std::vector<RopeCase> Cases() {
  std::vector<RopeCase> cases;
  for (const RopeOrder order : {RopeOrder::kNorm, RopeOrder::kNeox}) {
    const bool norm = order == RopeOrder::kNorm;
    RopeParams p = Params(order, 64, 10000.0f);
    cases.push_back({norm ? "NormPlain" : "NeoxPlain", p, 64});
    cases.push_back({norm ? "NormBase1e6" : "NeoxBase1e6", Params(order, 128, 1e6f), 128});
    cases.push_back({norm ? "NormPartial" : "NeoxPartial", Params(order, 24, 10000.0f), 64});
    p.scaling = RopeScaling::kLinear;
    p.freq_scale = 0.25f;
    cases.push_back({norm ? "NormLinear" : "NeoxLinear", p, 64});
    p = Params(order, 64, 500000.0f);
    for (int i = 0; i < 32; ++i) {
      p.freq_factors.push_back(i < 16 ? 1.0f : 1.0f + 0.4375f * static_cast<float>(i - 15));
    }
    cases.push_back({norm ? "NormFactors" : "NeoxFactors", p, 64});
    p = Params(order, 64, 10000.0f);
    p.scaling = RopeScaling::kYarn;
    p.freq_scale = 1.0f / 16.0f;
    p.ext_factor = 1.0f;
    p.attn_factor = 1.0f / (1.0f + 0.1f * std::log(16.0f));
    cases.push_back({norm ? "NormYarn" : "NeoxYarn", p, 64});
    // Mixes angles of 1e5 radians, whose last f32 digit depends on how a compiler fuses the sum.
    p.ext_factor = 0.5f;
    p.attn_factor = 1.25f;
    p.beta_fast = 20.0f;
    p.beta_slow = 2.0f;
    cases.push_back({norm ? "NormHalfYarn" : "NeoxHalfYarn", p, 64, 5e-5});
  }
  return cases;
}

std::vector<float> Input(std::int32_t head_dim) {
  Rng rng(11);
  std::vector<float> x(static_cast<std::size_t>(kHeads * head_dim));
  for (float& value : x) {
    value = rng.Normal();
  }
  return x;
}

std::vector<float> Ours(const RopeCase& c, std::int32_t position) {
  const Rope rope(c.params);
  std::vector<float> angles(static_cast<std::size_t>(rope.dims()));
  rope.Angles(position, angles);
  std::vector<float> x = Input(c.head_dim);
  rope.Apply(angles, x.data(), kHeads, c.head_dim);
  return x;
}

// ggml_rope_ext on one token.
std::vector<float> Ggml(const RopeCase& c, std::int32_t position) {
  const RopeParams& p = c.params;
  const std::unique_ptr<ggml_context, decltype(&ggml_free)> context(
      ggml_init({.mem_size = std::size_t{1} << 22, .mem_buffer = nullptr, .no_alloc = false}),
      ggml_free);
  ggml_context* ctx = context.get();
  std::vector<float> x = Input(c.head_dim);
  ggml_tensor* in = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, c.head_dim, kHeads, 1);
  std::memcpy(in->data, x.data(), x.size() * sizeof(float));
  ggml_tensor* positions = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, 1);
  std::memcpy(positions->data, &position, sizeof position);
  ggml_tensor* factors = nullptr;
  if (!p.freq_factors.empty()) {
    factors = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, p.dims / 2);
    std::memcpy(factors->data, p.freq_factors.data(), p.freq_factors.size() * sizeof(float));
  }
  const int mode = p.order == RopeOrder::kNeox ? GGML_ROPE_TYPE_NEOX : 0;
  ggml_tensor* out =
      ggml_rope_ext(ctx, in, positions, factors, p.dims, mode, p.original_context, p.freq_base,
                    p.freq_scale, p.ext_factor, p.attn_factor, p.beta_fast, p.beta_slow);
  ggml_cgraph* graph = ggml_new_graph(ctx);
  ggml_build_forward_expand(graph, out);
  ggml_graph_compute_with_ctx(ctx, graph, 1);
  std::memcpy(x.data(), out->data, x.size() * sizeof(float));
  return x;
}

class RopeKinds : public ::testing::TestWithParam<RopeCase> {};

TEST_P(RopeKinds, EqualGgml) {
  for (const std::int32_t position : {0, 1, 100, 4095, 100000}) {
    const std::vector<float> ours = Ours(GetParam(), position);
    const std::vector<float> theirs = Ggml(GetParam(), position);
    for (std::size_t i = 0; i < ours.size(); ++i) {
      EXPECT_NEAR(ours[i], theirs[i], GetParam().tolerance)
          << "position " << position << ", number " << i;
    }
  }
}

TEST_P(RopeKinds, LeaveTheRestOfAHeadAlone) {
  const RopeCase& c = GetParam();
  const std::vector<float> in = Input(c.head_dim);
  const std::vector<float> out = Ours(c, 100);
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (static_cast<std::int32_t>(i) % c.head_dim >= c.params.dims) {
      EXPECT_EQ(out[i], in[i]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, RopeKinds, ::testing::ValuesIn(Cases()),
                         [](const auto& c) { return std::string(c.param.name); });

// The definition in f64, at positions where the f32 recurrence has not drifted.
TEST(Rope, FollowsTheFormula) {
  for (const RopeOrder order : {RopeOrder::kNorm, RopeOrder::kNeox}) {
    const RopeCase c{"", Params(order, 64, 10000.0f), 64};
    for (const std::int32_t position : {0, 1, 37, 500}) {
      const std::vector<float> in = Input(64);
      const std::vector<float> out = Ours(c, position);
      for (std::size_t pair = 0; pair < 32; ++pair) {
        const bool neox = order == RopeOrder::kNeox;
        const std::size_t a = neox ? pair : 2 * pair;
        const std::size_t b = neox ? pair + 32 : 2 * pair + 1;
        const double angle = position * std::pow(10000.0, -2.0 * static_cast<double>(pair) / 64.0);
        EXPECT_NEAR(out[a], in[a] * std::cos(angle) - in[b] * std::sin(angle), 1e-3);
        EXPECT_NEAR(out[b], in[a] * std::sin(angle) + in[b] * std::cos(angle), 1e-3);
      }
    }
  }
}

// YaRN in f64: high frequencies stay, low ones are divided by the factor, the magnitude is
// 1 + 0.1 ln(factor).
TEST(Rope, YarnStretchesOnlyLowFrequencies) {
  RopeParams p = Params(RopeOrder::kNorm, 64, 10000.0f);
  p.freq_scale = 0.25f;
  p.ext_factor = 1.0f;
  const Rope rope(p);
  std::vector<float> angles(64);
  rope.Angles(3, angles);
  const double magnitude = 1.0 + 0.1 * std::log(4.0);
  EXPECT_NEAR(angles[0], magnitude * std::cos(3.0), 1e-6);
  const double last = 3.0 * std::pow(10000.0, -62.0 / 64.0);
  EXPECT_NEAR(angles[63], magnitude * std::sin(last * 0.25), 1e-8);
  EXPECT_NEAR(angles[62], magnitude * std::cos(last * 0.25), 1e-6);
}

}  // namespace
}  // namespace rkv::model
