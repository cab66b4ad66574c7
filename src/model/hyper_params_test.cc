#include "model/hyper_params.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "support/tiny_gguf.h"

namespace rkv::model {
namespace {

using rkv::testing::GgufBuilder;
using rkv::testing::TinyGguf;
using ::testing::HasSubstr;

Result<HyperParams> Read(const GgufBuilder& builder) {
  const std::vector<std::byte> bytes = builder.Build();
  const Result<GgufFile> file = ParseGguf(bytes);
  if (!file) {
    return file.error();
  }
  return ReadHyperParams(*file);
}

TEST(ReadHyperParams, ReadsAllNumbers) {
  GgufBuilder builder = TinyGguf();
  builder.F32("llama.rope.freq_base", 500000.0f).F32("llama.attention.scale", 0.125f);
  const Result<HyperParams> p = Read(builder);
  ASSERT_TRUE(p) << p.error().message();
  EXPECT_EQ(p->architecture, "llama");
  EXPECT_EQ(p->name, "tiny");
  EXPECT_EQ(p->layers, 2);
  EXPECT_EQ(p->embd, 16);
  EXPECT_EQ(p->heads, 4);
  EXPECT_EQ(p->kv_heads, 2);
  EXPECT_EQ(p->head_dim, 4);
  EXPECT_EQ(p->ff, 24);
  EXPECT_EQ(p->vocab, 14);
  EXPECT_EQ(p->context, 128);
  EXPECT_EQ(p->rms_eps, 1e-5f);
  EXPECT_EQ(p->attention_scale, 0.125f);
  EXPECT_EQ(p->rope.order, RopeOrder::kNorm);
  EXPECT_EQ(p->rope.scaling, RopeScaling::kNone);
  EXPECT_EQ(p->rope.dims, 4);
  EXPECT_EQ(p->rope.freq_base, 500000.0f);
  EXPECT_EQ(p->rope.freq_scale, 1.0f);
  EXPECT_EQ(p->rope.ext_factor, 0.0f);
  EXPECT_EQ(p->rope.attn_factor, 1.0f);
}

TEST(ReadHyperParams, HasDefaults) {
  GgufBuilder builder = TinyGguf({.kv_heads = 4});
  for (const char* key :
       {"general.name", "llama.attention.head_count_kv", "llama.attention.key_length",
        "llama.attention.value_length", "llama.rope.dimension_count"}) {
    builder.Remove(key);
  }
  const Result<HyperParams> p = Read(builder);
  ASSERT_TRUE(p) << p.error().message();
  EXPECT_EQ(p->name, "");
  EXPECT_EQ(p->kv_heads, 4);
  EXPECT_EQ(p->head_dim, 4);
  EXPECT_EQ(p->rope.dims, 4);
  EXPECT_EQ(p->rope.freq_base, 10000.0f);
  EXPECT_EQ(p->attention_scale, 0.5f);
}

TEST(ReadHyperParams, HeadsMayBeWiderThanTheHiddenState) {
  const Result<HyperParams> p = Read(TinyGguf({.embd = 10, .head_dim = 6}));
  ASSERT_TRUE(p) << p.error().message();
  EXPECT_EQ(p->head_dim, 6);
  EXPECT_EQ(p->q_width(), 24);
  EXPECT_EQ(p->kv_width(), 12);
  EXPECT_EQ(p->group(), 2);
}

TEST(ReadHyperParams, Qwen2RotatesHalves) {
  const Result<HyperParams> p = Read(TinyGguf({.architecture = "qwen2"}));
  ASSERT_TRUE(p) << p.error().message();
  EXPECT_EQ(p->rope.order, RopeOrder::kNeox);
}

TEST(ReadHyperParams, AcceptsArraysOfEqualNumbersAndUnknownKeys) {
  GgufBuilder builder = TinyGguf();
  builder.Numbers<std::uint32_t>("llama.attention.head_count", 4, {4, 4});
  builder.Numbers<std::int32_t>("llama.attention.head_count_kv", 5, {2, 2});
  builder.Numbers<std::int32_t>("llama.feed_forward_length", 5, {24, 24});
  builder.U32("llama.attention.sliding_window", 4096).String("llama.what", "ever");
  const Result<HyperParams> p = Read(builder);
  ASSERT_TRUE(p) << p.error().message();
  EXPECT_EQ(p->heads, 4);
  EXPECT_EQ(p->kv_heads, 2);
}

TEST(ReadHyperParams, LinearScaling) {
  for (const char* key : {"llama.rope.scaling.factor", "llama.rope.scale_linear"}) {
    GgufBuilder builder = TinyGguf();
    builder.F32(key, 4.0f);
    const Result<HyperParams> p = Read(builder);
    ASSERT_TRUE(p) << p.error().message();
    EXPECT_EQ(p->rope.scaling, RopeScaling::kLinear);
    EXPECT_EQ(p->rope.freq_scale, 0.25f);
    EXPECT_EQ(p->rope.ext_factor, 0.0f);
    EXPECT_EQ(p->rope.attn_factor, 1.0f);
    builder.String("llama.rope.scaling.type", "none");
    EXPECT_EQ(Read(builder)->rope.freq_scale, 1.0f);
  }
}

TEST(ReadHyperParams, YarnLeavesItsMagnitudeToTheRotation) {
  GgufBuilder builder = TinyGguf({.architecture = "qwen2"});
  builder.String("qwen2.rope.scaling.type", "yarn").F32("qwen2.rope.scaling.factor", 4.0f);
  builder.U32("qwen2.rope.scaling.original_context_length", 32);
  Result<HyperParams> p = Read(builder);
  ASSERT_TRUE(p) << p.error().message();
  EXPECT_EQ(p->rope.scaling, RopeScaling::kYarn);
  EXPECT_EQ(p->rope.freq_scale, 0.25f);
  EXPECT_EQ(p->rope.ext_factor, 1.0f);
  EXPECT_EQ(p->rope.original_context, 32);
  EXPECT_EQ(p->rope.beta_fast, 32.0f);
  EXPECT_EQ(p->rope.beta_slow, 1.0f);
  EXPECT_NEAR(p->rope.attn_factor, 1.0f, 1e-6);
  builder.F32("qwen2.rope.scaling.attn_factor", 1.5f);
  builder.F32("qwen2.rope.scaling.yarn_beta_fast", 16.0f);
  builder.F32("qwen2.rope.scaling.yarn_beta_slow", 2.0f);
  builder.F32("qwen2.rope.scaling.yarn_ext_factor", 0.5f);
  p = Read(builder);
  ASSERT_TRUE(p) << p.error().message();
  EXPECT_NEAR(p->rope.attn_factor, 1.5f, 1e-6);
  // As in libllama, which reads these for other architectures only.
  EXPECT_EQ(p->rope.beta_fast, 32.0f);
  EXPECT_EQ(p->rope.beta_slow, 1.0f);
  EXPECT_EQ(p->rope.ext_factor, 1.0f);
}

TEST(ReadHyperParams, YarnWithoutContextTakesTheTrainedOne) {
  GgufBuilder builder = TinyGguf();
  builder.String("llama.rope.scaling.type", "yarn").F32("llama.rope.scaling.factor", 0.5f);
  const Result<HyperParams> p = Read(builder);
  ASSERT_TRUE(p) << p.error().message();
  EXPECT_EQ(p->rope.original_context, 128);
  // A factor below 1 stretches nothing: only the rotation's own magnitude is undone.
  EXPECT_NEAR(p->rope.attn_factor, 1.0 / (1.0 + 0.1 * std::log(0.5)), 1e-6);
}

struct BadCase {
  const char* name;
  Code code;
  const char* message;
  std::function<void(GgufBuilder&)> break_it;
};
std::ostream& operator<<(std::ostream& out, const BadCase& bad) { return out << bad.name; }

BadCase BadU32(const char* name, const char* key, std::uint32_t value,
               Code code = Code::kDataLoss) {
  return {name, code, key, [key, value](GgufBuilder& b) { b.U32(key, value); }};
}

BadCase BadFloat(const char* name, const char* key, float value) {
  return {name, Code::kDataLoss, key, [key, value](GgufBuilder& b) { b.F32(key, value); }};
}

BadCase Missing(const char* name, const char* key) {
  return {name, Code::kDataLoss, key, [key](GgufBuilder& b) { b.Remove(key); }};
}

std::vector<BadCase> BadCases() {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  return {
      {"OtherArchitecture", Code::kUnsupported,
       "'mamba' is not supported, supported are llama, qwen2",
       [](GgufBuilder& b) { b.String("general.architecture", "mamba"); }},
      {"ArchitectureIsANumber", Code::kDataLoss, "general.architecture",
       [](GgufBuilder& b) { b.U32("general.architecture", 1); }},
      Missing("NoArchitecture", "general.architecture"),
      Missing("NoLayers", "llama.block_count"),
      Missing("NoWidth", "llama.embedding_length"),
      Missing("NoFeedForward", "llama.feed_forward_length"),
      Missing("NoContext", "llama.context_length"),
      Missing("NoHeads", "llama.attention.head_count"),
      Missing("NoEpsilon", "llama.attention.layer_norm_rms_epsilon"),
      Missing("NoTokens", "tokenizer.ggml.tokens"),
      BadU32("Layers0", "llama.block_count", 0),
      BadU32("Layers10001", "llama.block_count", 10001),
      BadU32("LayersMax", "llama.block_count", 0xffffffff),
      {"LayersNegative", Code::kDataLoss, "llama.block_count",
       [](GgufBuilder& b) { b.I32("llama.block_count", -1); }},
      {"LayersAreText", Code::kDataLoss, "llama.block_count",
       [](GgufBuilder& b) { b.String("llama.block_count", "2"); }},
      {"Layers2To63", Code::kDataLoss, "llama.block_count",
       [](GgufBuilder& b) {
         b.Key("llama.block_count", 10, rkv::testing::ByteWriter().U64(1ull << 63));
       }},
      BadU32("Width0", "llama.embedding_length", 0),
      BadU32("WidthMax", "llama.embedding_length", 0xffffffff),
      BadU32("FeedForward0", "llama.feed_forward_length", 0),
      BadU32("Context0", "llama.context_length", 0),
      BadU32("ContextMax", "llama.context_length", 0xffffffff),
      BadU32("Heads0", "llama.attention.head_count", 0),
      BadU32("HeadsMax", "llama.attention.head_count", 0xffffffff),
      BadU32("KvHeads0", "llama.attention.head_count_kv", 0),
      {"KvHeads3Of4", Code::kDataLoss, "multiple",
       [](GgufBuilder& b) { b.U32("llama.attention.head_count_kv", 3); }},
      BadU32("KeyLength0", "llama.attention.key_length", 0),
      BadU32("KeyLength1025", "llama.attention.key_length", 1025),
      {"KeyLengthOdd", Code::kDataLoss, "even",
       [](GgufBuilder& b) { b.U32("llama.attention.key_length", 5); }},
      {"WidthNotAMultipleOfHeads", Code::kDataLoss, "embedding_length",
       [](GgufBuilder& b) {
         b.Remove("llama.attention.key_length").U32("llama.embedding_length", 18);
       }},
      {"HeadsOfNothing", Code::kDataLoss, "embedding_length",
       [](GgufBuilder& b) {
         b.Remove("llama.attention.key_length").U32("llama.embedding_length", 2);
       }},
      BadU32("ValueLengthDiffers", "llama.attention.value_length", 8, Code::kUnsupported),
      BadU32("Experts", "llama.expert_count", 8, Code::kUnsupported),
      {"NotCausal", Code::kUnsupported, "llama.attention.causal",
       [](GgufBuilder& b) { b.Bool("llama.attention.causal", false); }},
      {"CausalIsANumber", Code::kDataLoss, "llama.attention.causal",
       [](GgufBuilder& b) { b.U32("llama.attention.causal", 1); }},
      BadU32("RopeDimensions0", "llama.rope.dimension_count", 0),
      {"RopeDimensionsOdd", Code::kDataLoss, "rope.dimension_count",
       [](GgufBuilder& b) { b.U32("llama.rope.dimension_count", 3); }},
      BadU32("RopeDimensionsAboveHead", "llama.rope.dimension_count", 6),
      BadFloat("RopeBase0", "llama.rope.freq_base", 0.0f),
      BadFloat("RopeBaseNegative", "llama.rope.freq_base", -1.0f),
      BadFloat("RopeBaseNan", "llama.rope.freq_base", nan),
      BadFloat("RopeBaseInfinite", "llama.rope.freq_base", inf),
      BadFloat("RopeFactorNegative", "llama.rope.scaling.factor", -2.0f),
      BadFloat("RopeFactorNan", "llama.rope.scaling.factor", nan),
      {"RopeTypeLongrope", Code::kUnsupported, "'longrope', supported are none, linear and yarn",
       [](GgufBuilder& b) { b.String("llama.rope.scaling.type", "longrope"); }},
      {"RopeTypeIsANumber", Code::kDataLoss, "llama.rope.scaling.type",
       [](GgufBuilder& b) { b.U32("llama.rope.scaling.type", 1); }},
      BadU32("OriginalContext0", "llama.rope.scaling.original_context_length", 0),
      BadFloat("Epsilon0", "llama.attention.layer_norm_rms_epsilon", 0.0f),
      BadFloat("EpsilonNegative", "llama.attention.layer_norm_rms_epsilon", -1e-5f),
      BadFloat("EpsilonNan", "llama.attention.layer_norm_rms_epsilon", nan),
      BadFloat("ScaleNegative", "llama.attention.scale", -1.0f),
      {"HeadsDifferBetweenLayers", Code::kUnsupported, "llama.attention.head_count",
       [](GgufBuilder& b) {
         b.Numbers<std::uint32_t>("llama.attention.head_count", 4, {4, 2});
       }},
      {"KvHeadsDifferBetweenLayers", Code::kUnsupported, "llama.attention.head_count_kv",
       [](GgufBuilder& b) {
         b.Numbers<std::uint32_t>("llama.attention.head_count_kv", 4, {2, 0});
       }},
      {"FeedForwardDiffersBetweenLayers", Code::kUnsupported, "llama.feed_forward_length",
       [](GgufBuilder& b) {
         b.Numbers<std::int32_t>("llama.feed_forward_length", 5, {24, 48});
       }},
      {"HeadsOfThreeLayers", Code::kDataLoss, "llama.attention.head_count",
       [](GgufBuilder& b) {
         b.Numbers<std::uint32_t>("llama.attention.head_count", 4, {4, 4, 4});
       }},
      {"HeadsOfNoLayer", Code::kDataLoss, "llama.attention.head_count",
       [](GgufBuilder& b) { b.Numbers<std::uint32_t>("llama.attention.head_count", 4, {}); }},
      {"HeadsAreFloats", Code::kDataLoss, "llama.attention.head_count",
       [](GgufBuilder& b) {
         b.Numbers<float>("llama.attention.head_count", 6, {4, 4});
       }},
      {"LayersAreAnArray", Code::kDataLoss, "llama.block_count",
       [](GgufBuilder& b) {
         b.Numbers<std::uint32_t>("llama.block_count", 4, {2, 2});
       }},
      {"TokensAreNumbers", Code::kDataLoss, "tokenizer.ggml.tokens",
       [](GgufBuilder& b) { b.U32("tokenizer.ggml.tokens", 14); }},
  };
}

class BadHyperParams : public ::testing::TestWithParam<BadCase> {};

TEST_P(BadHyperParams, AreRefused) {
  GgufBuilder builder = TinyGguf();
  GetParam().break_it(builder);
  const Result<HyperParams> p = Read(builder);
  ASSERT_FALSE(p);
  EXPECT_EQ(p.error().code(), GetParam().code) << p.error().message();
  EXPECT_THAT(p.error().message(), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(All, BadHyperParams, ::testing::ValuesIn(BadCases()),
                         [](const auto& c) { return std::string(c.param.name); });

}  // namespace
}  // namespace rkv::model
