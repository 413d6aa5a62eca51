// The policies, in the real tree and in shadow caches, against models that look at every node.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <deque>
#include <map>

#include "base/check.h"
#include "base/rng.h"
#include "kv/cache_replay.h"
#include "kv/ranked_policies.h"
#include "kv/s3fifo_policy.h"
#include "kv/shadow_cache.h"

namespace kvasir {
namespace {

using Path = std::vector<int>;

// A prefix cache by definition: a map of prefixes, searched from end to end for the next victim.
class NaiveCache {
 public:
  NaiveCache(KvEvict evict, size_t capacity, double depth_cost)
      : evict_(evict), capacity_(capacity), depth_cost_(depth_cost) {}

  size_t Request(const Path& path) {
    size_t hits = 0;
    while (hits < path.size() && nodes_.count(Head(path, hits + 1)) > 0) {
      Node& node = nodes_[Head(path, ++hits)];
      ++node.frequency;
      node.uses = std::min(node.uses + 1, 3);
    }
    size_t end = hits;
    for (; end < path.size(); ++end) {
      if (nodes_.size() == capacity_ && !EvictOne(Head(path, end))) break;
      Node& node = nodes_[Head(path, end + 1)];
      node.arrival = ++clock_;
      const auto ghost = std::find(ghosts_.begin(), ghosts_.end(), Head(path, end + 1));
      node.in_main = ghost != ghosts_.end();
      if (node.in_main) ghost->clear();  // Its place in line stays taken.
    }
    for (; end > 0; --end) {
      Node& node = nodes_[Head(path, end)];
      node.stamp = ++stamp_;
      node.rank = floor_ + node.frequency * (1.0 + static_cast<double>(end - 1) * depth_cost_);
    }
    return hits;
  }

  size_t size() const { return nodes_.size(); }
  bool Has(const Path& path) const { return nodes_.count(path) > 0; }

 private:
  struct Node {
    int frequency = 1;
    uint64_t stamp = 0;
    double rank = 0.0;
    uint64_t arrival = 0;
    int uses = 0;
    bool in_main = false;
  };
  using Entry = std::pair<const Path, Node>;

  static Path Head(const Path& path, size_t count) {
    return Path(path.begin(), path.begin() + static_cast<ptrdiff_t>(count));
  }
  static bool Begins(const Path& path, const Path& other) {
    return path.size() <= other.size() && std::equal(path.begin(), path.end(), other.begin());
  }
  std::vector<Entry*> Leaves(const Path& busy) {
    std::vector<Entry*> leaves;
    for (Entry& entry : nodes_) {
      const bool parent = std::any_of(nodes_.begin(), nodes_.end(), [&](const Entry& other) {
        return other.first.size() > entry.first.size() && Begins(entry.first, other.first);
      });
      if (!parent && !Begins(entry.first, busy)) leaves.push_back(&entry);
    }
    return leaves;
  }
  bool Before(const Node& a, const Node& b) const {
    if (evict_ == KvEvict::kLfu && a.frequency != b.frequency) return a.frequency < b.frequency;
    if (evict_ == KvEvict::kGdsf && a.rank != b.rank) return a.rank < b.rank;
    return a.stamp < b.stamp;
  }
  Entry* FirstInLine(const std::vector<Entry*>& leaves, bool in_main) {
    Entry* first = nullptr;
    for (Entry* leaf : leaves) {
      if (leaf->second.in_main != in_main) continue;
      if (first == nullptr || leaf->second.arrival < first->second.arrival) first = leaf;
    }
    return first;
  }
  Entry* S3FifoVictim(const std::vector<Entry*>& leaves) {
    while (true) {
      size_t small_count = 0;
      for (const Entry& entry : nodes_) small_count += entry.second.in_main ? 0 : 1;
      Entry* const small = FirstInLine(leaves, false);
      Entry* const main = FirstInLine(leaves, true);
      const bool from_small =
          main == nullptr ||
          (small != nullptr && small_count > std::max<size_t>(1, capacity_ / 10));
      Entry* const first = from_small ? small : main;
      if (first == nullptr || first->second.uses < (from_small ? 2 : 1)) return first;
      first->second.uses = from_small ? 0 : first->second.uses - 1;
      first->second.in_main = true;
      first->second.arrival = ++clock_;
    }
  }
  bool EvictOne(const Path& busy) {
    const std::vector<Entry*> leaves = Leaves(busy);
    if (leaves.empty()) return false;
    Entry* victim = nullptr;
    if (evict_ == KvEvict::kS3Fifo) {
      victim = S3FifoVictim(leaves);
      if (!victim->second.in_main) {
        ghosts_.push_back(victim->first);
        if (ghosts_.size() > std::max<size_t>(1, capacity_ - capacity_ / 10)) ghosts_.pop_front();
      }
    } else {
      victim = *std::min_element(leaves.begin(), leaves.end(), [&](const Entry* a, const Entry* b) {
        return Before(a->second, b->second);
      });
    }
    floor_ = std::max(floor_, victim->second.rank);
    nodes_.erase(victim->first);
    return true;
  }

  KvEvict evict_;
  size_t capacity_;
  double depth_cost_;
  std::map<Path, Node> nodes_;
  std::deque<Path> ghosts_;
  double floor_ = 0.0;
  uint64_t stamp_ = 0;
  uint64_t clock_ = 0;
};

// Prompts that share beginnings, some often and most never again.
std::vector<Path> RandomRequests(Rng& rng, int count) {
  std::vector<Path> requests;
  for (int i = 0; i < count; ++i) {
    Path path;
    if (!requests.empty() && rng.Below(3) != 0) {
      path = requests[rng.Below(2) == 0 ? rng.Below(std::min<size_t>(4, requests.size()))
                                        : rng.Below(requests.size())];
      path.resize(rng.Below(path.size() + 1));
    }
    const uint64_t more = rng.Below(6);
    for (uint64_t j = 0; j < more; ++j) path.push_back(static_cast<int>(rng.Below(50)));
    requests.push_back(path);
  }
  return requests;
}

RequestTrace TraceOf(const std::vector<Path>& requests) {
  RequestTrace trace;
  for (const Path& path : requests) {
    std::vector<TokenId> ids;
    for (const int id : path) ids.push_back(TokenId{id});
    trace.Add(ids);
  }
  return trace;
}

std::unique_ptr<EvictionPolicy> MakePolicy(KvEvict evict, uint32_t items, double depth_cost) {
  EvictionOptions options;
  options.evict = evict;
  options.item_count = items;
  options.depth_cost = depth_cost;
  options.max_path = 64;
  return MakeEvictionPolicy(options);
}

class PolicyProperty : public testing::TestWithParam<KvEvict> {};

TEST_P(PolicyProperty, TreeAndShadowAgreeWithTheModel) {
  uint64_t all_hits = 0;
  uint64_t refused = 0;
  for (const uint64_t seed : TestSeeds(/*count=*/12)) {
    SCOPED_TRACE(fmt::format("KVASIR_TEST_SEED={}", seed));
    Rng rng(seed);
    const std::vector<Path> requests = RandomRequests(rng, 250);
    const RequestTrace trace = TraceOf(requests);
    // Often less than one request's path.
    const uint64_t most = rng.Below(3) == 0 ? 6 : 60;
    const uint32_t capacity =
        std::min(static_cast<uint32_t>(rng.Between(1, most)), trace.block_count());
    const double depth_cost = 1.0 / static_cast<double>(rng.Between(1, 60));
    NaiveCache model(GetParam(), capacity, depth_cost);
    CacheReplay replay(trace, ReplayOptions{capacity, GetParam(), depth_cost});
    ShadowCache shadow(capacity, trace.longest(), MakePolicy(GetParam(), capacity, depth_cost));
    uint64_t hits = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
      const uint64_t before = hits;
      hits += model.Request(requests[i]);
      replay.Step();
      ASSERT_EQ(replay.result().hits, hits) << "request " << i;
      std::vector<PolicyBlock> path;
      for (const uint32_t block : trace.request(i)) {
        path.push_back({block + 1, static_cast<uint32_t>(path.size()), 1});
      }
      ASSERT_EQ(shadow.Request(path, capacity), hits - before) << "request " << i;
      ASSERT_EQ(replay.tree().node_count(), model.size());
      ASSERT_EQ(shadow.block_count(), model.size());
      replay.tree().CheckInvariants();
      shadow.CheckInvariants();
      if (!model.Has(requests[i]) && !requests[i].empty()) ++refused;
    }
    all_hits += hits;
  }
  if (std::getenv("KVASIR_TEST_SEED") != nullptr) return;
  EXPECT_GT(all_hits, 500u);
  EXPECT_GT(refused, 5u) << "no request was ever too long";
}

INSTANTIATE_TEST_SUITE_P(All, PolicyProperty,
                         testing::Values(KvEvict::kLru, KvEvict::kLfu, KvEvict::kGdsf,
                                         KvEvict::kS3Fifo),
                         [](const auto& test) { return std::string(KvEvictName(test.param)); });

ReplayResult Replay(const RequestTrace& trace, uint64_t capacity, std::optional<KvEvict> evict) {
  CacheReplay replay(trace, ReplayOptions{capacity, evict, 1.0 / 48});
  while (!replay.done()) replay.Step();
  return replay.result();
}

// Nobody who does not know the future saves more than who does, and a cache of everything is a
// bound for all.
TEST(CacheReplay, ForesightAndEndlessnessAreBounds) {
  Rng rng(7);
  const RequestTrace trace = TraceOf(RandomRequests(rng, 3000));
  const uint64_t endless = Replay(trace, UINT64_MAX, KvEvict::kLru).hits;
  EXPECT_EQ(endless, trace.reference_count() - trace.block_count());
  for (const uint64_t capacity : {20u, 100u, 400u}) {
    const uint64_t belady = Replay(trace, capacity, std::nullopt).hits;
    EXPECT_LT(belady, endless);
    for (uint32_t i = 0; i <= kFixedKvEvicts; ++i) {
      const ReplayResult result = Replay(trace, capacity, static_cast<KvEvict>(i));
      EXPECT_LE(result.hits, belady) << KvEvictName(static_cast<KvEvict>(i)) << " " << capacity;
      EXPECT_GT(result.hits, 0u);
      uint64_t evictions = 0;
      for (const uint64_t n : result.eviction.evictions) evictions += n;
      EXPECT_GE(evictions + capacity, result.references - result.hits - 3000);
    }
  }
}

// The same id after other blocks is another block.
TEST(RequestTrace, BlocksAreWholePrefixes) {
  const RequestTrace trace = TraceOf({{1, 2, 3}, {1, 2, 4}, {2, 3}, {}, {1, 2, 3}});
  EXPECT_EQ(trace.request_count(), 5u);
  EXPECT_EQ(trace.reference_count(), 11u);
  EXPECT_EQ(trace.block_count(), 6u);
  EXPECT_EQ(trace.longest(), 3u);
  EXPECT_EQ(trace.request(0)[1], trace.request(1)[1]);
  EXPECT_NE(trace.request(0)[1], trace.request(2)[0]);
}

// Heap work by cached blocks: it grows with the logarithm, and calls that evict nothing do none.
TEST(EvictionCost, AMillionBlocksCostTwiceTheComparisonsOfAThousand) {
  double per_step[2] = {0.0, 0.0};
  for (int large = 0; large < 2; ++large) {
    const uint32_t blocks = large == 0 ? 1000 : 1'000'000;
    GdsfPolicy policy(blocks, 1.0 / 48);
    Rng rng(1);
    uint64_t stamp = 0;
    const auto put = [&](uint32_t item) {
      policy.Add(item, {item, static_cast<uint32_t>(rng.Below(200)), 1});
      policy.Rest(item, ++stamp);
      policy.Offer(item);
    };
    for (uint32_t item = 0; item < blocks; ++item) put(item);
    const uint64_t before = policy.heap().comparisons();
    constexpr int kSteps = 20'000;
    for (int step = 0; step < kSteps; ++step) {
      const uint32_t victim = *policy.Victim();
      policy.Evict(victim);
      policy.Withdraw(victim);
      policy.Remove(victim);
      put(victim);
      // And one that is used again.
      const uint32_t item = static_cast<uint32_t>(rng.Below(blocks));
      policy.Withdraw(item);
      policy.Use(item);
      policy.Rest(item, ++stamp);
      policy.Offer(item);
    }
    per_step[large] = static_cast<double>(policy.heap().comparisons() - before) / kSteps;
    EXPECT_LE(per_step[large], 4.0 * 2.0 * std::bit_width(blocks));
    const uint64_t then = policy.heap().comparisons();
    for (int step = 0; step < 1000; ++step) (void)policy.Victim();
    EXPECT_EQ(policy.heap().comparisons(), then);
  }
  EXPECT_LE(per_step[1], 2.1 * per_step[0]);
}

// Each look at the queues is paid for by a use: moving blocks between them cannot pile up.
TEST(EvictionCost, S3FifoMovesABlockOnceForEachUse) {
  constexpr uint32_t kBlocks = 10'000;
  S3FifoPolicy policy(kBlocks);
  Rng rng(1);
  for (uint32_t item = 0; item < kBlocks; ++item) {
    policy.Add(item, {item + 1, 0, 1});
    for (uint64_t uses = rng.Below(5); uses > 0; --uses) policy.Use(item);
    policy.Offer(item);
  }
  std::vector<bool> gone(kBlocks);
  for (uint32_t i = 0; i < kBlocks; ++i) {
    const uint32_t victim = *policy.Victim();
    ASSERT_EQ(*policy.Victim(), victim);
    ASSERT_FALSE(gone[victim]);
    gone[victim] = true;
    policy.Evict(victim);
    policy.Withdraw(victim);
    policy.Remove(victim);
  }
  EXPECT_FALSE(policy.Victim().has_value());
  policy.CheckInvariants();
}

}  // namespace
}  // namespace kvasir
