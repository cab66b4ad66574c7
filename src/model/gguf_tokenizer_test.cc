#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "model/gguf.h"
#include "support/tiny_gguf.h"

namespace rkv::model {
namespace {

using rkv::testing::GgufBuilder;
using rkv::testing::TinyGguf;
using ::testing::HasSubstr;

Status CheckKeys(const GgufBuilder& builder) {
  const std::vector<std::byte> bytes = builder.Build();
  const Result<GgufFile> file = ParseGguf(bytes);
  return file ? CheckTokenizerKeys(*file) : file.error();
}

std::vector<std::string> Tokens(std::size_t count) {
  std::vector<std::string> tokens;
  for (std::size_t i = 0; i < count; ++i) {
    tokens.push_back("t" + std::to_string(i));
  }
  return tokens;
}

TEST(CheckTokenizerKeys, AcceptsBothKindsOfVocabulary) {
  for (const bool bpe : {false, true}) {
    for (const bool byte_tokens : {false, true}) {
      const Status status = CheckKeys(TinyGguf({.byte_tokens = byte_tokens, .bpe = bpe}));
      EXPECT_TRUE(status.ok()) << status.message();
    }
  }
}

TEST(CheckTokenizerKeys, AcceptsAnEmptyTokenAndOptionalKeys) {
  GgufBuilder builder = TinyGguf();
  std::vector<std::string> tokens = Tokens(14);
  tokens[5] = "";
  builder.Strings("tokenizer.ggml.tokens", tokens);
  for (const char* key : {"tokenizer.ggml.token_type", "tokenizer.ggml.scores",
                          "tokenizer.ggml.bos_token_id", "tokenizer.ggml.add_eos_token"}) {
    builder.Remove(key);
  }
  builder.String("tokenizer.chat_template", "{{ messages }}");
  builder.Numbers<std::int32_t>("tokenizer.ggml.suppress_tokens", 5, {1, 2});
  const Status status = CheckKeys(builder);
  EXPECT_TRUE(status.ok()) << status.message();
}

struct BadCase {
  const char* name;
  const char* message;
  bool bpe;
  std::function<void(GgufBuilder&)> break_it;
  Code code = Code::kDataLoss;
};
std::ostream& operator<<(std::ostream& out, const BadCase& bad) { return out << bad.name; }

std::vector<BadCase> BadModels() {
  return {
      {"NoModel", "tokenizer.ggml.model", false,
       [](GgufBuilder& b) { b.Remove("tokenizer.ggml.model"); }},
      {"ModelIsANumber", "tokenizer.ggml.model", false,
       [](GgufBuilder& b) { b.U32("tokenizer.ggml.model", 1); }},
      {"ModelBert", "'bert'", false,
       [](GgufBuilder& b) { b.String("tokenizer.ggml.model", "bert"); }, Code::kUnsupported},
      {"ModelNone", "no vocabulary", false,
       [](GgufBuilder& b) { b.String("tokenizer.ggml.model", "none"); }, Code::kUnsupported},
      {"PreIsABool", "tokenizer.ggml.pre", true,
       [](GgufBuilder& b) { b.Bool("tokenizer.ggml.pre", true); }},
      {"TemplateIsAnArray", "tokenizer.chat_template", false,
       [](GgufBuilder& b) { b.Strings("tokenizer.chat_template", {"a"}); }},
      {"TemplateIsNotUtf8", "UTF-8", false,
       [](GgufBuilder& b) { b.String("tokenizer.chat_template", "a\xff"); }},
      {"NameIsANumber", "general.name", false, [](GgufBuilder& b) { b.F32("general.name", 1); }},
      {"FileTypeIsText", "general.file_type", false,
       [](GgufBuilder& b) { b.String("general.file_type", "q8"); }},
      {"SplitCountIsText", "split.count", false,
       [](GgufBuilder& b) { b.String("split.count", "1"); }},
      {"SplitOverTwoFiles", "several files", false, [](GgufBuilder& b) { b.U32("split.count", 2); },
       Code::kUnsupported},
  };
}

std::vector<BadCase> BadArrays() {
  return {
      {"NoTokens", "tokenizer.ggml.tokens", false,
       [](GgufBuilder& b) { b.Remove("tokenizer.ggml.tokens"); }},
      {"TokensAreNumbers", "tokenizer.ggml.tokens", false,
       [](GgufBuilder& b) { b.Numbers<std::int32_t>("tokenizer.ggml.tokens", 5, {1}); }},
      {"TokensAreAString", "tokenizer.ggml.tokens", false,
       [](GgufBuilder& b) { b.String("tokenizer.ggml.tokens", "a"); }},
      {"ZeroTokens", "tokenizer.ggml.tokens", false,
       [](GgufBuilder& b) { b.Strings("tokenizer.ggml.tokens", {}); }},
      {"TokenTwice", "twice", false,
       [](GgufBuilder& b) {
         std::vector<std::string> tokens = Tokens(14);
         tokens[13] = "t3";
         b.Strings("tokenizer.ggml.tokens", tokens);
       }},
      {"TokenTwiceUpToANul", "twice", false,
       [](GgufBuilder& b) {
         std::vector<std::string> tokens = Tokens(14);
         tokens[13] = std::string("t3\0x", 4);
         b.Strings("tokenizer.ggml.tokens", tokens);
       }},
      {"TokenIsTheNameOfAnEmptyOne", "twice", false,
       [](GgufBuilder& b) {
         std::vector<std::string> tokens = Tokens(14);
         tokens[5] = "";
         tokens[13] = "[EMPTY_5]";
         b.Strings("tokenizer.ggml.tokens", tokens);
       }},
      {"TokenIsNotUtf8", "index 4", false,
       [](GgufBuilder& b) {
         std::vector<std::string> tokens = Tokens(14);
         tokens[4] = "\xe2\x96";
         b.Strings("tokenizer.ggml.tokens", tokens);
       }},
      {"TokenOf70000Bytes", "index 4", false,
       [](GgufBuilder& b) {
         std::vector<std::string> tokens = Tokens(14);
         tokens[4] = std::string(70000, 'x');
         b.Strings("tokenizer.ggml.tokens", tokens);
       }},
      {"TokenThatSpellsOutToGigabytes", "oversized", true,
       [](GgufBuilder& b) {
         std::vector<std::string> tokens = Tokens(14);
         tokens[4] = std::string(60000, ' ');
         b.Strings("tokenizer.ggml.tokens", tokens);
       }},
      {"OneTypeTooFew", "13 elements for 14 tokens", false,
       [](GgufBuilder& b) {
         b.Numbers("tokenizer.ggml.token_type", 5, std::vector<std::int32_t>(13, 1));
       }},
      {"TypesAreBytes", "tokenizer.ggml.token_type", false,
       [](GgufBuilder& b) {
         b.Numbers("tokenizer.ggml.token_type", 0, std::vector<std::uint8_t>(14, 1));
       }},
      {"Type7", "holds 7", false,
       [](GgufBuilder& b) {
         b.Numbers("tokenizer.ggml.token_type", 5, std::vector<std::int32_t>(14, 7));
       }},
      {"TypeNegative", "holds -1", false,
       [](GgufBuilder& b) {
         b.Numbers("tokenizer.ggml.token_type", 5, std::vector<std::int32_t>(14, -1));
       }},
      {"OneScoreTooMany", "tokenizer.ggml.scores", false,
       [](GgufBuilder& b) { b.Numbers("tokenizer.ggml.scores", 6, std::vector<float>(15, 1.0f)); }},
      {"ScoresAreDoubles", "tokenizer.ggml.scores", false,
       [](GgufBuilder& b) {
         b.Numbers("tokenizer.ggml.scores", 12, std::vector<double>(14, 1.0));
       }},
      {"NoMerges", "tokenizer.ggml.merges", true,
       [](GgufBuilder& b) { b.Remove("tokenizer.ggml.merges"); }},
      {"MergesAreNumbers", "tokenizer.ggml.merges", true,
       [](GgufBuilder& b) { b.Numbers<std::int32_t>("tokenizer.ggml.merges", 5, {1}); }},
      {"MergeOfOnePart", "index 1", true,
       [](GgufBuilder& b) {
         b.Strings("tokenizer.ggml.merges", {"a b", "ab"});
       }},
      {"MergeWithAnEmptySecondPart", "index 0", true,
       [](GgufBuilder& b) { b.Strings("tokenizer.ggml.merges", {"a "}); }},
      {"MergeWithAnEmptyFirstPart", "index 0", true,
       [](GgufBuilder& b) { b.Strings("tokenizer.ggml.merges", {" b"}); }},
      {"EmptyMerge", "index 0", true,
       [](GgufBuilder& b) { b.Strings("tokenizer.ggml.merges", {""}); }},
      {"MergeIsNotUtf8", "index 0", true,
       [](GgufBuilder& b) { b.Strings("tokenizer.ggml.merges", {"a \xff"}); }},
      {"SuppressedTokensAreText", "tokenizer.ggml.suppress_tokens", false,
       [](GgufBuilder& b) { b.Strings("tokenizer.ggml.suppress_tokens", {"a"}); }},
  };
}

std::vector<BadCase> BadIds() {
  return {
      {"BosOutsideTheVocabulary", "bos_token_id' is 14", false,
       [](GgufBuilder& b) { b.U32("tokenizer.ggml.bos_token_id", 14); }},
      {"EosMax", "eos_token_id", false,
       [](GgufBuilder& b) { b.U32("tokenizer.ggml.eos_token_id", 0xffffffff); }},
      {"PaddingNegative", "padding_token_id", false,
       [](GgufBuilder& b) { b.I32("tokenizer.ggml.padding_token_id", -1); }},
      {"EotIsText", "eot_token_id", false,
       [](GgufBuilder& b) { b.String("tokenizer.ggml.eot_token_id", "</s>"); }},
      {"AddBosIsANumber", "add_bos_token", false,
       [](GgufBuilder& b) { b.U32("tokenizer.ggml.add_bos_token", 1); }},
      {"AddSepWithoutSep", "seperator_token_id", false,
       [](GgufBuilder& b) { b.Bool("tokenizer.ggml.add_sep_token", true); }},
      {"AddEosWithoutEos", "eos_token_id", true,
       [](GgufBuilder& b) {
         b.Bool("tokenizer.ggml.add_eos_token", true).Remove("tokenizer.ggml.eos_token_id");
       }},
      {"AddBosWithoutBos", "bos_token_id", true,
       [](GgufBuilder& b) { b.Remove("tokenizer.ggml.bos_token_id"); }},
      {"BosByDefaultOutsideASmallVocabulary", "bos_token_id", true,
       [](GgufBuilder& b) {
         b.Remove("tokenizer.ggml.bos_token_id").Remove("tokenizer.ggml.add_bos_token");
         b.Remove("tokenizer.ggml.token_type").Strings("tokenizer.ggml.tokens", Tokens(11));
       }},
  };
}

class BadVocabulary : public ::testing::TestWithParam<BadCase> {};

TEST_P(BadVocabulary, IsRefused) {
  GgufBuilder builder = TinyGguf({.bpe = GetParam().bpe});
  ASSERT_EQ(rkv::testing::TinyTokens({.bpe = GetParam().bpe}).size(), GetParam().bpe ? 15u : 14u);
  GetParam().break_it(builder);
  const Status status = CheckKeys(builder);
  EXPECT_EQ(status.code(), GetParam().code) << status.message();
  EXPECT_THAT(status.message(), HasSubstr(GetParam().message));
}

std::string CaseName(const ::testing::TestParamInfo<BadCase>& c) { return c.param.name; }
INSTANTIATE_TEST_SUITE_P(Model, BadVocabulary, ::testing::ValuesIn(BadModels()), CaseName);
INSTANTIATE_TEST_SUITE_P(Arrays, BadVocabulary, ::testing::ValuesIn(BadArrays()), CaseName);
INSTANTIATE_TEST_SUITE_P(Ids, BadVocabulary, ::testing::ValuesIn(BadIds()), CaseName);

}  // namespace
}  // namespace rkv::model
