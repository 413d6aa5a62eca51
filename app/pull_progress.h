// PullProgress: how far a download is, on standard error: one line that changes on a terminal, now
// and then a whole line elsewhere.
#ifndef KVASIR_APP_PULL_PROGRESS_H_
#define KVASIR_APP_PULL_PROGRESS_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>

#include "io/download.h"

namespace kvasir {

class PullProgress {
 public:
  PullProgress(bool quiet, bool terminal) : quiet_(quiet), terminal_(terminal) {}

  void Update(const DownloadProgress& now);
  void Note(const std::string& line);         // Stays on the screen.
  void Finish(const DownloadResult* result);  // nullptr: it failed, which others report.

 private:
  using Clock = std::chrono::steady_clock;
  void Clear();
  std::string Describe(const DownloadProgress& now, Clock::time_point time);

  const bool quiet_;
  const bool terminal_;
  bool drawn_ = false;
  const Clock::time_point start_ = Clock::now();
  Clock::time_point last_ = Clock::now();
  std::deque<std::pair<Clock::time_point, uint64_t>> recent_;  // Of the last seconds: the rate.
  uint64_t fetched_ = 0;                                       // In this call.
};

// "98.1 MB" (powers of 1000), "1.25 GB"; "7 s", "3 min 20 s", "2 h 5 min".
std::string ShowBytes(uint64_t bytes);
std::string ShowSeconds(double seconds);

}  // namespace kvasir

#endif  // KVASIR_APP_PULL_PROGRESS_H_
