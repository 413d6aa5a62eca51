// Timing: what repeated measurements of one thing come to. Seconds. Pure.
#ifndef KVASIR_APP_TIMING_H_
#define KVASIR_APP_TIMING_H_

#include <vector>

namespace kvasir {

struct Timing {
  double median_s = 0.0;
  double spread = 0.0;  // (slowest - fastest) / median.
};

// REQUIRES: not empty, all above 0.
Timing Summarise(std::vector<double> seconds);

}  // namespace kvasir

#endif  // KVASIR_APP_TIMING_H_
