// Scheduler: which guesses a step verifies, and what came of them.
#include <algorithm>

#include "base/check.h"
#include "engine/draft_grants.h"
#include "engine/propose_draft.h"
#include "engine/scheduler.h"
#include "engine/scheduler_state.h"

namespace kvasir {

// Adds the decode rows to the batch, each with the drafts that it is granted. Prompts go first:
// a step that reads any verifies nothing.
void Scheduler::PlanDrafts() {
  drafting_.clear();
  drafts_.clear();
  if (options_.speculate != Speculation::kOff && prefill_.empty() && !decode_.empty()) {
    for (Choice* choice : decode_) {
      // The row that chooses the first token also starts other choices or has scores to tell.
      const Request& request = *choice->request;
      const bool plain = request.choices.size() == 1 && !request.want.prompt_logprobs;
      if (choice->sequence->generated().empty() && !plain) continue;
      Draft& draft = drafts_.emplace_back();
      if (ProposeDraft(*choice->sequence, kv_, choice->kv, &choice->drafter, &draft)) {
        drafting_.push_back(choice);
      } else {
        drafts_.pop_back();
      }
    }
    const uint32_t streams = plan_.decode_rows;
    const uint32_t most_rows =
        std::min(options_.max_batch_tokens, options_.max_logits_rows) - streams;
    if (options_.speculate == Speculation::kNgram) {
      GrantAllDrafts(drafts_, most_rows);
    } else {
      GrantDrafts(drafts_, streams, most_rows, static_cast<double>(options_.step_target_us),
                  step_times_);
    }
  }
  size_t next_draft = 0;
  for (Choice* choice : decode_) {
    uint32_t draft_rows = 0;
    if (next_draft < drafting_.size() && drafting_[next_draft] == choice) {
      const Draft& draft = drafts_[next_draft++];
      draft_rows = draft.count;
      if (draft_rows > 0 && !kv_.Reserve(choice->kv, 1 + draft_rows)) {
        // Nobody makes way for a guess. The block of the row itself is there already.
        const uint32_t block_tokens = kv_.layout().block_tokens;
        draft_rows =
            std::min(draft_rows, block_tokens - 1 - kv_.computed(choice->kv) % block_tokens);
        KV_CHECK(kv_.Reserve(choice->kv, 1 + draft_rows));
      }
      choice->draft_rows[0] = choice->sequence->known().back();
      std::copy_n(draft.tokens.begin(), draft_rows, choice->draft_rows.begin() + 1);
    }
    plan_.draft_rows += draft_rows;
    AddToBatch(*choice, 1, draft_rows);
  }
}

// How many samples of the plan, from `first` on, are of this choice.
size_t Scheduler::CountSamples(const Choice& choice, size_t first) const {
  size_t count = 0;
  while (first + count < plan_.samples.size() &&
         plan_.samples[first + count].sequence == choice.sequence.get()) {
    ++count;
  }
  return count;
}

// Appends what was chosen after the known tokens, then what was chosen after each draft as long as
// the draft was what had been chosen; returns how many. `tokens` are all samples of this choice.
uint32_t Scheduler::TakeSamples(Choice& choice, std::span<const SampledToken> tokens, TimeUs now,
                                StepOutcome* outcome) {
  const uint32_t drafts = static_cast<uint32_t>(tokens.size()) - 1;
  uint32_t taken = 0, accepted = 0;
  while (true) {
    const TokenId token = tokens[taken].token;
    Append(choice, tokens[taken++], now, outcome);
    if (taken > drafts || token != choice.draft_rows[taken]) break;
    ++accepted;
    // Drafts after a token that ended the text are no part of it.
    if (choice.sequence->finished()) break;
  }
  RequestSummary& summary = choice.request->summary;
  summary.draft_tokens += drafts;
  summary.accepted_draft_tokens += accepted;
  counters_.draft_tokens += drafts;
  counters_.accepted_draft_tokens += accepted;
  return taken;
}

}  // namespace kvasir
