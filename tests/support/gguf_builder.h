// GgufBuilder: assembles GGUF bytes in memory, right or deliberately wrong, for tests.
#ifndef RKV_TESTS_SUPPORT_GGUF_BUILDER_H_
#define RKV_TESTS_SUPPORT_GGUF_BUILDER_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rkv::testing {

// Little-endian bytes, appended.
class ByteWriter {
 public:
  template <class T>
  ByteWriter& Number(T value) {
    const std::size_t at = bytes_.size();
    bytes_.resize(at + sizeof value);
    std::memcpy(bytes_.data() + at, &value, sizeof value);
    return *this;
  }
  ByteWriter& U32(std::uint32_t value) { return Number(value); }
  ByteWriter& U64(std::uint64_t value) { return Number(value); }
  ByteWriter& Raw(std::span<const std::byte> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  ByteWriter& Text(std::string_view text) { return Raw(std::as_bytes(std::span(text))); }
  // A 64-bit length and the text.
  ByteWriter& String(std::string_view text) { return U64(text.size()).Text(text); }
  ByteWriter& PadTo(std::size_t alignment) {
    bytes_.resize((bytes_.size() + alignment - 1) / alignment * alignment);
    return *this;
  }
  std::size_t size() const { return bytes_.size(); }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

// One tensor entry; what is not set is computed from the rest.
struct GgufBuilderTensor {
  std::string name;
  std::vector<std::uint64_t> dims;
  std::uint32_t type = 0;  // ggml_type
  std::vector<std::byte> data;
  std::optional<std::uint64_t> offset;
  std::optional<std::uint32_t> dim_count;
};

// Keys and tensors come out in the order they were added; a key added again replaces the first.
// Public fields override what the header says.
class GgufBuilder {
 public:
  std::string magic = "GGUF";
  std::uint32_t version = 3;
  std::size_t alignment = 32;
  std::optional<std::uint64_t> key_count;
  std::optional<std::uint64_t> tensor_count;
  std::vector<GgufBuilderTensor> tensors;

  // A value of any type: the type number and its bytes.
  GgufBuilder& Key(std::string_view key, std::uint32_t type, const ByteWriter& value) {
    Remove(key);
    keys_.push_back({std::string(key), type, value.bytes()});
    return *this;
  }
  // As Key, even when the key is there already.
  GgufBuilder& RepeatKey(std::string_view key, std::uint32_t type, const ByteWriter& value) {
    keys_.push_back({std::string(key), type, value.bytes()});
    return *this;
  }
  GgufBuilder& Remove(std::string_view key) {
    std::erase_if(keys_, [key](const Entry& entry) { return entry.key == key; });
    return *this;
  }
  GgufBuilder& U32(std::string_view key, std::uint32_t value) {
    return Key(key, 4, ByteWriter().U32(value));
  }
  GgufBuilder& I32(std::string_view key, std::int32_t value) {
    return Key(key, 5, ByteWriter().Number(value));
  }
  GgufBuilder& F32(std::string_view key, float value) {
    return Key(key, 6, ByteWriter().Number(value));
  }
  GgufBuilder& Bool(std::string_view key, bool value) {
    return Key(key, 7, ByteWriter().Number<std::uint8_t>(value ? 1 : 0));
  }
  GgufBuilder& String(std::string_view key, std::string_view value) {
    return Key(key, 8, ByteWriter().String(value));
  }
  GgufBuilder& Strings(std::string_view key, const std::vector<std::string>& values) {
    ByteWriter out;
    out.U32(8).U64(values.size());
    for (const std::string& value : values) {
      out.String(value);
    }
    return Key(key, 9, out);
  }
  // An array of numbers whose GGUF type is `type`.
  template <class T>
  GgufBuilder& Numbers(std::string_view key, std::uint32_t type, const std::vector<T>& values) {
    ByteWriter out;
    out.U32(type).U64(values.size());
    for (const T value : values) {
      out.Number(value);
    }
    return Key(key, 9, out);
  }

  GgufBuilder& Tensor(std::string_view name, std::vector<std::uint64_t> dims, std::uint32_t type,
                      std::vector<std::byte> data) {
    RemoveTensor(name);
    tensors.push_back({std::string(name), std::move(dims), type, std::move(data), {}, {}});
    return *this;
  }
  GgufBuilder& FloatTensor(std::string_view name, std::vector<std::uint64_t> dims,
                           std::span<const float> values) {
    const auto bytes = std::as_bytes(values);
    return Tensor(name, std::move(dims), 0, {bytes.begin(), bytes.end()});
  }
  GgufBuilder& RemoveTensor(std::string_view name) {
    std::erase_if(tensors, [name](const auto& tensor) { return tensor.name == name; });
    return *this;
  }
  // REQUIRES: the tensor is there.
  GgufBuilderTensor& Find(std::string_view name) {
    std::size_t i = 0;
    while (tensors.at(i).name != name) {
      ++i;
    }
    return tensors[i];
  }

  // Bytes up to the data section.
  std::vector<std::byte> BuildHeader() const { return Build(false); }
  std::vector<std::byte> Build() const { return Build(true); }

  void Write(const std::string& path) const { WriteBytes(path, Build()); }
  static void WriteBytes(const std::string& path, std::span<const std::byte> bytes) {
    std::ofstream out(path, std::ios::binary | std::ios::trunc);
    out.write(reinterpret_cast<const char*>(bytes.data()),
              static_cast<std::streamsize>(bytes.size()));
  }

 private:
  struct Entry {
    std::string key;
    std::uint32_t type;
    std::vector<std::byte> value;
  };

  std::vector<std::byte> Build(bool with_data) const {
    ByteWriter out;
    out.Text(magic).U32(version).U64(tensor_count.value_or(tensors.size()));
    out.U64(key_count.value_or(keys_.size()));
    for (const Entry& entry : keys_) {
      out.String(entry.key).U32(entry.type).Raw(entry.value);
    }
    ByteWriter data;
    for (const GgufBuilderTensor& tensor : tensors) {
      out.String(tensor.name);
      out.U32(tensor.dim_count.value_or(static_cast<std::uint32_t>(tensor.dims.size())));
      for (const std::uint64_t dim : tensor.dims) {
        out.U64(dim);
      }
      data.PadTo(alignment);
      out.U32(tensor.type).U64(tensor.offset.value_or(data.size()));
      data.Raw(tensor.data);
    }
    if (with_data && !tensors.empty()) {
      out.PadTo(alignment).Raw(data.PadTo(alignment).bytes());
    }
    return out.bytes();
  }

  std::vector<Entry> keys_;
};

}  // namespace rkv::testing

#endif  // RKV_TESTS_SUPPORT_GGUF_BUILDER_H_
