// GrantDrafts: how many guessed tokens of each sequence a step verifies.
//
// A step of R rows takes the time T(R) (StepTimes) and yields one token for each sequence, and for
// each guess its chance of being right. The guesses with the best chances come first; as many are
// granted as make tokens per time largest. So few rows go far when the model is bound by memory,
// and none when the batch keeps the cores busy anyway: the batch size at which speculation ends
// needs no setting.
//
// Nothing is granted while the time of a step without guesses is not known well (StepTimes::Knows):
// one in 128 steps goes without.
//
// Two bounds protect the streams beside it: with any stream that has no guess the step grows by at
// most a quarter, and no step is planned beyond `most_us`.
// Thread: pure functions.
#ifndef KVASIR_ENGINE_DRAFT_GRANTS_H_
#define KVASIR_ENGINE_DRAFT_GRANTS_H_

#include <cstdint>
#include <span>

#include "engine/drafter.h"
#include "engine/step_times.h"

namespace kvasir {

// Shortens draft.count of each to what is granted; the sum. `stream_count` sequences take a row
// each; at most `most_rows` more are free. REQUIRES: stream_count > 0, at least drafts.size().
uint32_t GrantDrafts(std::span<Draft> drafts, uint32_t stream_count, uint32_t most_rows,
                     double most_us, const StepTimes& times);

// The same for Speculation::kNgram: all, as far as there are rows.
uint32_t GrantAllDrafts(std::span<Draft> drafts, uint32_t most_rows);

}  // namespace kvasir

#endif  // KVASIR_ENGINE_DRAFT_GRANTS_H_
