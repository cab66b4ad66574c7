// MemoryMeter: what the cache holds now and held at most.
#ifndef RKV_KV_MEMORY_METER_H_
#define RKV_KV_MEMORY_METER_H_

#include <atomic>
#include <cstddef>

namespace rkv::kv {

// Counts bytes of rows, of their positions and of indexes in one session; the peak is of the sum at
// one moment. Thread-safe, as indexes of several heads grow at once; a peak that two threads make
// together may be missed by what one of them adds.
class MemoryMeter {
 public:
  void AddRows(std::size_t bytes) { rows_ += bytes, Touch(); }
  void SubRows(std::size_t bytes) { rows_ -= bytes; }
  void AddIndex(std::size_t bytes) { index_ += bytes, Touch(); }
  void SubIndex(std::size_t bytes) { index_ -= bytes; }

  // K/V blocks with positions, whole blocks counted.
  std::size_t row_bytes() const { return rows_; }
  std::size_t index_bytes() const { return index_; }
  std::size_t bytes() const { return rows_ + index_; }
  std::size_t peak_bytes() const { return peak_; }
  // Starts a new peak at what is held now.
  void ResetPeak() { peak_ = bytes(); }

 private:
  void Touch() {
    const std::size_t now = bytes();
    for (std::size_t peak = peak_; peak < now && !peak_.compare_exchange_weak(peak, now);) {
    }
  }

  std::atomic<std::size_t> rows_ = 0;
  std::atomic<std::size_t> index_ = 0;
  std::atomic<std::size_t> peak_ = 0;
};

}  // namespace rkv::kv

#endif  // RKV_KV_MEMORY_METER_H_
