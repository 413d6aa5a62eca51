#include "terminal.h"

#include <fmt/core.h>
#include <signal.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "command.h"
#include "output.h"

namespace kvasir {
namespace {

std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free, "written by a signal handler");

termios terminal_before = {};
std::atomic<bool> terminal_changed{false};
std::atomic<bool> second_exits{true};

void RestoreTerminal() {
  if (terminal_changed.exchange(false)) ::tcsetattr(STDIN_FILENO, TCSANOW, &terminal_before);
}

void OnInterrupt(int) {
  // The loop looks between steps; whoever is more impatient than that presses again.
  if (!interrupted.exchange(true) || !second_exits.load()) return;
  RestoreTerminal();
  ::_exit(kExitInterrupted);
}

}  // namespace

std::atomic<bool>& Interrupted() { return interrupted; }

void CatchInterrupts(SecondInterrupt second) {
  second_exits.store(second == SecondInterrupt::kExits);
  struct sigaction action = {};
  action.sa_handler = OnInterrupt;
  ::sigemptyset(&action.sa_mask);
  action.sa_flags = 0;  // Reads of standard input return, so that a prompt can be abandoned.
  ::sigaction(SIGINT, &action, nullptr);
}

bool IsTerminal(int descriptor) { return ::isatty(descriptor) == 1; }

QuietInput::QuietInput() {
  if (::tcgetattr(STDIN_FILENO, &terminal_before) != 0) return;
  termios quiet = terminal_before;
  quiet.c_lflag &= ~static_cast<tcflag_t>(ECHO | ICANON);
  quiet.c_cc[VMIN] = 1;
  quiet.c_cc[VTIME] = 0;
  terminal_changed.store(true);
  ::tcsetattr(STDIN_FILENO, TCSANOW, &quiet);
}

QuietInput::~QuietInput() { RestoreTerminal(); }

ProgressBar::ProgressBar(std::string label)
    : label_(std::move(label)), enabled_(IsTerminal(STDERR_FILENO)), start_(Clock::now()) {}

ProgressBar::~ProgressBar() {
  if (drawn_) PrintError("\r\033[K");
}

void ProgressBar::Update(double share) {
  if (!enabled_) return;
  const Clock::time_point now = Clock::now();
  if (now - start_ < std::chrono::seconds(1)) return;
  if (drawn_ && now - last_draw_ < std::chrono::milliseconds(100)) return;
  last_draw_ = now;
  drawn_ = true;
  constexpr int kWidth = 30;
  const int filled = static_cast<int>(std::clamp(share, 0.0, 1.0) * kWidth);
  PrintError("\r{} [{}{}] {:3.0f} %\033[K", label_, std::string(filled, '='),
             std::string(static_cast<size_t>(kWidth - filled), ' '), share * 100.0);
}

double NowSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace kvasir
