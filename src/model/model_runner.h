// ModelRunner: the forward pass, from token ids and paged KV to logits and more KV.
//
// An interface so that another device may come; CpuModelRunner (cpu_model_runner.h) is the one
// there is. It knows no requests, no cache policy and no sampling: the caller says which tokens of
// which sequence to compute and where their KV lies.
//
// Invariant (promise P1): the logits and KV bytes of a token depend on the model, the KV format and
// the tokens before it only; not on what else is in the batch, how the prompt was cut into steps,
// the number of threads or the instruction set. Bit for bit. Thread: Run by one thread at a time;
// it forks and joins its workers inside.
#ifndef KVASIR_MODEL_MODEL_RUNNER_H_
#define KVASIR_MODEL_MODEL_RUNNER_H_

#include <cstdint>
#include <span>

#include "kernels/logits_row.h"
#include "kv/kv_layout.h"
#include "model/batch.h"
#include "model/model_config.h"

namespace kvasir {

// Hard limits of one step; buffers are sized by them at construction and never grow.
struct StepLimits {
  uint32_t max_rows = 512;  // Tokens a step, all sequences together.
  uint32_t max_sequences = 64;
  uint32_t max_logits_rows = 64;  // Each row is vocab_size floats.
};

class ModelRunner {
 public:
  virtual ~ModelRunner() = default;

  virtual const ModelConfig& config() const = 0;
  virtual const KvLayout& kv_layout() const = 0;
  virtual const StepLimits& limits() const = 0;

  // Computes the batch: writes its tokens' KV into their blocks and the logits asked for.
  // REQUIRES: within limits(); token ids in [0, vocab_size); positions below
  // config().context_length; every sequence has at least one token and blocks for all its
  // positions. Allocates nothing.
  virtual void Run(const Batch& batch) = 0;

  // Logits row i of the last Run, [vocab_size] float32, rows in batch order. Valid until the next
  // Run. Of a sequence with arg_max_only the largest value and its index (ArgMax) are exact; others
  // may be some number below it instead.
  virtual std::span<const float> logits(uint32_t row) const = 0;

  // The same row with what the runner has noted of it for those who choose from it; a sequence with
  // wants_log_sums has the notes of sums, too.
  virtual LogitsRow logits_row(uint32_t row) const { return logits(row); }
};

}  // namespace kvasir

#endif  // KVASIR_MODEL_MODEL_RUNNER_H_
