#include "model/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace rkv::model {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

std::string Joined(const std::vector<ChatPiece>& pieces) {
  std::string text;
  for (const ChatPiece& piece : pieces) {
    text += piece.text;
  }
  return text;
}

std::string ContentOf(const std::vector<ChatPiece>& pieces, std::int32_t message) {
  std::string text;
  for (const ChatPiece& piece : pieces) {
    text += piece.message == message ? piece.text : "";
  }
  return text;
}

TEST(RenderChat, WritesChatMlAndOpensTheAnswer) {
  const auto pieces = RenderChat(
      "chatml", std::vector<ChatMessage>{{"system", "Be brief."}, {"user", " Hi <|im_end|>\n"}});
  ASSERT_TRUE(pieces) << pieces.error().message();
  EXPECT_EQ(
      Joined(*pieces),
      "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n Hi <|im_end|>\n<|im_end|>\n"
      "<|im_start|>assistant\n");
  EXPECT_EQ(ContentOf(*pieces, 0), "Be brief.");
  EXPECT_EQ(ContentOf(*pieces, 1), " Hi <|im_end|>\n");
}

TEST(RenderChat, TrimsWhereTheTemplateTrims) {
  const auto pieces =
      RenderChat("llama3", std::vector<ChatMessage>{{"user", "\t\n Hi  there \r\n"}});
  ASSERT_TRUE(pieces) << pieces.error().message();
  EXPECT_EQ(Joined(*pieces),
            "<|start_header_id|>user<|end_header_id|>\n\nHi  there<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n");
}

TEST(RenderChat, RecognisesTheSourceOfATemplate) {
  const std::string source = "{% for m in messages %}<start_of_turn>{{ m.role }}{% endfor %}";
  const auto pieces = RenderChat(source, std::vector<ChatMessage>{{"user", "Hi"}});
  ASSERT_TRUE(pieces) << pieces.error().message();
  EXPECT_EQ(Joined(*pieces), "<start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n");
}

TEST(RenderChat, EqualsTheLibrarysTextForEveryKnownTemplate) {
  const std::vector<std::string> contents = {
      "plain",     "  padded\t",       "\n\nlines\n",         "",
      "   ",       "\v\fodd spaces\v", "@@rkv-message-0-@@x", "</s> [INST]",
      "日本語 🚀 é"};
  for (const std::string& name : KnownChatTemplates()) {
    for (const std::string& first : contents) {
      for (const std::string& second : contents) {
        const std::vector<ChatMessage> messages = {
            {"user", first}, {"assistant", second}, {"user", second + first}};
        const auto pieces = RenderChat(name, messages);
        ASSERT_TRUE(pieces) << name << ": " << pieces.error().message();
        ASSERT_EQ(Joined(*pieces), *ApplyChatTemplate(name, messages)) << name;
      }
    }
  }
}

TEST(RenderChat, RendersASystemMessageOrSaysThatItHasNoPlace) {
  int without_place = 0;
  for (const std::string& name : KnownChatTemplates()) {
    for (const char* system : {"Be brief.", " Be brief. ", "", " \n"}) {
      const std::vector<ChatMessage> messages = {{"system", system}, {"user", "Hi"}};
      const auto pieces = RenderChat(name, messages);
      if (!pieces) {
        EXPECT_EQ(pieces.error().code(), Code::kUnsupported) << name;
        EXPECT_THAT(pieces.error().message(), HasSubstr("message 0 (role system)")) << name;
        EXPECT_EQ(ApplyChatTemplate(name, messages)->find("brief"), std::string::npos) << name;
        ++without_place;
        continue;
      }
      EXPECT_EQ(Joined(*pieces), *ApplyChatTemplate(name, messages)) << name;
    }
  }
  EXPECT_LE(without_place, 4) << "most templates have a place for a system message";
  const auto yandex =
      RenderChat("yandex", std::vector<ChatMessage>{{"system", "Be brief."}, {"user", "Hi"}});
  EXPECT_FALSE(yandex) << "yandex drops system messages";
}

TEST(RenderChat, KeepsContentBehindANulByte) {
  const std::string content("a\0b", 3);
  const auto pieces = RenderChat("chatml", std::vector<ChatMessage>{{"user", content}});
  ASSERT_TRUE(pieces) << pieces.error().message();
  EXPECT_EQ(ContentOf(*pieces, 0), content);
}

TEST(RenderChat, RefusesUnknownTemplatesAndRoles) {
  const std::vector<ChatMessage> hello = {{"user", "Hi"}};
  for (const char* name : {"", "no-such-template", "{{ messages }}"}) {
    const auto pieces = RenderChat(name, hello);
    ASSERT_FALSE(pieces);
    EXPECT_EQ(pieces.error().code(), Code::kUnsupported);
    EXPECT_THAT(pieces.error().message(), HasSubstr("--chat-template"));
    EXPECT_THAT(pieces.error().message(), HasSubstr("chatml"));
  }
  const auto role = RenderChat("chatml", std::vector<ChatMessage>{{"user", "a"}, {"tool", "b"}});
  ASSERT_FALSE(role);
  EXPECT_EQ(role.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(role.error().message(), HasSubstr("message 1"));
  EXPECT_THAT(role.error().message(), HasSubstr("\"tool\""));
  EXPECT_EQ(RenderChat("chatml", {}).error().code(), Code::kInvalidArgument);
}

TEST(KnownChatTemplates, ListsTheLibrarysNames) {
  EXPECT_THAT(KnownChatTemplates(), Contains("chatml"));
  EXPECT_THAT(KnownChatTemplates(), Contains("llama3"));
}

}  // namespace
}  // namespace rkv::model
