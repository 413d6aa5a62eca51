// TailStore: the tails of running sequences whose K is staged (KvLayout::staged): a slot of
// tail_bytes of each group for every sequence that may be open, and how far each is quantized.
// Used by every KvCache; a layout that stages nothing costs nothing, and all calls are free.
//
// The rule, by absolute position: a row reads the keys of its own unit of 16 tokens as f16 from the
// tail, and those of earlier units as they are stored. The step that first computes a row of a
// later unit quantizes the unit before it into its block (model/cpu_step_stage.cc). So with
// `computed` tokens the units before (computed - 1) / 16 are quantized, and a block may be given to
// others when quantized() covers it. A sequence that begins with reused tokens begins at a whole
// block, and stages nothing of it.
//
// Invariant: quantized(id) is a multiple of 16 and at most 16 tokens behind what was committed.
// Thread: as KvCache. Nothing allocates after Create.
#ifndef KVASIR_KV_TAIL_STORE_H_
#define KVASIR_KV_TAIL_STORE_H_

#include <array>
#include <cstdint>
#include <vector>

#include "base/huge_buffer.h"
#include "base/ids.h"
#include "base/status.h"
#include "kv/kv_layout.h"

namespace kvasir {

// Where a sequence stages keys; what the model is told of it (model/batch.h).
struct KvTail {
  std::array<std::byte*, kMaxKvGroups> memory{};  // By group; null where nothing is staged.
  // The unit before the next token is complete in the tail and to be quantized.
  bool complete = false;
};

class TailStore {
 public:
  TailStore() = default;
  // Bytes of one slot; 0 when the layout stages nothing.
  static uint64_t SlotBytes(const KvLayout& layout);
  // For `slots` sequences at once, whose ids are below `id_limit`. kResourceExhausted when the
  // memory cannot be mapped.
  static StatusOr<TailStore> Create(const KvLayout& layout, uint32_t slots, uint32_t id_limit);

  // The sequence begins with so many reused tokens, and takes a slot. REQUIRES: a multiple of 16,
  // if anything is staged; a slot is free.
  void Begin(SequenceId id, uint32_t reused);
  // It begins with the tokens of another one that has begun.
  void Fork(SequenceId from, SequenceId to);
  // Tokens up to `computed` were computed.
  void Advance(SequenceId id, uint32_t computed);
  void End(SequenceId id);

  // Tokens whose stored form is final; `computed` itself when nothing is staged. REQUIRES of this
  // and the next: begun, `computed` as last told.
  uint32_t quantized(SequenceId id, uint32_t computed) const {
    return bytes_ == 0 ? computed : places_[Index(id)].quantized;
  }
  KvTail tail(SequenceId id, uint32_t computed) const;
  uint64_t total_bytes() const { return memory_.size(); }

 private:
  static constexpr uint32_t kNoSlot = UINT32_MAX;
  struct Place {
    uint32_t slot = kNoSlot;
    uint32_t quantized = 0;
  };
  HugeBuffer memory_;                            // [slots][bytes_]
  uint64_t bytes_ = 0;                           // Of a slot, all groups.
  std::array<uint64_t, kMaxKvGroups> offset_{};  // By group, in a slot.
  uint32_t group_count_ = 0;
  std::vector<Place> places_;  // By sequence id.
  std::vector<uint32_t> free_slots_;
};

}  // namespace kvasir

#endif  // KVASIR_KV_TAIL_STORE_H_
