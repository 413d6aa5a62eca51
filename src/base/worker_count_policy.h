// WorkerCountPolicy: how many workers the next runs of a WorkerTeam use, when other processes want
// the cores too.
//
// A worker whose core was given to somebody else in the middle of a claim holds up the whole team
// for a time slice, milliseconds in a phase of microseconds: with one of two cores taken, a team of
// two decodes at a fifth of its speed, a single worker at half. So a team that loses much of its
// time to such stalls does without one worker, and tries again after a while that doubles as long
// as the trial fails. The count never changes a result.
//
// A value: it reads no clock. Thread: one at a time.
#ifndef KVASIR_BASE_WORKER_COUNT_POLICY_H_
#define KVASIR_BASE_WORKER_COUNT_POLICY_H_

#include <chrono>

namespace kvasir {

class WorkerCountPolicy {
 public:
  explicit WorkerCountPolicy(int worker_count) : most_(worker_count), count_(worker_count) {}

  // For the next run, in [1, worker_count].
  int count() const { return count_; }

  // A run took `elapsed`; of that, its workers waited `stalled` in all for ones that did not
  // arrive.
  void Observe(std::chrono::nanoseconds elapsed, std::chrono::nanoseconds stalled);

 private:
  static constexpr std::chrono::milliseconds kWindow{30};      // Judged at a time.
  static constexpr std::chrono::milliseconds kFirstPause{60};  // Until the first trial.
  static constexpr std::chrono::milliseconds kLongestPause{4000};

  int most_;
  int count_;
  std::chrono::nanoseconds elapsed_{0};  // Of this window.
  std::chrono::nanoseconds stalled_{0};
  std::chrono::nanoseconds until_trial_{0};
  bool on_trial_ = false;  // All workers again; the window that judges it is not over.
  std::chrono::nanoseconds pause_ = kFirstPause;
};

}  // namespace kvasir

#endif  // KVASIR_BASE_WORKER_COUNT_POLICY_H_
