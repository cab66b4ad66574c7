// MemoryLimit: makes the system refuse memory, so that tests reach the out-of-memory paths.
#ifndef RKV_TESTS_SUPPORT_MEMORY_LIMIT_H_
#define RKV_TESTS_SUPPORT_MEMORY_LIMIT_H_

#include <sys/resource.h>
#include <unistd.h>

#include <cstddef>
#include <fstream>

namespace rkv::test {

// While it lives, this process gets at most `spare_bytes` of address space more. Not thread-safe.
class MemoryLimit {
 public:
  explicit MemoryLimit(std::size_t spare_bytes) {
    getrlimit(RLIMIT_AS, &before_);
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    rlimit limit = before_;
    limit.rlim_cur = pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) + spare_bytes;
    setrlimit(RLIMIT_AS, &limit);
  }
  ~MemoryLimit() { setrlimit(RLIMIT_AS, &before_); }
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;

 private:
  rlimit before_{};
};

}  // namespace rkv::test

#endif  // RKV_TESTS_SUPPORT_MEMORY_LIMIT_H_
