#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>
#include <system_error>

#include "base/check.h"
#include "base/clock.h"
#include "base/gemm.h"

namespace rkv {
namespace {

// Longer than the gap between two parallel regions of a decoded token, far shorter than a time
// slice that somebody else's process could use.
constexpr double kSpinSeconds = 50e-6;

void Pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

ThreadPool::ThreadPool(int threads) : scratch_(static_cast<std::size_t>(threads)) {
  Check(threads >= 1, "a pool needs a thread");
  UseOneGemmThread();
  workers_.reserve(static_cast<std::size_t>(threads));
  try {
    for (int i = 1; i < threads; ++i) {
      workers_.emplace_back([this, i] { WorkerLoop(i); });
    }
  } catch (const std::system_error&) {  // the system has no more threads: go on with those we got
    scratch_.resize(workers_.size() + 1);
  }
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  Notify();
  for (std::thread& worker : workers_) {
    worker.join();
  }
}

std::size_t ThreadPool::scratch_bytes() const {
  std::size_t sum = 0;
  for (const Scratch& scratch : scratch_) {
    sum += scratch.bytes();
  }
  return sum;
}

template <class Ready>
void ThreadPool::Wait(const Ready& ready) {
  const double give_up = NowSeconds() + kSpinSeconds;
  do {
    for (int i = 0; i < 64; ++i) {
      if (ready()) {
        return;
      }
      Pause();
    }
  } while (NowSeconds() < give_up);
  // A waker changes its atomic, then reads sleepers_; a sleeper raises sleepers_, then reads the
  // atomic. Both sequentially consistent, so at least one of them sees the other.
  std::unique_lock lock(mutex_);
  sleepers_.fetch_add(1);
  changed_.wait(lock, ready);
  sleepers_.fetch_sub(1);
}

void ThreadPool::Notify() {
  if (sleepers_.load() > 0) {
    { const std::lock_guard lock(mutex_); }  // a sleeper between its check and its wait holds this
    changed_.notify_all();
  }
}

void ThreadPool::RunTasks(int index) {
  const Worker worker{index, scratch_[static_cast<std::size_t>(index)]};
  for (std::int64_t i = next_.fetch_add(1); i < tasks_; i = next_.fetch_add(1)) {
    (*task_)(i, worker);
  }
}

void ThreadPool::WorkerLoop(int index) {
  UseOneGemmThread();
  for (std::uint64_t seen = 0;;) {
    Wait([&] { return stop_.load() || round_.load() != seen; });
    if (stop_.load()) {
      return;
    }
    seen = round_.load();
    RunTasks(index);
    busy_.fetch_sub(1);
    Notify();
  }
}

void ThreadPool::ParallelFor(std::int64_t tasks, const Task& task) {
  if (tasks <= 0) {
    return;
  }
  UseOneGemmThread();  // the caller may be a new thread
  if (tasks == 1 || workers_.empty()) {
    RunHere(tasks, task);
    return;
  }
  tasks_ = tasks;
  task_ = &task;
  next_.store(0);
  busy_.store(static_cast<int>(workers_.size()));
  round_.fetch_add(1);
  Notify();
  RunTasks(0);
  Wait([&] { return busy_.load() == 0; });
}

void ThreadPool::RunHere(std::int64_t tasks, const Task& task) {
  const Worker worker{0, scratch_[0]};
  for (std::int64_t i = 0; i < tasks; ++i) {
    task(i, worker);
  }
}

int DefaultThreads() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int cpus = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  std::ifstream quota("/sys/fs/cgroup/cpu.max");  // "max 100000" or "150000 100000"
  std::string limit;
  double period = 0;
  if (quota >> limit >> period && limit != "max" && period > 0) {
    const double allowed = std::strtod(limit.c_str(), nullptr) / period;
    cpus = allowed > 0 ? std::min(cpus, std::max(1, static_cast<int>(allowed))) : cpus;
  }
  return std::max(1, cpus);
}

}  // namespace rkv
