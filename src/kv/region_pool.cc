#include "kv/region_pool.h"

#include <algorithm>

#include "base/check.h"

namespace kvasir {

RegionPool::RegionPool(uint32_t block_count) : block_count_(block_count), free_count_(block_count) {
  KV_CHECK_GT(block_count, 0u);
  runs_.reserve(size_t{block_count} / 2 + 2);  // Taken blocks lie between any two of them.
  runs_.push_back({0, block_count});
}

size_t RegionPool::FirstRunAfter(uint32_t block) const {
  const auto after =
      std::upper_bound(runs_.begin(), runs_.end(), block,
                       [](uint32_t value, const Region& run) { return value < run.first; });
  return static_cast<size_t>(after - runs_.begin());
}

std::optional<Region> RegionPool::Allocate(uint32_t count) {
  KV_CHECK_GT(count, 0u);
  size_t best = runs_.size();
  for (size_t i = 0; i < runs_.size(); ++i) {
    if (runs_[i].count < count) continue;
    if (best == runs_.size() || runs_[i].count < runs_[best].count) best = i;
  }
  if (best == runs_.size()) return std::nullopt;
  const Region region{runs_[best].first, count};
  TakeFrom(best, region);
  return region;
}

bool RegionPool::TakeAt(Region region) {
  KV_CHECK_LE(region.end(), block_count_);
  const size_t after = FirstRunAfter(region.first);
  if (after == 0) return false;
  const Region& run = runs_[after - 1];
  if (run.end() < region.end()) return false;
  TakeFrom(after - 1, region);
  return true;
}

void RegionPool::TakeFrom(size_t run, Region region) {
  const Region before{runs_[run].first, region.first - runs_[run].first};
  const Region rest{region.end(), runs_[run].end() - region.end()};
  free_count_ -= region.count;
  const auto at = runs_.begin() + static_cast<ptrdiff_t>(run);
  if (before.count > 0 && rest.count > 0) {
    *at = before;
    runs_.insert(at + 1, rest);
  } else if (before.count > 0 || rest.count > 0) {
    *at = before.count > 0 ? before : rest;
  } else {
    runs_.erase(at);
  }
}

void RegionPool::Free(Region region) {
  if (region.count == 0) return;
  KV_CHECK_LE(region.end(), block_count_);
  const size_t after = FirstRunAfter(region.first);
  // A block that is free already would be handed out twice, and two sequences would write to it.
  if (after > 0) KV_CHECK_LE(runs_[after - 1].end(), region.first);
  if (after < runs_.size()) KV_CHECK_LE(region.end(), runs_[after].first);
  free_count_ += region.count;
  const bool joins_before = after > 0 && runs_[after - 1].end() == region.first;
  const bool joins_after = after < runs_.size() && runs_[after].first == region.end();
  if (joins_before && joins_after) {
    runs_[after - 1].count += region.count + runs_[after].count;
    runs_.erase(runs_.begin() + static_cast<ptrdiff_t>(after));
  } else if (joins_before) {
    runs_[after - 1].count += region.count;
  } else if (joins_after) {
    runs_[after].first = region.first;
    runs_[after].count += region.count;
  } else {
    runs_.insert(runs_.begin() + static_cast<ptrdiff_t>(after), region);
  }
}

uint32_t RegionPool::largest_run() const {
  uint32_t largest = 0;
  for (const Region& run : runs_) largest = std::max(largest, run.count);
  return largest;
}

double RegionPool::fragmentation() const {
  return free_count_ == 0 ? 0.0 : 1.0 - static_cast<double>(largest_run()) / free_count_;
}

void RegionPool::CheckInvariants() const {
  uint32_t free = 0;
  for (size_t i = 0; i < runs_.size(); ++i) {
    KV_CHECK_GT(runs_[i].count, 0u);
    KV_CHECK_LE(runs_[i].end(), block_count_);
    if (i > 0) KV_CHECK_LT(runs_[i - 1].end(), runs_[i].first);
    free += runs_[i].count;
  }
  KV_CHECK_EQ(free, free_count_);
}

}  // namespace kvasir
