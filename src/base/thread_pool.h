// ThreadPool: a fixed team that runs numbered tasks; waiting spins briefly, then sleeps.
#ifndef RKV_BASE_THREAD_POOL_H_
#define RKV_BASE_THREAD_POOL_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/scratch.h"
#include "base/straggler_watch.h"

namespace rkv {

// One team of `threads` (the caller is one of them). Each member has a Scratch of its own.
// ParallelFor may be called from one thread at a time and must not be nested. A member whose CPU is
// busy with another process is left out for some milliseconds (StragglerWatch).
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
  // Where one thread waits for another. Only the owner waits; anybody may wake it.
  struct WaitPlace {
    // Spins for a moment, then sleeps, until ready() holds; whoever makes it hold calls Wake.
    template <class Ready>
    void Wait(const Ready& ready);
    template <class Ready>
    static bool Spin(const Ready& ready);
    template <class Ready>
    void Sleep(const Ready& ready);
    void Wake();

    std::atomic<bool> sleeping{false};
    std::mutex mutex;
    std::condition_variable changed;
  };
  struct alignas(64) Member {
    // 2 round: invited to a round; 2 round + 1: takes part in it; 0: neither. The caller takes back
    // an invitation that the worker, perhaps without a CPU, has not followed by the end of the
    // round.
    std::atomic<std::uint64_t> ticket{0};
    WaitPlace place;
    std::thread thread;
  };

  void WorkerLoop(int index);
  std::int64_t RunTasks(int index);
  void Invite(std::int64_t tasks, double now);
  void TakeBackInvitations();
  void WaitForWorkers(double patience);

  std::vector<Scratch> scratch_;  // of the caller, then of each worker
  std::vector<std::unique_ptr<Member>> workers_;
  StragglerWatch watch_;
  std::vector<std::size_t> guests_;    // workers that this round may have to wait for
  std::uint64_t round_ = 0;            // one more for every ParallelFor
  std::atomic<std::int64_t> next_{0};  // the next task of this round
  std::atomic<int> busy_{0};           // invitations of this round neither taken back nor ended
  std::atomic<bool> stop_{false};
  std::int64_t tasks_ = 0;  // of this round; written before the invitations
  const Task* task_ = nullptr;
  WaitPlace caller_;
};

// Threads to use by default: the CPUs this process may run on (affinity and cgroup quota).
int DefaultThreads();

}  // namespace rkv

#endif  // RKV_BASE_THREAD_POOL_H_
