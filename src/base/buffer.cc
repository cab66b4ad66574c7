#include "base/buffer.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <utility>

#include "base/check.h"

namespace rkv {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kHugePage = std::size_t{2} << 20;

std::size_t RoundUp(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

Buffer::~Buffer() {
  if (map_ != nullptr) {
    munmap(map_, map_size_);
  }
}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      map_(std::exchange(other.map_, nullptr)),
      map_size_(std::exchange(other.map_size_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(map_, other.map_);
  std::swap(map_size_, other.map_size_);
  return *this;
}

Result<Buffer> Buffer::Allocate(std::size_t size) {
  Buffer buffer;
  if (size == 0) {
    return buffer;
  }
  const bool huge = size >= kHugePage;
  const std::size_t align = huge ? kHugePage : kPage;
  const Status failed(Code::kResourceExhausted,
                      fmt::format("the system has no {} bytes left", size));
  if (size > SIZE_MAX / 2) {
    return failed;
  }
  const std::size_t map_size = RoundUp(size, kPage) + (huge ? kHugePage : 0);
  void* map = mmap(nullptr, map_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) {
    return failed;
  }
  buffer.map_ = static_cast<std::byte*>(map);
  buffer.map_size_ = map_size;
  const auto address = reinterpret_cast<std::size_t>(map);
  buffer.data_ = buffer.map_ + (RoundUp(address, align) - address);
  buffer.size_ = size;
  if (huge) {  // only whole huge pages, so that a small tail does not take 2 MiB
    madvise(buffer.data_, size / kHugePage * kHugePage, MADV_HUGEPAGE);
  }
  return buffer;
}

void Buffer::Discard(std::size_t offset, std::size_t bytes) {
  Check(offset % kPage == 0 && bytes % kPage == 0 && offset + bytes <= RoundUp(size_, kPage),
        "Discard outside the buffer");
  if (bytes > 0) {
    madvise(data_ + offset, bytes, MADV_DONTNEED);
  }
}

}  // namespace rkv
