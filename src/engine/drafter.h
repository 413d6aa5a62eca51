// Drafter: guesses how one sequence goes on, for the model to verify in one step.
//
// Two sources. Prompt lookup: where the last tokens have stood in the sequence before, what
// followed there may follow again. And the continuation that the cache holds of the very same
// tokens (KvCache::Continuation), which the caller offers. A wrong guess costs time, never truth.
//
// Each guess comes with its chance of being right, learned from the sequence itself: the match is
// kept and compared with every token that comes, whether or not it was verified, so that learning
// costs nothing and a text that stops repeating (or begins to) is noticed without trying. The
// chance depends on how long the match has been: after two equal tokens anything may follow, after
// thirty hardly anything else.
//
// Cost: O(1) a token, no allocation after construction. Memory: 3 tables of 4 bytes times the next
// power of two of twice max_tokens, at most 768 KiB. Deterministic. Thread: one at a time.
// Source: Saxena 2023, "Prompt lookup decoding"; verification: Leviathan et al. 2023,
// arXiv:2211.17192, here without its rejection sampling, because a draft is accepted only if it is
// what would have been drawn.
#ifndef KVASIR_ENGINE_DRAFTER_H_
#define KVASIR_ENGINE_DRAFTER_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"

namespace kvasir {

enum class Speculation : uint8_t {
  kOff,
  kNgram,  // Always, up to kForcedDraftTokens, where there is a guess.
  kAuto,   // As many as pay (engine/draft_grants.h).
};

inline constexpr uint32_t kMaxDraftTokens = 15;
inline constexpr uint32_t kForcedDraftTokens = 7;

// Guesses for the tokens after the known ones.
struct Draft {
  std::array<TokenId, kMaxDraftTokens> tokens{};
  // chances[i]: that tokens 0 to i are all right. Not increasing.
  std::array<float, kMaxDraftTokens> chances{};
  uint32_t count = 0;
};

class Drafter {
 public:
  explicit Drafter(uint32_t max_tokens);  // The longest that the sequence can become.

  // `known` are the sequence's tokens, those of the last call first. REQUIRES: not empty; at most
  // max_tokens.
  void Update(std::span<const TokenId> known);

  // Whether a continuation from the cache would be of use now.
  bool wants_cached() const { return cached_next_ == cached_count_; }
  // Tokens that stand after the known ones in the cache.
  void OfferCached(std::span<const TokenId> tokens);

  // At most `most` tokens. REQUIRES: `known` as in the last Update.
  void Propose(std::span<const TokenId> known, uint32_t most, Draft* draft) const;

  uint32_t match_length() const { return source_ == 0 ? 0 : match_length_; }

 private:
  static constexpr uint32_t kLongestGram = 4;
  static constexpr uint32_t kShortestGram = 2;
  static constexpr uint32_t kClasses = 9;  // Of match lengths, and resumed ones.

  // How often guesses of one kind are right; forgets slowly.
  struct Chance {
    float value = 0.0f;
    uint32_t seen = 0;
    void Observe(bool right);
  };

  void LearnFrom(TokenId token, std::span<const TokenId> before);
  void IndexBefore(std::span<const TokenId> before);
  void FindMatch(std::span<const TokenId> known);
  static uint32_t ClassOf(uint32_t match_length, bool resumed);
  static uint32_t HashOf(std::span<const TokenId> gram);

  uint32_t mask_;
  // [gram length - kShortestGram][hash & mask_]: where the token after the newest gram of that hash
  // stands; 0: none. A collision hides the older gram.
  std::array<std::vector<uint32_t>, kLongestGram - kShortestGram + 1> newest_;
  uint32_t known_count_ = 0;
  uint32_t source_ = 0;  // Position of the guess for the next token; 0: none.
  uint32_t match_length_ = 0;
  bool resumed_ =
      false;  // The last token differed: a copy with one word changed goes on behind it.
  std::array<TokenId, 2 * kMaxDraftTokens> cached_{};
  uint32_t cached_next_ = 0;  // The guess for the next token, if below cached_count_.
  uint32_t cached_count_ = 0;
  std::array<Chance, kClasses> by_match_;
  Chance by_cache_;
};

}  // namespace kvasir

#endif  // KVASIR_ENGINE_DRAFTER_H_
