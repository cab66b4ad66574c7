#include "bench/stream_probe.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <new>

#include "base/clock.h"

namespace rkv::bench {
namespace {

constexpr std::size_t kMinDramBytes = std::size_t{256} << 20;
constexpr std::size_t kMaxDramBytes = std::size_t{2} << 30;
constexpr std::size_t kSmallestBytes = std::size_t{1} << 20;

// Several sums, so that no addition waits for the one before.
std::uint64_t SumOf(const std::uint64_t* words, std::size_t count) {
  constexpr std::size_t kSums = 16;
  std::array<std::uint64_t, kSums> sums{};
  std::size_t i = 0;
  for (; i + kSums <= count; i += kSums) {
    for (std::size_t s = 0; s < kSums; ++s) {
      sums[s] += words[i + s];
    }
  }
  std::uint64_t sum = 0;
  for (; i < count; ++i) {
    sum += words[i];
  }
  for (const std::uint64_t part : sums) {
    sum += part;
  }
  return sum;
}

}  // namespace

StreamProbe::StreamProbe(int threads, std::size_t bytes)
    : pool_(threads), sums_(static_cast<std::size_t>(pool_.threads())) {
  for (; bytes >= kSmallestBytes; bytes /= 2) {
    try {
      words_.assign(bytes / sizeof(std::uint64_t), 1);
      return;
    } catch (const std::bad_alloc&) {  // half of it then
      words_.clear();
    }
  }
}

void StreamProbe::Read(std::size_t words) {
  const std::size_t slices = sums_.size();
  pool_.ParallelFor(static_cast<std::int64_t>(slices),
                    [&](std::int64_t task, const ThreadPool::Worker& /*worker*/) {
                      const auto slice = static_cast<std::size_t>(task);
                      const std::size_t begin = words * slice / slices;
                      const std::size_t end = words * (slice + 1) / slices;
                      sums_[slice] += SumOf(words_.data() + begin, end - begin);
                    });
}

double StreamProbe::Pass(std::size_t bytes) {
  const std::size_t words = std::min(bytes / sizeof(std::uint64_t), words_.size());
  if (words == 0) {
    return 0;
  }
  if (words < words_.size()) {
    Read(words);  // into the caches; the whole buffer is larger than they are
  }
  const double start = NowSeconds();
  Read(words);
  const double seconds = NowSeconds() - start;
  return seconds > 0 ? static_cast<double>(words * sizeof(std::uint64_t)) / seconds / 1e9 : 0;
}

std::size_t DramProbeBytes() {
  const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
  const std::size_t wanted = cache > 0 ? 4 * static_cast<std::size_t>(cache) : 0;
  const std::size_t free = static_cast<std::size_t>(std::max(sysconf(_SC_AVPHYS_PAGES), 0L)) *
                           static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return std::max(std::min(std::clamp(wanted, kMinDramBytes, kMaxDramBytes), free / 4),
                  kSmallestBytes);
}

}  // namespace rkv::bench
