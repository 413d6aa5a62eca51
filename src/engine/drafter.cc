#include "engine/drafter.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/rng.h"

namespace kvasir {
namespace {

constexpr uint32_t kMostSlots = 1u << 16;
constexpr uint32_t kLongestMatch = 32;  // Longer ones are as good as this.
constexpr uint32_t kSureMatch = 8;      // From here on no other occurrence is looked for.
constexpr uint32_t kResumedMatch = 4;   // What a match is taken for after a changed token.
constexpr float kSlowestLearning = 1.0f / 16.0f;
constexpr uint32_t kPriorWeight = 3;  // Observations that a prior counts for.

// What a match of each class is worth before anything was seen of this text.
constexpr std::array<float, 9> kPriors = {0.25f, 0.35f, 0.5f,  0.6f, 0.75f,
                                          0.85f, 0.92f, 0.96f, 0.4f};
constexpr float kCachePrior = 0.7f;

}  // namespace

Drafter::Drafter(uint32_t max_tokens) {
  KV_CHECK_GT(max_tokens, 0u);
  const uint32_t slots = std::min(std::bit_ceil(std::min(max_tokens, kMostSlots) * 2), kMostSlots);
  mask_ = slots - 1;
  for (std::vector<uint32_t>& table : newest_) table.resize(slots);
  static_assert(kPriors.size() == kClasses);
  for (uint32_t i = 0; i < kClasses; ++i) by_match_[i].value = kPriors[i];
  by_cache_.value = kCachePrior;
}

void Drafter::Chance::Observe(bool right) {
  ++seen;
  const float weight =
      std::max(kSlowestLearning, 1.0f / static_cast<float>(std::min(seen, 64u) + kPriorWeight));
  value += weight * ((right ? 1.0f : 0.0f) - value);
}

uint32_t Drafter::ClassOf(uint32_t match_length, bool resumed) {
  if (resumed) return 8;
  if (match_length < 5) return match_length < 3 ? 0 : match_length - 2;
  if (match_length < 7) return 3;
  if (match_length < 10) return 4;
  if (match_length < 16) return 5;
  return match_length < kLongestMatch ? 6 : 7;
}

uint32_t Drafter::HashOf(std::span<const TokenId> gram) {
  uint64_t hash = 0;
  for (const TokenId token : gram) hash = Mix64(hash ^ static_cast<uint32_t>(Index(token)));
  return static_cast<uint32_t>(hash);
}

void Drafter::Update(std::span<const TokenId> known) {
  KV_CHECK(!known.empty());
  KV_CHECK_GE(known.size(), known_count_);
  // The first call reads the prompt: what repeats within it says little about the answer.
  const bool learns = known_count_ > 0;
  for (uint32_t i = known_count_; i < known.size(); ++i) {
    const std::span<const TokenId> before = known.first(i);
    if (learns) LearnFrom(known[i], before);
    IndexBefore(before);
    if (learns || i + 1 == known.size()) FindMatch(known.first(i + 1));
  }
  known_count_ = static_cast<uint32_t>(known.size());
}

// Compares the guesses for this token with it and moves them on.
void Drafter::LearnFrom(TokenId token, std::span<const TokenId> before) {
  if (source_ > 0) {
    const bool right = before[source_] == token;
    by_match_[ClassOf(match_length_, resumed_)].Observe(right);
    const bool resumes = !right && match_length_ >= kSureMatch;
    source_ = right || resumes ? source_ + 1 : 0;
    match_length_ = resumes ? kResumedMatch : std::min(match_length_ + 1, kLongestMatch);
    resumed_ = resumes;
  }
  if (cached_next_ < cached_count_) {
    const bool right = cached_[cached_next_] == token;
    by_cache_.Observe(right);
    cached_next_ = right ? cached_next_ + 1 : cached_count_;
  }
}

// The grams that end where a token has just come to follow them.
void Drafter::IndexBefore(std::span<const TokenId> before) {
  for (uint32_t n = kShortestGram; n <= kLongestGram && n <= before.size(); ++n) {
    newest_[n - kShortestGram][HashOf(before.last(n)) & mask_] =
        static_cast<uint32_t>(before.size());
  }
}

// Looks for the longest gram that ends the known tokens, unless the match at hand is long.
void Drafter::FindMatch(std::span<const TokenId> known) {
  if (source_ > 0 && match_length_ >= kSureMatch) return;
  const uint32_t size = static_cast<uint32_t>(known.size());
  for (uint32_t n = std::min(kLongestGram, size); n >= kShortestGram; --n) {
    const std::span<const TokenId> gram = known.last(n);
    const uint32_t end = newest_[n - kShortestGram][HashOf(gram) & mask_];
    if (end == 0) continue;
    const std::span<const TokenId> found = known.subspan(end - n, n);
    if (!std::equal(gram.begin(), gram.end(), found.begin())) continue;  // A collision.
    uint32_t length = n;
    while (length < kLongestMatch && length < end &&
           known[end - length - 1] == known[size - length - 1]) {
      ++length;
    }
    if (source_ > 0 && length < match_length_) return;
    source_ = end;
    match_length_ = length;
    resumed_ = false;
    return;
  }
}

void Drafter::OfferCached(std::span<const TokenId> tokens) {
  cached_next_ = 0;
  cached_count_ = static_cast<uint32_t>(std::min(tokens.size(), cached_.size()));
  std::copy_n(tokens.begin(), cached_count_, cached_.begin());
}

void Drafter::Propose(std::span<const TokenId> known, uint32_t most, Draft* draft) const {
  KV_CHECK_EQ(known.size(), known_count_);
  draft->count = 0;
  most = std::min(most, kMaxDraftTokens);
  const float match_chance = source_ > 0 ? by_match_[ClassOf(match_length_, resumed_)].value : 0.0f;
  float chance = 1.0f;
  if (cached_next_ < cached_count_ && by_cache_.value >= match_chance) {
    for (uint32_t i = cached_next_; i < cached_count_ && draft->count < most; ++i) {
      chance *= by_cache_.value;
      draft->tokens[draft->count] = cached_[i];
      draft->chances[draft->count++] = chance;
    }
    return;
  }
  if (source_ == 0) return;
  for (uint32_t i = 0; i < most; ++i) {
    // Past the end of what is known the guess repeats itself: a text that runs in a circle.
    const uint32_t at = source_ + i;
    draft->tokens[i] = at < known_count_ ? known[at] : draft->tokens[at - known_count_];
    chance *= by_match_[ClassOf(match_length_ + i, resumed_ && i == 0)].value;
    draft->chances[i] = chance;
  }
  draft->count = most;
}

}  // namespace kvasir
