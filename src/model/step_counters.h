// What a forward step did, counted: bytes, rows and barriers, which repeat exactly from run to run
// and from machine to machine, and where its time went, which does not.
//
// Values; written by CpuModelRunner, read by tests (counts only) and by `kvasir bench model`.
#ifndef KVASIR_MODEL_STEP_COUNTERS_H_
#define KVASIR_MODEL_STEP_COUNTERS_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace kvasir {

struct StepCounters {
  uint64_t steps = 0;
  uint64_t rows = 0;
  uint64_t barriers = 0;  // Meetings of the whole team, the one that ends the step included.
  // Packed matrices, once a step each, and looked-up embedding rows. Of a head that was scanned
  // (model/head_scan.h) the whole sketch and the panels that were computed.
  uint64_t weight_bytes = 0;
  // K and V units of 16 tokens that attention went through: once for each tile of rows, however
  // many of them share the unit.
  uint64_t kv_read_bytes = 0;
  uint64_t kv_written_bytes = 0;

  StepCounters& operator+=(const StepCounters& other) {
    steps += other.steps;
    rows += other.rows;
    barriers += other.barriers;
    weight_bytes += other.weight_bytes;
    kv_read_bytes += other.kv_read_bytes;
    kv_written_bytes += other.kv_written_bytes;
    return *this;
  }
  // What came after `earlier`, an earlier state of the same totals.
  StepCounters operator-(const StepCounters& earlier) const {
    return {steps - earlier.steps,
            rows - earlier.rows,
            barriers - earlier.barriers,
            weight_bytes - earlier.weight_bytes,
            kv_read_bytes - earlier.kv_read_bytes,
            kv_written_bytes - earlier.kv_written_bytes};
  }
};

// What one worker moved in a step.
struct alignas(64) MovedBytes {
  uint64_t weights = 0;
  uint64_t kv_read = 0;
  uint64_t kv_written = 0;
};

// The phases of a step, in order; docs/ARCHITECTURE.md says what each does.
enum class StepPhase : uint8_t {
  kEmbed,
  kNorm,
  kQkv,
  kRope,
  kAttention,
  kCollect,
  kOutput,
  kFfnNorm,
  kGateUp,
  kDown,
  kHead,
};
inline constexpr size_t kStepPhaseCount = static_cast<size_t>(StepPhase::kHead) + 1;
inline constexpr std::array<const char*, kStepPhaseCount> kStepPhaseNames = {
    "embed",  "norm",     "qkv",     "rope", "attention", "collect",
    "output", "ffn norm", "gate up", "down", "head"};

// Where worker 0 spent its time, in ticks of the time stamp counter. Phases follow one another
// without a gap, so their sum is the step.
struct StepProfile {
  struct Ticks {
    uint64_t work = 0;
    uint64_t wait = 0;  // For the others, at the end of the phase.
  };
  std::array<Ticks, kStepPhaseCount> phases{};

  uint64_t total() const {
    uint64_t sum = 0;
    for (const Ticks& ticks : phases) sum += ticks.work + ticks.wait;
    return sum;
  }
};

}  // namespace kvasir

#endif  // KVASIR_MODEL_STEP_COUNTERS_H_
