#include "model/chat_template.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <llama.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <exception>
#include <string_view>
#include <utility>

namespace rkv::model {
namespace {

// Stands for a message's content while libllama renders. The vertical tabs at its ends are white
// space that no template writes: where one is missing afterwards, the template trims that end.
constexpr char kGuard = '\v';
constexpr std::string_view kMarkBegin = "@@rkv-message-";
constexpr std::string_view kMarkEnd = "-@@";
constexpr std::string_view kSpace = " \t\n\v\f\r";  // isspace of the C locale, as libllama trims
constexpr std::array<std::string_view, 3> kRoles = {"system", "user", "assistant"};

bool IsBlank(std::string_view text) {
  return text.find_first_not_of(kSpace) == std::string_view::npos;
}

// Some templates write a system message's surroundings only when its content is not empty.
bool StandsForItself(const ChatMessage& message) {
  return message.role == "system" && IsBlank(message.content);
}

Status CheckMessages(std::span<const ChatMessage> messages) {
  if (messages.empty()) {
    return Status(Code::kInvalidArgument, "a conversation needs at least one message");
  }
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (std::find(kRoles.begin(), kRoles.end(), messages[i].role) == kRoles.end()) {
      return Status(Code::kInvalidArgument,
                    fmt::format("message {}: role must be one of {}, got \"{}\"", i,
                                fmt::join(kRoles, ", "), messages[i].role));
    }
  }
  return {};
}

Status UnknownTemplate() {
  return Status(Code::kUnsupported,
                fmt::format("unknown chat template; choose one with --chat-template: {}",
                            fmt::join(KnownChatTemplates(), ", ")));
}

// Content after the trimming that the template does.
std::string_view Trimmed(std::string_view content, bool trim_left, bool trim_right) {
  if (trim_left) {
    content.remove_prefix(std::min(content.find_first_not_of(kSpace), content.size()));
  }
  if (trim_right) {
    content = content.substr(0, content.find_last_not_of(kSpace) + 1);
  }
  return content;
}

// Takes rendered text apart at the marks.
class Splitter {
 public:
  Splitter(std::string_view rendered, std::span<const ChatMessage> messages)
      : rendered_(rendered), messages_(messages), placed_(messages.size()) {}

  Result<std::vector<ChatPiece>> Split() {
    std::size_t mark = rendered_.find(kMarkBegin);
    while (mark != std::string_view::npos) {
      TakeMark(mark);
      mark = rendered_.find(kMarkBegin, at_);
    }
    AddTemplate(rendered_.substr(at_));
    for (std::size_t i = 0; i < messages_.size(); ++i) {
      if (!placed_[i] && !StandsForItself(messages_[i])) {
        return Status(Code::kUnsupported,
                      fmt::format("the chat template has no place for message {} (role {})", i,
                                  messages_[i].role));
      }
    }
    return std::move(pieces_);
  }

 private:
  void TakeMark(std::size_t mark) {
    const std::size_t digits = mark + kMarkBegin.size();
    const std::size_t end = rendered_.find(kMarkEnd, digits);
    std::size_t message = 0;
    std::from_chars(rendered_.data() + digits, rendered_.data() + end, message);

    const bool left = mark > at_ && rendered_[mark - 1] == kGuard;
    const std::size_t next = end + kMarkEnd.size();
    const bool right = next < rendered_.size() && rendered_[next] == kGuard;
    AddTemplate(rendered_.substr(at_, mark - (left ? 1 : 0) - at_));
    pieces_.push_back({std::string(Trimmed(messages_[message].content, !left, !right)),
                       static_cast<std::int32_t>(message)});
    placed_[message] = true;
    at_ = next + (right ? 1 : 0);
  }

  void AddTemplate(std::string_view text) {
    if (!text.empty()) {
      pieces_.push_back({std::string(text), ChatPiece::kTemplate});
    }
  }

  std::string_view rendered_;
  std::span<const ChatMessage> messages_;
  std::vector<bool> placed_;
  std::vector<ChatPiece> pieces_;
  std::size_t at_ = 0;  // first byte not yet taken
};

}  // namespace

std::vector<std::string> KnownChatTemplates() {
  std::vector<const char*> names(
      static_cast<std::size_t>(std::max(llama_chat_builtin_templates(nullptr, 0), 0)));
  llama_chat_builtin_templates(names.data(), names.size());
  return {names.begin(), names.end()};
}

Result<std::string> ApplyChatTemplate(const std::string& name_or_template,
                                      std::span<const ChatMessage> messages) {
  if (const Status status = CheckMessages(messages); !status.ok()) {
    return status;
  }
  std::vector<llama_chat_message> chat;
  chat.reserve(messages.size());
  for (const ChatMessage& message : messages) {
    chat.push_back({message.role.c_str(), message.content.c_str()});
  }
  try {
    std::string text(4096, '\0');
    std::int32_t size = 0;
    for (int attempt = 0; attempt < 2; ++attempt) {  // the first call may only tell the size
      size = llama_chat_apply_template(name_or_template.c_str(), chat.data(), chat.size(), true,
                                       text.data(), static_cast<std::int32_t>(text.size()));
      if (size < 0) {
        return UnknownTemplate();
      }
      if (static_cast<std::size_t>(size) <= text.size()) {
        break;
      }
      text.resize(static_cast<std::size_t>(size));
    }
    text.resize(static_cast<std::size_t>(size));
    return text;
  } catch (const std::exception& error) {
    return Status(Code::kInternal, fmt::format("rendering the chat template: {}", error.what()));
  }
}

Result<std::vector<ChatPiece>> RenderChat(const std::string& name_or_template,
                                          std::span<const ChatMessage> messages) {
  std::vector<ChatMessage> marked;
  marked.reserve(messages.size());
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const ChatMessage& message = messages[i];
    marked.push_back(
        {message.role, StandsForItself(message)
                           ? message.content
                           : fmt::format("{}{}{}{}{}", kGuard, kMarkBegin, i, kMarkEnd, kGuard)});
  }
  const Result<std::string> rendered = ApplyChatTemplate(name_or_template, marked);
  if (!rendered) {
    return rendered.error();
  }
  return Splitter(*rendered, messages).Split();
}

}  // namespace rkv::model
