#include "kv/s3fifo_policy.h"

#include <algorithm>

#include "base/check.h"

namespace kvasir {
namespace {

// The small queue's share of the blocks; there are as many ghosts as the main queue has.
constexpr uint32_t kSmallShare = 10;
constexpr uint8_t kUsesForMain = 2;

}  // namespace

S3FifoPolicy::S3FifoPolicy(uint32_t item_count)
    : entries_(item_count),
      small_(item_count),
      main_(item_count),
      small_target_(std::max(1u, item_count / kSmallShare)),
      ghosts_(std::max(1u, item_count - item_count / kSmallShare)) {}

void S3FifoPolicy::Add(uint32_t item, const PolicyBlock& block) {
  KV_CHECK_LT(item, entries_.size());
  Entry& entry = entries_[item];
  KV_CHECK(!entry.there);
  entry = Entry{block.name, ++clock_, 0, true, ghosts_.Take(block.name)};
  if (!entry.in_main) ++small_count_;
}

void S3FifoPolicy::Use(uint32_t item) {
  Entry& entry = entries_[item];
  KV_CHECK(entry.there);
  if (entry.uses < kMostUses) ++entry.uses;
}

void S3FifoPolicy::Offer(uint32_t item) {
  const Entry& entry = entries_[item];
  KV_CHECK(entry.there);
  (entry.in_main ? main_ : small_).Push(item, entry.arrival);
}

void S3FifoPolicy::Withdraw(uint32_t item) {
  (entries_[item].in_main ? main_ : small_).Remove(item);
}

std::optional<uint32_t> S3FifoPolicy::Victim() {
  while (!small_.empty() || !main_.empty()) {
    const bool small = main_.empty() || (!small_.empty() && small_count_ > small_target_);
    const uint32_t item = small ? small_.Top() : main_.Top();
    Entry& entry = entries_[item];
    if (entry.uses < (small ? kUsesForMain : 1)) return item;
    (small ? small_ : main_).Remove(item);
    if (small) {
      --small_count_;
      entry.uses = 0;
    } else {
      --entry.uses;
    }
    entry.in_main = true;
    entry.arrival = ++clock_;
    main_.Push(item, entry.arrival);
  }
  return std::nullopt;
}

void S3FifoPolicy::Evict(uint32_t item) {
  KV_CHECK(offered(item));
  if (!entries_[item].in_main) ghosts_.Add(entries_[item].name);
}

void S3FifoPolicy::Remove(uint32_t item) {
  Entry& entry = entries_[item];
  KV_CHECK(entry.there && !offered(item));
  if (!entry.in_main) --small_count_;
  entry.there = false;
}

void S3FifoPolicy::CheckInvariants() const {
  small_.CheckInvariants();
  main_.CheckInvariants();
  uint32_t small = 0;
  for (uint32_t item = 0; item < entries_.size(); ++item) {
    const Entry& entry = entries_[item];
    KV_CHECK(entry.there || !offered(item));
    KV_CHECK(!(entry.in_main ? small_ : main_).Contains(item));
    if (entry.there && !entry.in_main) ++small;
  }
  KV_CHECK_EQ(small, small_count_);
}

}  // namespace kvasir
