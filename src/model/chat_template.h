// Known chat templates: a conversation as text, with template and message content kept apart.
#ifndef RKV_MODEL_CHAT_TEMPLATE_H_
#define RKV_MODEL_CHAT_TEMPLATE_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "rkv/options.h"
#include "rkv/status.h"

namespace rkv::model {

// A stretch of a rendered conversation.
struct ChatPiece {
  static constexpr std::int32_t kTemplate = -1;

  std::string text;
  std::int32_t message = kTemplate;  // whose content this is, or kTemplate
};

// Renders a conversation, ending with the start of an answer. The pieces' texts joined are what
// libllama renders from the same messages: where its template trims white space off a message, the
// piece is trimmed. A system message that is blank counts as template text, because a template may
// leave out its surroundings. `name_or_template`: a name from KnownChatTemplates() or the source of
// a template, from which libllama recognises one of them.
// Errors: kUnsupported for an unknown template (names --chat-template), or for one that has no
// place for a message (names the message); kInvalidArgument for no messages or an unknown role.
// Thread-safe. Linear in the text.
Result<std::vector<ChatPiece>> RenderChat(const std::string& name_or_template,
                                          std::span<const ChatMessage> messages);

// The same text from libllama at once, content not told apart; contents end at a NUL byte. Same
// errors, except that a message without a place is lost.
Result<std::string> ApplyChatTemplate(const std::string& name_or_template,
                                      std::span<const ChatMessage> messages);

// libllama's names: "chatml", "llama3", …
std::vector<std::string> KnownChatTemplates();

}  // namespace rkv::model

#endif  // RKV_MODEL_CHAT_TEMPLATE_H_
