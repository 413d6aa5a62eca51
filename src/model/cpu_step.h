// CpuStep: all state of CpuModelRunner and the phases of one forward pass, in the order of Program.
//
// A step is one program that every worker runs. Workers share out the units of a phase and meet at
// a barrier where the next phase reads what others wrote: after the embedding, and in each layer
// after QKV, attention, output, gate and up, and down. With few rows each worker normalizes and
// quantizes all of them into buffers of its own, which costs less than sharing it out; with more
// rows the two norms end in barriers too. Where some sequence has so many rows that it is cut into
// several attention tiles, RoPE and the KV write become a phase of their own.
// docs/ARCHITECTURE.md walks through it. Thread: as ModelRunner.
#ifndef KVASIR_MODEL_CPU_STEP_H_
#define KVASIR_MODEL_CPU_STEP_H_

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/huge_buffer.h"
#include "base/status.h"
#include "base/worker_team.h"
#include "kernels/attention.h"
#include "kernels/logits_row.h"
#include "kernels/matmul.h"
#include "model/attention_plan.h"
#include "model/cpu_step_parts.h"
#include "model/head_scan.h"
#include "model/key_staging.h"
#include "model/model_runner.h"
#include "model/step_counters.h"
#include "model/weights.h"

namespace kvasir {

class ScratchLayout;

class CpuStep {
 public:
  CpuStep(const ModelConfig& config, const Weights& weights, const KvLayout& layout,
          const StepLimits& limits, WorkerTeam& team);

  Status AllocateScratch();
  void Run(const Batch& batch);

  const ModelConfig& config() const { return config_; }
  const KvLayout& kv_layout() const { return layout_; }
  const StepLimits& limits() const { return limits_; }
  size_t scratch_bytes() const { return scratch_.size(); }
  std::span<const float> logits(uint32_t row) const;
  LogitsRow logits_row(uint32_t row) const;
  const StepCounters& last_step() const { return last_step_; }
  const StepCounters& totals() const { return totals_; }
  void set_profile(StepProfile* profile) { profile_ = profile; }

 private:
  // Up to this many rows every worker normalizes and quantizes all of them itself. Measured on two
  // cores (docs/ARCHITECTURE.md).
  static constexpr uint32_t kRedundantRows = 8;
  // Up to this many rows a claim of gate and up may be this wide.
  static constexpr size_t kSmallGateRows = 64;
  static constexpr size_t kSmallGateCols = 128;
  // cpu_step.cc
  void LayOut(ScratchLayout& scratch);
  void LayOutWorkers(ScratchLayout& scratch);
  void CheckBatch(const Batch& batch) const;
  void Program(int worker);
  void CountStep(uint32_t barriers_before);
  // Claims units until none is left, then ends the phase.
  template <typename Body>
  void Share(int worker, StepPhase phase, uint32_t units, uint32_t grain, Body&& body) {
    team_.Claim(units, grain, body);
    EndPhase(worker, phase);
  }
  void MarkWork(int worker, StepPhase phase);
  void EndPhase(int worker, StepPhase phase);
  void Mark(StepPhase phase, bool waited);

  // cpu_step_rows.cc
  void Embed(int worker);
  void EmbedRow(uint32_t row, float* x) const;
  void Normalize(int worker, StepPhase phase, std::span<const float> branch_norm,
                 std::span<const float> norm);
  void NormalizeRow(int worker, uint32_t row, std::span<const float> branch_norm,
                    std::span<const float> norm, uint32_t out_row, const Activations& into);
  void Multiply(int worker, StepPhase phase, const Activations& input,
                std::span<const MatrixProduct> products);
  // Panels [begin, end) of the products side by side, one row block.
  void MultiplyPanels(int worker, const Activations& input, std::span<const MatrixProduct> products,
                      uint32_t row_block, uint32_t begin, uint32_t end);
  void GateUp(int worker, const LayerWeights& layer);
  void GateUpBlocks(int worker, const LayerWeights& layer, uint32_t begin, uint32_t end);
  void ProjectLogits(int worker);
  void ProjectBlocks(int worker, const Activations& input, uint32_t begin, uint32_t end);
  MatrixProduct Residual(const PackedMatrix& matrix, bool normed) const;

  // cpu_step_attention.cc
  void RotateAndStore(int worker, const LayerKvPlace& place, const LayerWeights& layer);
  void AttendAll(int worker, const LayerKvPlace& place, const LayerWeights& layer);
  AttentionTile TileOf(const LayerKvPlace& place, const AttentionPiece& piece) const;
  void AttendPiece(int worker, const LayerKvPlace& place, const LayerWeights& layer,
                   const AttentionPiece& piece, const AttentionPiece* after);
  void MergeChunks(const AttentionTile& tile, const PlannedTile& planned, uint32_t kv_head) const;
  void PrepareHead(float* head, std::span<const float> bias, std::span<const float> norm,
                   uint32_t layer, uint32_t row) const;
  // The part of a bias of all heads that is of head `head`; empty where the model has none.
  std::span<const float> HeadBias(std::span<const float> bias, uint32_t head) const {
    return bias.empty() ? bias : bias.subspan(size_t{head} * config_.head_dim, config_.head_dim);
  }
  void StoreKv(int worker, const LayerKvPlace& place, const LayerWeights& layer, uint32_t row,
               uint32_t kv_head);
  void StoreSequence(int worker, const LayerKvPlace& place, const LayerWeights& layer,
                     uint32_t sequence, uint32_t kv_head);
  // Pieces of attention store what they alone read; else that is a phase of its own.
  bool pieces_store(const LayerKvPlace& place) const {
    return plans_[place.group].one_tile_each() && !staging_.crosses();
  }
  void QuantizeAttended(const PlannedTile& planned, const AttentionPlan& plan, uint32_t kv_head);
  AttentionState StateAt(uint32_t slot, uint32_t rows) const;

  uint32_t q_width() const { return config_.q_width(); }
  uint32_t kv_width() const { return config_.kv_width(); }
  uint32_t head_floats() const { return config_.group() * config_.head_dim; }  // Of a KV head.
  // Of one row's AttentionState; rounded up, since its first part must be aligned.
  size_t state_floats() const {
    return (static_cast<size_t>(config_.group()) * (config_.head_dim + 2) + 15) / 16 * 16;
  }
  float* Row(float* base, uint32_t row, uint32_t width) const {
    return base + static_cast<size_t>(row) * width;
  }
  MovedBytes& Moved(int worker) { return moved_[static_cast<size_t>(worker)]; }
  const WorkerBuffers& OwnOf(int worker) const { return own_[static_cast<size_t>(worker)]; }
  bool redundant() const { return rows_ <= kRedundantRows; }
  float* ResidualStream(int worker) const;
  Activations Normed(int worker, uint32_t rows) const;
  Activations Attended() const { return {rows_, q_width(), attended_, attended_q_}; }
  Activations Activated() const { return {rows_, config_.d_ffn, activated_, activated_q_}; }

  const ModelConfig config_;
  const Weights& weights_;
  const KvLayout layout_;
  const StepLimits limits_;
  WorkerTeam& team_;
  bool post_norms_ = false;
  bool float_inputs_ = false;            // Some matrix multiplies floats, not their int8 form.
  bool heads_are_blocks_ = false;        // A KV head's query heads are whole 32-blocks of q.
  std::vector<AttentionPlan> plans_;     // [groups]
  KeyStaging staging_;                   // After layout_, which it refers to.
  std::vector<LayerKvPlace> kv_places_;  // [layers]
  std::vector<std::vector<double>> rope_frequencies_;  // [distinct ones][rope_dim / 2]
  std::vector<uint32_t> layer_rope_;                   // [layers] index into rope_frequencies_

  std::optional<HeadScan> head_scan_;  // Where the weights have a sketch of the head.
  bool scans_head_ = false;            // This step does.
  HugeBuffer scratch_;
  float* x_ = nullptr;          // [rows, d_model] the residual stream
  float* branch_ = nullptr;     // [rows, d_model] a projection waiting for its own norm
  float* normed_ = nullptr;     // [rows, d_model]
  float* q_ = nullptr;          // [rows, heads * head_dim]
  float* k_ = nullptr;          // [rows, kv_heads * head_dim]
  float* v_ = nullptr;          // likewise
  float* attended_ = nullptr;   // [rows, heads * head_dim]
  float* activated_ = nullptr;  // [rows, d_ffn], if float_inputs_
  float* cosine_ = nullptr;     // [rope_frequencies_, rows, rope_dim / 2]
  float* sine_ = nullptr;
  float* states_ = nullptr;        // [max states, state_floats()]
  std::byte* normed_q_ = nullptr;  // The int8 forms of the above.
  std::byte *attended_q_ = nullptr, *activated_q_ = nullptr;
  float* logits_ = nullptr;         // [logits rows, vocab]
  float* logits_maxima_ = nullptr;  // [logits rows, LogitsBlocks(vocab)]
  float* logits_sums_ = nullptr;    // likewise; only of rows with sums_wanted_
  size_t ffn_floats_ = 0;
  std::vector<WorkerBuffers> own_;                               // [workers]
  std::vector<std::vector<std::atomic<uint32_t>>> chunks_left_;  // [groups][counters]

  const Batch* batch_ = nullptr;
  uint32_t rows_ = 0;
  uint32_t logits_rows_ = 0;
  std::vector<uint32_t> order_;            // [sequences] by prefix
  std::vector<BatchRowPlace> row_places_;  // [max_rows]
  std::vector<uint32_t> logits_sources_;   // [max_logits_rows] batch row of each logits row
  std::vector<uint8_t> sums_wanted_;       // [max_logits_rows] whether somebody wants their sums

  std::vector<MovedBytes> moved_;  // [workers]
  StepCounters last_step_;
  StepCounters totals_;
  StepProfile* profile_ = nullptr;
  uint64_t last_mark_ = 0;
};

}  // namespace kvasir

#endif  // KVASIR_MODEL_CPU_STEP_H_
