// The kernels beside the matrix products, measured: attention over each kind of stored KV, and what
// is done to single rows. Every worker works on memory of its own; figures are of all together.
#ifndef KVASIR_APP_BENCH_KERNELS_ROWS_H_
#define KVASIR_APP_BENCH_KERNELS_ROWS_H_

#include <string>
#include <vector>

#include "base/status.h"
#include "base/worker_team.h"
#include "quiet_rounds.h"

namespace kvasir {

struct KernelFigure {
  std::string kernel;  // "attention int8", "rms norm".
  std::string shape;   // What it was given, for people.
  double call_us = 0.0;
  double gmac_s = 0.0;  // 0: multiplies nothing to speak of.
  double gb_s = 0.0;    // Read and written, each value once a call.
  double spread = 0.0;  // (slowest - fastest) / median.
};

// Heads of 64 (groups of 3) and of 256 (groups of 4), one row and a full tile, f16, int8 and int4.
StatusOr<std::vector<KernelFigure>> MeasureAttention(WorkerTeam& team, QuietRounds& rounds);

// Norm, quantization, RoPE, gate, residual and the scans of a row of logits, at the sizes of
// SmolLM2-135M and Gemma 3 270M; from the nearest caches.
std::vector<KernelFigure> MeasureRowOps(WorkerTeam& team, QuietRounds& rounds);

}  // namespace kvasir

#endif  // KVASIR_APP_BENCH_KERNELS_ROWS_H_
