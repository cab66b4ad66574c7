// ThreadPool: a fixed team that runs numbered tasks; waiting spins briefly, then sleeps.
#ifndef RKV_BASE_THREAD_POOL_H_
#define RKV_BASE_THREAD_POOL_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/scratch.h"

namespace rkv {

// One team of `threads` (the caller is one of them). Each member has a Scratch of its own.
// ParallelFor may be called from one thread at a time and must not be nested.
class ThreadPool {
 public:
  // A task's view of who runs it.
  struct Worker {
    int index;         // [0, threads)
    Scratch& scratch;  // of this member alone
  };
  using Task = std::function<void(std::int64_t task, const Worker& worker)>;

  // Starts threads - 1 workers. REQUIRES: threads >= 1.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(scratch_.size()); }
  // Bytes of scratch held by all members. Call it between ParallelFor calls only.
  std::size_t scratch_bytes() const;

  // Runs task(i, worker) for every i in [0, tasks), each once, in any order, on any member; returns
  // when all are done. Which member runs a task must not change its result.
  // Cost: about a microsecond while workers still spin, a wake-up (tens) once they sleep.
  void ParallelFor(std::int64_t tasks, const Task& task);

 private:
  void WorkerLoop(int index);
  void RunTasks(int index);

  std::vector<Scratch> scratch_;
  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
  std::atomic<std::uint64_t> generation_{0};
  std::atomic<std::int64_t> next_{0};
  std::atomic<int> running_{0};
  std::int64_t tasks_ = 0;
  const Task* task_ = nullptr;
  std::atomic<bool> stop_{false};
  int sleepers_ = 0;       // guarded by mutex_
  bool caller_sleeps_ = false;  // guarded by mutex_
};

// Threads to use by default: the CPUs this process may run on (affinity and cgroup quota).
int DefaultThreads();

}  // namespace rkv

#endif  // RKV_BASE_THREAD_POOL_H_
