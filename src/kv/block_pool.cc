#include "kv/block_pool.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/check.h"

namespace rkv::kv {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kSlabBytes = std::size_t{2} << 20;  // one huge page

}  // namespace

BlockPool::BlockPool(std::size_t block_bytes) : block_bytes_(BytesOf(block_bytes)) {
  Check(block_bytes > 0 && block_bytes_ >= block_bytes, "block size out of range");
  slab_blocks_ = block_bytes_ >= kSlabBytes ? 1 : (kSlabBytes + block_bytes_ - 1) / block_bytes_;
}

Result<std::byte*> BlockPool::Allocate() {
  if (free_.empty()) {
    Result<Buffer> slab = Buffer::Allocate(slab_blocks_ * block_bytes_);
    if (!slab) {
      return slab.error();
    }
    std::byte* const data = slab->data();
    for (std::size_t i = 0; i < slab_blocks_; ++i) {
      free_.insert(free_.end(), data + i * block_bytes_);
    }
    const auto behind = std::upper_bound(
        slabs_.begin(), slabs_.end(), data,
        [](const std::byte* a, const Buffer& b) { return std::less<>()(a, b.data()); });
    slabs_.insert(behind, *std::move(slab));
  }
  std::byte* const block = *free_.begin();
  free_.erase(free_.begin());
  ++used_;
  return block;
}

void BlockPool::Free(std::byte* block) {
  auto slab = std::upper_bound(
      slabs_.begin(), slabs_.end(), block,
      [](const std::byte* a, const Buffer& b) { return std::less<>()(a, b.data()); });
  Check(slab != slabs_.begin(), "freed block is not of this pool");
  --slab;
  const auto offset = static_cast<std::size_t>(block - slab->data());
  Check(offset < slab->size() && offset % block_bytes_ == 0, "freed block is not of this pool");
  Check(free_.insert(block).second, "block freed twice");
  --used_;
}

void BlockPool::Trim() {
  for (std::size_t i = 0; i < slabs_.size();) {
    Buffer& slab = slabs_[i];
    const auto first = free_.lower_bound(slab.data());
    const auto last = free_.lower_bound(slab.data() + slab.size());
    if (static_cast<std::size_t>(std::distance(first, last)) == slab_blocks_) {
      free_.erase(first, last);
      slabs_.erase(slabs_.begin() + static_cast<std::ptrdiff_t>(i));
      continue;
    }
    for (auto block = first; block != last;) {  // runs of free blocks
      const auto begin = static_cast<std::size_t>(*block - slab.data());
      std::size_t end = begin;
      for (; block != last && *block == slab.data() + end; ++block) {
        end += block_bytes_;
      }
      const std::size_t first_page = (begin + kPage - 1) / kPage * kPage;
      const std::size_t last_page = end / kPage * kPage;
      if (first_page < last_page) {
        slab.Discard(first_page, last_page - first_page);
      }
    }
    ++i;
  }
}

std::size_t BlockPool::mapped_bytes() const { return slabs_.size() * slab_blocks_ * block_bytes_; }

}  // namespace rkv::kv
