// Generation: drives one Sequence alone through KvCache and ModelRunner, step by step: what
// `kvasir run` and `kvasir chat` need. Each Step is plan (what to compute, where its KV goes), act
// (run the model) and commit (the cache counts it, a token is chosen and appended), the same three
// parts that a scheduler does for many sequences at once.
//
// With speculation a step may verify guessed tokens (engine/drafter.h) and then yields several, the
// same as without. It times its decode steps to know what guesses cost; no answer depends on that.
// Thread: one at a time, the one that uses the model's runner and cache.
#ifndef KVASIR_ENGINE_GENERATION_H_
#define KVASIR_ENGINE_GENERATION_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/status.h"
#include "engine/drafter.h"
#include "engine/loaded_model.h"
#include "engine/sampler.h"
#include "engine/sequence.h"
#include "model/batch.h"

namespace kvasir {

class Generation {
 public:
  // Opens the sequence on what the cache already holds of the prompt. kInvalidArgument as
  // Sequence::Create. `model` must outlive it.
  static StatusOr<std::unique_ptr<Generation>> Start(LoadedModel& model,
                                                     std::vector<TokenId> prompt,
                                                     SequenceOptions options,
                                                     Speculation speculate);
  ~Generation();  // What was computed stays in the cache.
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

  // Computes one chunk. The text is what may be shown now, valid until the next call; it is empty
  // while the prompt is being read. kResourceExhausted when the KV memory cannot hold the sequence.
  // REQUIRES: not finished.
  StatusOr<std::string_view> Step();

  // Ends it; returns the text that was held back.
  std::string_view Cancel() { return sequence_->Cancel(); }

  bool finished() const { return sequence_->finished(); }
  const Sequence& sequence() const { return *sequence_; }
  uint32_t cached_tokens() const { return cached_tokens_; }  // Of the prompt, found in the cache.
  uint32_t draft_tokens() const { return draft_tokens_; }    // Guesses verified, and those of
  uint32_t accepted_draft_tokens() const {
    return accepted_draft_tokens_;
  }  // them that were right.
  // The prompt has been read: the next Step decodes.
  bool prompt_done() const { return !sequence_->generated().empty(); }

 private:
  Generation(LoadedModel& model, std::unique_ptr<Sequence> sequence, SequenceId id,
             Speculation speculate);
  void PlanDraft();
  // Appends what the logits choose, as long as the drafts agree; how many tokens.
  uint32_t TakeTokens();

  LoadedModel& model_;
  std::unique_ptr<Sequence> sequence_;
  SequenceId id_;
  uint32_t cached_tokens_;
  Speculation speculate_;
  std::unique_ptr<Drafter> drafter_;
  Draft draft_;                                            // Of the running step.
  std::array<TokenId, kMaxDraftTokens + 1> draft_rows_{};  // The last known token, then those.
  uint32_t draft_tokens_ = 0;
  uint32_t accepted_draft_tokens_ = 0;
  Batch batch_;
  SamplerScratch scratch_;
  SteadyClock clock_;
  std::string text_;  // What Step returned.
};

}  // namespace kvasir

#endif  // KVASIR_ENGINE_GENERATION_H_
