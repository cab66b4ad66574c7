// BlockPool: equal-sized blocks cut from large slabs; freed memory goes back to the system.
#ifndef RKV_KV_BLOCK_POOL_H_
#define RKV_KV_BLOCK_POOL_H_

#include <cstddef>
#include <set>
#include <vector>

#include "base/buffer.h"
#include "rkv/status.h"

namespace rkv::kv {

// Hands out blocks of one size, lowest free address first, so that what stays after an eviction is
// packed into few slabs. Not thread-safe. Outlives every HeadStore that uses it.
class BlockPool {
 public:
  // `block_bytes` rounded up to whole cache lines: what a block takes.
  static constexpr std::size_t BytesOf(std::size_t block_bytes) {
    return (block_bytes + 63) / 64 * 64;
  }

  // REQUIRES: block_bytes > 0.
  explicit BlockPool(std::size_t block_bytes);

  // Errors: kResourceExhausted when the system has no memory.
  Result<std::byte*> Allocate();
  // REQUIRES: `block` came from Allocate of this pool and is not free.
  void Free(std::byte* block);
  // Gives the memory of free blocks back to the system: whole slabs are unmapped, pages that only
  // free blocks lie in are discarded. Call it once a prefill, not once a layer.
  void Trim();

  std::size_t block_bytes() const { return block_bytes_; }
  // Blocks handed out now.
  std::size_t used_blocks() const { return used_; }
  // Bytes of address space mapped now (slabs).
  std::size_t mapped_bytes() const;

 private:
  std::size_t block_bytes_;
  std::size_t slab_blocks_ = 1;
  std::vector<Buffer> slabs_;
  std::set<std::byte*> free_;  // by address
  std::size_t used_ = 0;
};

}  // namespace rkv::kv

#endif  // RKV_KV_BLOCK_POOL_H_
