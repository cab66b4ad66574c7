// CheckTokenizerKeys: everything that libllama's vocabulary loader would assert on, abort on or
// read past, refused beforehand by name.
#include <fmt/format.h>

#include <array>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <unordered_set>
#include <utility>

#include "base/text.h"
#include "model/gguf.h"
#include "model/gguf_types.h"

namespace rkv::model {
namespace {

constexpr std::string_view kTokens = "tokenizer.ggml.tokens";
constexpr std::string_view kPrefix = "tokenizer.ggml.";
constexpr std::string_view kIdSuffix = "_token_id";
constexpr std::int32_t kMaxTokenType = 6;
constexpr std::size_t kMaxTokenBytes = 65535;
// The loader repeats the text of a byte-level token for every character that stands for no byte.
constexpr std::size_t kMaxSpelledBytes = std::size_t{16} << 20;

Status Bad(std::string_view key, std::string_view what) {
  return {Code::kDataLoss, fmt::format("GGUF: key '{}' {}", key, what)};
}

enum class Kind : std::uint8_t { kString, kUnsigned, kBool };
struct TypedKey {
  std::string_view key;
  Kind kind;
};
// Optional keys that the library reads on its way to the vocabulary.
constexpr std::array kTypedKeys = {
    TypedKey{"general.architecture", Kind::kString},
    TypedKey{"general.name", Kind::kString},
    TypedKey{"general.type", Kind::kString},
    TypedKey{"general.file_type", Kind::kUnsigned},
    TypedKey{"general.quantization_version", Kind::kUnsigned},
    TypedKey{"split.no", Kind::kUnsigned},
    TypedKey{"split.count", Kind::kUnsigned},
    TypedKey{"tokenizer.ggml.model", Kind::kString},
    TypedKey{"tokenizer.ggml.pre", Kind::kString},
    TypedKey{"tokenizer.ggml.token_type_count", Kind::kUnsigned},
    TypedKey{"tokenizer.ggml.add_bos_token", Kind::kBool},
    TypedKey{"tokenizer.ggml.add_eos_token", Kind::kBool},
    TypedKey{"tokenizer.ggml.add_sep_token", Kind::kBool},
    TypedKey{"tokenizer.ggml.add_space_prefix", Kind::kBool},
    TypedKey{"tokenizer.ggml.remove_extra_whitespaces", Kind::kBool},
    TypedKey{"tokenizer.ggml.normalizer.lowercase", Kind::kBool},
    TypedKey{"tokenizer.ggml.normalizer.strip_accents", Kind::kBool},
    TypedKey{"tokenizer.chat_template", Kind::kString},
};

Status CheckTypedKey(const GgufFile& file, const TypedKey& typed) {
  const GgufValue* value = file.FindValue(typed.key);
  if (value == nullptr) {
    return {};
  }
  switch (typed.kind) {
    case Kind::kUnsigned:
      return std::holds_alternative<std::uint64_t>(*value)
                 ? Status()
                 : Bad(typed.key, "is not an unsigned integer");
    case Kind::kBool:
      return std::holds_alternative<bool>(*value) ? Status() : Bad(typed.key, "is not a bool");
    case Kind::kString:
      break;
  }
  const auto* text = std::get_if<std::string_view>(value);
  if (text == nullptr) {
    return Bad(typed.key, "is not a string");
  }
  const std::size_t invalid = FindInvalidUtf8(*text);
  return invalid == std::string_view::npos
             ? Status()
             : Bad(typed.key, fmt::format("is not UTF-8 at byte {}", invalid));
}

// An array of one element type. Errors: kNotFound, kDataLoss.
Result<const GgufArray*> FindArray(const GgufFile& file, std::string_view key, GgufType type) {
  const GgufValue* value = file.FindValue(key);
  if (value == nullptr) {
    return Status(Code::kNotFound, fmt::format("GGUF: key '{}' is missing", key));
  }
  const auto* array = std::get_if<GgufArray>(value);
  if (array == nullptr || array->type != static_cast<std::uint32_t>(type)) {
    return Bad(key, fmt::format("is not an array of type {}", static_cast<std::uint32_t>(type)));
  }
  return array;
}

// As the library sees a string: up to the first NUL.
std::string_view CString(std::string_view text) { return text.substr(0, text.find('\0')); }

// Whether a byte-level BPE vocabulary can hold the character: one of the 256 that stand for bytes.
bool StandsForByte(std::uint32_t c) {
  return (c >= 0x21 && c <= 0x7e) || (c >= 0xa1 && c <= 0x143 && c != 0xad);
}

// Characters of well-formed UTF-8 that stand for no byte.
std::size_t ForeignCharacters(std::string_view text) {
  std::size_t foreign = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if ((byte & 0xc0u) == 0x80) {
      continue;  // inside a character
    }
    std::uint32_t c = byte;
    if (byte >= 0xc0 && byte < 0xe0) {
      c = (byte & 0x1fu) << 6 | (static_cast<unsigned char>(text[i + 1]) & 0x3fu);
    } else if (byte >= 0xe0) {
      c = 0x10000;  // three bytes and more are all foreign
    }
    foreign += StandsForByte(c) ? 0 : 1;
  }
  return foreign;
}

// Two tokens of one text, one that is not UTF-8, or pieces whose spelling would fill the memory.
Status CheckTokens(const std::vector<std::string_view>& tokens, bool bpe) {
  std::unordered_set<std::string> renamed;
  std::unordered_set<std::string_view> seen;
  seen.reserve(tokens.size());
  std::size_t spelled = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i].size() > kMaxTokenBytes || FindInvalidUtf8(tokens[i]) != std::string_view::npos) {
      return Bad(kTokens,
                 fmt::format("holds a token that is not UTF-8, or too long, at index {}", i));
    }
    std::string_view text = CString(tokens[i]);
    if (text.empty()) {  // the library's own name for it
      text = *renamed.insert(fmt::format("[EMPTY_{}]", i)).first;
    }
    if (!seen.insert(text).second) {
      return Bad(kTokens, fmt::format("holds a token twice, again at index {}", i));
    }
    spelled += bpe ? ForeignCharacters(text) * text.size() : 0;
    if (spelled > kMaxSpelledBytes) {
      return Bad(kTokens, fmt::format("holds oversized tokens up to index {}", i));
    }
  }
  return {};
}

// Optional arrays of one number a token.
Status CheckPerToken(const GgufFile& file, std::string_view key, GgufType type,
                     std::size_t tokens) {
  const Result<const GgufArray*> array = FindArray(file, key, type);
  if (!array) {
    return array.error().code() == Code::kNotFound ? Status() : array.error();
  }
  if ((*array)->count != tokens) {
    return Bad(key, fmt::format("has {} elements for {} tokens", (*array)->count, tokens));
  }
  return {};
}

Status CheckTokenTypes(const GgufFile& file, std::size_t tokens) {
  constexpr std::string_view kKey = "tokenizer.ggml.token_type";
  if (Status status = CheckPerToken(file, kKey, GgufType::kI32, tokens); !status.ok()) {
    return status;
  }
  const Result<const GgufArray*> types = FindArray(file, kKey, GgufType::kI32);
  for (std::size_t i = 0; types && i < tokens; ++i) {
    std::int32_t type = 0;
    std::memcpy(&type, (*types)->bytes.data() + i * sizeof type, sizeof type);
    if (type < 0 || type > kMaxTokenType) {
      return Bad(kKey,
                 fmt::format("holds {} at index {}, allowed are 0 to {}", type, i, kMaxTokenType));
    }
  }
  return {};
}

Status CheckMerges(const GgufFile& file) {
  constexpr std::string_view kKey = "tokenizer.ggml.merges";
  const Result<const GgufArray*> merges = FindArray(file, kKey, GgufType::kString);
  if (!merges) {
    return {Code::kDataLoss, merges.error().message()};
  }
  if ((*merges)->count > std::numeric_limits<std::int32_t>::max()) {
    return Bad(kKey, "is too long");
  }
  for (std::size_t i = 0; i < (*merges)->strings.size(); ++i) {
    const std::string_view merge = CString((*merges)->strings[i]);
    const std::size_t space = merge.find(' ', 1);
    if (space == std::string_view::npos || space + 1 == merge.size() ||
        FindInvalidUtf8(merge) != std::string_view::npos) {
      return Bad(kKey, fmt::format("holds no pair of parts at index {}", i));
    }
  }
  return {};
}

// Every tokenizer.ggml.*_token_id, and the ids that the library drops but should not have to.
Status CheckIds(const GgufFile& file, std::size_t tokens) {
  for (auto it = file.values.lower_bound(kPrefix);
       it != file.values.end() && std::string_view(it->first).substr(0, kPrefix.size()) == kPrefix;
       ++it) {
    const std::string_view key = it->first;
    if (key.size() < kIdSuffix.size() || key.substr(key.size() - kIdSuffix.size()) != kIdSuffix) {
      continue;
    }
    const auto* id = std::get_if<std::uint64_t>(&it->second);
    if (id == nullptr) {
      return Bad(key, "is not an unsigned integer");
    }
    if (*id >= tokens) {
      return Bad(key, fmt::format("is {}, but there are {} tokens", *id, tokens));
    }
  }
  const Result<const GgufArray*> suppress =
      FindArray(file, "tokenizer.ggml.suppress_tokens", GgufType::kI32);
  const bool bad = !suppress && suppress.error().code() != Code::kNotFound;
  return bad ? suppress.error() : Status();
}

// A token that the library adds to texts; it asserts that there is one.
struct AddedToken {
  std::string_view add_key;
  std::string_view id_key;
  std::int64_t fallback;  // the id that the library takes when the file names none, or negative
  bool by_default;        // some vocabularies add it without being asked
  bool sure;              // the fallback holds for every vocabulary of the model
};

Status CheckAdded(const GgufFile& file, const AddedToken& added, std::size_t tokens) {
  const GgufValue* add = file.FindValue(added.add_key);
  const bool adds = add == nullptr ? added.by_default : std::get<bool>(*add);
  const bool falls_back = added.fallback >= 0 &&
                          static_cast<std::size_t>(added.fallback) < tokens &&
                          (add == nullptr || added.sure);
  if (!adds || falls_back || file.FindValue(added.id_key) != nullptr) {
    return {};
  }
  return Bad(added.id_key, "is missing, but the vocabulary adds that token to texts");
}

Status CheckAddedTokens(const GgufFile& file, bool bpe, std::size_t tokens) {
  const std::array added = {
      AddedToken{"tokenizer.ggml.add_bos_token", "tokenizer.ggml.bos_token_id", bpe ? 11 : 1, true,
                 !bpe},
      AddedToken{"tokenizer.ggml.add_eos_token", "tokenizer.ggml.eos_token_id", bpe ? 11 : 2, false,
                 !bpe},
      AddedToken{"tokenizer.ggml.add_sep_token", "tokenizer.ggml.seperator_token_id", -1, false,
                 false},  // spelled so in the format
  };
  for (const AddedToken& token : added) {
    if (Status status = CheckAdded(file, token, tokens); !status.ok()) {
      return status;
    }
  }
  return {};
}

Status CheckModel(std::string_view model) {
  if (model == "llama" || model == "gpt2") {
    return {};
  }
  const std::string_view hint = model == "none" || model == "no_vocab" ? ": no vocabulary" : "";
  return {Code::kUnsupported, fmt::format("tokenizer '{}'{} is not supported, only llama and gpt2",
                                          ReplaceInvalidUtf8(model.substr(0, 40)), hint)};
}

}  // namespace

Status CheckTokenizerKeys(const GgufFile& file) {
  for (const TypedKey& typed : kTypedKeys) {
    if (Status status = CheckTypedKey(file, typed); !status.ok()) {
      return status;
    }
  }
  const Result<std::int64_t> splits = GetIntOr(file, "split.count", 1);
  if (!splits || *splits > 1) {
    return {Code::kUnsupported, "GGUF: models split over several files are not supported"};
  }
  const Result<std::string_view> model = GetString(file, "tokenizer.ggml.model");
  if (!model) {
    return {Code::kDataLoss, model.error().message()};
  }
  if (Status status = CheckModel(*model); !status.ok()) {
    return status;
  }
  const Result<const GgufArray*> tokens = FindArray(file, kTokens, GgufType::kString);
  if (!tokens) {
    return {Code::kDataLoss, tokens.error().message()};
  }
  const std::size_t count = (*tokens)->strings.size();
  if (count == 0 || count > std::numeric_limits<std::int32_t>::max()) {
    return Bad(kTokens, fmt::format("holds {} tokens", count));
  }
  const bool bpe = *model == "gpt2";
  for (const Status& status : {CheckTokens((*tokens)->strings, bpe), CheckTokenTypes(file, count),
                               CheckPerToken(file, "tokenizer.ggml.scores", GgufType::kF32, count),
                               bpe ? CheckMerges(file) : Status(), CheckIds(file, count),
                               CheckAddedTokens(file, bpe, count)}) {
    if (!status.ok()) {
      return status;
    }
  }
  return {};
}

}  // namespace rkv::model
