// Mutex, MutexLock, CondVar: the standard ones, with the attributes that let clang prove at compile
// time that guarded members are touched only under their lock (-Wthread-safety, preset clang).
//
// Ours because Debian's Abseil is not instrumented: under the thread sanitizer a correct
// absl::MutexLock reports a race. std::lock_guard over a plain std::mutex carries no attributes in
// libstdc++, so clang cannot check it. Under other compilers the attributes vanish.
//
//   class Counter {
//    public:
//     void Add(int n) {
//       MutexLock lock(mutex_);
//       total_ += n;
//     }
//    private:
//     Mutex mutex_;
//     int total_ KV_GUARDED_BY(mutex_) = 0;
//   };
//
// How long a thread had to wait for locks is counted (LockWaits), since the engine thread should
// not wait at all; a lock that is free costs no look at a clock.
// Thread: any. Not recursive: locking twice on one thread deadlocks.
// Source: clang's Thread Safety Analysis (Hutchins, Ballman, Sutherland, SCAM 2014).
#ifndef KVASIR_BASE_MUTEX_H_
#define KVASIR_BASE_MUTEX_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#if defined(__clang__)
#define KV_THREAD_ATTRIBUTE(x) __attribute__((x))
#else
#define KV_THREAD_ATTRIBUTE(x)
#endif

// On a member: read and written only while `mutex` is held.
#define KV_GUARDED_BY(mutex) KV_THREAD_ATTRIBUTE(guarded_by(mutex))
// On a function: the caller holds the mutexes / does not hold them.
#define KV_REQUIRES(...) KV_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define KV_EXCLUDES(...) KV_THREAD_ATTRIBUTE(locks_excluded(__VA_ARGS__))

namespace kvasir {

// Locks of the calling thread that somebody else held, and the time until they were had. Sleeping
// in CondVar is not waiting for a lock, and the lock it takes on waking up is not counted.
struct LockWaits {
  uint64_t count = 0;
  std::chrono::nanoseconds time{0};

  static LockWaits& OfThisThread() {
    static thread_local LockWaits waits;
    return waits;
  }
};

class KV_THREAD_ATTRIBUTE(capability("mutex")) Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() KV_THREAD_ATTRIBUTE(acquire_capability()) {
    if (mutex_.try_lock()) return;
    const auto start = std::chrono::steady_clock::now();
    mutex_.lock();
    LockWaits& waits = LockWaits::OfThisThread();
    waits.time += std::chrono::steady_clock::now() - start;
    ++waits.count;
  }
  // Takes the lock if nobody has it; never waits.
  [[nodiscard]] bool TryLock() KV_THREAD_ATTRIBUTE(try_acquire_capability(true)) {
    return mutex_.try_lock();
  }
  void Unlock() KV_THREAD_ATTRIBUTE(release_capability()) { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// Holds a Mutex for the length of a scope.
class KV_THREAD_ATTRIBUTE(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) KV_THREAD_ATTRIBUTE(acquire_capability(mutex)) : mutex_(mutex) {
    mutex_.Lock();
  }
  ~MutexLock() KV_THREAD_ATTRIBUTE(release_capability()) { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// Waits for a condition on members that a Mutex guards. Wake-ups may be spurious, so that callers
// loop: while (!ready_) changed_.Wait(mutex_). There is no overload with a predicate: the analysis
// does not see that a lambda runs under the lock.
class CondVar {
 public:
  // Gives the mutex up while it sleeps and holds it again on return.
  void Wait(Mutex& mutex) KV_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();  // Still locked: the caller's MutexLock unlocks it.
  }

  // The same until `deadline` at the latest; false when it returned because of that.
  [[nodiscard]] bool WaitUntil(Mutex& mutex, std::chrono::steady_clock::time_point deadline)
      KV_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    const std::cv_status status = condition_.wait_until(lock, deadline);
    lock.release();
    return status == std::cv_status::no_timeout;
  }

  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace kvasir

#endif  // KVASIR_BASE_MUTEX_H_
