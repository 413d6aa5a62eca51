// AdaptiveLimits: how many sequences may run at once and how much of a step prompts may take beside
// streams, set by what was measured (`--kv-adapt on`).
//
// Two loops, each a decision a window at most, each with its reason:
//  - Admission. Sequences that had to make way and are computed again are work done twice. One of n
//    sequences brings up to 1/n of the tokens, and rows that are computed again come many at a
//    time, which costs about half of what they cost one by one: when more than 2/n (and kLostShare)
//    of the work is lost, the limit goes to three quarters of what ran. Only what was lost since
//    the limit last moved counts: sequences that made way before are still to come back. It grows
//    again one by one while nothing is lost and somebody waits: quickly up to just below where it
//    was lost, and beyond that after a pause that doubles each time the loss comes back. So it
//    settles instead of swinging, and still finds out when the load has changed. When the limit has
//    not mattered for long, it is lifted.
//  - Prompts beside streams (SchedulerOptions::step_stretch). Prompts that take more than
//    kLongBacklogS to read at the rate of the window get the next larger share of a step; when they
//    take less than kShortBacklogS for some windows, streams get it back.
// What must never change an answer is left alone: the type of KV, the size of blocks, the order of
// sums. Deterministic: a function of what it was told. Thread: engine thread; allocates nothing.
// Source: Chiu and Jain 1989 (additive increase, multiplicative decrease).
#ifndef KVASIR_ENGINE_ADAPTIVE_LIMITS_H_
#define KVASIR_ENGINE_ADAPTIVE_LIMITS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/clock.h"

namespace kvasir {

// One decision, for the log and the metrics.
struct AdaptiveDecision {
  enum class Limit : uint8_t { kRunning, kStretch };
  enum class Reason : uint8_t {
    kWorkLost,         // evidence: share of the tokens computed that had been computed before.
    kRoomAgain,        // evidence: sequences that wait.
    kProbe,            // Beyond where work was lost; evidence: windows since.
    kLimitIdle,        // evidence: windows in which the limit did not matter.
    kPromptsWait,      // evidence: seconds of prompts to read.
    kPromptsCaughtUp,  // likewise.
  };
  static constexpr size_t kReasons = 6;

  Limit limit = Limit::kRunning;
  Reason reason = Reason::kWorkLost;
  uint32_t from = 0;
  uint32_t to = 0;
  double evidence = 0;
};

// Where the limits stand and how they came there. Trivially copyable, for snapshots.
struct AdaptiveReport {
  uint32_t running_limit = 0;
  uint32_t stretch = 0;
  uint64_t decisions = 0;
  std::array<uint64_t, AdaptiveDecision::kReasons> by_reason{};
  static constexpr size_t kRecent = 8;
  std::array<AdaptiveDecision, kRecent> recent{};  // Number n is at n % kRecent.
};

// "running sequences, at most 8 -> 6: 12 % of the work was done twice".
std::string Describe(const AdaptiveDecision& decision);
// A word for a metric's label, such as "work_lost".
const char* ReasonName(AdaptiveDecision::Reason reason);

// What happened in one step.
struct AdaptiveStep {
  TimeUs elapsed_us = 0;
  uint32_t running = 0;            // Sequences.
  uint32_t waiting = 0;            // Sequences that could run if there were a place.
  uint32_t computed_tokens = 0;    // Rows.
  uint32_t recomputed_tokens = 0;  // That sequences admitted in this step had computed before they
                                   // made way, if the running limit has not moved since.
  uint32_t prompt_tokens = 0;      // Rows of prompts.
  uint64_t prompt_backlog = 0;     // Prompt tokens of running sequences still to be read.
  bool streams = false;            // There were rows of streams, too.
};

class AdaptiveLimits {
 public:
  struct Options {
    uint32_t most_running = 32;  // Never above.
    uint32_t stretch = 3;        // At rest; 0: steps are not bounded so, and it stays that way.
  };
  // A window ends after this many steps, if it took that long.
  static constexpr uint32_t kWindowSteps = 16;
  static constexpr TimeUs kWindowUs = 100'000;
  static constexpr double kLostShare = 0.05;
  static constexpr double kLongBacklogS = 1.0;
  static constexpr double kShortBacklogS = 0.25;
  static constexpr uint32_t kMostStretch = 24;

  explicit AdaptiveLimits(const Options& options);

  void Observe(const AdaptiveStep& step);

  uint32_t running_limit() const { return report_.running_limit; }
  // Changes with the running limit: tells whether something happened under the present one.
  uint64_t running_moves() const { return running_moves_; }
  uint32_t stretch() const { return report_.stretch; }
  const AdaptiveReport& report() const { return report_; }

 private:
  struct Window {
    uint32_t steps = 0;
    TimeUs elapsed_us = 0;
    uint32_t peak_running = 0;
    uint32_t waiting = 0;  // At its last step.
    uint64_t computed = 0;
    uint64_t recomputed = 0;
    uint64_t prompt = 0;
    uint64_t backlog = 0;  // At its last step.
    bool streams = false;
  };
  void EndWindow();
  void AdaptRunning();
  void AdaptStretch();
  bool FitsInto(uint32_t stretch) const;
  void SetRunning(uint32_t limit, AdaptiveDecision::Reason reason, double evidence);
  void SetStretch(uint32_t stretch, AdaptiveDecision::Reason reason, double evidence);
  void Note(const AdaptiveDecision& decision);

  Options options_;
  AdaptiveReport report_;
  Window window_;
  double lost_ = 0;  // Tokens computed again and all tokens computed since the limit last moved,
  double work_ = 0;  // older windows fading.
  uint64_t running_moves_ = 0;
  uint32_t lossy_ = 0;          // Where work was lost last; 0: nowhere known.
  uint32_t probe_pause_;        // Windows without loss before going there again.
  uint32_t quiet_windows_ = 0;  // Since the limit last moved or work was lost.
  uint32_t slack_windows_ = 0;  // In which fewer ran than might.
  uint32_t caught_up_windows_ = 0;
  double demand_ = 0;        // Prompt tokens a second that come in, an average,
  double rate_ = 0;          // and that could be read if prompts had all of the time; 0: unknown.
  double last_backlog_ = 0;  // At the end of the last window.
};

}  // namespace kvasir

#endif  // KVASIR_ENGINE_ADAPTIVE_LIMITS_H_
