// StepTimes: how long a decode step takes by its number of rows, learned on line.
//
// What a draft costs is a question about small steps, where neither bytes nor work alone decide and
// kernels change their shape: so each number of rows has a time of its own, an average of measured
// steps. Numbers that were never measured are estimated from their neighbours (the first time a
// process tries sizes by doubling), and averages that
// were not renewed for long drift back to that estimate: a machine or a context that has changed is
// tried again. Deterministic: a function of what Observe was told. Thread: one at a time.
#ifndef KVASIR_ENGINE_STEP_TIMES_H_
#define KVASIR_ENGINE_STEP_TIMES_H_

#include <array>
#include <cstdint>

#include "base/clock.h"

namespace kvasir {

class StepTimes {
 public:
  static constexpr uint32_t kMaxRows = 64;  // Larger steps are not told apart.

  // A step without prompts had so many rows and took that long. Ignored: 0 rows or time, and more
  // than kMaxRows.
  void Observe(uint32_t rows, TimeUs elapsed_us);

  // Predicted time, in microseconds once any step was measured; before that in some unit. Above 0.
  // REQUIRES: rows > 0.
  double Predict(uint32_t rows) const;

  bool measured() const { return measured_; }

  // Whether Predict(rows) rests on several measurements, one of them not long ago. True where none
  // can be awaited: above kMaxRows, and while there is no measurement at all.
  bool Knows(uint32_t rows) const;

 private:
  std::array<double, kMaxRows + 1> average_us_{};     // By rows; 0: never measured.
  std::array<uint32_t, kMaxRows + 1> count_{};        // By rows: measurements, up to kEnough.
  std::array<uint64_t, kMaxRows + 1> measured_at_{};  // By rows: the step that did so last.
  uint64_t step_count_ = 0;
  bool measured_ = false;
};

}  // namespace kvasir

#endif  // KVASIR_ENGINE_STEP_TIMES_H_
