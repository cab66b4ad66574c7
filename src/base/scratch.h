// Scratch: grow-only working memory of one thread, so that kernels own no state and hot loops do
// not allocate.
#ifndef RKV_BASE_SCRATCH_H_
#define RKV_BASE_SCRATCH_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

namespace rkv {

// A bump allocator. A kernel opens a Frame, takes arrays (64-byte aligned, uninitialised), and the
// Frame's end releases them. Not thread-safe: one Scratch a worker. Amortised cost: none once warm.
// Throws std::bad_alloc like any container when memory is gone; the engine's memory plan counts it.
class Scratch {
 public:
  class Frame {
   public:
    explicit Frame(Scratch& scratch)
        : scratch_(scratch), slab_(scratch.slab_), offset_(scratch.offset_) {}
    ~Frame() {
      scratch_.slab_ = slab_;
      scratch_.offset_ = offset_;
    }
    Frame(const Frame&) = delete;
    Frame& operator=(const Frame&) = delete;

    template <class T>
    T* Array(std::size_t count) {
      return static_cast<T*>(scratch_.Take(count * sizeof(T)));
    }

   private:
    Scratch& scratch_;
    std::size_t slab_;
    std::size_t offset_;
  };

  // Bytes held (not only in use).
  std::size_t bytes() const {
    std::size_t sum = 0;
    for (const Slab& slab : slabs_) {
      sum += slab.size;
    }
    return sum;
  }

 private:
  struct Free {
    void operator()(std::byte* p) const { ::operator delete[](p, std::align_val_t{64}); }
  };
  struct Slab {
    std::unique_ptr<std::byte[], Free> data;
    std::size_t size = 0;
  };

  void* Take(std::size_t bytes) {
    bytes = (bytes + 63) / 64 * 64;
    if (slab_ == slabs_.size() || offset_ + bytes > slabs_[slab_].size) {
      slab_ += offset_ > 0 ? 1 : 0;  // the first slab that holds nothing
      offset_ = 0;
      MakeRoom(bytes);
    }
    void* out = slabs_[slab_].data.get() + offset_;
    offset_ += bytes;
    return out;
  }

  // Replaces the empty slab `slab_` when it is too small, so that requests that grow from step to
  // step leave no trail of outgrown slabs behind.
  void MakeRoom(std::size_t bytes) {
    if (slab_ == slabs_.size()) {
      slabs_.emplace_back();
    }
    Slab& slab = slabs_[slab_];
    if (slab.size < bytes || slab.data == nullptr) {
      slab.data.reset();
      slab.size = 0;
      const std::size_t size = std::max(bytes + bytes / 4, kMinSlab);
      slab.data.reset(new (std::align_val_t{64}) std::byte[size]);
      slab.size = size;
    }
  }

  static constexpr std::size_t kMinSlab = std::size_t{1} << 18;
  std::vector<Slab> slabs_;
  std::size_t slab_ = 0;
  std::size_t offset_ = 0;
};

}  // namespace rkv

#endif  // RKV_BASE_SCRATCH_H_
