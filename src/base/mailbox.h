// Mailbox: a bounded queue from many threads to one.
//
// The only way work reaches a thread that owns state: senders never wait (a full box refuses, and
// the sender says so to its own client), the owner drains everything in one short lock. An owner
// that must not be held up by a sender that was descheduled amid its Push tries (TryDrain) and
// comes again. A box that is Closed takes nothing more; what was in it can still be drained.
// Thread: Push, Close and the questions from any thread; draining and WaitUntil from the owner
// only.
#ifndef KVASIR_BASE_MAILBOX_H_
#define KVASIR_BASE_MAILBOX_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/mutex.h"

namespace kvasir {

template <typename Message>
class Mailbox {
 public:
  explicit Mailbox(size_t capacity) : capacity_(capacity) {
    KV_CHECK_GT(capacity, 0u);
    messages_.reserve(capacity);
  }

  // False when the box is full or closed; `message` is untouched then.
  [[nodiscard]] bool Push(Message&& message) KV_EXCLUDES(mutex_) {
    {
      MutexLock lock(mutex_);
      if (closed_ || messages_.size() >= capacity_) return false;
      messages_.push_back(std::move(message));
    }
    arrived_.NotifyOne();
    return true;
  }

  // Moves all messages, oldest first, to the end of `out`.
  void Drain(std::vector<Message>* out) KV_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    MoveAll(out);
  }

  // The same, or nothing and false when somebody is at the box. Never waits.
  [[nodiscard]] bool TryDrain(std::vector<Message>* out) KV_EXCLUDES(mutex_) {
    if (!mutex_.TryLock()) return false;
    MoveAll(out);
    mutex_.Unlock();
    return true;
  }

  // Sleeps until there is a message, the box is closed, or `deadline` has passed.
  void WaitUntil(std::chrono::steady_clock::time_point deadline) KV_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    while (messages_.empty() && !closed_) {
      if (!arrived_.WaitUntil(mutex_, deadline)) return;
    }
  }

  void Close() KV_EXCLUDES(mutex_) {
    {
      MutexLock lock(mutex_);
      closed_ = true;
      closed_now_.store(true);
    }
    arrived_.NotifyAll();
  }

  bool closed() const KV_EXCLUDES(mutex_) { return closed_now_.load(); }

  // Closed, and all that was in it has been drained: nothing will come any more.
  bool finished() const KV_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return closed_ && messages_.empty();
  }

 private:
  void MoveAll(std::vector<Message>* out) KV_REQUIRES(mutex_) {
    for (Message& message : messages_) out->push_back(std::move(message));
    messages_.clear();
  }

  const size_t capacity_;
  mutable Mutex mutex_;
  CondVar arrived_;
  std::vector<Message> messages_ KV_GUARDED_BY(mutex_);
  bool closed_ KV_GUARDED_BY(mutex_) = false;
  std::atomic<bool> closed_now_{false};  // The same, for who must not wait.
};

}  // namespace kvasir

#endif  // KVASIR_BASE_MAILBOX_H_
