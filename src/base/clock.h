// Clock: where time comes from. Deciding code takes a time as an argument; only the loops that act
// read a Clock, and simulations and tests give them a virtual one.
#ifndef KVASIR_BASE_CLOCK_H_
#define KVASIR_BASE_CLOCK_H_

#include <chrono>
#include <cstdint>

namespace kvasir {

// Microseconds since an arbitrary, fixed moment; never goes back. kNever is later than every time.
using TimeUs = int64_t;
inline constexpr TimeUs kNever = INT64_MAX;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimeUs Now() const = 0;  // Any thread.
};

// The machine's steady clock.
class SteadyClock : public Clock {
 public:
  TimeUs Now() const override {
    return std::chrono::duration_cast<std::chrono::microseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
};

}  // namespace kvasir

#endif  // KVASIR_BASE_CLOCK_H_
