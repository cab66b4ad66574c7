#include "model/tokenizer.h"

#include <fmt/format.h>
#include <llama.h>

#include <algorithm>
#include <exception>
#include <limits>
#include <new>
#include <utility>

#include "base/text.h"
#include "model/chat_template.h"

namespace rkv::model {
namespace {

struct FreeModel {
  void operator()(llama_model* model) const { llama_model_free(model); }
};
using ModelPtr = std::unique_ptr<llama_model, FreeModel>;

// libllama's log and backends are global to the process: set up once, silent.
void InitLibrary() {
  static const bool kReady = [] {
    llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
    llama_backend_init();
    return true;
  }();
  static_cast<void>(kReady);
}

// A token whose text the library looks for only when asked to parse special tokens.
struct ControlText {
  std::string text;
  Token token;
  bool strip_left;  // white space before or after it is dropped
  bool strip_right;
};

// Where a control token stands in a rendered conversation.
struct ControlSpan {
  std::size_t begin;
  std::size_t end;
  const ControlText* control;
};

bool IsSpace(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// The control tokens that template text spells: longest texts first, then left to right, as the
// library partitions text. Sorted by place.
std::vector<ControlSpan> FindControls(const std::vector<ControlText>& controls,
                                      std::span<const ChatPiece> pieces) {
  std::vector<ControlSpan> spans;
  std::size_t start = 0;
  for (const ChatPiece& piece : pieces) {
    std::vector<const ControlText*> owner;  // of each byte
    if (piece.message == ChatPiece::kTemplate) {
      owner.resize(piece.text.size());
    }
    for (const ControlText& control : controls) {
      const std::size_t size = control.text.size();
      std::size_t at = owner.empty() ? std::string::npos : piece.text.find(control.text);
      while (at != std::string::npos) {
        const auto first = owner.begin() + static_cast<std::ptrdiff_t>(at);
        const auto last = first + static_cast<std::ptrdiff_t>(size);
        const bool open = std::all_of(first, last, [](const auto* o) { return o == nullptr; });
        if (open) {
          std::fill(first, last, &control);
          spans.push_back({start + at, start + at + size, &control});
        }
        at = piece.text.find(control.text, at + (open ? size : 1));
      }
    }
    start += piece.text.size();
  }
  std::sort(spans.begin(), spans.end(),
            [](const ControlSpan& a, const ControlSpan& b) { return a.begin < b.begin; });
  return spans;
}

class LlamaTokenizer final : public Tokenizer {
 public:
  LlamaTokenizer(ModelPtr model, const llama_vocab* vocab)
      : model_(std::move(model)), vocab_(vocab), size_(llama_vocab_n_tokens(vocab)) {
    for (Token token = 0; token < size_; ++token) {
      const int attr = llama_vocab_get_attr(vocab_, token);
      const char* text = llama_vocab_get_text(vocab_, token);
      if ((attr & (LLAMA_TOKEN_ATTR_CONTROL | LLAMA_TOKEN_ATTR_UNKNOWN)) != 0 && *text != '\0') {
        controls_.push_back({text, token, (attr & LLAMA_TOKEN_ATTR_LSTRIP) != 0,
                             (attr & LLAMA_TOKEN_ATTR_RSTRIP) != 0});
      }
    }
    std::stable_sort(
        controls_.begin(), controls_.end(),
        [](const ControlText& a, const ControlText& b) { return a.text.size() > b.text.size(); });
  }

  std::int32_t vocab_size() const override { return size_; }
  Result<std::vector<Token>> Encode(std::string_view text, bool add_special,
                                    bool parse_special) const override;
  std::string Piece(Token token, bool render_special) const override;
  bool IsEndOfGeneration(Token token) const override {
    return InVocab(token) && llama_vocab_is_eog(vocab_, token);
  }
  bool IsControl(Token token) const override {
    return InVocab(token) && llama_vocab_is_control(vocab_, token);
  }
  Token bos() const override { return llama_vocab_bos(vocab_); }
  Token eos() const override { return llama_vocab_eos(vocab_); }
  bool adds_bos() const override { return llama_vocab_get_add_bos(vocab_); }
  std::string chat_template_source() const override {
    const char* source = llama_model_chat_template(model_.get(), nullptr);
    return source == nullptr ? std::string() : std::string(source);
  }
  Result<std::vector<Token>> EncodeChat(std::span<const ChatMessage> messages,
                                        std::string_view name_or_template) const override;
  Result<std::vector<Token>> EncodeChatTurn(std::span<const ChatMessage> messages_before,
                                            const ChatMessage& next,
                                            std::string_view name_or_template) const override;

 private:
  bool InVocab(Token token) const { return token >= 0 && token < size_; }
  Result<std::vector<ChatPiece>> Render(std::span<const ChatMessage> messages,
                                        std::string_view name_or_template) const;
  // `continues`: the pieces follow text that is encoded already.
  Result<std::vector<Token>> EncodePieces(std::span<const ChatPiece> pieces, bool continues) const;
  Result<std::vector<Token>> EncodeContinuation(std::string_view text) const;
  Status AppendPlain(std::string_view text, bool continues, std::vector<Token>& out) const;

  ModelPtr model_;
  const llama_vocab* vocab_;  // part of the model
  std::int32_t size_;
  std::vector<ControlText> controls_;  // longest first
};

Result<std::vector<Token>> LlamaTokenizer::Encode(std::string_view text, bool add_special,
                                                  bool parse_special) const {
  constexpr std::size_t kExtra = 8;  // BOS, EOS, a leading space
  if (text.size() > std::numeric_limits<std::int32_t>::max() - kExtra) {
    return Status(Code::kInvalidArgument,
                  fmt::format("text of {} bytes: at most 2^31 - 9 can be tokenised", text.size()));
  }
  if (const std::size_t bad = FindInvalidUtf8(text); bad != std::string_view::npos) {
    return Status(Code::kInvalidArgument, fmt::format("text is not UTF-8 at byte {}", bad));
  }
  try {
    std::vector<Token> out(text.size() + kExtra);  // a token covers at least a byte, normally
    for (;;) {
      const std::int32_t count =
          llama_tokenize(vocab_, text.data(), static_cast<std::int32_t>(text.size()), out.data(),
                         static_cast<std::int32_t>(out.size()), add_special, parse_special);
      if (count >= 0) {
        out.resize(static_cast<std::size_t>(count));
        return out;
      }
      if (count == std::numeric_limits<std::int32_t>::min()) {
        return Status(Code::kInvalidArgument, "text has more than 2^31 tokens");
      }
      out.resize(static_cast<std::size_t>(-static_cast<std::int64_t>(count)));
    }
  } catch (const std::bad_alloc&) {
    return Status(Code::kResourceExhausted,
                  fmt::format("no memory to tokenise {} bytes of text", text.size()));
  } catch (const std::exception& error) {
    return Status(Code::kInternal, fmt::format("tokenising: {}", error.what()));
  }
}

std::string LlamaTokenizer::Piece(Token token, bool render_special) const {
  if (!InVocab(token)) {
    return {};
  }
  std::string piece(64, '\0');
  const auto write = [&] {
    return llama_token_to_piece(vocab_, token, piece.data(),
                                static_cast<std::int32_t>(piece.size()), 0, render_special);
  };
  std::int32_t size = write();
  if (size < 0) {
    piece.resize(static_cast<std::size_t>(-size));
    size = write();
  }
  piece.resize(static_cast<std::size_t>(std::max(size, 0)));
  return piece;
}

Result<std::vector<ChatPiece>> LlamaTokenizer::Render(std::span<const ChatMessage> messages,
                                                      std::string_view name_or_template) const {
  std::string source(name_or_template);
  if (source.empty()) {
    source = chat_template_source();
    if (source.empty()) {
      return Status(Code::kInvalidArgument,
                    "the model has no chat template; choose one with --chat-template");
    }
  }
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const std::size_t bad = FindInvalidUtf8(messages[i].content);
    if (bad != std::string_view::npos) {
      return Status(Code::kInvalidArgument,
                    fmt::format("message {}: content is not UTF-8 at byte {}", i, bad));
    }
  }
  return RenderChat(source, messages);
}

// Tokenises text that goes on where other text ended. SPM vocabularies put a space before text at
// its beginning; behind a character that is in no vocabulary, and so merges with nothing, they
// don't.
Result<std::vector<Token>> LlamaTokenizer::EncodeContinuation(std::string_view text) const {
  if (llama_vocab_type(vocab_) != LLAMA_VOCAB_TYPE_SPM) {
    return Encode(text, false, false);
  }
  const std::string anchor = "\U0010ffff";
  const Result<std::vector<Token>> prefix = Encode(anchor, false, false);
  if (!prefix) {
    return prefix.error();
  }
  Result<std::vector<Token>> ids = Encode(anchor + std::string(text), false, false);
  if (ids) {
    ids->erase(ids->begin(), ids->begin() + static_cast<std::ptrdiff_t>(prefix->size()));
  }
  return ids;
}

// Tokenises text in which nothing is a control token.
Status LlamaTokenizer::AppendPlain(std::string_view text, bool continues,
                                   std::vector<Token>& out) const {
  if (text.empty()) {
    return {};
  }
  const Result<std::vector<Token>> ids =
      continues ? EncodeContinuation(text) : Encode(text, false, false);
  if (!ids) {
    return ids.error();
  }
  for (const Token id : *ids) {
    if (IsControl(id)) {  // a vocabulary whose merges reach a control token's text
      return Status(Code::kInvalidArgument,
                    fmt::format("text of a message becomes the control token {} (\"{}\")", id,
                                llama_vocab_get_text(vocab_, id)));
    }
  }
  out.insert(out.end(), ids->begin(), ids->end());
  return {};
}

// The library cuts text at special tokens and tokenises what is between. Here only the template's
// control tokens cut, so the rest, content with its surroundings, merges as in the whole text.
Result<std::vector<Token>> LlamaTokenizer::EncodePieces(std::span<const ChatPiece> pieces,
                                                        bool continues) const {
  std::string text;
  for (const ChatPiece& piece : pieces) {
    text += piece.text;
  }
  std::vector<Token> out;
  std::size_t begin = 0;
  for (const ControlSpan& span : FindControls(controls_, pieces)) {
    std::size_t end = std::max(begin, span.begin);
    while (span.control->strip_left && end > begin && IsSpace(text[end - 1])) {
      --end;
    }
    const std::string_view run = std::string_view(text).substr(begin, end - begin);
    if (const Status status = AppendPlain(run, continues, out); !status.ok()) {
      return status;
    }
    out.push_back(span.control->token);
    continues = false;
    begin = span.end;
    while (span.control->strip_right && begin < text.size() && IsSpace(text[begin])) {
      ++begin;
    }
  }
  if (const Status status = AppendPlain(std::string_view(text).substr(begin), continues, out);
      !status.ok()) {
    return status;
  }
  return out;
}

Result<std::vector<Token>> LlamaTokenizer::EncodeChat(std::span<const ChatMessage> messages,
                                                      std::string_view name_or_template) const {
  const Result<std::vector<ChatPiece>> pieces = Render(messages, name_or_template);
  if (!pieces) {
    return pieces.error();
  }
  Result<std::vector<Token>> ids = EncodePieces(*pieces, false);
  if (ids && adds_bos() && bos() >= 0 && (ids->empty() || ids->front() != bos())) {
    ids->insert(ids->begin(), bos());
  }
  return ids;
}

Result<std::vector<Token>> LlamaTokenizer::EncodeChatTurn(
    std::span<const ChatMessage> messages_before, const ChatMessage& next,
    std::string_view name_or_template) const {
  if (messages_before.empty() || messages_before.back().role != "assistant") {
    return Status(Code::kInvalidArgument,
                  "a further turn needs a conversation that ends with an assistant message");
  }
  if (next.role == "assistant") {
    return Status(Code::kInvalidArgument, "the message of a further turn is an assistant message");
  }
  std::vector<ChatMessage> messages(messages_before.begin(), messages_before.end());
  messages.push_back(next);
  const Result<std::vector<ChatPiece>> pieces = Render(messages, name_or_template);
  if (!pieces) {
    return pieces.error();
  }
  const auto answer = static_cast<std::int32_t>(messages_before.size()) - 1;
  const auto at = std::find_if(pieces->begin(), pieces->end(),
                               [&](const ChatPiece& piece) { return piece.message == answer; });
  const auto skip = static_cast<std::size_t>(at - pieces->begin()) + 1;
  return EncodePieces(std::span(*pieces).subspan(skip), true);
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> Tokenizer::Load(const std::string& path) {
  InitLibrary();
  try {
    llama_model_params params = llama_model_default_params();
    params.vocab_only = true;
    ModelPtr model(llama_model_load_from_file(path.c_str(), params));
    if (model == nullptr) {
      return Status(Code::kDataLoss,
                    fmt::format("libllama cannot load the vocabulary of {}", path));
    }
    const llama_vocab* vocab = llama_model_get_vocab(model.get());
    if (llama_vocab_type(vocab) == LLAMA_VOCAB_TYPE_NONE || llama_vocab_n_tokens(vocab) <= 0) {
      return Status(Code::kUnsupported, fmt::format("{} has no vocabulary", path));
    }
    return std::unique_ptr<Tokenizer>(std::make_unique<LlamaTokenizer>(std::move(model), vocab));
  } catch (const std::bad_alloc&) {
    return Status(Code::kResourceExhausted,
                  fmt::format("no memory for the vocabulary of {}", path));
  } catch (const std::exception& error) {
    return Status(Code::kDataLoss, fmt::format("vocabulary of {}: {}", path, error.what()));
  }
}

}  // namespace rkv::model
