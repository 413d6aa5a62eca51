// Answer: generates one answer from a prompt, streams it, and times it.
#ifndef KVASIR_APP_ANSWER_H_
#define KVASIR_APP_ANSWER_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "engine/drafter.h"
#include "engine/loaded_model.h"
#include "engine/sequence.h"

namespace kvasir {

struct Answer {
  std::string text;
  std::vector<TokenId> tokens;  // All that were sampled.
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;
  uint32_t draft_tokens = 0;           // Guesses that were verified,
  uint32_t accepted_draft_tokens = 0;  // and those of them that were right.
  FinishReason finish = FinishReason::kNone;
  double prompt_s = 0.0;  // Until the first token was chosen.
  double decode_s = 0.0;  // From the first token to the last.

  // Tokens a second after the first; 0 for fewer than two tokens.
  double decode_tok_s() const {
    return tokens.size() < 2 || decode_s <= 0.0 ? 0.0 : (tokens.size() - 1) / decode_s;
  }
  double prompt_tok_s() const {
    return prompt_s <= 0.0 ? 0.0 : (prompt_tokens - cached_tokens) / prompt_s;
  }

  // "42 prompt tokens (0 reused), 128 generated, 153.2 tokens/s, 60 of 75 guesses right"; without
  // guesses nothing is said about them.
  std::string Summary() const;
};

// When the context ended the answer: that it did, and what to do for one of `max_new_tokens`
// (UINT32_MAX: no wish was told), as a part of a sentence. Else empty.
std::string FullContextNote(const LoadedModel& model, const Answer& answer,
                            uint32_t max_new_tokens);

// `show` is called with each piece of text as it comes. Ends early, with kCancelled, when
// Interrupted() is set (terminal.h); that is left set.
StatusOr<Answer> GenerateAnswer(LoadedModel& model, std::vector<TokenId> prompt,
                                SequenceOptions options, Speculation speculate,
                                const std::function<void(std::string_view)>& show);

}  // namespace kvasir

#endif  // KVASIR_APP_ANSWER_H_
