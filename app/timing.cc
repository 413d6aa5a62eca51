#include "timing.h"

#include <algorithm>

namespace kvasir {

Timing Summarise(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  const size_t half = seconds.size() / 2;
  Timing timing;
  timing.median_s =
      seconds.size() % 2 == 1 ? seconds[half] : 0.5 * (seconds[half - 1] + seconds[half]);
  timing.spread = (seconds.back() - seconds.front()) / timing.median_s;
  return timing;
}

}  // namespace kvasir
