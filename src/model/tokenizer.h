// Tokenizer and known chat templates, through libllama's vocabulary code.
#ifndef RKV_MODEL_TOKENIZER_H_
#define RKV_MODEL_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rkv/options.h"
#include "rkv/status.h"

namespace rkv::model {

// Immutable; const methods are thread-safe.
class Tokenizer {
 public:
  // Loads only the vocabulary of an already checked GGUF file.
  // Errors: kDataLoss when the library refuses it; kUnsupported when the file has no vocabulary.
  static Result<std::unique_ptr<Tokenizer>> Load(const std::string& path);
  virtual ~Tokenizer() = default;

  virtual std::int32_t vocab_size() const = 0;
  // parse_special: text that spells a control token becomes that token (templates); false keeps it
  // as plain text (user content). add_special: BOS / EOS as the model's file says.
  // Malformed UTF-8 is kInvalidArgument with the byte offset.
  virtual Result<std::vector<Token>> Encode(std::string_view text, bool add_special,
                                            bool parse_special) const = 0;
  // The bytes of one token, possibly part of a character; control tokens are empty unless asked.
  virtual std::string Piece(Token token, bool render_special) const = 0;
  // End of generation: EOS, EOT and the like.
  virtual bool IsEndOfGeneration(Token token) const = 0;
  virtual bool IsControl(Token token) const = 0;
  virtual Token bos() const = 0;  // -1 when there is none
  virtual Token eos() const = 0;
  virtual bool adds_bos() const = 0;

  // The model's own chat template as its file has it; empty when there is none.
  virtual std::string chat_template_source() const = 0;

  // Ids of a conversation in the model's own template (empty `name_or_template`), or in another:
  // llama.cpp's names such as "chatml", or a template's source that libllama recognises. They end
  // with the start of an answer. Control tokens come from the template alone: text of a message
  // that spells one stays text. Otherwise the ids are those of the whole rendered text. Exactly one
  // BOS when the model wants one, never an EOS at the end. Templates are libllama's versions: a
  // default system prompt of the model's own source is not written.
  // Errors: kUnsupported when the template is unknown (names --chat-template) or has no place for a
  // message; kInvalidArgument when there is none and none was given, for no messages, for a role
  // other than system, user and assistant, for content that is not UTF-8 (message and byte offset)
  // or that this vocabulary merges into a control token.
  virtual Result<std::vector<Token>> EncodeChat(std::span<const ChatMessage> messages,
                                                std::string_view name_or_template) const = 0;
  // Ids of what a further turn adds to a conversation: what the template writes after the last
  // answer of `messages_before` (first of all its end-of-turn token, which generation ended with
  // but did not feed), up to the start of the next answer. No BOS is added.
  // Errors: as EncodeChat, and kInvalidArgument unless `messages_before` ends with an assistant
  // message and `next` is of another role.
  virtual Result<std::vector<Token>> EncodeChatTurn(std::span<const ChatMessage> messages_before,
                                                    const ChatMessage& next,
                                                    std::string_view name_or_template) const = 0;
};

}  // namespace rkv::model

#endif  // RKV_MODEL_TOKENIZER_H_
