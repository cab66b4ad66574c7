#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>
#include <system_error>
#include <utility>

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

ThreadPool::ThreadPool(int threads)
    : scratch_(static_cast<std::size_t>(threads)), watch_(static_cast<std::size_t>(threads)) {
  Check(threads >= 1, "a pool needs a thread");
  UseOneGemmThread();
  workers_.reserve(static_cast<std::size_t>(threads));
  try {
    for (int i = 1; i < threads; ++i) {
      auto member = std::make_unique<Member>();
      Member& place = *member;
      workers_.push_back(std::move(member));
      place.thread = std::thread([this, i] { WorkerLoop(i); });
    }
  } catch (const std::system_error&) {  // the system has no more threads: go on with those we got
    workers_.pop_back();
    scratch_.resize(workers_.size() + 1);
  }
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  for (const auto& worker : workers_) {
    worker->place.Wake();
    worker->thread.join();
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
bool ThreadPool::WaitPlace::Spin(const Ready& ready) {
  const double give_up = NowSeconds() + kSpinSeconds;
  do {
    for (int i = 0; i < 64; ++i) {
      if (ready()) {
        return true;
      }
      Pause();
    }
  } while (NowSeconds() < give_up);
  return false;
}

// A waker changes its atomic, then reads `sleeping`; a sleeper sets `sleeping`, then reads the
// atomic. Both sequentially consistent, so at least one of them sees the other.
template <class Ready>
void ThreadPool::WaitPlace::Sleep(const Ready& ready) {
  std::unique_lock lock(mutex);
  sleeping.store(true);
  changed.wait(lock, ready);
  sleeping.store(false);
}

template <class Ready>
void ThreadPool::WaitPlace::Wait(const Ready& ready) {
  if (!Spin(ready)) {
    Sleep(ready);
  }
}

void ThreadPool::WaitPlace::Wake() {
  if (sleeping.load()) {
    { const std::lock_guard lock(mutex); }  // a sleeper between its check and its wait holds this
    changed.notify_one();
  }
}

std::int64_t ThreadPool::RunTasks(int index) {
  const Worker worker{index, scratch_[static_cast<std::size_t>(index)]};
  std::int64_t count = 0;
  for (std::int64_t i = next_.fetch_add(1); i < tasks_; i = next_.fetch_add(1)) {
    (*task_)(i, worker);
    ++count;
  }
  return count;
}

void ThreadPool::WorkerLoop(int index) {
  UseOneGemmThread();
  Member& self = *workers_[static_cast<std::size_t>(index) - 1];
  const auto invited = [&] {
    const std::uint64_t ticket = self.ticket.load();
    return ticket != 0 && ticket % 2 == 0;
  };
  for (;;) {
    self.place.Wait([&] { return stop_.load() || invited(); });
    if (stop_.load()) {
      return;
    }
    std::uint64_t ticket = self.ticket.load();
    if (ticket == 0 || !self.ticket.compare_exchange_strong(ticket, ticket + 1)) {
      continue;  // taken back
    }
    RunTasks(index);
    self.ticket.store(0);
    if (busy_.fetch_sub(1) == 1) {
      caller_.Wake();
    }
  }
}

// Asks workers to take part in a round: no more than there are tasks for, none that pauses.
void ThreadPool::Invite(std::int64_t tasks, double now) {
  ++round_;
  guests_.clear();
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    if (watch_.TakesPart(i, now) && static_cast<std::int64_t>(guests_.size()) + 1 < tasks) {
      guests_.push_back(i);
    }
  }
  busy_.store(static_cast<int>(guests_.size()));
  for (const std::size_t i : guests_) {
    workers_[i]->ticket.store(2 * round_);
    workers_[i]->place.Wake();
  }
}

// No task is left: a worker that has not begun is not waited for.
void ThreadPool::TakeBackInvitations() {
  std::erase_if(guests_, [&](std::size_t i) {
    std::uint64_t ticket = 2 * round_;
    const bool taken_back = workers_[i]->ticket.compare_exchange_strong(ticket, 0);
    busy_.fetch_sub(taken_back ? 1 : 0);
    return taken_back;
  });
}

void ThreadPool::WaitForWorkers(double patience) {
  const auto ready = [&] { return busy_.load() == 0; };
  const double start = NowSeconds();
  if (WaitPlace::Spin(ready)) {
    return;
  }
  std::erase_if(guests_, [&](std::size_t i) { return workers_[i]->ticket.load() == 0; });
  caller_.Sleep(ready);
  const double now = NowSeconds();
  if (now - start > patience) {
    for (const std::size_t i : guests_) {
      watch_.Late(i, now);
    }
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
  const double start = NowSeconds();
  tasks_ = tasks;
  task_ = &task;
  next_.store(0);
  Invite(tasks, start);
  const std::int64_t mine = RunTasks(0);
  TakeBackInvitations();
  if (busy_.load() != 0) {
    const double mean =
        (NowSeconds() - start) / static_cast<double>(std::max<std::int64_t>(mine, 1));
    WaitForWorkers(StragglerWatch::Patience(mean));
  }
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
