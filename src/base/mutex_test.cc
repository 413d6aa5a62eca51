#include "base/mutex.h"

#include <gtest/gtest.h>

#include <chrono>
#include <deque>
#include <thread>
#include <vector>

namespace kvasir {
namespace {

// The shape in which the wrapper is used: a bounded queue, both ends waiting.
class Queue {
 public:
  explicit Queue(size_t capacity) : capacity_(capacity) {}

  void Push(int value) KV_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    while (values_.size() == capacity_) changed_.Wait(mutex_);
    values_.push_back(value);
    changed_.NotifyAll();
  }

  int Pop() KV_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    while (values_.empty()) changed_.Wait(mutex_);
    const int value = values_.front();
    values_.pop_front();
    changed_.NotifyAll();
    return value;
  }

 private:
  const size_t capacity_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<int> values_ KV_GUARDED_BY(mutex_);
};

// A lost wake-up hangs, a lock that does not exclude loses or repeats a value.
TEST(Mutex, QueueHandsEveryValueOverOnceAndInOrder) {
  constexpr int kProducers = 3;
  constexpr int kEach = 2000;
  Queue queue(/*capacity=*/4);
  std::vector<std::thread> producers;
  for (int producer = 0; producer < kProducers; ++producer) {
    producers.emplace_back([&queue, producer] {
      for (int i = 0; i < kEach; ++i) queue.Push(producer * kEach + i);
    });
  }
  std::vector<int> next(kProducers, 0);
  for (int i = 0; i < kProducers * kEach; ++i) {
    const int value = queue.Pop();
    const auto producer = static_cast<size_t>(value / kEach);
    ASSERT_EQ(value % kEach, next[producer]) << "producer " << producer;
    ++next[producer];
  }
  for (std::thread& thread : producers) thread.join();
}

TEST(CondVar, WaitUntilReturnsAtTheDeadlineWithTheLockHeld) {
  Mutex mutex;
  CondVar never;
  const auto start = std::chrono::steady_clock::now();
  const auto deadline = start + std::chrono::milliseconds(30);
  {
    MutexLock lock(mutex);
    while (never.WaitUntil(mutex, deadline)) {  // A spurious wake-up waits on.
    }
    EXPECT_GE(std::chrono::steady_clock::now(), deadline);
    // Held again: another thread cannot get in before this scope ends.
    std::atomic<bool> entered{false};
    std::thread other([&] {
      MutexLock inner(mutex);
      entered = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_FALSE(entered.load());
    mutex.Unlock();
    other.join();
    mutex.Lock();
    EXPECT_TRUE(entered.load());
  }
}

TEST(LockWaits, CountTheLocksThatSomebodyElseHeldOfThisThreadOnly) {
  Mutex mutex;
  const auto wait_of_a_thread = [&](auto&& meanwhile) {
    LockWaits waits;
    std::thread waiter([&] {
      MutexLock lock(mutex);
      waits = LockWaits::OfThisThread();
    });
    meanwhile();
    waiter.join();
    return waits;
  };
  EXPECT_EQ(wait_of_a_thread([] {}).count, 0u);
  const LockWaits before = LockWaits::OfThisThread();
  LockWaits waited;
  while (waited.count == 0) {  // A thread that starts late finds the lock free.
    mutex.Lock();
    waited = wait_of_a_thread([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      mutex.Unlock();
    });
  }
  EXPECT_EQ(waited.count, 1u);
  EXPECT_GT(waited.time.count(), 0);
  EXPECT_EQ(LockWaits::OfThisThread().count, before.count);
}

}  // namespace
}  // namespace kvasir
