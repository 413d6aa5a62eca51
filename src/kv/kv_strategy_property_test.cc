// Random operations on a KvCache of each strategy with tiny pools and two-token alphabets, so that
// sharing, copies, moves, eviction and exhaustion are common. The model of a sequence is its token
// list; KV bytes are a digest of the exact prefix, checked for every open sequence after every
// operation. Walks take the eviction policies in turn, and pin prefixes now and then.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>

#include "base/check.h"
#include "base/rng.h"
#include "kv/digest_blocks_for_test.h"
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
  Walk(KvStrategy strategy, uint64_t seed, bool roomy, bool staged = false)
      : rng_(seed), strategy_(strategy), roomy_(roomy) {
    KvCache::Options options;
    options.strategy = strategy;
    options.layout.block_tokens = rng_.Below(4) == 0 ? 32 : 16;
    options.layout.groups.push_back(KvGroup{{1}, 1, 16, 0});
    if (rng_.Below(4) != 0) {
      const uint32_t windows[] = {17, 20, 40, 64, 1, 2, 5, 16};
      options.layout.groups.push_back(KvGroup{{0, 2}, 1, 16, windows[rng_.Below(staged ? 4 : 8)]});
    }
    if (staged) options.layout.types.k = KvType::kInt4;
    const uint32_t blocks = roomy ? 2000 : static_cast<uint32_t>(rng_.Between(1, 24));
    options.block_counts.assign(options.layout.groups.size(), blocks);
    // Sometimes a window arena that is short of the other one: its own pressure.
    if (!roomy && options.block_counts.size() > 1 && rng_.Below(2) == 0) {
      options.block_counts[1] = static_cast<uint32_t>(rng_.Between(1, blocks));
    }
    options.max_sequences = static_cast<uint32_t>(rng_.Between(1, 5));
    options.max_sequence_tokens = static_cast<uint32_t>(rng_.Between(20, 200));
    const uint32_t smallest =
        *std::min_element(options.block_counts.begin(), options.block_counts.end());
    if (strategy == KvStrategy::kStatic) {
      // One slot at least.
      options.max_sequence_tokens =
          std::min(options.max_sequence_tokens, smallest * options.layout.block_tokens);
    }
    options.evict = static_cast<KvEvict>(seed % (kFixedKvEvicts + 1));
    options_ = options;
    auto cache = KvCache::Create(options);
    KV_CHECK(cache.ok());
    cache_ = std::move(cache).value();
    for (uint8_t tenant = 0; tenant < 2; ++tenant) roots_[tenant].bytes[0] = tenant;
    most_alone_ = cache_->most_tokens_alone();
    if (strategy != KvStrategy::kPaged) {
      const uint32_t most = smallest * options.layout.block_tokens;
      KV_CHECK(most_alone_ == std::min(options.max_sequence_tokens, most));
    }
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
      ASSERT_EQ(cache_->free_blocks(group), cache_->block_count(group)) << "a block was lost";
    }
  }

  const KvCounters& counters() const { return cache_->counters(); }
  uint64_t refused() const { return refused_; }
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
      if (Below(3) != 0) prompt.resize(Below(prompt.size() + 1));
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

  // Whether an open sequence may have gone on in the partial block that this ended one left behind.
  // It can then be found in the other's place when that block is full, or that sequence closed.
  bool MayBeTakenOver(const ModelSequence& ended) const {
    if (strategy_ != KvStrategy::kPaged) return false;
    const size_t block = ended.tokens.size() / options_.layout.block_tokens;
    return std::any_of(open_.begin(), open_.end(), [&](const auto& entry) {
      const ModelSequence& model = entry.second;
      return model.tenant == ended.tenant &&
             model.tokens.size() / options_.layout.block_tokens == block &&
             Common(model.tokens, ended.tokens) == ended.tokens.size();
    });
  }

  // What must be cached because an open sequence holds it, when there is no window group; in a
  // roomy cache all that is cached, since what ended stays as well. `most`: what may be.
  uint32_t KnownPrefix(uint32_t tenant, const std::vector<TokenId>& prompt, bool most) const {
    const bool paged = strategy_ == KvStrategy::kPaged;
    if (prompt.empty() || (paged && !roomy_ && options_.layout.groups.size() > 1)) return 0;
    const uint32_t block_tokens = options_.layout.block_tokens;
    uint32_t best = 0;
    for (const auto& [id, model] : open_) {
      if (model.tenant != tenant || !cache_->shares_running()) continue;
      // Of a block that is full, the first slots serve too; in `shared` of any.
      const uint32_t published =
          paged ? static_cast<uint32_t>(model.tokens.size()) / block_tokens * block_tokens
                : static_cast<uint32_t>(model.tokens.size());
      best = std::max(best, std::min(Common(model.tokens, prompt), published));
      // Staged keys are found when a token after them was computed.
      if (options_.layout.staged()) best = std::min(best, WholeBlocksBefore(model.tokens.size()));
    }
    for (const ModelSequence& model : ended_) {
      if (model.tenant != tenant) continue;
      uint32_t common = Common(model.tokens, prompt);
      if (!most && MayBeTakenOver(model)) {
        const size_t whole = model.tokens.size() / block_tokens * block_tokens;
        common = std::min(common, static_cast<uint32_t>(whole));
      }
      best = std::max(best, common);
    }
    best = std::min(best, static_cast<uint32_t>(prompt.size()) - 1);
    return options_.layout.staged() ? best / block_tokens * block_tokens : best;
  }

  // Tokens of the whole blocks before the last of `count` tokens.
  uint32_t WholeBlocksBefore(size_t count) const {
    const uint32_t block_tokens = options_.layout.block_tokens;
    return count == 0 ? 0 : static_cast<uint32_t>(count - 1) / block_tokens * block_tokens;
  }

  std::vector<uint32_t> FreeAndIdle() const {
    std::vector<uint32_t> blocks;
    for (uint32_t g = 0; g < options_.block_counts.size(); ++g) {
      blocks.push_back(cache_->free_blocks(g) + cache_->idle_blocks(g));
    }
    return blocks;
  }

  // Whether the outcome of an Open is a possible one.
  bool HasPlace(bool placed, size_t prompt_tokens) {
    [&] {
      if (strategy_ == KvStrategy::kPaged) {
        ASSERT_EQ(placed, open_.size() < options_.max_sequences);
      } else if (open_.empty() && prompt_tokens <= most_alone_) {
        ASSERT_TRUE(placed) << "alone, and it fits";
      }
      ASSERT_TRUE(!placed || open_.size() < options_.max_sequences);
    }();
    return !::testing::Test::HasFatalFailure();
  }

  void Open() {
    const uint32_t tenant = Below(5) == 0 ? 1 : 0;
    const std::vector<TokenId> prompt = Prompt();
    const uint32_t expected = cache_->MatchTokens(roots_[tenant], prompt);
    ASSERT_GE(expected, KnownPrefix(tenant, prompt, /*most=*/false));
    if (roomy_ && !evicted()) {
      ASSERT_LE(expected, KnownPrefix(tenant, prompt, /*most=*/true));
    }
    // Some clients set a limit, which is no promise to keep it here.
    const uint32_t most = Below(2) == 0 ? 0 : static_cast<uint32_t>(prompt.size()) + Below(80);
    const std::vector<uint32_t> before = FreeAndIdle();
    const std::vector<TokenId> witness =
        history_.empty() ? prompt : history_[Below(history_.size())];
    const uint32_t witness_match = cache_->MatchTokens(roots_[tenant], witness);
    const uint64_t evictions_before = cache_->counters().evictions[0];
    const auto id = cache_->Open(roots_[tenant], prompt, most);
    if (!HasPlace(id.has_value(), prompt.size())) return;
    if (!id.has_value()) {
      ++refused_;
      ASSERT_EQ(FreeAndIdle(), before) << "an Open without a place changed something";
      return;
    }
    const uint32_t computed = cache_->computed(*id);
    // Where its KV is in the way, `shared` may make do with whole blocks.
    if (strategy_ != KvStrategy::kShared || roomy_) {
      ASSERT_EQ(computed, expected);
    }
    ASSERT_LE(computed, expected);
    ASSERT_GE(computed, expected / options_.layout.block_tokens * options_.layout.block_tokens);
    if (Below(8) == 0) {
      // Given up at once, or after a reservation that nothing came of: all that was cached still
      // is, if nothing had to go for it.
      if (strategy_ == KvStrategy::kPaged && Below(2) == 0) (void)cache_->Reserve(*id, 1);
      cache_->Close(*id);
      if (cache_->counters().evictions[0] == evictions_before) {
        ASSERT_GE(cache_->MatchTokens(roots_[tenant], witness), witness_match);
      }
      return;
    }
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
    const std::vector<uint32_t> before = FreeAndIdle();
    const bool fits = cache_->FitsTogether(std::vector<KvDemand>{{id, computed + count}}, 512);
    const bool done = cache_->Reserve(id, count);
    ASSERT_EQ(cache_->reserved(id), done ? count : 0);
    const uint32_t blocks =
        (computed + count + options_.layout.block_tokens - 1) / options_.layout.block_tokens;
    if (done && Below(4) != 0) CommitTo(id);
    if (!done) {
      ASSERT_EQ(FreeAndIdle(), before) << "a failed Reserve changed something";
      // In paged an estimate: it may miss the copy of a shared partial block.
      ASSERT_TRUE(!fits || strategy_ == KvStrategy::kPaged) << "what was said to fit did not";
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
    // Guesses stay in the unit of the first row if keys are staged, and that one is no guess.
    const uint32_t most = cache_->most_guessed_rows(id);
    uint32_t guesses = reserved - count;
    if (options_.layout.staged()) {
      guesses = count == 0 || count > most ? 0 : std::min(guesses, most + 1 - count);
    }
    for (uint32_t i = 0; i < guesses; ++i) digests.push_back(rng_.Next());
    WriteDigests(*cache_, id, digests);
    // Before the commit, too: the writes went to nobody else's slots. Its own tail has moved on.
    CheckAll(options_.layout.staged() ? std::optional(id) : std::nullopt);
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
    const std::vector<uint32_t> before = FreeAndIdle();
    const auto fork = cache_->Fork(id);
    if (!fork.has_value()) {
      ASSERT_TRUE(open_.size() == options_.max_sequences || strategy_ != KvStrategy::kPaged);
      ASSERT_EQ(FreeAndIdle(), before) << "a Fork without a place changed something";
      return;
    }
    ASSERT_LT(open_.size(), options_.max_sequences);
    ASSERT_FALSE(open_.contains(*fork));
    open_[*fork] = open_[id];
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
    const bool paged = strategy_ == KvStrategy::kPaged;
    if (paged && !roomy_ && options_.layout.groups.size() > 1) return;
    const size_t all = model.tokens.empty() ? 0 : model.tokens.size() - 1;
    ASSERT_EQ(cache_->MatchTokens(roots_[model.tenant], model.tokens),
              options_.layout.staged() ? WholeBlocksBefore(model.tokens.size()) : all);
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
    ASSERT_EQ(pin.outcome == KvPinOutcome::kUnsupported, strategy_ != KvStrategy::kPaged);
    if (pin.outcome != KvPinOutcome::kPinned) return;
    ++pins_;
    std::vector<TokenId> longer = tokens;  // Of which all but the last can be matched.
    longer.push_back(TokenId{9});
    longer.resize(std::min<size_t>(longer.size(), options_.max_sequence_tokens));
    if (longer.size() > tokens.size()) {
      ASSERT_GE(cache_->MatchTokens(roots_[tenant], longer), pin.tokens);
    }
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

  void CheckAll(std::optional<SequenceId> except = std::nullopt) {
    ASSERT_EQ(cache_->open_sequences(), open_.size());
    for (const auto& [id, model] : open_) {
      ASSERT_EQ(cache_->computed(id), model.tokens.size());
      if (id == except) continue;
      CheckDigests(*cache_, id, PrefixDigests(model.tenant, model.tokens));
      if (::testing::Test::HasFatalFailure()) return;
    }
  }

  Rng rng_;
  KvStrategy strategy_;
  bool roomy_;
  uint32_t most_alone_ = 0;
  uint64_t refused_ = 0;  // Opens without a place.
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

class KvStrategyProperty : public ::testing::TestWithParam<KvStrategy> {};

TEST_P(KvStrategyProperty, EverySequenceReadsItsOwnPrefix) {
  KvCounters sum;
  uint64_t refused = 0, pins = 0;
  for (const uint64_t seed : TestSeeds(/*count=*/10)) {
    SCOPED_TRACE(fmt::format("KVASIR_TEST_SEED={}", seed));
    Walk walk(GetParam(), seed, /*roomy=*/false);
    for (int step = 0; step < 10000; ++step) {
      walk.Step();
      if (HasFatalFailure()) FAIL() << "at step " << step;
    }
    walk.Finish();
    if (HasFatalFailure()) return;
    pins += walk.pins();
    sum.broken_pins += walk.counters().broken_pins;
    sum.taken_leaves += walk.counters().taken_leaves;
    sum.copies += walk.counters().copies;
    sum.moves += walk.counters().moves;
    sum.hits += walk.counters().hits;
    sum.duplicate_nodes += walk.counters().duplicate_nodes;
    sum.failed_reserves += walk.counters().failed_reserves;
    sum.evictions[0] += walk.counters().evictions[0];
    sum.evictions[1] += walk.counters().evictions[1];
    refused += walk.refused();
  }
  if (std::getenv("KVASIR_TEST_SEED") != nullptr) return;
  // The walk is worth little unless it often reaches the rare cases.
  fmt::print("copies {} taken {} moves {} hits {} twins {} refusals {} {} evictions {} {}\n",
             sum.copies, sum.taken_leaves, sum.moves, sum.hits, sum.duplicate_nodes,
             sum.failed_reserves, refused, sum.evictions[0], sum.evictions[1]);
  const bool is_static = GetParam() == KvStrategy::kStatic;
  const bool paged = GetParam() == KvStrategy::kPaged;
  EXPECT_GT(sum.copies, 1000u);
  EXPECT_GT(sum.hits, 1000u);
  EXPECT_GT(sum.evictions[0], 1000u);
  EXPECT_GT(sum.evictions[1], 1000u);
  EXPECT_TRUE(is_static ? sum.failed_reserves == 0 : sum.failed_reserves > 1000);
  EXPECT_TRUE(is_static || paged ? sum.moves == 0 : sum.moves > 1000);
  EXPECT_TRUE(paged ? sum.duplicate_nodes > 300 : refused > 500);
  if (!paged) return;
  EXPECT_GT(sum.taken_leaves, 150u);
  EXPECT_GT(pins, 200u);
  EXPECT_GT(sum.broken_pins, 10u);
}

// The same with keys that wait in a tail until their unit is quantized.
TEST_P(KvStrategyProperty, StagedKeysAreThoseOfTheOwnPrefix) {
  uint64_t hits = 0;
  for (const uint64_t seed : TestSeeds(/*count=*/10)) {
    SCOPED_TRACE(fmt::format("KVASIR_TEST_SEED={}", seed));
    Walk walk(GetParam(), seed, /*roomy=*/false, /*staged=*/true);
    for (int step = 0; step < 5000; ++step) {
      walk.Step();
      if (HasFatalFailure()) FAIL() << "at step " << step;
    }
    walk.Finish();
    if (HasFatalFailure()) return;
    hits += walk.counters().hits;
  }
  if (std::getenv("KVASIR_TEST_SEED") != nullptr) return;
  EXPECT_GT(hits, 200u);
}

TEST_P(KvStrategyProperty, WithoutEvictionAllThatWasComputedIsReused) {
  // The others take finished sequences over, and lose what the prompt leaves.
  if (GetParam() == KvStrategy::kStatic || GetParam() == KvStrategy::kDynamic) return;
  for (const uint64_t seed : TestSeeds(/*count=*/8)) {
    SCOPED_TRACE(fmt::format("KVASIR_TEST_SEED={}", seed));
    Walk walk(GetParam(), seed, /*roomy=*/true);
    for (int step = 0; step < 1500; ++step) {
      walk.Step();
      if (HasFatalFailure()) FAIL() << "at step " << step;
    }
    EXPECT_FALSE(walk.evicted());
    walk.Finish();
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, KvStrategyProperty, ::testing::ValuesIn(AllKvStrategies()),
                         [](const auto& param) {
                           return std::string(KvStrategyName(param.param));
                         });

}  // namespace
}  // namespace kvasir
