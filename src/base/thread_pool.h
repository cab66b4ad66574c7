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

  // Starts threads - 1 workers, fewer when the system refuses: threads() says. REQUIRES: threads
  // >= 1.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(scratch_.size()); }
  // The caller's own scratch, for a Frame that stays open over a ParallelFor.
  Scratch& caller_scratch() { return scratch_[0]; }
  // Bytes of scratch held by all members. Call it between ParallelFor calls only.
  std::size_t scratch_bytes() const;

  // Runs task(i, worker) for every i in [0, tasks), each once, in any order, on any member; returns
  // when all are done. Which member runs a task must not change its result.
  // Cost: about a microsecond while workers still spin, a wake-up (tens) once they sleep.
  void ParallelFor(std::int64_t tasks, const Task& task);
  // The same on the calling thread alone, for tasks smaller than a wake-up.
  void RunHere(std::int64_t tasks, const Task& task);

 private:
  void WorkerLoop(int index);
  void RunTasks(int index);
  // Spins for a moment, then sleeps, until ready() holds; what makes it hold is followed by Notify.
  template <class Ready>
  void Wait(const Ready& ready);
  void Notify();

  std::vector<Scratch> scratch_;
  std::vector<std::thread> workers_;
  std::atomic<std::uint64_t> round_{0};  // one more for every ParallelFor
  std::atomic<std::int64_t> next_{0};    // the next task of this round
  std::atomic<int> busy_{0};             // workers that have not finished this round
  std::atomic<bool> stop_{false};
  std::int64_t tasks_ = 0;  // of this round; written before round_
  const Task* task_ = nullptr;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<int> sleepers_{0};
};

// Threads to use by default: the CPUs this process may run on (affinity and cgroup quota).
int DefaultThreads();

}  // namespace rkv

#endif  // RKV_BASE_THREAD_POOL_H_
