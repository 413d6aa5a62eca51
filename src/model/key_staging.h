// KeyStaging: where the f16 keys of a step's rows lie while their unit of 16 tokens is not
// quantized (staged KV types, kv/tail_store.h), and when units are.
//
// In a step each sequence has rows in units first .. last. Keys of the last one go to the
// sequence's tail, where the next step finds them; those of the units before it, for the layer at
// hand only, to scratch, the first of them together with what the tail had of it. Every row then
// finds the f16 keys of its own unit, and the units before last are quantized into their blocks
// before any row reads. So what a row reads follows from its position, however the prompt was cut
// into steps.
//
// Thread: Plan by one; then each (KV head, sequence) by one worker: Begin, the writes, End.
#ifndef KVASIR_MODEL_KEY_STAGING_H_
#define KVASIR_MODEL_KEY_STAGING_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/stored_kv.h"
#include "kv/kv_layout.h"
#include "model/batch.h"
#include "model/model_runner.h"

namespace kvasir {

inline constexpr StoredType StoredTypeOf(KvType type) {
  static_assert(static_cast<int>(KvType::kF16) == static_cast<int>(StoredType::kF16) &&
                static_cast<int>(KvType::kInt8) == static_cast<int>(StoredType::kInt8) &&
                static_cast<int>(KvType::kInt4) == static_cast<int>(StoredType::kInt4));
  return static_cast<StoredType>(type);
}

// A layer and head of a KV group.
struct KvHeadPlace {
  uint32_t group;
  uint32_t slot;
  uint32_t head;
};

class KeyStaging {
 public:
  KeyStaging(const KvLayout& layout, const StepLimits& limits);

  // 0 when the layout stages nothing; then Plan and the questions below are all there is to call.
  size_t scratch_bytes() const;
  void set_scratch(std::byte* scratch) { scratch_ = scratch; }

  void Plan(const Batch& batch);
  // Keys are read as f16 from OwnUnit.
  bool staged() const { return staged_; }
  // The step goes beyond a unit: what is quantized must be complete before attention reads any.
  bool crosses() const { return crosses_; }

  // The f16 K unit that has this position of a sequence of the batch.
  std::byte* OwnUnit(KvHeadPlace place, uint32_t sequence, uint32_t position) const;
  // Before and after the sequence's keys are written to their OwnUnits.
  void Begin(KvHeadPlace place, uint32_t sequence) const;
  void End(KvHeadPlace place, uint32_t sequence) const;

 private:
  struct Staged {          // One sequence.
    uint32_t first = 0;    // Units, by position / 16.
    uint32_t last = 0;     //
    uint32_t scratch = 0;  // Index of unit `first` in scratch, if first < last.
  };
  std::byte* ScratchUnit(KvHeadPlace place, uint32_t index) const;
  std::byte* TailUnit(KvHeadPlace place, uint32_t sequence) const;
  void Quantize(KvHeadPlace place, uint32_t sequence, uint32_t unit, const std::byte* from) const;

  const KvLayout& layout_;
  const bool staged_;
  uint32_t max_units_ = 0;  // In scratch.
  std::byte* scratch_ = nullptr;
  const Batch* batch_ = nullptr;
  bool crosses_ = false;
  std::vector<Staged> sequences_;
};

}  // namespace kvasir

#endif  // KVASIR_MODEL_KEY_STAGING_H_
