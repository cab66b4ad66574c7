// StreamProbe: how fast all threads together read memory, the limit of decoding.
#ifndef RKV_BENCH_STREAM_PROBE_H_
#define RKV_BENCH_STREAM_PROBE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/thread_pool.h"
#include "rkv/status.h"

namespace rkv::bench {

// A buffer that a team of threads reads, each thread a slice of its own. Not thread-safe.
class StreamProbe {
 public:
  // Errors: none; without the memory asked for, capacity() is what could be had.
  StreamProbe(int threads, std::size_t bytes);

  std::size_t capacity() const { return words_.size() * sizeof(std::uint64_t); }

  // GB/s (10^9) of one pass over the first `bytes` (at most the capacity). Less than the capacity
  // is read once before, so that caches hold what they can, as they do between two decoded tokens.
  double Pass(std::size_t bytes);

 private:
  void Read(std::size_t words);

  ThreadPool pool_;
  std::vector<std::uint64_t> words_;
  std::vector<std::uint64_t> sums_;  // of each slice; keeps the reads from being optimised away
};

// Bytes that no cache holds: four times the last level, 256 MiB at least, 2 GiB and a quarter of
// the free memory at most.
std::size_t DramProbeBytes();

}  // namespace rkv::bench

#endif  // RKV_BENCH_STREAM_PROBE_H_
