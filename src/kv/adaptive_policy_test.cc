#include "kv/adaptive_policy.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/rng.h"
#include "kv/cache_replay.h"

namespace kvasir {
namespace {

constexpr uint32_t kCapacity = 1000;

// Phases in which one policy is clearly better.
class Load {
 public:
  // Prompts of 12 blocks, used again and again from a set that just fits, in a stream of prompts of
  // the same length that never come back: whoever counts keeps the set.
  void ScanPhase(int requests) {
    for (int i = 0; i < requests; ++i) {
      const int name = i % 3 == 0 ? static_cast<int>(rng_.Below(50)) : ++fresh_;
      Add(name, 12);
    }
  }
  // A working set that moves on: what was used often before is worth nothing any more.
  void DriftPhase(int requests) {
    for (int i = 0; i < requests; ++i) {
      if (i % 40 == 0) base_ += 4;
      Add(1'000'000 + base_ + static_cast<int>(rng_.Below(70)), 12);
    }
  }
  const RequestTrace& trace() const { return trace_; }

 private:
  void Add(int name, int blocks) {
    std::vector<TokenId> ids;
    for (int i = 0; i < blocks; ++i) ids.push_back(TokenId{name});
    trace_.Add(ids);
  }
  Rng rng_{11};
  int fresh_ = 1000;
  int base_ = 0;
  RequestTrace trace_;
};

ReplayResult Replay(const RequestTrace& trace, KvEvict evict, uint32_t capacity = kCapacity) {
  CacheReplay replay(trace, ReplayOptions{capacity, evict, 1.0 / 48});
  while (!replay.done()) replay.Step();
  return replay.result();
}

TEST(AdaptivePolicy, FollowsTheLoadAndSaysWhy) {
  Load load;
  load.ScanPhase(3000);
  load.DriftPhase(3000);
  load.ScanPhase(3000);
  double best = 0.0;
  double worst = 1.0;
  for (uint32_t i = 0; i < kFixedKvEvicts; ++i) {
    const double saved = Replay(load.trace(), static_cast<KvEvict>(i)).compute_saved();
    best = std::max(best, saved);
    worst = std::min(worst, saved);
  }
  const ReplayResult adaptive = Replay(load.trace(), KvEvict::kAdaptive);
  EXPECT_GT(best - worst, 0.05) << "the load does not tell the policies apart";
  EXPECT_GT(adaptive.compute_saved(), best - 0.02);
  const KvEviction& why = adaptive.eviction;
  EXPECT_GE(why.windows, 9000u * 12 / (3 * kCapacity) - 1);
  EXPECT_LE(why.switches, 6u) << "it oscillates";
  EXPECT_EQ(why.shadow_blocks, kCapacity);
  EXPECT_DOUBLE_EQ(why.sampled_share, 1.0);
  if (why.switches > 0) {
    const auto at = [&](KvEvict evict) { return why.saved_at_switch[static_cast<size_t>(evict)]; };
    EXPECT_GT(at(why.ruling), at(why.ruled_before) + AdaptivePolicy::kLead);
  }
  for (const double saved : why.saved) {
    EXPECT_GE(saved, 0.0);
    EXPECT_LE(saved, 1.0);
  }
}

// On a load where lfu clearly wins, it rules in the end, and has evicted.
TEST(AdaptivePolicy, LeavesItsFirstChoice) {
  Load load;
  load.ScanPhase(6000);
  std::vector<double> saved;
  for (uint32_t i = 0; i < kFixedKvEvicts; ++i) {
    saved.push_back(Replay(load.trace(), static_cast<KvEvict>(i), 620).compute_saved());
  }
  const auto best =
      static_cast<size_t>(std::max_element(saved.begin(), saved.end()) - saved.begin());
  const ReplayResult result = Replay(load.trace(), KvEvict::kAdaptive, 620);
  EXPECT_GT(result.compute_saved(), saved[best] - 0.03);
  EXPECT_GT(result.compute_saved(), saved[0] + 0.02) << "no better than lru";
}

// Switching between policies that are as good as each other is noise.
TEST(AdaptivePolicy, NoSwitchWithoutALead) {
  Load load;
  load.DriftPhase(200);
  const ReplayResult result = Replay(load.trace(), KvEvict::kAdaptive, 2000);
  EXPECT_EQ(result.eviction.switches, 0u) << "nothing was evicted";
}

// In a large cache one family in some is in the sample, wholly, and the shadows have its share of
// the memory.
TEST(AdaptivePolicy, SamplesWholeFamiliesOfALargeCache) {
  EvictionOptions options;
  options.evict = KvEvict::kAdaptive;
  options.item_count = 8 * AdaptivePolicy::kAllSampled;
  options.max_path = 64;
  AdaptivePolicy policy(options);
  Rng rng(5);
  for (int request = 0; request < 40'000; ++request) {
    const uint64_t family = 1 + rng.Below(2000);
    std::vector<PolicyBlock> path;
    for (uint32_t depth = 0; depth < 16; ++depth) {
      path.push_back({Mix64(family * 100 + depth), depth, 1});
    }
    policy.Requested(path, 16);
  }
  KvEviction report;
  policy.Report(&report);
  EXPECT_NEAR(report.sampled_share, 1.0 / 8, 0.04);
  EXPECT_NEAR(report.shadow_blocks, report.sampled_share * options.item_count, 2);
  policy.CheckInvariants();
  // All of one family: in or out as a whole, and either way no harm.
  AdaptivePolicy single(options);
  std::vector<PolicyBlock> path = {{77, 0, 1}, {78, 1, 1}};
  for (int i = 0; i < 1000; ++i) single.Requested(path, 2);
  single.Report(&report);
  EXPECT_TRUE(report.sampled_share == 0.0 || report.sampled_share == 1.0);
  EXPECT_EQ(report.switches, 0u);
  single.CheckInvariants();
}

}  // namespace
}  // namespace kvasir
