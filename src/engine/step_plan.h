// StepPlan and StepOutcome: the scheduler's decisions as values. EngineLoop acts on them and on
// nothing else.
#ifndef KVASIR_ENGINE_STEP_PLAN_H_
#define KVASIR_ENGINE_STEP_PLAN_H_

#include <cstdint>
#include <span>
#include <vector>

#include "engine/generate_request.h"
#include "model/batch.h"

namespace kvasir {

// A row of logits to choose a token from, for one choice of one request.
//
// Rows of drafts are samples too, after the one that they follow: their answer counts only if every
// token of `ahead` turns out to be the answer of the sample before. Who acts may leave out those
// whose case did not come (their SampledToken is not looked at).
struct PlannedSample {
  RequestId request{};
  uint32_t choice = 0;
  uint32_t logits_row = 0;
  const Sequence* sequence = nullptr;  // Chooses; valid until Commit.
  std::span<const TokenId> ahead;      // Drafts between the known tokens and this one.
  bool want_logprobs = false;
  uint32_t top_logprobs = 0;
};

// A row of logits whose log-probability of a known prompt token was asked for.
struct PlannedScore {
  RequestId request{};
  uint32_t logits_row = 0;
  TokenId next{};  // The prompt token that follows that row.
  uint32_t top_logprobs = 0;
};

// Whose rows a sequence of the batch is.
struct PlannedMember {
  RequestId request{};
  uint32_t choice = 0;
};

struct StepPlan {
  Batch batch;
  std::vector<PlannedMember> members;  // By batch sequence.
  std::vector<PlannedSample> samples;  // In batch order.
  std::vector<PlannedScore> scores;    // In batch order.
  uint32_t decode_rows = 0;            // Rows of sequences that were one token behind.
  uint32_t draft_rows = 0;             // Rows of drafts, which follow those.
  uint32_t prefill_rows = 0;           // All others.
  double cost = 0;                     // Predicted work, CostModel's unit.
  double decode_us = 0;                // Predicted time of the decode and draft rows alone,
  double decode_cost = 0;              // and their part of the work.
};

// What acting on the plan gave: one entry for each of plan.samples and plan.scores.
struct SampledToken {
  TokenId token{};
  LogProbReport logprobs;
};

struct RequestEvent {
  RequestId request{};
  TokenEvent event;
};
struct RequestEnded {
  RequestId request{};
  RequestSummary summary;
};

// What Plan or Commit has to tell: first all events, then the ends.
struct StepOutcome {
  std::vector<RequestEvent> events;
  std::vector<RequestEnded> ended;

  void Clear() {
    events.clear();
    ended.clear();
  }
};

}  // namespace kvasir

#endif  // KVASIR_ENGINE_STEP_PLAN_H_
