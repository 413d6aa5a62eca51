#include "kv/name_table.h"

#include "base/check.h"
#include "base/rng.h"

namespace kvasir {

NameTable::NameTable(uint32_t capacity) : capacity_(capacity) {
  KV_CHECK_GT(capacity, 0u);
  KV_CHECK_LT(capacity, 1u << 30);
  size_t slots = 4;
  while (slots < 2 * size_t{capacity}) slots *= 2;
  slots_.resize(slots);
}

uint32_t NameTable::Home(uint64_t name) const {
  return static_cast<uint32_t>(Mix64(name) & (slots_.size() - 1));
}

std::optional<uint32_t> NameTable::Find(uint64_t name) const {
  const uint32_t mask = static_cast<uint32_t>(slots_.size() - 1);
  for (uint32_t at = Home(name); slots_[at].value != kEmpty; at = (at + 1) & mask) {
    if (slots_[at].name == name) return slots_[at].value;
  }
  return std::nullopt;
}

void NameTable::Insert(uint64_t name, uint32_t value) {
  KV_CHECK_LT(size_, capacity_);
  KV_CHECK_NE(value, kEmpty);
  const uint32_t mask = static_cast<uint32_t>(slots_.size() - 1);
  uint32_t at = Home(name);
  for (; slots_[at].value != kEmpty; at = (at + 1) & mask) KV_CHECK_NE(slots_[at].name, name);
  slots_[at] = Slot{name, value};
  ++size_;
}

void NameTable::Erase(uint64_t name) {
  const uint32_t mask = static_cast<uint32_t>(slots_.size() - 1);
  uint32_t hole = Home(name);
  for (; slots_[hole].name != name || slots_[hole].value == kEmpty; hole = (hole + 1) & mask) {
    KV_CHECK_NE(slots_[hole].value, kEmpty);
  }
  for (uint32_t at = (hole + 1) & mask; slots_[at].value != kEmpty; at = (at + 1) & mask) {
    if (((at - Home(slots_[at].name)) & mask) >= ((at - hole) & mask)) {
      slots_[hole] = slots_[at];
      hole = at;
    }
  }
  slots_[hole] = Slot{};
  --size_;
}

GhostList::GhostList(uint32_t capacity) : ring_(capacity, 0), table_(capacity) {}

void GhostList::Add(uint64_t name) {
  if (table_.Find(name).has_value()) table_.Erase(name);
  const std::optional<uint32_t> oldest = table_.Find(ring_[next_]);
  if (oldest == next_) table_.Erase(ring_[next_]);
  ring_[next_] = name;
  table_.Insert(name, next_);
  next_ = (next_ + 1) % static_cast<uint32_t>(ring_.size());
}

bool GhostList::Take(uint64_t name) {
  if (!table_.Find(name).has_value()) return false;
  table_.Erase(name);
  return true;
}

}  // namespace kvasir
