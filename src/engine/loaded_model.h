// LoadedModel: everything that computing with one model file needs, built in the right order:
// configuration, text, workers, repacked weights, runner and KV memory.
//
// It owns the parts and hands them out; what to compute is decided elsewhere (generation.h, later
// the scheduler). The file's bytes must stay mapped as long as it lives: names and templates are
// views into them. Thread: one thread uses the runner and the cache; the rest is immutable.
#ifndef KVASIR_ENGINE_LOADED_MODEL_H_
#define KVASIR_ENGINE_LOADED_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"
#include "base/worker_team.h"
#include "engine/step_times.h"
#include "engine/text_model.h"
#include "kv/kv_cache.h"
#include "model/cpu_model_runner.h"
#include "model/gguf_file.h"
#include "model/model_config.h"
#include "model/weights.h"

namespace kvasir {

struct LoadedModelOptions {
  int thread_count = 1;
  uint32_t block_tokens = 16;
  KvStrategy kv_strategy = KvStrategy::kPaged;

  // Longest sequence; 0: the model's own context, or less where the KV memory holds less.
  uint32_t context_tokens = 0;
  // What to change when such a context cannot be had, for messages; empty: --ctx.
  std::string context_advice;
  // KV memory, a hard limit; 0: what `max_sequences` of the longest sequences need, at most
  // kv_bytes_cap. Strategy static has as many slots as regions of the longest sequence fit.
  uint64_t kv_bytes = 0;
  uint64_t kv_bytes_cap = UINT64_MAX;
  KvTypes kv_types;
  KvEvict kv_evict = KvCache::Options().evict;
  uint32_t max_sequences = 1;
  StepLimits limits;

  WeightsLoadOptions loading;
};

class LoadedModel {
 public:
  // `parts` are the whole model file, or all parts of a split one. kInvalidArgument and
  // kUnimplemented for what is wrong with it (also when it computes NaN or infinity), or when the
  // context asked for exceeds the model's or the KV memory; kResourceExhausted when the machine
  // lacks memory.
  static StatusOr<std::unique_ptr<LoadedModel>> Load(
      std::span<const std::span<const std::byte>> parts, const LoadedModelOptions& options);
  static StatusOr<std::unique_ptr<LoadedModel>> Load(std::span<const std::byte> file,
                                                     const LoadedModelOptions& options) {
    return Load(std::span(&file, 1), options);
  }

  const ModelConfig& config() const { return config_; }
  const GgufFile& file() const { return file_; }
  const TextModel& text() const { return *text_; }
  const Weights& weights() const { return *weights_; }
  WorkerTeam& team() { return *team_; }
  CpuModelRunner& runner() { return *runner_; }
  KvCache& kv() { return *kv_; }
  // What the Generations of this model have learned of its speed.
  StepTimes& step_times() { return step_times_; }
  uint32_t context_tokens() const { return kv_->max_sequence_tokens(); }
  // The KV memory holds no longer sequence, though model and options would allow one.
  bool memory_limits_context() const { return memory_limits_context_; }
  // KV memory, all of it: blocks, and the newest keys of sequences where they are kept apart.
  uint64_t kv_bytes() const { return kv_bytes_; }
  // What to do for a sequence of `tokens`, for which there is no room, as the end of a message:
  // "give --ctx 300 (the model's context is 8192)", or why nothing helps.
  // REQUIRES: tokens > context_tokens().
  std::string AdviceFor(uint64_t tokens) const;

  // The name of the empty prefix for a tenant; KV of tenants with different salts never meets.
  BlockHash Root(const std::string& tenant_salt) const;

 private:
  explicit LoadedModel(GgufFile file) : file_(std::move(file)) {}
  Status CreateKv(const LoadedModelOptions& options);
  // Computes one token, apart from the cache: weights that are no numbers (damage that no size or
  // checksum shows) would otherwise be served as answers.
  Status RefuseWeightsOfNaN();

  GgufFile file_;
  ModelConfig config_;
  std::unique_ptr<TextModel> text_;
  std::unique_ptr<WorkerTeam> team_;
  std::unique_ptr<Weights> weights_;
  std::unique_ptr<CpuModelRunner> runner_;  // Refers to weights_ and team_.
  std::unique_ptr<KvCache> kv_;
  StepTimes step_times_;
  bool memory_limits_context_ = false;
  uint64_t kv_bytes_ = 0;
  uint64_t spare_blocks_ = 0;  // Of KV memory, beside those that a sequence's tokens fill.
  uint64_t tail_bytes_ = 0;    // Of kv_bytes_: not in blocks.
};

}  // namespace kvasir

#endif  // KVASIR_ENGINE_LOADED_MODEL_H_
