// GenerateRequest and what comes back for it: the values that cross between request handlers and
// the engine.
#ifndef KVASIR_ENGINE_GENERATE_REQUEST_H_
#define KVASIR_ENGINE_GENERATE_REQUEST_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "engine/sampler.h"
#include "engine/sequence.h"
#include "kv/block_hash.h"

namespace kvasir {

// Unique while the process lives; given out by EngineClient.
enum class RequestId : uint64_t {};

// One prompt and how to continue it. Parsed, validated and tokenized before it comes here.
struct GenerateRequest {
  RequestId id{};
  std::vector<TokenId> prompt;
  BlockHash root{};               // Model, KV format and tenant: who shares KV with whom.
  std::vector<BlockHash> hashes;  // HashBlocks(root, prompt): the names of its full blocks.
  uint32_t tenant = 0;            // Index of the API key, for fair shares.
  int32_t priority = 0;           // Lower goes first.
  SequenceOptions options;        // Of choice 0; choice i draws with seed + i.
  // Whether max_new_tokens is the client's wish: only then may memory be set aside for all of it.
  bool length_given = true;
  uint32_t choice_count = 1;
  // A client's request with several prompts is several of these. They need places in the queue
  // together and do not count as others to each other: `group` is the id of the first of them
  // (nullopt in that one), `group_sequences` the choices of all (0: of this one alone).
  std::optional<RequestId> group;
  uint32_t group_sequences = 0;
  TimeUs deadline = kNever;      // On the engine's clock.
  bool want_logprobs = false;    // Of each generated token, and of
  uint32_t top_logprobs = 0;     // this many alternatives.
  bool prompt_logprobs = false;  // Of the prompt too: then nothing of it is reused.
};

// How a request ended. Each accepted request gets exactly one, after all of its tokens.
enum class RequestEnd : uint8_t {
  kFinished,   // Every choice has its finish reason.
  kCancelled,  // By its client.
  kTimedOut,   // Its deadline passed, in the queue or running.
  kShutDown,   // The engine stopped before it was done.
};

// A generated token of one choice, or a position of the prompt when its log-probabilities were
// asked for.
struct TokenEvent {
  uint32_t choice = 0;
  bool of_prompt = false;
  TokenId token{};
  std::string text;                           // What may be shown now; often one token's.
  LogProbReport logprobs;                     // If wanted.
  FinishReason finish = FinishReason::kNone;  // Set on a choice's last event.
};

// What became of a request, for its response, its log line and the metrics.
struct RequestSummary {
  RequestEnd end = RequestEnd::kFinished;
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;  // Prompt tokens that choice 0 found computed when it was admitted.
  // Where the prompt left the cached branch that it followed longest (KvCache::DivergedAt) at that
  // moment, and whether both go on with the same text there, cut into tokens otherwise: then
  // tokenizing generated text anew made the difference.
  std::optional<uint32_t> diverged_at;
  bool diverged_by_retokenization = false;
  uint32_t generated_tokens = 0;       // All choices.
  uint32_t draft_tokens = 0;           // Guessed tokens that were verified, all choices,
  uint32_t accepted_draft_tokens = 0;  // and those of them that were right.
  uint32_t preemptions = 0;
  TimeUs queue_us = 0;    // Arrival to first admission.
  TimeUs prefill_us = 0;  // Admission to first token.
  TimeUs decode_us = 0;   // First token to end.
};

}  // namespace kvasir

#endif  // KVASIR_ENGINE_GENERATE_REQUEST_H_
