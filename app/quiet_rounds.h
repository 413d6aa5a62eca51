// QuietRounds: repeated rounds of a measurement, and which of them count.
//
// On a shared machine the other hardware thread of a core may belong to a stranger who takes part
// of its loads and of its front end for seconds at a time. Nothing says so; a loop that does
// nothing but load from the first-level cache does, since it then runs slower. It is run on all
// workers before and after every round, and with `undisturbed` a round counts only if both times it
// ran at 95 % of the best speed that it has ever had. That judges the machine, never the round
// itself. Thread: one at a time.
#ifndef KVASIR_APP_QUIET_ROUNDS_H_
#define KVASIR_APP_QUIET_ROUNDS_H_

#include <functional>
#include <vector>

#include "base/worker_team.h"
#include "timing.h"

namespace kvasir {

class QuietRounds {
 public:
  // REQUIRES: repeats > 0; the team outlives this.
  QuietRounds(WorkerTeam& team, int repeats, bool undisturbed);

  // Calls round() until `repeats` of them count, at most kTries * repeats times; what those
  // returned. If none counts, all do.
  template <typename Round>
  auto Collect(Round&& round) {
    std::vector<decltype(round())> all;
    std::vector<decltype(round())> quiet;
    while (static_cast<int>(quiet.size()) < repeats_ &&
           static_cast<int>(all.size()) < repeats_ * kTries) {
      const bool before = IsQuiet();
      all.push_back(round());
      if (IsQuiet() && before) quiet.push_back(all.back());
    }
    counted_ += static_cast<int>(quiet.size());
    made_ += static_cast<int>(all.size());
    return quiet.empty() ? all : quiet;
  }
  // round() returns its seconds.
  Timing Measure(const std::function<double()>& round) { return Summarise(Collect(round)); }
  static constexpr int kTries = 20;

  // Over all calls of Measure: rounds that counted, and rounds made.
  int counted() const { return counted_; }
  int made() const { return made_; }

 private:
  bool IsQuiet();         // Now. Always so, unless undisturbed rounds are asked for.
  double ProbeSeconds();  // Of the slowest worker.

  WorkerTeam& team_;
  const int repeats_;
  const bool undisturbed_;
  double best_probe_s_ = 1e30;
  int counted_ = 0;
  int made_ = 0;
};

}  // namespace kvasir

#endif  // KVASIR_APP_QUIET_ROUNDS_H_
