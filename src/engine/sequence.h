// Sequence: one request on its way: the tokens known so far, what turns sampled tokens into text,
// and whether it is over. Pure bookkeeping: the KV lies in KvCache, the steps are somebody else's.
//
// A sequence has `known` tokens (the prompt, then one more per sampled token), and its KV cache has
// `computed` ones; each step moves computed towards known. There is no prefill phase and no decode
// phase: NextChunk says what is missing, and only the chunk that ends at the last known token asks
// for logits.
//
// Text: tokens pass the incremental detokenizer and the stop matcher, so what comes out is whole
// characters that no stop string can still claim. The token that ends generation and those that
// complete a stop string are among generated(), not in the text.
// Thread: one at a time. After Create nothing allocates, except for text longer than any before.
#ifndef KVASIR_ENGINE_SEQUENCE_H_
#define KVASIR_ENGINE_SEQUENCE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "engine/sampler.h"
#include "text/detokenizer.h"
#include "text/stop_matcher.h"
#include "text/tokenizer.h"

namespace kvasir {

enum class FinishReason : uint8_t {
  kNone,       // Still running.
  kStop,       // A token that ends generation, or a stop string.
  kLength,     // max_new_tokens, or the context is full.
  kCancelled,  // Somebody did not want the rest.
};
std::string_view NameOf(FinishReason reason);  // "stop", "length", "cancelled"; "" while running.

struct SequenceOptions {
  SamplingOptions sampling;
  uint32_t max_new_tokens = UINT32_MAX;  // The context ends a sequence too.
  std::vector<std::string> stops;
  bool ignore_eos = false;  // Tokens that end generation are tokens like any other.
  // Until so many are generated, tokens that end generation are never chosen (stop strings count).
  uint32_t min_new_tokens = 0;
};

class Sequence {
 public:
  // kInvalidArgument: an empty prompt, one that leaves no room in `context_tokens`, an id outside
  // the vocabulary, max_new_tokens 0, bad sampling options or stop strings.
  // `tokenizer` must outlive it; `vocab_size` is the length of a row of logits.
  static StatusOr<std::unique_ptr<Sequence>> Create(const Tokenizer& tokenizer, uint32_t vocab_size,
                                                    uint32_t context_tokens,
                                                    std::vector<TokenId> prompt,
                                                    SequenceOptions options);

  // What the next step computes when `computed` tokens are in the cache: at most `max_tokens` of
  // the rest. REQUIRES: computed < known().size(), not finished, max_tokens > 0.
  struct Chunk {
    std::span<const TokenId> tokens;
    uint32_t start = 0;
    bool ends_known = false;  // Its last row's logits choose the next token.
  };
  Chunk NextChunk(uint32_t computed, uint32_t max_tokens) const;

  // Chooses the token after the known ones and `ahead` from the logits there. Appends nothing.
  // What comes is what appending `ahead` first would give, unless one of it ends the sequence.
  TokenId Choose(const LogitsRow& logits, SamplerScratch& scratch,
                 std::span<const TokenId> ahead = {}) const;

  // Whether Choose reads nothing but the largest logit and its index, here and after any `ahead`.
  bool chooses_largest() const {
    return sampler_.takes_largest() && known_.size() - prompt_tokens_ >= options_.min_new_tokens;
  }

  // Appends a token; returns the text that may be shown now, valid until the next call. May finish
  // the sequence. REQUIRES: not finished.
  std::string_view Append(TokenId token);

  // Ends it early; returns the text that was held back.
  std::string_view Cancel();

  bool finished() const { return finish_ != FinishReason::kNone; }
  FinishReason finish_reason() const { return finish_; }
  std::span<const TokenId> known() const { return known_; }
  uint32_t prompt_tokens() const { return prompt_tokens_; }
  // The most tokens that known() can come to, and how many are still missing to that.
  uint32_t max_tokens() const { return prompt_tokens_ + options_.max_new_tokens; }
  uint32_t room() const { return max_tokens() - static_cast<uint32_t>(known_.size()); }
  std::span<const TokenId> generated() const {
    return std::span<const TokenId>(known_).subspan(prompt_tokens_);
  }

 private:
  Sequence(const Tokenizer& tokenizer, uint32_t vocab_size, uint32_t context_tokens,
           std::vector<TokenId> prompt, SequenceOptions options, StopMatcher stop_matcher);
  void Finish(FinishReason reason);

  const Tokenizer* tokenizer_;
  SequenceOptions options_;
  std::vector<TokenId> known_;  // Prompt, then generated.
  uint32_t prompt_tokens_;
  std::vector<TokenId> ends_;  // Tokens that end generation; only with min_new_tokens.
  Sampler sampler_;
  Detokenizer detokenizer_;
  StopMatcher stop_matcher_;
  FinishReason finish_ = FinishReason::kNone;
  std::string text_;  // What the last Append or Cancel returned.
};

}  // namespace kvasir

#endif  // KVASIR_ENGINE_SEQUENCE_H_
