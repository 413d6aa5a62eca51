// MachineLimits: how fast this machine can read memory and multiply, measured now, so that a
// benchmark can say what share of it a model reaches.
//
// Arithmetic runs on registers only. Memory is read from a buffer of `read_bytes`, again and again:
// as many as a decode step of the model reads, since a large last-level cache keeps part of them
// and a larger buffer would understate what that step can reach. Each number is the best of several
// rounds on all workers at once.
#ifndef KVASIR_APP_MACHINE_LIMITS_H_
#define KVASIR_APP_MACHINE_LIMITS_H_

#include <cstddef>

#include "base/status.h"
#include "base/worker_team.h"

namespace kvasir {

struct MachineLimits {
  double read_gb_s = 0.0;    // 10^9 bytes a second.
  double int8_gmac_s = 0.0;  // 10^9 int8 multiply-accumulates a second with the active ISA's dot
                             // product; 0 for scalar code, which has none.
  double fp32_gmac_s = 0.0;  // Likewise float multiply-adds.
};

// One short round of what int8_gmac_s or fp32_gmac_s is the best of. The clock moves by some per
// cent from second to second, so a share of the peak is one of a round next to the one in question.
double MeasureInt8Round(WorkerTeam& team);
double MeasureFp32Round(WorkerTeam& team);

StatusOr<MachineLimits> MeasureMachineLimits(WorkerTeam& team, size_t read_bytes);

}  // namespace kvasir

#endif  // KVASIR_APP_MACHINE_LIMITS_H_
