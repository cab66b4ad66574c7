// Buffer: page-aligned memory from the system, zero-filled, given back at once when freed.
#ifndef RKV_BASE_BUFFER_H_
#define RKV_BASE_BUFFER_H_

#include <cstddef>
#include <span>

#include "rkv/status.h"

namespace rkv {

// Owns `size` bytes from mmap, aligned to 2 MiB when larger than that (with a huge-page hint),
// else to a page. Move-only; freeing unmaps, so that the resident size falls.
class Buffer {
 public:
  Buffer() = default;
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  // Errors: kResourceExhausted names the bytes asked for. size 0 gives an empty buffer.
  static Result<Buffer> Allocate(std::size_t size);

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  template <class T>
  T* as() {
    return reinterpret_cast<T*>(data_);
  }
  template <class T>
  const T* as() const {
    return reinterpret_cast<const T*>(data_);
  }

  // Gives the physical pages of [offset, offset + bytes) back; they read as zero afterwards.
  // REQUIRES: both multiples of 4096 and inside the buffer.
  void Discard(std::size_t offset, std::size_t bytes);

 private:
  std::byte* data_ = nullptr;  // aligned start
  std::size_t size_ = 0;
  std::byte* map_ = nullptr;  // what mmap returned
  std::size_t map_size_ = 0;
};

}  // namespace rkv

#endif  // RKV_BASE_BUFFER_H_
