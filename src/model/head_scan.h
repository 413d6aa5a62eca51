// HeadScan: the largest logit of each row without reading all of the head.
//
// Phases of a forward pass's program: bounds of all logits from the HeadSketch; the exact
// logits of the panel with the highest bound, whose largest is a floor that the winner reaches;
// then the exact logits of every panel in which some bound reaches the floor. The head's own
// product computes them, so they are the same bits as without, ties included; a row that has no
// bound (not finite, tiny or huge activations) has all of its panels computed. Where logits are
// capped (ModelConfig::logit_cap) several may be equal afterwards, of which the first wins: then
// every panel that could hold an equal is computed, too. Thread: one scan at
// a time; all workers of the team call its phases in turn.
#ifndef KVASIR_MODEL_HEAD_SCAN_H_
#define KVASIR_MODEL_HEAD_SCAN_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/huge_buffer.h"
#include "base/status.h"
#include "base/worker_team.h"
#include "kernels/head_sketch.h"
#include "kernels/matmul.h"

namespace kvasir {

class HeadScan {
 public:
  // More rows share the head's bytes and the bounds' arithmetic is what costs: measured in
  // docs/HEAD.md.
  static constexpr uint32_t kMaxRows = 8;

  // All references must outlive the scan. `logit_cap` 0: none. kResourceExhausted without memory.
  static StatusOr<HeadScan> Create(const PackedMatrix& head, const HeadSketch& sketch,
                                   WorkerTeam& team, float logit_cap = 0.0f);

  // Called by every worker at the same point of the program. `input` has the rows both as floats
  // and quantized for the head; each worker may pass a copy of its own. Afterwards ArgMax of
  // logits[r * stride ..) is that of the exact (capped) row, and its value exact; other values are
  // exact or some upper bound below the largest. Ends with a barrier. Returns the bytes that this
  // worker read of sketch and head. REQUIRES: input.rows <= kMaxRows.
  uint64_t ArgMaxLogits(const Activations& input, float* logits, size_t stride, int worker);

 private:
  struct Best {
    float bound;
    uint32_t index;
  };

  HeadScan(const PackedMatrix& head, const HeadSketch& sketch, WorkerTeam& team, float logit_cap);
  void PrepareRow(const Activations& input, uint32_t row);
  uint64_t Bound(uint32_t rows, float* logits, size_t stride, int worker);
  float LargestLoser(float largest) const;
  void FindFloor(const Activations& input, uint32_t row);
  uint64_t Rescore(const Activations& input, uint32_t begin, uint32_t end, float* logits,
                   size_t stride) const;
  std::span<const float> Lanes(const float* row, uint32_t begin, uint32_t end) const;

  const PackedMatrix* head_;
  const HeadSketch* sketch_;
  WorkerTeam* team_;
  float logit_cap_;
  HugeBuffer prepared_;
  std::vector<Best> best_;  // [workers][kMaxRows]
  // [kMaxRows] Logits at or below cannot win; -infinity: everything may.
  std::vector<float> below_;
  std::vector<uint8_t> proven_;  // [kMaxRows]
};

}  // namespace kvasir

#endif  // KVASIR_MODEL_HEAD_SCAN_H_
