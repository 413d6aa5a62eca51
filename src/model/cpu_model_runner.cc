#include "model/cpu_model_runner.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "model/cpu_step.h"

namespace kvasir {

KvLayout KvLayoutFor(const ModelConfig& config, uint32_t block_tokens, KvTypes types) {
  KvGroup full{{}, config.kv_head_count, config.head_dim, 0};
  KvGroup window{{}, config.kv_head_count, config.head_dim, 0};
  for (uint32_t layer = 0; layer < config.layer_count; ++layer) {
    const uint32_t layer_window = config.layers[layer].window;
    (layer_window == 0 ? full : window).layers.push_back(layer);
    window.window = std::max(window.window, layer_window);
  }
  // Group 0 must be there and keep everything; a model of window layers only keeps too much, no
  // more.
  if (full.layers.empty()) {
    std::swap(full.layers, window.layers);
  }
  KvLayout layout;
  layout.block_tokens = block_tokens;
  layout.types = types;
  layout.groups.push_back(full);
  if (!window.layers.empty()) layout.groups.push_back(window);
  return layout;
}

StatusOr<std::unique_ptr<CpuModelRunner>> CpuModelRunner::Create(const ModelConfig& config,
                                                                 const Weights& weights,
                                                                 uint32_t block_tokens,
                                                                 const StepLimits& limits,
                                                                 WorkerTeam& team, KvTypes types) {
  KV_CHECK_GT(limits.max_rows, 0u);
  KV_CHECK_GT(limits.max_sequences, 0u);
  KV_CHECK_GT(limits.max_logits_rows, 0u);
  const KvLayout layout = KvLayoutFor(config, block_tokens, types);
  KV_RETURN_IF_ERROR(layout.Validate());
  auto step = std::make_unique<CpuStep>(config, weights, layout, limits, team);
  KV_RETURN_IF_ERROR(step->AllocateScratch());
  return std::unique_ptr<CpuModelRunner>(new CpuModelRunner(std::move(step)));
}

CpuModelRunner::CpuModelRunner(std::unique_ptr<CpuStep> step) : step_(std::move(step)) {}
CpuModelRunner::~CpuModelRunner() = default;

const ModelConfig& CpuModelRunner::config() const { return step_->config(); }
const KvLayout& CpuModelRunner::kv_layout() const { return step_->kv_layout(); }
const StepLimits& CpuModelRunner::limits() const { return step_->limits(); }
void CpuModelRunner::Run(const Batch& batch) { step_->Run(batch); }
std::span<const float> CpuModelRunner::logits(uint32_t row) const { return step_->logits(row); }
LogitsRow CpuModelRunner::logits_row(uint32_t row) const { return step_->logits_row(row); }
size_t CpuModelRunner::scratch_bytes() const { return step_->scratch_bytes(); }
const StepCounters& CpuModelRunner::last_step() const { return step_->last_step(); }
const StepCounters& CpuModelRunner::totals() const { return step_->totals(); }
void CpuModelRunner::set_profile(StepProfile* profile) { step_->set_profile(profile); }

}  // namespace kvasir
