// BenchLoad: open sequences of random tokens in a model's KV memory, for measuring the forward
// pass alone: nothing is sampled, and nothing is shared but what Open is told to share.
#ifndef KVASIR_APP_BENCH_LOAD_H_
#define KVASIR_APP_BENCH_LOAD_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/rng.h"
#include "base/status.h"
#include "engine/loaded_model.h"
#include "kv/kv_cache.h"
#include "model/cpu_model_runner.h"

namespace kvasir {

class BenchLoad {
 public:
  BenchLoad(LoadedModel& model, uint64_t seed)
      : BenchLoad(model.runner(), model.kv(), model.Root(""), seed) {}
  BenchLoad(CpuModelRunner& runner, KvCache& kv, const BlockHash& root, uint64_t seed)
      : runner_(runner), kv_(kv), root_(root), rng_(seed) {}
  ~BenchLoad();  // Closes its sequences and empties the cache.
  BenchLoad(const BenchLoad&) = delete;
  BenchLoad& operator=(const BenchLoad&) = delete;

  // One more sequence, without tokens.
  Status Open();
  // One more sequence that has the first one's tokens, in the very same KV blocks.
  Status OpenAsFirst();
  // Appends `count` tokens to the sequences from `first` on, in steps of at most
  // `limits().max_rows` rows.
  Status Step(size_t first, uint32_t count, bool logits);
  // The same for the first sequence alone, without logits.
  Status StepFirst(uint32_t count);
  // Gives the first sequence `count` tokens more, a multiple of a block, without computing them:
  // their blocks are copies of those of the last `period` tokens, by turns. Each block is memory of
  // its own, so a step then reads as much as after a prompt; what it computes means nothing.
  // REQUIRES: period is a multiple of a block, and so many tokens are computed and held.
  Status RepeatFirst(uint32_t count, uint32_t period);

 private:
  TokenId RandomToken();
  Status KvFull() const;
  Status StepOnce(size_t first, size_t end, uint32_t rows, bool logits);
  Status StepRange(size_t first, size_t end, uint32_t count, bool logits);

  CpuModelRunner& runner_;
  KvCache& kv_;
  BlockHash root_;
  Rng rng_;
  std::vector<SequenceId> ids_;
  std::vector<std::vector<TokenId>> tokens_;  // Of the running step, by sequence.
  Batch batch_;
};

}  // namespace kvasir

#endif  // KVASIR_APP_BENCH_LOAD_H_
