// What a Scheduler is given and what it counts: plain values.
#ifndef KVASIR_ENGINE_SCHEDULER_OPTIONS_H_
#define KVASIR_ENGINE_SCHEDULER_OPTIONS_H_

#include <cstdint>

#include "base/clock.h"
#include "engine/adaptive_limits.h"
#include "engine/drafter.h"
#include "engine/row_histogram.h"

namespace kvasir {

struct SchedulerOptions {
  uint32_t max_batch = 32;          // Running sequences.
  uint32_t max_batch_tokens = 512;  // Rows a step.
  uint32_t max_logits_rows = 64;    // As the runner's.
  uint32_t max_queue = 512;         // Waiting sequences; beyond that Submit refuses.
  uint32_t prefill_chunk = 0;       // Rows for prompts in a step with running streams; 0: by time.
  TimeUs step_target_us = 80'000;   // For prefill_chunk 0,
  uint32_t step_stretch = 3;        // and so many times a step of the streams alone; 0: no limit.
  TimeUs ageing_us = 5'000'000;     // Waiting this long is worth one level of priority.
  TimeUs prefill_ageing_us = 1'000'000;
  TimeUs batch_wait_us = 0;  // When nothing runs: wait this long for company.
  Speculation speculate = Speculation::kOff;
  bool adapt = false;  // max_batch and step_stretch are where AdaptiveLimits starts.
};

// Totals since construction, and gauges of the moment.
struct SchedulerCounters {
  uint64_t submitted = 0;
  uint64_t refused = 0;  // Queue full.
  uint64_t finished = 0;
  uint64_t cancelled = 0;
  uint64_t timed_out = 0;
  uint64_t preemptions = 0;
  uint64_t recomputed_tokens = 0;      // That sequences which made way had to compute again.
  uint64_t dedupe_waits = 0;           // Requests that waited for another one's blocks.
  uint64_t prompt_tokens = 0;          // Of admitted requests.
  uint64_t cached_tokens = 0;          // Of those, found in the cache.
  uint64_t computed_tokens = 0;        // Rows of all steps.
  uint64_t draft_tokens = 0;           // Of those, guesses to be verified,
  uint64_t accepted_draft_tokens = 0;  // and how many of them were right.
  uint64_t generated_tokens = 0;
  uint64_t steps = 0;
  RowHistogram step_rows;           // Of each step.
  RowHistogram prompt_rows_beside;  // Of prompts, in steps with rows of running streams.
  uint32_t running = 0;
  uint32_t waiting = 0;
  AdaptiveReport adaptive;  // As set by the options when adapt is off.
};

}  // namespace kvasir

#endif  // KVASIR_ENGINE_SCHEDULER_OPTIONS_H_
