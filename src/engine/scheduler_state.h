// The scheduler's own records; only scheduler*.cc include this.
#ifndef KVASIR_ENGINE_SCHEDULER_STATE_H_
#define KVASIR_ENGINE_SCHEDULER_STATE_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/scheduler.h"

namespace kvasir {

enum class Scheduler::State : uint8_t {
  kBehindStem,  // Choice 1.. of a prompt that choice 0 has not finished reading.
  kQueued,      // In queue_; holds no KV.
  kRunning,     // In running_; has an open KvCache sequence.
  kDone,
};

struct Scheduler::Choice {
  Request* request = nullptr;
  uint32_t index = 0;
  std::unique_ptr<Sequence> sequence;
  State state = State::kBehindStem;
  SequenceId kv{};                     // While running.
  int64_t rank = 0;                    // Priority while running, frozen at admission.
  int64_t inherited_rank = INT64_MAX;  // The best of those who wait for its blocks.
  std::optional<BlockHash> awaited;    // While queued: the block that another one computes.
  TimeUs last_rows_at = 0;             // When it was last part of a step, or admitted.
  uint32_t computed_before = 0;        // Tokens that it had computed when it made way,
  uint64_t made_way_at = 0;            // and AdaptiveLimits::running_moves() then.
  bool planned = false;                // Has rows in the current plan.
  std::unique_ptr<Drafter> drafter;    // While running, once it was asked for a draft.
  // The last known token and the drafts after it, when the current plan has any.
  std::array<TokenId, kMaxDraftTokens + 1> draft_rows{};

  int64_t effective_rank() const { return std::min(rank, inherited_rank); }
  uint32_t remaining(const KvCache& cache) const {
    return static_cast<uint32_t>(sequence->known().size()) - cache.computed(kv);
  }
};

struct Scheduler::Request {
  GenerateRequest want;
  std::vector<std::unique_ptr<Choice>> choices;
  uint64_t arrival = 0;  // Order of submission.
  TimeUs submitted_at = 0;
  TimeUs admitted_at = -1;  // Of choice 0; -1: not yet.
  TimeUs first_token_at = -1;
  uint32_t done = 0;  // Choices with a finish reason.
  bool siblings_started = false;
  size_t scored = 0;                 // Prompt positions before it have had their log-probabilities.
  std::optional<RequestEnd> ending;  // Cancelled or shut down: ends at the next Plan.
  RequestSummary summary;

  Choice& stem() { return *choices[0]; }
};

}  // namespace kvasir

#endif  // KVASIR_ENGINE_SCHEDULER_STATE_H_
