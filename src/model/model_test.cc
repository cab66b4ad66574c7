#include "model/model.h"

#include <ggml.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>

#include "support/tiny_gguf.h"

namespace rkv::model {
namespace {

using rkv::testing::GgufBuilder;
using rkv::testing::TinyGguf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A file that lives as long as the test.
class TempFile {
 public:
  explicit TempFile(std::span<const std::byte> bytes)
      : path_(::testing::TempDir() + "rkv_model_test." + std::to_string(getpid()) + ".gguf") {
    GgufBuilder::WriteBytes(path_, bytes);
  }
  ~TempFile() { std::remove(path_.c_str()); }
  TempFile(const TempFile&) = delete;
  TempFile& operator=(const TempFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

Result<std::unique_ptr<Model>> Load(const GgufBuilder& builder) {
  const TempFile file(builder.Build());
  return Model::Load(file.path());
}

std::vector<float> RowOf(const Linear& linear, std::int32_t row) {
  std::vector<float> out(static_cast<std::size_t>(linear.in));
  ExpandRow(linear, row, out);
  return out;
}

TEST(ModelLoad, ReadsEveryPart) {
  const GgufBuilder builder = TinyGguf({.byte_tokens = true});
  const Result<std::unique_ptr<Model>> loaded = Load(builder);
  ASSERT_TRUE(loaded) << loaded.error().message();
  const Model& model = **loaded;
  EXPECT_EQ(model.params().layers, 2);
  EXPECT_EQ(model.params().vocab, 270);
  EXPECT_EQ(model.tokenizer().vocab_size(), 270);
  EXPECT_EQ(model.file_bytes(), builder.Build().size());
  EXPECT_EQ(model.weight_types(), "F32");
  EXPECT_EQ(model.output_norm().size(), 16u);
  EXPECT_EQ(model.embedding().out, 270);
  EXPECT_EQ(model.rope().dims(), 4);
  const LayerWeights& layer = model.layer(1);
  EXPECT_THAT((std::vector<std::int32_t>{layer.q.out, layer.k.out, layer.v.out, layer.o.out,
                                         layer.gate.out, layer.up.out, layer.down.out}),
              ElementsAre(16, 8, 8, 16, 24, 24, 16));
  EXPECT_EQ(layer.down.in, 24);
  EXPECT_TRUE(layer.q.bias.empty());
  std::uint64_t numbers = 0;
  for (const auto& tensor : builder.tensors) {
    numbers += tensor.data.size() / sizeof(float);
  }
  EXPECT_EQ(model.parameter_count(), numbers);
  std::vector<float> row(16);
  std::memcpy(row.data(),
              TinyGguf({.byte_tokens = true}).Find("output.weight").data.data() + 3 * 64, 64);
  EXPECT_EQ(RowOf(model.output(), 3), row);
}

TEST(ModelLoad, TiedOutputIsTheEmbedding) {
  const Result<std::unique_ptr<Model>> loaded = Load(TinyGguf({.tied = true}));
  ASSERT_TRUE(loaded) << loaded.error().message();
  EXPECT_EQ((*loaded)->output().data, (*loaded)->embedding().data);
}

TEST(ModelLoad, BiasesAreOptionalInEveryArchitecture) {
  GgufBuilder builder = TinyGguf();
  const std::vector<float> bias = {1, 2, 3, 4, 5, 6, 7, 8};
  builder.FloatTensor("blk.1.attn_k.bias", {8}, bias);
  const Result<std::unique_ptr<Model>> loaded = Load(builder);
  ASSERT_TRUE(loaded) << loaded.error().message();
  EXPECT_EQ((*loaded)->layer(1).k.bias, bias);
  EXPECT_TRUE((*loaded)->layer(0).k.bias.empty());

  const Result<std::unique_ptr<Model>> qwen = Load(TinyGguf({.architecture = "qwen2"}));
  ASSERT_TRUE(qwen) << qwen.error().message();
  EXPECT_EQ((*qwen)->layer(0).q.bias.size(), 16u);
}

TEST(ModelLoad, RopeFactorsReachTheRotation) {
  GgufBuilder builder = TinyGguf();
  builder.FloatTensor("rope_freqs.weight", {2}, std::vector<float>{1.0f, 8.0f});
  const Result<std::unique_ptr<Model>> loaded = Load(builder);
  ASSERT_TRUE(loaded) << loaded.error().message();
  EXPECT_THAT((*loaded)->params().rope.freq_factors, ElementsAre(1.0f, 8.0f));
  std::vector<float> angles(4);
  (*loaded)->rope().Angles(8, angles);
  EXPECT_NEAR(angles[3], 0.01, 1e-4);  // sin(8 * 10000^(-1/2) / 8)
}

TEST(ModelLoad, HeadsMayBeWiderThanTheHiddenState) {
  const Result<std::unique_ptr<Model>> loaded = Load(TinyGguf({.embd = 10, .head_dim = 6}));
  ASSERT_TRUE(loaded) << loaded.error().message();
  EXPECT_EQ((*loaded)->layer(0).q.out, 24);
  EXPECT_EQ((*loaded)->layer(0).o.in, 24);
}

TEST(ModelLoad, ReadsHalfPrecisionNormsAndMixedTypes) {
  GgufBuilder builder = TinyGguf();
  std::vector<std::byte> halves(32);
  for (std::size_t i = 0; i < 16; ++i) {
    halves[2 * i + 1] = std::byte{0x3c};  // 1.0
  }
  builder.Tensor("output_norm.weight", {16}, GGML_TYPE_F16, halves);
  builder.Tensor("blk.0.attn_k.weight", {16, 8}, GGML_TYPE_F16, std::vector<std::byte>(256));
  const Result<std::unique_ptr<Model>> loaded = Load(builder);
  ASSERT_TRUE(loaded) << loaded.error().message();
  EXPECT_EQ((*loaded)->output_norm(), std::vector<float>(16, 1.0f));
  EXPECT_EQ((*loaded)->weight_types(), "F32, F16");
}

TEST(ModelLoad, MissingFileAndFolder) {
  EXPECT_EQ(Model::Load("/nonexistent/x.gguf").error().code(), Code::kNotFound);
  EXPECT_EQ(Model::Load(::testing::TempDir()).error().code(), Code::kInvalidArgument);
}

struct BadCase {
  const char* name;
  Code code;
  std::vector<const char*> messages;
  std::function<void(GgufBuilder&)> break_it;
};
std::ostream& operator<<(std::ostream& out, const BadCase& bad) { return out << bad.name; }

void Resize(GgufBuilder& builder, const char* name, std::vector<std::uint64_t> dims) {
  std::size_t count = 1;
  for (const std::uint64_t dim : dims) {
    count *= dim;
  }
  builder.FloatTensor(name, std::move(dims), std::vector<float>(count, 0.5f));
}

std::vector<BadCase> BadCases() {
  return {
      {"NoEmbedding",
       Code::kDataLoss,
       {"'token_embd.weight' is missing"},
       [](GgufBuilder& b) { b.RemoveTensor("token_embd.weight"); }},
      {"NoLayer1Down",
       Code::kDataLoss,
       {"'blk.1.ffn_down.weight' is missing"},
       [](GgufBuilder& b) { b.RemoveTensor("blk.1.ffn_down.weight"); }},
      {"NoNorm",
       Code::kDataLoss,
       {"'blk.0.ffn_norm.weight' is missing"},
       [](GgufBuilder& b) { b.RemoveTensor("blk.0.ffn_norm.weight"); }},
      {"EmbeddingOfOtherVocabulary",
       Code::kDataLoss,
       {"'token_embd.weight'", "[16, 13]", "[16, 14]"},
       [](GgufBuilder& b) {
         Resize(b, "token_embd.weight", {16, 13});
       }},
      {"QueryTransposed",
       Code::kDataLoss,
       {"'blk.0.attn_k.weight'", "[8, 16]", "[16, 8]"},
       [](GgufBuilder& b) {
         Resize(b, "blk.0.attn_k.weight", {8, 16});
       }},
      {"MatrixOfThreeDimensions",
       Code::kDataLoss,
       {"'blk.0.attn_k.weight'", "[16, 8, 2]"},
       [](GgufBuilder& b) {
         Resize(b, "blk.0.attn_k.weight", {16, 8, 2});
       }},
      {"NormTooShort",
       Code::kDataLoss,
       {"'output_norm.weight'", "[15]", "[16]"},
       [](GgufBuilder& b) { Resize(b, "output_norm.weight", {15}); }},
      {"BiasTooLong",
       Code::kDataLoss,
       {"'blk.0.attn_q.bias'", "[17]", "[16]"},
       [](GgufBuilder& b) { Resize(b, "blk.0.attn_q.bias", {17}); }},
      {"WeightsAreIntegers",
       Code::kUnsupported,
       {"'blk.0.attn_q.weight'", "i32"},
       [](GgufBuilder& b) { b.Find("blk.0.attn_q.weight").type = GGML_TYPE_I32; }},
      {"NormIsIntegers",
       Code::kUnsupported,
       {"'output_norm.weight'", "i32"},
       [](GgufBuilder& b) { b.Find("output_norm.weight").type = GGML_TYPE_I32; }},
      {"UnknownTensor",
       Code::kUnsupported,
       {"'blk.0.attn_q_norm.weight'"},
       [](GgufBuilder& b) { Resize(b, "blk.0.attn_q_norm.weight", {4}); }},
      {"WeightScale",
       Code::kUnsupported,
       {"'blk.0.attn_q.scale'"},
       [](GgufBuilder& b) { Resize(b, "blk.0.attn_q.scale", {1}); }},
      {"MoreLayersThanAnnounced",
       Code::kUnsupported,
       {"'blk.1.attn_norm.weight'"},
       [](GgufBuilder& b) { b.U32("llama.block_count", 1); }},
      {"FewerLayersThanAnnounced",
       Code::kDataLoss,
       {"'blk.2.attn_norm.weight' is missing"},
       [](GgufBuilder& b) { b.U32("llama.block_count", 3); }},
      {"RopeFactorsTooMany",
       Code::kDataLoss,
       {"'rope_freqs.weight'", "[4]", "[2]"},
       [](GgufBuilder& b) { Resize(b, "rope_freqs.weight", {4}); }},
      {"RopeFactor0",
       Code::kDataLoss,
       {"'rope_freqs.weight' holds 0"},
       [](GgufBuilder& b) {
         b.FloatTensor("rope_freqs.weight", {2}, std::vector<float>{1.0f, 0.0f});
       }},
      {"RopeFactorNan",
       Code::kDataLoss,
       {"'rope_freqs.weight' holds nan"},
       [](GgufBuilder& b) {
         b.FloatTensor("rope_freqs.weight", {2},
                       std::vector<float>{1.0f, std::numeric_limits<float>::quiet_NaN()});
       }},
      {"UnknownPreTokenizer",
       Code::kDataLoss,
       {""},
       [](GgufBuilder& b) {
         b.String("tokenizer.ggml.model", "gpt2").Strings("tokenizer.ggml.merges", {"a b"});
         b.String("tokenizer.ggml.pre", "no such thing");
       }},
      {"BadVocabulary",
       Code::kDataLoss,
       {"tokenizer.ggml.scores"},
       [](GgufBuilder& b) { b.U32("tokenizer.ggml.scores", 1); }},
      {"BadHyperParams",
       Code::kDataLoss,
       {"llama.block_count"},
       [](GgufBuilder& b) { b.U32("llama.block_count", 0); }},
  };
}

class BadModel : public ::testing::TestWithParam<BadCase> {};

TEST_P(BadModel, IsRefused) {
  GgufBuilder builder = TinyGguf();
  GetParam().break_it(builder);
  const Result<std::unique_ptr<Model>> loaded = Load(builder);
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code(), GetParam().code) << loaded.error().message();
  for (const char* message : GetParam().messages) {
    EXPECT_THAT(loaded.error().message(), HasSubstr(message));
  }
}

INSTANTIATE_TEST_SUITE_P(All, BadModel, ::testing::ValuesIn(BadCases()),
                         [](const auto& c) { return std::string(c.param.name); });

TEST(ModelLoad, RefusesAFileThatWasCut) {
  std::vector<std::byte> bytes = TinyGguf().Build();
  bytes.resize(bytes.size() - 1024);
  const TempFile file(bytes);
  const Result<std::unique_ptr<Model>> loaded = Model::Load(file.path());
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code(), Code::kDataLoss);
  EXPECT_THAT(loaded.error().message(), HasSubstr("bytes of data"));
}

}  // namespace
}  // namespace rkv::model
