// CpuModelRunner: ModelRunner on this machine's cores.
//
// One Run is one program for the whole WorkerTeam (model/cpu_step.h): the work of a phase is shared
// out in units whose results do not depend on who computes them. docs/ARCHITECTURE.md walks through
// it.
#ifndef KVASIR_MODEL_CPU_MODEL_RUNNER_H_
#define KVASIR_MODEL_CPU_MODEL_RUNNER_H_

#include <memory>

#include "base/status.h"
#include "base/worker_team.h"
#include "model/model_runner.h"
#include "model/step_counters.h"
#include "model/weights.h"

namespace kvasir {

class CpuStep;

// The KV groups that a model needs: all layers with full attention, then all with a window (if
// any).
KvLayout KvLayoutFor(const ModelConfig& config, uint32_t block_tokens, KvTypes types = {});

class CpuModelRunner : public ModelRunner {
 public:
  // Scratch for `limits` is allocated here; kResourceExhausted when it cannot be had.
  // `weights` and `team` must outlive the runner.
  static StatusOr<std::unique_ptr<CpuModelRunner>> Create(const ModelConfig& config,
                                                          const Weights& weights,
                                                          uint32_t block_tokens,
                                                          const StepLimits& limits,
                                                          WorkerTeam& team, KvTypes types = {});
  ~CpuModelRunner() override;

  const ModelConfig& config() const override;
  const KvLayout& kv_layout() const override;
  const StepLimits& limits() const override;
  void Run(const Batch& batch) override;
  std::span<const float> logits(uint32_t row) const override;
  LogitsRow logits_row(uint32_t row) const override;

  size_t scratch_bytes() const;

  // Counts of the last Run, and of all since construction. The same batch gives the same counts.
  const StepCounters& last_step() const;
  const StepCounters& totals() const;
  // From now on every Run adds its times to `profile`; null (as at first) ends that.
  void set_profile(StepProfile* profile);

 private:
  explicit CpuModelRunner(std::unique_ptr<CpuStep> step);
  std::unique_ptr<CpuStep> step_;
};

}  // namespace kvasir

#endif  // KVASIR_MODEL_CPU_MODEL_RUNNER_H_
