// GgufReader: a cursor over the bytes of a GGUF file that never leaves them.
#ifndef RKV_MODEL_GGUF_READER_H_
#define RKV_MODEL_GGUF_READER_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace rkv::model {

static_assert(std::endian::native == std::endian::little, "GGUF is read in place");

// Reading past the end returns zeros or empty views and makes ok() false for good, so that callers
// may read several fields and check once. Never allocates.
class GgufReader {
 public:
  explicit GgufReader(std::span<const std::byte> file) : file_(file) {}

  bool ok() const { return ok_; }
  std::size_t offset() const { return offset_; }
  std::size_t left() const { return file_.size() - offset_; }

  template <class T>
  T Number() {
    T value{};
    const std::span<const std::byte> bytes = Bytes(sizeof(T));
    if (ok_) {
      std::memcpy(&value, bytes.data(), sizeof(T));
    }
    return value;
  }

  std::span<const std::byte> Bytes(std::uint64_t count) {
    if (!ok_ || count > left()) {
      ok_ = false;
      return {};
    }
    const auto bytes = file_.subspan(offset_, static_cast<std::size_t>(count));
    offset_ += static_cast<std::size_t>(count);
    return bytes;
  }

  // A 64-bit length and as many bytes.
  std::string_view String() {
    const std::uint64_t length = Number<std::uint64_t>();
    const std::span<const std::byte> bytes = Bytes(length);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

 private:
  std::span<const std::byte> file_;
  std::size_t offset_ = 0;
  bool ok_ = true;
};

}  // namespace rkv::model

#endif  // RKV_MODEL_GGUF_READER_H_
