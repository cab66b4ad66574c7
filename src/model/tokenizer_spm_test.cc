// The tokenizer on a tiny SentencePiece-style vocabulary that the test writes itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "model/chat_template.h"
#include "model/tokenizer.h"

namespace rkv::model {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using Tokens = std::vector<Token>;

// A GGUF file without tensors.
class GgufWriter {
 public:
  void Text(const std::string& key, const std::string& value) {
    Key(key, 8);
    String(values_, value);
  }
  void Number(const std::string& key, std::uint32_t value) {
    Key(key, 4);
    Raw(values_, value);
  }
  void Flag(const std::string& key, bool value) {
    Key(key, 7);
    Raw(values_, static_cast<std::uint8_t>(value));
  }
  template <class T>
  void Array(const std::string& key, std::uint32_t type, const std::vector<T>& elements) {
    Key(key, 9);
    Raw(values_, type);
    Raw(values_, std::uint64_t{elements.size()});
    for (const T& element : elements) {
      if constexpr (std::is_same_v<T, std::string>) {
        String(values_, element);
      } else {
        Raw(values_, element);
      }
    }
  }
  void Write(const std::string& path) const {
    std::string header = "GGUF";
    Raw(header, std::uint32_t{3});
    Raw(header, std::uint64_t{0});  // tensors
    Raw(header, count_);
    std::ofstream(path, std::ios::binary) << header << values_;
  }

 private:
  template <class T>
  static void Raw(std::string& out, T value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  static void String(std::string& out, const std::string& value) {
    Raw(out, std::uint64_t{value.size()});
    out += value;
  }
  void Key(const std::string& key, std::uint32_t type) {
    String(values_, key);
    Raw(values_, type);
    ++count_;
  }

  std::string values_;
  std::uint64_t count_ = 0;
};

struct SpmOptions {
  bool add_bos = true;
  std::vector<std::string> extra_pieces = {};
  std::string chat_template = {};
  std::vector<std::string> extra_controls = {};
  std::string name = {};
};

// <unk>, <s>, </s>, 256 bytes, printable ASCII, "▁", "▁H", "▁Hi", then the extras.
constexpr Token kUnk = 0;
constexpr Token kBos = 1;
constexpr Token kEos = 2;

Result<std::unique_ptr<Tokenizer>> LoadSpm(const SpmOptions& options) {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  std::vector<std::int32_t> types = {2, 3, 3};
  for (int byte = 0; byte < 256; ++byte) {
    constexpr std::string_view kHex = "0123456789ABCDEF";
    tokens.push_back(std::string("<0x") + kHex[byte / 16] + kHex[byte % 16] + ">");
    types.push_back(6);
  }
  for (char c = 0x21; c < 0x7f; ++c) {
    tokens.emplace_back(1, c);
  }
  for (const char* piece : {"▁", "▁H", "▁Hi"}) {
    tokens.emplace_back(piece);
  }
  tokens.insert(tokens.end(), options.extra_pieces.begin(), options.extra_pieces.end());
  types.resize(tokens.size(), 1);
  tokens.insert(tokens.end(), options.extra_controls.begin(), options.extra_controls.end());
  types.resize(tokens.size(), 3);
  std::vector<float> scores(tokens.size());
  for (std::size_t i = 259; i < scores.size(); ++i) {
    scores[i] = -static_cast<float>(i);
  }

  GgufWriter gguf;
  gguf.Text("general.architecture", "llama");
  gguf.Text("general.name", options.name);
  gguf.Number("llama.context_length", 128);
  gguf.Number("llama.embedding_length", 8);
  gguf.Number("llama.block_count", 1);
  gguf.Number("llama.feed_forward_length", 8);
  gguf.Number("llama.attention.head_count", 1);
  gguf.Text("tokenizer.ggml.model", "llama");
  gguf.Array("tokenizer.ggml.tokens", 8, tokens);
  gguf.Array("tokenizer.ggml.scores", 6, scores);
  gguf.Array("tokenizer.ggml.token_type", 5, types);
  gguf.Number("tokenizer.ggml.unknown_token_id", kUnk);
  gguf.Number("tokenizer.ggml.bos_token_id", kBos);
  gguf.Number("tokenizer.ggml.eos_token_id", kEos);
  gguf.Flag("tokenizer.ggml.add_bos_token", options.add_bos);
  if (!options.chat_template.empty()) {
    gguf.Text("tokenizer.chat_template", options.chat_template);
  }
  const std::string path = testing::TempDir() + "rkv_spm_" + std::to_string(getpid()) + ".gguf";
  gguf.Write(path);
  Result<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::Load(path);
  std::filesystem::remove(path);
  return tokenizer;
}

std::string Decode(const Tokenizer& tokenizer, const Tokens& ids, bool render_special = false) {
  std::string text;
  for (const Token id : ids) {
    text += tokenizer.Piece(id, render_special);
  }
  return text;
}

std::ptrdiff_t Count(const Tokens& ids, Token token) {
  return std::count(ids.begin(), ids.end(), token);
}

TEST(SpmTokenizer, AddsBosAndOneLeadingSpace) {
  const auto spm = LoadSpm({});
  ASSERT_TRUE(spm) << spm.error().message();
  EXPECT_EQ((*spm)->vocab_size(), 259 + 94 + 3);
  EXPECT_EQ((*spm)->bos(), kBos);
  EXPECT_EQ((*spm)->eos(), kEos);
  EXPECT_TRUE((*spm)->adds_bos());
  EXPECT_TRUE((*spm)->IsEndOfGeneration(kEos));
  EXPECT_FALSE((*spm)->IsEndOfGeneration(kBos));
  EXPECT_TRUE((*spm)->IsControl(kBos));
  EXPECT_EQ((*spm)->chat_template_source(), "");

  const auto ids = (*spm)->Encode("Hi", true, false);
  ASSERT_TRUE(ids);
  EXPECT_THAT(*ids, ElementsAreArray({kBos, 259 + 94 + 2}));
  EXPECT_EQ(Decode(**spm, *ids), " Hi");
  EXPECT_EQ(Decode(**spm, *ids, true), "<s> Hi");
}

TEST(SpmTokenizer, FallsBackToBytes) {
  const auto spm = LoadSpm({});
  ASSERT_TRUE(spm) << spm.error().message();
  const auto ids = (*spm)->Encode("é", false, false);
  ASSERT_TRUE(ids);
  EXPECT_THAT(*ids, ElementsAreArray({259 + 94, 3 + 0xc3, 3 + 0xa9}));
  EXPECT_EQ((*spm)->Piece(3 + 0xc3, false), "\xc3");
}

TEST(SpmTokenizer, PiecesOutsideTheVocabularyAreEmpty) {
  const auto spm = LoadSpm({});
  ASSERT_TRUE(spm) << spm.error().message();
  for (const Token token : {-1, (*spm)->vocab_size(), INT32_MAX, INT32_MIN}) {
    EXPECT_EQ((*spm)->Piece(token, true), "");
    EXPECT_FALSE((*spm)->IsControl(token));
    EXPECT_FALSE((*spm)->IsEndOfGeneration(token));
  }
}

// gigachat's template begins with <s>, chatml's does not.
TEST(SpmTokenizer, PutsExactlyOneBosBeforeAConversation) {
  const std::vector<ChatMessage> hello = {{"user", "Hi"}};
  const auto adds = LoadSpm({});
  ASSERT_TRUE(adds) << adds.error().message();
  for (const char* name : {"gigachat", "chatml"}) {
    const auto ids = (*adds)->EncodeChat(hello, name);
    ASSERT_TRUE(ids) << ids.error().message();
    EXPECT_EQ(ids->front(), kBos) << name;
    EXPECT_EQ(Count(*ids, kBos), 1) << name;
  }
  const auto plain = LoadSpm({.add_bos = false});
  ASSERT_TRUE(plain) << plain.error().message();
  EXPECT_EQ(Count(*(*plain)->EncodeChat(hello, "chatml"), kBos), 0);
  EXPECT_EQ(Count(*(*plain)->EncodeChat(hello, "gigachat"), kBos), 1);
}

// `spm`'s ids of conversations equal those that the library gives the whole rendered text.
void ExpectWholeTextIds(const Tokenizer& spm, const std::string& name) {
  for (const char* content : {"Hi", " Hi Hi ", "\nHi\n\n", "é 🚀", ""}) {
    const std::vector<ChatMessage> messages = {
        {"user", content}, {"assistant", content}, {"user", "Hi"}};
    const auto ids = spm.EncodeChat(messages, name);
    ASSERT_TRUE(ids) << ids.error().message();
    const std::string text = *ApplyChatTemplate(name, messages);
    const bool has_bos = text.rfind("<s>", 0) == 0;
    EXPECT_EQ(*ids, *spm.Encode(text, !has_bos, true)) << name << ": " << content;
  }
}

TEST(SpmTokenizer, ConversationEqualsTheWholeTextForEveryKnownTemplate) {
  const auto spm = LoadSpm({});
  ASSERT_TRUE(spm) << spm.error().message();
  for (const std::string& name : KnownChatTemplates()) {
    ExpectWholeTextIds(**spm, name);
  }
}

TEST(SpmTokenizer, LongestControlTokenWins) {
  const auto spm =
      LoadSpm({.extra_controls = {"<|im_start|>", "<|im_start|>user", "start|>user\n"}});
  ASSERT_TRUE(spm) << spm.error().message();
  ExpectWholeTextIds(**spm, "chatml");
  const auto ids = (*spm)->EncodeChat(std::vector<ChatMessage>{{"user", "Hi"}}, "chatml");
  ASSERT_TRUE(ids) << ids.error().message();
  EXPECT_EQ((*spm)->Piece((*ids)[1], true), "<|im_start|>user");
}

// libllama drops white space after the control tokens of models with this name.
TEST(SpmTokenizer, ControlTokensDropWhiteSpaceWhereTheModelSaysSo) {
  const auto spm =
      LoadSpm({.extra_controls = {"<|endoftext|>", "<|user|>", "<|assistant|>", "<|end|>"},
               .name = "tiny phi-3"});
  ASSERT_TRUE(spm) << spm.error().message();
  ExpectWholeTextIds(**spm, "phi3");
  const auto ids = (*spm)->EncodeChat(std::vector<ChatMessage>{{"user", "Hi"}}, "phi3");
  ASSERT_TRUE(ids) << ids.error().message();
  EXPECT_EQ(Decode(**spm, *ids, true), "<s><|user|> Hi<|end|><|assistant|>");
}

// yandex writes no control token after an answer: the turn begins with plain text.
TEST(SpmTokenizer, FurtherTurnGetsNoLeadingSpace) {
  const auto spm = LoadSpm({});
  ASSERT_TRUE(spm) << spm.error().message();
  const std::vector<ChatMessage> before = {{"user", "Hi"}, {"assistant", "Hi"}};
  const auto turn = (*spm)->EncodeChatTurn(before, {"user", "Hi"}, "yandex");
  ASSERT_TRUE(turn) << turn.error().message();
  EXPECT_EQ(Decode(**spm, *turn), "\n\n Пользователь: Hi\n\n Ассистент:[SEP]");
}

TEST(SpmTokenizer, FurtherTurnIsTheEndOfTheWholeConversation) {
  const auto spm = LoadSpm({});
  ASSERT_TRUE(spm) << spm.error().message();
  const std::vector<ChatMessage> all = {{"user", "Hi"}, {"assistant", "Hi"}, {"user", "Hi"}};
  for (const std::string& name : KnownChatTemplates()) {
    const auto turn = (*spm)->EncodeChatTurn(std::span(all).first(2), all.back(), name);
    const auto whole = (*spm)->EncodeChat(all, name);
    ASSERT_TRUE(turn) << turn.error().message();
    ASSERT_TRUE(whole) << whole.error().message();
    ASSERT_LT(turn->size(), whole->size());
    EXPECT_TRUE(std::equal(turn->rbegin(), turn->rend(), whole->rbegin())) << name;
  }
}

TEST(SpmTokenizer, RefusesContentThatMergesIntoAControlToken) {
  const auto spm = LoadSpm({.extra_pieces = {"</", "s>"}});
  ASSERT_TRUE(spm) << spm.error().message();
  const auto ids = (*spm)->EncodeChat(std::vector<ChatMessage>{{"user", "a</s>b"}}, "chatml");
  ASSERT_FALSE(ids);
  EXPECT_EQ(ids.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(ids.error().message(), HasSubstr("</s>"));
}

TEST(SpmTokenizer, SaysWhenThereIsNoTemplateOrAnUnknownOne) {
  const std::vector<ChatMessage> hello = {{"user", "Hi"}};
  const auto none = LoadSpm({});
  ASSERT_TRUE(none) << none.error().message();
  EXPECT_EQ((*none)->EncodeChat(hello, "").error().code(), Code::kInvalidArgument);
  EXPECT_THAT((*none)->EncodeChat(hello, "").error().message(), HasSubstr("--chat-template"));

  const auto strange = LoadSpm({.chat_template = "{{ x }}"});
  ASSERT_TRUE(strange) << strange.error().message();
  EXPECT_EQ((*strange)->chat_template_source(), "{{ x }}");
  EXPECT_EQ((*strange)->EncodeChat(hello, "").error().code(), Code::kUnsupported);
  EXPECT_TRUE((*strange)->EncodeChat(hello, "chatml"));
}

TEST(Tokenizer, LoadRefusesWhatIsNoModel) {
  EXPECT_EQ(Tokenizer::Load("/nonexistent.gguf").error().code(), Code::kDataLoss);
  const std::string path = testing::TempDir() + "rkv_no_model_" + std::to_string(getpid());
  std::ofstream(path) << "GGUF, but not really";
  EXPECT_EQ(Tokenizer::Load(path).error().code(), Code::kDataLoss);
  GgufWriter gguf;
  gguf.Text("general.architecture", "llama");
  gguf.Text("tokenizer.ggml.model", "none");
  gguf.Number("llama.vocab_size", 8);
  gguf.Write(path);
  EXPECT_EQ(Tokenizer::Load(path).error().code(), Code::kUnsupported);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace rkv::model
