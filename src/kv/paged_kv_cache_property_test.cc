// Random operations on a KvCache with tiny pools and two-token alphabets, so that sharing, copies,
// eviction and exhaustion are common. The model of a sequence is its token list; KV bytes are a
// digest of the exact prefix, checked for every open sequence after every operation. Walks take the
// eviction policies in turn, and pin prefixes now and then.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/check.h"
#include "base/rng.h"
#include "kv/digest_blocks.h"
#include "kv/kv_cache.h"

namespace kvasir {
namespace {

struct ModelSequence {
  uint32_t tenant = 0;
  std::vector<TokenId> tokens;   // Computed ones.
  std::vector<TokenId> pending;  // Of the prompt, still to compute.
};

class Walk {
 public:
  // `roomy`: nothing is ever evicted, so what is reused is known exactly.
  Walk(uint64_t seed, bool roomy) : rng_(seed), roomy_(roomy) {
    KvCache::Options options;
    options.layout.block_tokens = rng_.Below(4) == 0 ? 32 : 16;
    options.layout.groups.push_back(KvGroup{{1}, 1, 16, 0});
    if (rng_.Below(4) != 0) {
      const uint32_t windows[] = {1, 2, 5, 16, 17, 20, 40, 64};
      options.layout.groups.push_back(KvGroup{{0, 2}, 1, 16, windows[rng_.Below(8)]});
    }
    const uint32_t blocks = roomy ? 2000 : static_cast<uint32_t>(rng_.Between(1, 24));
    options.block_counts.assign(options.layout.groups.size(), blocks);
    // Sometimes a window arena that is short of the other one: its own pressure.
    if (!roomy && options.block_counts.size() > 1 && rng_.Below(2) == 0) {
      options.block_counts[1] = static_cast<uint32_t>(rng_.Between(1, blocks));
    }
    options.max_sequences = static_cast<uint32_t>(rng_.Between(1, 5));
    options.max_sequence_tokens = static_cast<uint32_t>(rng_.Between(20, 200));
    options.evict = static_cast<KvEvict>(seed % (kFixedKvEvicts + 1));
    options_ = options;
    auto cache = KvCache::Create(options);
    KV_CHECK(cache.ok());
    cache_ = std::move(cache).value();
    for (uint8_t tenant = 0; tenant < 2; ++tenant) roots_[tenant].bytes[0] = tenant;
  }

  void Step() {
    const uint64_t op = rng_.Below(100);
    if (op < 20)
      Open();
    else if (op < 70)
      Reserve();
    else if (op < 78)
      Commit();
    else if (op < 83)
      Truncate();
    else if (op < 88)
      Fork();
    else if (op < 96)
      Close();
    else if (op < 98)
      Pin();
    else if (op < 99)
      Unpin();
    else
      EvictAll();
    if (!roomy_ || rng_.Below(16) == 0) cache_->CheckInvariants();
    CheckAll();
  }

  bool evicted() const {
    const KvCounters& c = cache_->counters();
    return c.failed_reserves + c.evictions[0] + c.evictions[1] > 0;
  }

  void Finish() {
    while (!open_.empty()) CloseAt(open_.begin()->first);
    cache_->AdvanceTo(kNever);  // Beyond every pin.
    cache_->EvictAll();
    cache_->CheckInvariants();
    for (uint32_t group = 0; group < options_.block_counts.size(); ++group) {
      ASSERT_EQ(cache_->free_blocks(group), options_.block_counts[group]) << "a block was lost";
    }
  }

  const KvCounters& counters() const { return cache_->counters(); }
  uint64_t pins() const { return pins_; }

 private:
  uint32_t Below(uint64_t bound) { return static_cast<uint32_t>(rng_.Below(bound)); }
  bool Pick(SequenceId* id) {
    if (open_.empty()) return false;
    *id = std::next(open_.begin(), Below(open_.size()))->first;
    return true;
  }
  void AppendRandom(std::vector<TokenId>* tokens, uint32_t count) {
    // Long runs of one token, so that even independent prompts share blocks.
    while (count > 0) {
      const TokenId token{static_cast<int32_t>(Below(2))};
      const uint32_t run = std::min(count, 1 + Below(40));
      tokens->insert(tokens->end(), run, token);
      count -= run;
    }
  }

  std::vector<TokenId> Prompt() {
    std::vector<TokenId> prompt;
    if (!history_.empty() && Below(4) != 0) {
      prompt = history_[Below(history_.size())];
      prompt.resize(Below(prompt.size() + 1));
      if (Below(3) == 0) prompt.resize(prompt.size() / 16 * 16);  // Often at a block border.
    }
    if (Below(2) == 0) AppendRandom(&prompt, Below(60));
    prompt.resize(std::min<size_t>(prompt.size(), options_.max_sequence_tokens));
    return prompt;
  }

  static uint32_t Common(const std::vector<TokenId>& a, const std::vector<TokenId>& b) {
    const auto end = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
    return static_cast<uint32_t>(end.first - a.begin());
  }

  // What must be cached because an open sequence holds it, when there is no window group; in a
  // roomy cache all that is cached, since what ended stays as well.
  uint32_t KnownPrefix(uint32_t tenant, const std::vector<TokenId>& prompt) const {
    if (prompt.empty() || (!roomy_ && options_.layout.groups.size() > 1)) return 0;
    const uint32_t block_tokens = options_.layout.block_tokens;
    uint32_t best = 0;
    for (const auto& [id, model] : open_) {
      if (model.tenant != tenant) continue;
      // Of a block that is full, the first slots serve too.
      const uint32_t published =
          static_cast<uint32_t>(model.tokens.size()) / block_tokens * block_tokens;
      best = std::max(best, std::min(Common(model.tokens, prompt), published));
    }
    for (const ModelSequence& model : ended_) {
      if (model.tenant == tenant) best = std::max(best, Common(model.tokens, prompt));
    }
    return std::min(best, static_cast<uint32_t>(prompt.size()) - 1);
  }

  void Open() {
    const uint32_t tenant = Below(5) == 0 ? 1 : 0;
    const std::vector<TokenId> prompt = Prompt();
    const uint32_t expected = cache_->MatchTokens(roots_[tenant], prompt);
    ASSERT_GE(expected, KnownPrefix(tenant, prompt));
    if (roomy_ && !evicted()) {
      ASSERT_EQ(expected, KnownPrefix(tenant, prompt));
    }
    const auto id = cache_->Open(roots_[tenant], prompt);
    ASSERT_EQ(id.has_value(), open_.size() < options_.max_sequences);
    if (!id.has_value()) return;
    const uint32_t computed = cache_->computed(*id);
    ASSERT_EQ(computed, expected);
    ASSERT_LE(computed, prompt.empty() ? 0 : prompt.size() - 1);
    ModelSequence model;
    model.tenant = tenant;
    model.tokens.assign(prompt.begin(), prompt.begin() + computed);
    model.pending.assign(prompt.begin() + computed, prompt.end());
    open_[*id] = model;
    if (history_.size() < 30)
      history_.push_back(prompt);
    else
      history_[Below(30)] = prompt;
  }

  void Reserve() {
    SequenceId id;
    if (!Pick(&id)) return;
    const uint32_t computed = cache_->computed(id);
    const uint32_t room = options_.max_sequence_tokens - computed;
    const uint32_t count = std::min(room, Below(2) == 0 ? Below(80) : Below(4));
    std::vector<uint32_t> before;
    for (uint32_t g = 0; g < options_.block_counts.size(); ++g) {
      before.push_back(cache_->free_blocks(g) + cache_->idle_blocks(g));
    }
    const bool done = cache_->Reserve(id, count);
    ASSERT_EQ(cache_->reserved(id), done ? count : 0);
    const uint32_t blocks =
        (computed + count + options_.layout.block_tokens - 1) / options_.layout.block_tokens;
    if (done && Below(4) != 0) CommitTo(id);
    if (!done) {
      for (uint32_t g = 0; g < before.size(); ++g) {
        ASSERT_EQ(cache_->free_blocks(g) + cache_->idle_blocks(g), before[g])
            << "a failed Reserve changed something";
      }
      // Whoever fits alone never fails: what it shares, it shares with the tree only, and pins make
      // way for it.
      const uint32_t smallest =
          *std::min_element(options_.block_counts.begin(), options_.block_counts.end());
      ASSERT_TRUE(open_.size() > 1 || blocks > smallest);
    }
  }

  // Computes the first reserved tokens; the other slots get what a rejected draft leaves behind.
  void Commit() {
    SequenceId id;
    if (Pick(&id)) CommitTo(id);
  }

  void CommitTo(SequenceId id) {
    const uint32_t reserved = cache_->reserved(id);
    const uint32_t count = Below(4) == 0 ? Below(reserved + 1) : reserved;
    ModelSequence& model = open_[id];
    const auto known = std::min<size_t>(count, model.pending.size());
    std::vector<TokenId> tokens(model.pending.begin(),
                                model.pending.begin() + static_cast<ptrdiff_t>(known));
    AppendRandom(&tokens, count - static_cast<uint32_t>(known));
    std::vector<TokenId> all = model.tokens;
    all.insert(all.end(), tokens.begin(), tokens.end());
    std::vector<uint64_t> digests = PrefixDigests(model.tenant, all);
    digests.erase(digests.begin(), digests.begin() + static_cast<ptrdiff_t>(model.tokens.size()));
    for (uint32_t i = count; i < reserved; ++i) digests.push_back(rng_.Next());
    WriteDigests(*cache_, id, digests);
    CheckAll();  // Before the commit, too: the writes went to nobody else's slots.
    cache_->Commit(id, tokens);
    model.tokens = all;
    model.pending.erase(model.pending.begin(),
                        model.pending.begin() + static_cast<ptrdiff_t>(known));
  }

  void Truncate() {
    SequenceId id;
    if (!Pick(&id)) return;
    const uint32_t floor = cache_->truncate_floor(id);
    const uint32_t count = floor + Below(cache_->computed(id) - floor + 1);
    cache_->Truncate(id, count);
    open_[id].tokens.resize(count);
    open_[id].pending.clear();
  }

  void Fork() {
    SequenceId id;
    if (!Pick(&id)) return;
    const auto fork = cache_->Fork(id);
    ASSERT_EQ(fork.has_value(), open_.size() < options_.max_sequences);
    if (fork.has_value()) open_[*fork] = open_[id];
  }

  void Close() {
    SequenceId id;
    if (Pick(&id)) CloseAt(id);
  }

  void CloseAt(SequenceId id) {
    const ModelSequence model = open_[id];
    history_.push_back(model.tokens);
    if (history_.size() > 30) history_.erase(history_.begin());
    cache_->Close(id);
    open_.erase(id);
    if (roomy_) ended_.push_back(model);
    // Nothing was evicted since, so all of it is cached, the partial block too.
    if (!roomy_ && options_.layout.groups.size() > 1) return;
    ASSERT_EQ(cache_->MatchTokens(roots_[model.tenant], model.tokens),
              model.tokens.empty() ? 0 : model.tokens.size() - 1);
  }

  void EvictAll() {
    if (roomy_) return;
    cache_->EvictAll();
    for (uint32_t group = 0; group < options_.block_counts.size(); ++group) {
      ASSERT_EQ(cache_->idle_blocks(group), 0u);
    }
  }

  void Pin() {
    if (roomy_ || history_.empty()) return;
    std::vector<TokenId> tokens = history_[Below(history_.size())];
    tokens.resize(Below(tokens.size() + 1));
    const uint32_t tenant = Below(2);
    now_ += static_cast<TimeUs>(Below(100));
    cache_->AdvanceTo(now_);
    const KvPin pin = cache_->PinCached(roots_[tenant], tokens, now_ + 1 + Below(300));
    ASSERT_NE(pin.outcome, KvPinOutcome::kUnsupported);
    if (pin.outcome != KvPinOutcome::kPinned) return;
    ++pins_;
    ASSERT_GE(cache_->MatchTokens(roots_[tenant], tokens) + 1,
              std::min<size_t>(pin.tokens, tokens.size()));
    if (Below(2) == 0) named_.emplace_back(tenant, pin.hash);
  }

  void Unpin() {
    if (named_.empty()) return;
    const auto [tenant, hash] = named_.back();
    named_.pop_back();
    ASSERT_FALSE(cache_->UnpinCached(roots_[1 - tenant], hash)) << "another tenant's";
    cache_->UnpinCached(roots_[tenant], hash);
    ASSERT_FALSE(cache_->UnpinCached(roots_[tenant], hash));
  }

  void CheckAll() {
    ASSERT_EQ(cache_->open_sequences(), open_.size());
    for (const auto& [id, model] : open_) {
      ASSERT_EQ(cache_->computed(id), model.tokens.size());
      CheckDigests(*cache_, id, PrefixDigests(model.tenant, model.tokens));
      if (::testing::Test::HasFatalFailure()) return;
    }
  }

  Rng rng_;
  bool roomy_;
  KvCache::Options options_;
  std::unique_ptr<KvCache> cache_;
  BlockHash roots_[2];
  std::map<SequenceId, ModelSequence> open_;
  std::vector<std::vector<TokenId>> history_;
  std::vector<ModelSequence> ended_;  // Roomy only.
  TimeUs now_ = 0;
  uint64_t pins_ = 0;
  std::vector<std::pair<uint32_t, BlockHash>> named_;  // Pins, some of them over.
};

TEST(KvCacheProperty, EverySequenceReadsItsOwnPrefix) {
  KvCounters sum;
  uint64_t pins = 0;
  for (const uint64_t seed : TestSeeds(/*count=*/10)) {
    SCOPED_TRACE(fmt::format("KVASIR_TEST_SEED={}", seed));
    Walk walk(seed, /*roomy=*/false);
    for (int step = 0; step < 10000; ++step) {
      walk.Step();
      if (HasFatalFailure()) FAIL() << "at step " << step;
    }
    walk.Finish();
    if (HasFatalFailure()) return;
    pins += walk.pins();
    sum.broken_pins += walk.counters().broken_pins;
    sum.copies += walk.counters().copies;
    sum.hits += walk.counters().hits;
    sum.duplicate_nodes += walk.counters().duplicate_nodes;
    sum.failed_reserves += walk.counters().failed_reserves;
    sum.evictions[0] += walk.counters().evictions[0];
    sum.evictions[1] += walk.counters().evictions[1];
  }
  if (std::getenv("KVASIR_TEST_SEED") != nullptr) return;
  // The walk is worth little unless it often reaches the rare cases.
  fmt::print("copies {} hits {} twins {} refusals {} evictions {} {}\n", sum.copies, sum.hits,
             sum.duplicate_nodes, sum.failed_reserves, sum.evictions[0], sum.evictions[1]);
  EXPECT_GT(pins, 200u);
  EXPECT_GT(sum.broken_pins, 10u);
  EXPECT_GT(sum.copies, 1000u);
  EXPECT_GT(sum.hits, 1000u);
  EXPECT_GT(sum.duplicate_nodes, 300u);
  EXPECT_GT(sum.failed_reserves, 1000u);
  EXPECT_GT(sum.evictions[0], 1000u);
  EXPECT_GT(sum.evictions[1], 1000u);
}

TEST(KvCacheProperty, WithoutEvictionAllThatWasComputedIsReused) {
  for (const uint64_t seed : TestSeeds(/*count=*/8)) {
    SCOPED_TRACE(fmt::format("KVASIR_TEST_SEED={}", seed));
    Walk walk(seed, /*roomy=*/true);
    for (int step = 0; step < 1500; ++step) {
      walk.Step();
      if (HasFatalFailure()) FAIL() << "at step " << step;
    }
    EXPECT_FALSE(walk.evicted());
    walk.Finish();
  }
}

}  // namespace
}  // namespace kvasir
