#include "model/key_staging.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace kvasir {
namespace {

size_t HalfUnitBytes(const KvGroup& group) { return KUnitBytes(StoredType::kF16, group.head_dim); }

}  // namespace

KeyStaging::KeyStaging(const KvLayout& layout, const StepLimits& limits)
    : layout_(layout), staged_(layout.staged()) {
  if (!staged_) return;
  sequences_.reserve(limits.max_sequences);
  // n rows of a sequence go beyond at most n / 16 + 1 units, and a single row beyond none.
  max_units_ = limits.max_rows / kUnitTokens + std::min(limits.max_sequences, limits.max_rows / 2);
}

size_t KeyStaging::scratch_bytes() const {
  size_t unit = 0;
  for (const KvGroup& group : layout_.groups) {
    unit = std::max(unit, group.kv_heads * HalfUnitBytes(group));
  }
  return staged_ ? max_units_ * unit : 0;
}

void KeyStaging::Plan(const Batch& batch) {
  batch_ = &batch;
  crosses_ = false;
  if (!staged_) return;
  sequences_.clear();
  uint32_t scratch = 0;
  for (const BatchSequence& sequence : batch.sequences) {
    const uint32_t end = sequence.start + static_cast<uint32_t>(sequence.tokens.size());
    const Staged staged{sequence.start / kUnitTokens, (end - 1) / kUnitTokens, scratch};
    scratch += staged.last - staged.first;
    crosses_ |= staged.first < staged.last || sequence.tail.complete;
    KV_CHECK(!sequence.tail.complete || (sequence.start % kUnitTokens == 0 && sequence.start > 0));
    for (uint32_t group = 0; group < layout_.group_count(); ++group) {
      KV_CHECK(sequence.tail.memory[group] != nullptr);
    }
    sequences_.push_back(staged);
  }
  KV_CHECK_LE(scratch, max_units_);
}

std::byte* KeyStaging::ScratchUnit(KvHeadPlace place, uint32_t index) const {
  const KvGroup& group = layout_.groups[place.group];
  return scratch_ + (size_t{index} * group.kv_heads + place.head) * HalfUnitBytes(group);
}

std::byte* KeyStaging::TailUnit(KvHeadPlace place, uint32_t sequence) const {
  return batch_->sequences[sequence].tail.memory[place.group] +
         layout_.tail_offset(place.group, place.slot, place.head);
}

std::byte* KeyStaging::OwnUnit(KvHeadPlace place, uint32_t sequence, uint32_t position) const {
  const Staged& staged = sequences_[sequence];
  const uint32_t unit = position / kUnitTokens;
  if (unit == staged.last) return TailUnit(place, sequence);
  return ScratchUnit(place, staged.scratch + unit - staged.first);
}

void KeyStaging::Quantize(KvHeadPlace place, uint32_t sequence, uint32_t unit,
                          const std::byte* from) const {
  const uint32_t position = unit * kUnitTokens;
  std::byte* const block =
      batch_->sequences[sequence].blocks[place.group][position / layout_.block_tokens];
  KV_CHECK(block != nullptr);
  const size_t unit_in_block = position % layout_.block_tokens / kUnitTokens;
  QuantizeKUnit(StoredTypeOf(layout_.types.k), layout_.groups[place.group].head_dim, from,
                block + layout_.k_offset(place.group, place.slot, place.head) +
                    unit_in_block * layout_.k_unit_bytes(place.group));
}

void KeyStaging::Begin(KvHeadPlace place, uint32_t sequence) const {
  const BatchSequence& batch_sequence = batch_->sequences[sequence];
  const Staged& staged = sequences_[sequence];
  const std::byte* const tail = TailUnit(place, sequence);
  if (batch_sequence.tail.complete) Quantize(place, sequence, staged.first - 1, tail);
  if (staged.first == staged.last || batch_sequence.start % kUnitTokens == 0) return;
  std::memcpy(ScratchUnit(place, staged.scratch), tail, HalfUnitBytes(layout_.groups[place.group]));
}

void KeyStaging::End(KvHeadPlace place, uint32_t sequence) const {
  const Staged& staged = sequences_[sequence];
  for (uint32_t unit = staged.first; unit < staged.last; ++unit) {
    Quantize(place, sequence, unit, ScratchUnit(place, staged.scratch + unit - staged.first));
  }
}

}  // namespace kvasir
