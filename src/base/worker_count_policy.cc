#include "base/worker_count_policy.h"

#include <algorithm>

namespace kvasir {

void WorkerCountPolicy::Observe(std::chrono::nanoseconds elapsed,
                                std::chrono::nanoseconds stalled) {
  if (most_ == 1) return;
  elapsed_ += elapsed;
  stalled_ += stalled;
  if (count_ < most_) {
    until_trial_ -= elapsed;
    if (until_trial_.count() <= 0) {
      count_ = most_;
      on_trial_ = true;
      elapsed_ = stalled_ = std::chrono::nanoseconds(0);
      return;
    }
  }
  if (elapsed_ < kWindow) return;
  // The waiters together can lose (count - 1) times the elapsed time. Two fifths of it is more than
  // phases that end unevenly ever cost on cores of our own, and about what makes one worker less
  // the better choice.
  const bool held_up = count_ > 1 && stalled_ * 5 > elapsed_ * 2 * (count_ - 1);
  elapsed_ = stalled_ = std::chrono::nanoseconds(0);
  if (held_up) {
    if (count_ == most_) {
      pause_ = on_trial_ ? std::min<std::chrono::nanoseconds>(2 * pause_, kLongestPause)
                         : std::chrono::nanoseconds(kFirstPause);
    }
    --count_;
    until_trial_ = pause_;
  }
  on_trial_ = false;
}

}  // namespace kvasir
