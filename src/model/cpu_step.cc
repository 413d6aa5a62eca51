#include "model/cpu_step.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "kernels/row_ops.h"
#include "kernels/weight_block.h"
#include "model/rope.h"

namespace kvasir {

// Hands out aligned pieces of one scratch buffer; a first pass with a null base measures.
class ScratchLayout {
 public:
  explicit ScratchLayout(std::byte* base) : base_(base) {}
  template <typename T>
  T* Take(size_t count) {
    T* piece = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + used_);
    used_ += (count * sizeof(T) + 63) / 64 * 64;
    return piece;
  }
  // What follows is written by another worker: the hardware's prefetcher fetches lines in pairs.
  void NextWorker() { used_ = (used_ + 255) / 128 * 128; }
  size_t used() const { return used_; }

 private:
  std::byte* base_;
  size_t used_ = 0;
};

namespace {

// Time stamps; 0 where there is no counter.
uint64_t Now() {
#if defined(__x86_64__)
  return __rdtsc();
#else
  return 0;
#endif
}

bool UsesFloats(const Weights& weights) {
  bool floats = !IsQuantized(weights.head().format);
  for (const LayerWeights& layer : weights.layers()) {
    for (const PackedMatrix* matrix :
         {&layer.q, &layer.k, &layer.v, &layer.attn_output, &layer.gate, &layer.up, &layer.down}) {
      floats = floats || !IsQuantized(matrix->format);
    }
  }
  return floats;
}

}  // namespace

CpuStep::CpuStep(const ModelConfig& config, const Weights& weights, const KvLayout& layout,
                 const StepLimits& limits, WorkerTeam& team)
    : config_(config),
      weights_(weights),
      layout_(layout),
      limits_(limits),
      team_(team),
      staging_(layout_, limits) {
  const uint32_t workers = static_cast<uint32_t>(team.worker_count());
  kv_places_.resize(config.layer_count);
  for (uint32_t g = 0; g < layout_.groups.size(); ++g) {
    const KvGroup& group = layout_.groups[g];
    AttentionPlan::Options options;
    options.kv_heads = config.kv_head_count;
    options.group = config.group();
    options.window = group.window;
    options.worker_count = workers;
    options.max_rows = limits.max_rows;
    options.context_length = config.context_length;
    options.block_tokens = layout_.block_tokens;
    options.kv_group = g;
    plans_.emplace_back(options);
    chunks_left_.emplace_back(plans_.back().max_states());
    for (uint32_t slot = 0; slot < group.layers.size(); ++slot) {
      kv_places_[group.layers[slot]] = {group.layers[slot], g, slot};
    }
  }
  for (const LayerConfig& layer : config.layers) {
    std::vector<double> frequencies(config.rope_dim / 2);
    RopeFrequenciesOf(config, layer, frequencies);
    const auto found = std::find(rope_frequencies_.begin(), rope_frequencies_.end(), frequencies);
    layer_rope_.push_back(static_cast<uint32_t>(found - rope_frequencies_.begin()));
    if (found == rope_frequencies_.end()) rope_frequencies_.push_back(std::move(frequencies));
  }
  for (const LayerWeights& layer : weights.layers()) {
    post_norms_ = post_norms_ || !layer.post_attn_norm.empty() || !layer.post_ffn_norm.empty();
  }
  float_inputs_ = UsesFloats(weights);
  heads_are_blocks_ = head_floats() % 32 == 0;
  order_.reserve(limits.max_sequences);
  row_places_.resize(limits.max_rows);
  logits_sources_.resize(limits.max_logits_rows);
  sums_wanted_.resize(limits.max_logits_rows);
  moved_.resize(workers);
  own_.resize(workers);
}

Status CpuStep::AllocateScratch() {
  ScratchLayout measure(nullptr);
  LayOut(measure);
  KV_ASSIGN_OR_RETURN(scratch_, HugeBuffer::Allocate(measure.used()));
  ScratchLayout place(scratch_.data());
  LayOut(place);
  if (weights_.head_sketch() != nullptr) {
    KV_ASSIGN_OR_RETURN(HeadScan scan,
                        HeadScan::Create(weights_.head(), *weights_.head_sketch(), team_,
                                         static_cast<float>(config_.logit_cap)));
    head_scan_.emplace(std::move(scan));
  }
  return OkStatus();
}

void CpuStep::LayOut(ScratchLayout& scratch) {
  const size_t rows = limits_.max_rows;
  const uint32_t max_rows = std::max(limits_.max_rows, limits_.max_logits_rows);
  x_ = scratch.Take<float>(rows * config_.d_model);
  branch_ = scratch.Take<float>(rows * config_.d_model);
  normed_ = scratch.Take<float>(size_t{max_rows} * config_.d_model);
  q_ = scratch.Take<float>(rows * q_width());
  k_ = scratch.Take<float>(rows * kv_width());
  v_ = scratch.Take<float>(rows * kv_width());
  attended_ = scratch.Take<float>(rows * q_width());
  activated_ = scratch.Take<float>(float_inputs_ ? rows * config_.d_ffn : 0);
  const size_t angles = rope_frequencies_.size() * rows * (config_.rope_dim / 2);
  cosine_ = scratch.Take<float>(angles);
  sine_ = scratch.Take<float>(angles);
  normed_q_ = scratch.Take<std::byte>(ActivationBytes(max_rows, config_.d_model));
  attended_q_ = scratch.Take<std::byte>(ActivationBytes(limits_.max_rows, q_width()));
  activated_q_ = scratch.Take<std::byte>(ActivationBytes(limits_.max_rows, config_.d_ffn));
  staging_.set_scratch(scratch.Take<std::byte>(staging_.scratch_bytes()));
  logits_ = scratch.Take<float>(size_t{limits_.max_logits_rows} * config_.vocab_size);
  const size_t notes = size_t{limits_.max_logits_rows} * LogitsBlocks(config_.vocab_size);
  logits_maxima_ = scratch.Take<float>(notes);
  logits_sums_ = scratch.Take<float>(notes);
  LayOutWorkers(scratch);
  uint32_t states = 0;
  for (const AttentionPlan& plan : plans_) states = std::max(states, plan.max_states());
  states_ = scratch.Take<float>(states * state_floats());
}

void CpuStep::LayOutWorkers(ScratchLayout& scratch) {
  ffn_floats_ =
      std::max(size_t{limits_.max_rows} * kActivationBlock, kSmallGateRows * kSmallGateCols);
  const uint32_t tile_rows = kMaxAttentionRows / config_.group();
  for (WorkerBuffers& own : own_) {
    scratch.NextWorker();
    own.x = scratch.Take<float>(size_t{kRedundantRows} * config_.d_model);
    own.row = scratch.Take<float>(config_.d_model);
    own.branch = scratch.Take<float>(config_.d_model);
    own.normed = scratch.Take<float>(size_t{kRedundantRows} * config_.d_model);
    own.normed_q = scratch.Take<std::byte>(ActivationBytes(kRedundantRows, config_.d_model));
    own.gate = scratch.Take<float>(ffn_floats_);
    own.up = scratch.Take<float>(ffn_floats_);
    own.q = scratch.Take<float>(size_t{kMaxAttentionRows} * config_.head_dim);
    own.attend =
        scratch.Take<float>(AttendScratchFloats(tile_rows, config_.group(), config_.head_dim));
  }
  scratch.NextWorker();
}

std::span<const float> CpuStep::logits(uint32_t row) const {
  KV_CHECK_LT(row, logits_rows_);
  return {logits_ + static_cast<size_t>(row) * config_.vocab_size, config_.vocab_size};
}

LogitsRow CpuStep::logits_row(uint32_t row) const {
  const std::span<const float> values = logits(row);
  if (scans_head_) return values;
  const size_t blocks = LogitsBlocks(config_.vocab_size);
  const std::span<const float> sums(logits_sums_ + row * blocks, blocks);
  return {values,
          {logits_maxima_ + row * blocks, blocks},
          sums_wanted_[row] != 0 ? sums : std::span<const float>()};
}

void CpuStep::CheckBatch(const Batch& batch) const {
  KV_CHECK_LE(batch.sequences.size(), limits_.max_sequences);
  KV_CHECK_LE(batch.row_count(), limits_.max_rows);
  KV_CHECK_LE(batch.logits_row_count(), limits_.max_logits_rows);
  for (const BatchSequence& sequence : batch.sequences) {
    KV_CHECK(!sequence.tokens.empty());
    KV_CHECK_LE(sequence.logits_begin, sequence.tokens.size());
    const size_t end = sequence.start + sequence.tokens.size();
    KV_CHECK_LE(end, config_.context_length);
    for (size_t g = 0; g < layout_.groups.size(); ++g) {
      KV_CHECK_GE(sequence.blocks[g].size() * layout_.block_tokens, end);
    }
    for (const TokenId token : sequence.tokens) {
      KV_CHECK_GE(Index(token), 0);
      KV_CHECK_LT(static_cast<uint32_t>(Index(token)), config_.vocab_size);
    }
  }
}

void CpuStep::Run(const Batch& batch) {
  CheckBatch(batch);
  last_mark_ = profile_ == nullptr ? 0 : Now();
  batch_ = &batch;
  rows_ = 0;
  logits_rows_ = 0;
  for (uint32_t s = 0; s < batch.sequences.size(); ++s) {
    const BatchSequence& sequence = batch.sequences[s];
    for (uint32_t i = 0; i < sequence.tokens.size(); ++i) {
      if (i >= sequence.logits_begin) {
        sums_wanted_[logits_rows_] = sequence.wants_log_sums ? 1 : 0;
        logits_sources_[logits_rows_++] = rows_;
      }
      row_places_[rows_++] = {s, sequence.start + i};
    }
  }
  if (rows_ == 0) return;
  scans_head_ = head_scan_.has_value() && logits_rows_ <= HeadScan::kMaxRows;
  for (const BatchSequence& sequence : batch.sequences) {
    if (sequence.logits_begin < sequence.tokens.size() && !sequence.arg_max_only) {
      scans_head_ = false;
    }
  }
  staging_.Plan(batch);
  OrderByPrefix(batch, order_);
  for (size_t g = 0; g < plans_.size(); ++g) {
    plans_[g].Build(batch, order_);
    for (const PlannedTile& tile : plans_[g].tiles()) {
      if (!tile.is_cut()) continue;
      for (uint32_t head = 0; head < config_.kv_head_count; ++head) {
        chunks_left_[g][tile.first_counter + head].store(tile.chunk_count,
                                                         std::memory_order_relaxed);
      }
    }
  }
  std::fill(moved_.begin(), moved_.end(), MovedBytes{});
  const uint32_t barriers_before = team_.barrier_count();
  team_.RunElastic([this](int worker) { Program(worker); });
  CountStep(barriers_before);
  if (profile_ != nullptr) Mark(StepPhase::kHead, /*waited=*/true);
  batch_ = nullptr;
}

void CpuStep::Program(int worker) {
  Embed(worker);
  const std::vector<LayerWeights>& layers = weights_.layers();
  std::span<const float> branch_norm;
  for (uint32_t i = 0; i < layers.size(); ++i) {
    const LayerWeights& layer = layers[i];
    const LayerKvPlace& place = kv_places_[i];
    Normalize(worker, StepPhase::kNorm, branch_norm, layer.attn_norm);
    const MatrixProduct qkv[] = {{&layer.q, q_, q_width(), Store::kAssign},
                                 {&layer.k, k_, kv_width(), Store::kAssign},
                                 {&layer.v, v_, kv_width(), Store::kAssign}};
    Multiply(worker, StepPhase::kQkv, Normed(worker, rows_), qkv);
    if (!pieces_store(place)) RotateAndStore(worker, place, layer);
    AttendAll(worker, place, layer);
    const MatrixProduct output[] = {Residual(layer.attn_output, !layer.post_attn_norm.empty())};
    Multiply(worker, StepPhase::kOutput, Attended(), output);
    Normalize(worker, StepPhase::kFfnNorm, layer.post_attn_norm, layer.ffn_norm);
    GateUp(worker, layer);
    const MatrixProduct down[] = {Residual(layer.down, !layer.post_ffn_norm.empty())};
    Multiply(worker, StepPhase::kDown, Activated(), down);
    branch_norm = layer.post_ffn_norm;
  }
  if (logits_rows_ > 0) ProjectLogits(worker);
}

void CpuStep::CountStep(uint32_t barriers_before) {
  last_step_ = StepCounters{};
  last_step_.steps = 1;
  last_step_.rows = rows_;
  last_step_.barriers = team_.barrier_count() - barriers_before;
  for (const MovedBytes& moved : moved_) {
    last_step_.weight_bytes += moved.weights;
    last_step_.kv_read_bytes += moved.kv_read;
    last_step_.kv_written_bytes += moved.kv_written;
  }
  totals_ += last_step_;
}

// Ends worker 0's work of a phase in the profile, if one is wanted.
void CpuStep::MarkWork(int worker, StepPhase phase) {
  if (worker == 0 && profile_ != nullptr) Mark(phase, /*waited=*/false);
}

void CpuStep::EndPhase(int worker, StepPhase phase) {
  MarkWork(worker, phase);
  team_.Barrier();
  if (worker == 0 && profile_ != nullptr) Mark(phase, /*waited=*/true);
}

void CpuStep::Mark(StepPhase phase, bool waited) {
  const uint64_t now = Now();
  StepProfile::Ticks& ticks = profile_->phases[static_cast<size_t>(phase)];
  (waited ? ticks.wait : ticks.work) += now - last_mark_;
  last_mark_ = now;
}

}  // namespace kvasir
