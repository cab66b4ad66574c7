#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

namespace rkv {
namespace {

class ThreadPoolTest : public ::testing::TestWithParam<int> {
 protected:
  ThreadPool pool_{GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, ::testing::Range(1, 5));

TEST_P(ThreadPoolTest, RunsEachTaskOnceOnAValidWorker) {
  ASSERT_EQ(pool_.threads(), GetParam());
  for (const std::int64_t tasks : {0, 1, 2, 3, 7, 64, 5000}) {
    std::vector<std::atomic<int>> runs(static_cast<std::size_t>(tasks));
    std::atomic<int> bad_workers{0};
    pool_.ParallelFor(tasks, [&](std::int64_t task, const ThreadPool::Worker& worker) {
      runs[static_cast<std::size_t>(task)].fetch_add(1);
      if (worker.index < 0 || worker.index >= GetParam()) {
        bad_workers.fetch_add(1);
      }
    });
    EXPECT_EQ(bad_workers.load(), 0);
    for (const std::atomic<int>& count : runs) {
      ASSERT_EQ(count.load(), 1);
    }
  }
}

TEST_P(ThreadPoolTest, NegativeTaskCountsRunNothing) {
  pool_.ParallelFor(-1, [](std::int64_t, const ThreadPool::Worker&) { FAIL(); });
}

TEST_P(ThreadPoolTest, WhatTasksWroteIsVisibleAfterwards) {
  std::vector<std::int64_t> out(1000, -1);  // plain memory: a missing barrier is a race under TSan
  for (int round = 0; round < 20; ++round) {
    pool_.ParallelFor(1000, [&](std::int64_t task, const ThreadPool::Worker&) {
      out[static_cast<std::size_t>(task)] = task * round;
    });
    for (std::size_t i = 0; i < out.size(); ++i) {
      ASSERT_EQ(out[i], static_cast<std::int64_t>(i) * round);
    }
  }
}

TEST_P(ThreadPoolTest, EveryMemberHasAScratchOfItsOwn) {
  std::atomic<int> clashes{0};
  pool_.ParallelFor(200, [&](std::int64_t task, const ThreadPool::Worker& worker) {
    Scratch::Frame frame(worker.scratch);
    auto* const bytes = frame.Array<unsigned char>(4096);
    std::memset(bytes, static_cast<int>(task % 251), 4096);
    std::this_thread::yield();
    for (int i = 0; i < 4096; ++i) {
      clashes.fetch_add(bytes[i] == task % 251 ? 0 : 1);
    }
  });
  EXPECT_EQ(clashes.load(), 0);
  EXPECT_GT(pool_.scratch_bytes(), 0u);
}

TEST_P(ThreadPoolTest, WorksAfterItsWorkersFellAsleep) {
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // a hundred times the spin
    std::atomic<std::int64_t> sum{0};
    pool_.ParallelFor(100,
                      [&](std::int64_t task, const ThreadPool::Worker&) { sum.fetch_add(task); });
    EXPECT_EQ(sum.load(), 4950);
  }
}

TEST_P(ThreadPoolTest, TheCallerSleepsThroughALongTaskOfAnother) {
  std::atomic<int> done{0};
  pool_.ParallelFor(GetParam(), [&](std::int64_t task, const ThreadPool::Worker&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(task == 0 ? 0 : 5));
    done.fetch_add(1);
  });
  EXPECT_EQ(done.load(), GetParam());
}

TEST_P(ThreadPoolTest, SurvivesManyTinyRounds) {
  std::int64_t expected = 0;
  std::atomic<std::int64_t> sum{0};
  for (int round = 0; round < 2000; ++round) {
    const std::int64_t tasks = round % 5;
    expected += tasks * (tasks - 1) / 2;
    pool_.ParallelFor(tasks,
                      [&](std::int64_t task, const ThreadPool::Worker&) { sum.fetch_add(task); });
  }
  EXPECT_EQ(sum.load(), expected);
}

TEST_P(ThreadPoolTest, AnotherThreadMayCallItLater) {
  std::atomic<int> count{0};
  const auto run = [&] {
    pool_.ParallelFor(10, [&](std::int64_t, const ThreadPool::Worker&) { count.fetch_add(1); });
  };
  run();
  std::thread other(run);
  other.join();
  EXPECT_EQ(count.load(), 20);
}

TEST(ThreadPool, StartsAndStopsWithoutWork) {
  for (int i = 0; i < 50; ++i) {
    const ThreadPool pool(1 + i % 4);
    EXPECT_EQ(pool.scratch_bytes(), 0u);
  }
}

TEST(DefaultThreads, IsAtLeastOneAndAtMostTheCpus) {
  EXPECT_GE(DefaultThreads(), 1);
  EXPECT_LE(DefaultThreads(), std::max(1u, std::thread::hardware_concurrency()));
}

}  // namespace
}  // namespace rkv
