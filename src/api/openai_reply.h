// Replies of the OpenAI API as JSON text: whole ones, chunks of a stream, log-probabilities of both
// kinds, usage.
//
// Thread: pure functions.
// Source: OpenAI API reference, "The chat completion object", "The chat completion chunk object",
// "The completion object".
#ifndef KVASIR_API_OPENAI_REPLY_H_
#define KVASIR_API_OPENAI_REPLY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/generate_request.h"
#include "text/tokenizer.h"

namespace kvasir {

// What all replies to one request have in common.
struct ReplyStyle {
  bool chat = true;
  std::string id;
  int64_t created = 0;  // Unix time.
  std::string model;
  std::string fingerprint;
  const Tokenizer* tokenizer = nullptr;  // Names the tokens of log-probabilities.
  bool logprobs = false;
  bool tokens_as_ids = false;  // "token_id:42" in place of the text.
  bool usage_in_stream = false;
};

// A token whose log-probability is reported; the first of a prompt has none.
struct ScoredToken {
  TokenId token{};
  std::optional<LogProbReport> report;
  bool silent = false;  // Not in the text: a BOS that was put in front of it.
};

// A choice, or what a chunk adds to it.
struct ChoicePiece {
  uint32_t index = 0;
  std::string text;
  std::vector<ScoredToken> tokens;  // With log-probabilities.
  size_t first_offset = 0;          // Characters of the choice before these tokens.
  FinishReason finish = FinishReason::kNone;
};

struct UsageCounts {
  uint64_t prompt_tokens = 0;
  uint64_t cached_tokens = 0;
  uint64_t completion_tokens = 0;
};

// Where a prompt left the cached branch that it had followed longest.
struct Divergence {
  uint32_t prompt = 0;  // Which prompt of the request.
  uint32_t token = 0;   // Index of the first token that is not in the cache.
  std::string before;   // The prompt's text up to there, and from there on: some tokens' worth.
  std::string after;
  bool retokenized = false;  // The cached branch has the same text there in other tokens.
};

// The "kvasir" block: where the time went, and what was reused.
struct Explanation {
  uint64_t cached_tokens = 0;
  std::optional<Divergence> diverged_at;
  uint64_t draft_tokens = 0;           // Guessed tokens that were verified,
  uint64_t accepted_draft_tokens = 0;  // and those of them that were right.
  double queue_ms = 0;
  double prefill_ms = 0;
  double decode_ms = 0;
};

// The whole reply.
std::string FormatReply(const ReplyStyle& style, const std::vector<ChoicePiece>& choices,
                        const UsageCounts& usage, const std::optional<Explanation>& explanation);

// The first chunk of a chat choice: its role.
std::string FormatRoleChunk(const ReplyStyle& style, uint32_t index);
// What a choice grew by; a chunk with a finish reason is the choice's last.
std::string FormatChunk(const ReplyStyle& style, const ChoicePiece& piece);
// The chunk after all choices: no choice, but usage, the explanation, or both.
std::string FormatClosingChunk(const ReplyStyle& style, const std::optional<UsageCounts>& usage,
                               const std::optional<Explanation>& explanation);

// UTF-8 characters of the tokens' bytes: what first_offset counts.
size_t CharactersOf(const Tokenizer& tokenizer, const std::vector<ScoredToken>& tokens);

}  // namespace kvasir

#endif  // KVASIR_API_OPENAI_REPLY_H_
