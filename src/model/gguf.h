// GGUF container: parsing with every count, type, offset and size checked against the file, before
// any other library sees it.
#ifndef RKV_MODEL_GGUF_H_
#define RKV_MODEL_GGUF_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "rkv/status.h"

namespace rkv::model {

// An array value, still in the file's bytes. Element bytes for numbers and bools; strings are read
// through `strings`.
struct GgufArray {
  std::uint32_t type = 0;  // GGUF value type of the elements
  std::uint64_t count = 0;
  std::span<const std::byte> bytes;       // numbers and bools, little endian, packed
  std::vector<std::string_view> strings;  // when type is string
};

// Integers widen to i64 / u64 by their sign.
using GgufValue =
    std::variant<std::uint64_t, std::int64_t, double, bool, std::string_view, GgufArray>;

struct GgufTensor {
  std::string name;
  std::uint32_t type = 0;          // ggml_type
  std::vector<std::int64_t> dims;  // ggml order: dims[0] is the row length
  std::size_t bytes = 0;
  std::span<const std::byte> data;  // inside the file
};

// A view of the parsed file: valid as long as the bytes it was parsed from.
struct GgufFile {
  std::uint32_t version = 0;
  std::size_t alignment = 32;
  std::map<std::string, GgufValue, std::less<>> values;
  std::vector<GgufTensor> tensors;
  std::map<std::string, std::size_t, std::less<>> tensor_index;

  const GgufTensor* FindTensor(std::string_view name) const;
  const GgufValue* FindValue(std::string_view key) const;
};

// Parses and checks a whole GGUF v2 or v3 file: magic, version, counts against the bytes left,
// value and tensor types, strings, duplicate names, dimensions (1 to 4, none 0, products in 64
// bits), rows a multiple of the type's block, alignment (a power of two, 8 to 65536), offsets
// aligned, inside the file and not overlapping. Errors: kDataLoss (what is wrong, where: key,
// tensor or byte offset) and kUnsupported (a version, byte order or tensor type that this build
// does not know, more than 65536 keys or tensors). Never reads outside `file`, never allocates more
// than a few times the file's size.
Result<GgufFile> ParseGguf(std::span<const std::byte> file);

// Checks what the tokenizer library trusts: types and lengths of tokenizer.* keys, ids inside the
// vocabulary, merges of two parts, UTF-8. Errors: kDataLoss names the key; kUnsupported for
// tokenizers other than llama and gpt2, and for models split over several files.
Status CheckTokenizerKeys(const GgufFile& file);

// Typed access. Missing keys give kNotFound (or the default), wrong types kDataLoss; both name the
// key.
Result<std::int64_t> GetInt(const GgufFile& file, std::string_view key);
Result<double> GetFloat(const GgufFile& file, std::string_view key);
Result<std::string_view> GetString(const GgufFile& file, std::string_view key);
Result<std::int64_t> GetIntOr(const GgufFile& file, std::string_view key, std::int64_t missing);
Result<double> GetFloatOr(const GgufFile& file, std::string_view key, double missing);

}  // namespace rkv::model

#endif  // RKV_MODEL_GGUF_H_
