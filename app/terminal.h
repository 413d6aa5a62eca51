// The terminal: Ctrl-C as a flag, a progress bar, and whether anybody is looking.
#ifndef KVASIR_APP_TERMINAL_H_
#define KVASIR_APP_TERMINAL_H_

#include <atomic>
#include <chrono>
#include <string>

namespace kvasir {

// Whether a SIGINT while Interrupted() is still set ends the process at once (exit code 130). Not
// where it would take something with it that a person wants to keep, such as a conversation.
enum class SecondInterrupt { kExits, kIsIgnored };

// Set by SIGINT once CatchInterrupts was called; whoever acts on it clears it.
std::atomic<bool>& Interrupted();
void CatchInterrupts(SecondInterrupt second = SecondInterrupt::kExits);

bool IsTerminal(int descriptor);

// While it lives, a terminal on standard input neither echoes nor waits for whole lines (Ctrl-C
// still interrupts): what is typed while an answer streams does not mix with it and is all there
// when the next line is edited, Ctrl-D included. One at a time; also undone when a second SIGINT
// ends the process.
class QuietInput {
 public:
  QuietInput();
  ~QuietInput();
  QuietInput(const QuietInput&) = delete;
  QuietInput& operator=(const QuietInput&) = delete;
};

// A bar on standard error that appears only on a terminal and only after a second. Redraws at most
// ten times a second; the destructor erases it.
class ProgressBar {
 public:
  explicit ProgressBar(std::string label);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void Update(double share);  // In [0, 1].

 private:
  using Clock = std::chrono::steady_clock;
  std::string label_;
  bool enabled_;
  bool drawn_ = false;
  Clock::time_point start_;
  Clock::time_point last_draw_;
};

// Seconds on a steady clock, for durations.
double NowSeconds();

}  // namespace kvasir

#endif  // KVASIR_APP_TERMINAL_H_
