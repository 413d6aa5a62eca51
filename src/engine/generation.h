// Generation: drives one Sequence alone through KvCache and ModelRunner, step by step: what
// `kvasir run` and `kvasir chat` need. Each Step is plan (what to compute, where its KV goes), act
// (run the model) and commit (the cache counts it, a token is chosen and appended), the same three
// parts that a scheduler does for many sequences at once.
//
// No clock: callers that time steps do it around Step().
// Thread: one at a time, the one that uses the model's runner and cache.
#ifndef KVASIR_ENGINE_GENERATION_H_
#define KVASIR_ENGINE_GENERATION_H_

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
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
                                                     SequenceOptions options);
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
  // The prompt has been read: the next Step decodes.
  bool prompt_done() const { return !sequence_->generated().empty(); }

 private:
  Generation(LoadedModel& model, std::unique_ptr<Sequence> sequence, SequenceId id);

  LoadedModel& model_;
  std::unique_ptr<Sequence> sequence_;
  SequenceId id_;
  uint32_t cached_tokens_;
  Batch batch_;
  SamplerScratch scratch_;
};

}  // namespace kvasir

#endif  // KVASIR_ENGINE_GENERATION_H_
