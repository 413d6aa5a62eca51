#include "model/cpu_model_runner.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/huge_buffer.h"
#include "kernels/attention.h"
#include "kernels/row_ops.h"
#include "model/attention_plan.h"

namespace kvasir {
namespace {

// Rows claimed at a time by row phases of big batches: one K unit, so that two workers never write
// into the same cache lines of a KV block.
constexpr uint32_t kRowGrain = kUnitTokens;

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
  size_t used() const { return used_; }

 private:
  std::byte* base_;
  size_t used_ = 0;
};

// Time stamps; 0 where there is no counter.
uint64_t Now() {
#if defined(__x86_64__)
  return __rdtsc();
#else
  return 0;
#endif
}

// Bytes that the workers moved in one step, counted where they are moved, each by its own worker.
struct alignas(64) MovedBytes {
  uint64_t weights = 0;
  uint64_t kv_read = 0;
  uint64_t kv_written = 0;
};

}  // namespace

KvLayout KvLayoutFor(const ModelConfig& config, uint32_t block_tokens) {
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
  layout.type = KvType::kF16;
  layout.groups.push_back(full);
  if (!window.layers.empty()) layout.groups.push_back(window);
  return layout;
}

// All state of the forward pass; the phases of one Run are its methods, in the order of Program().
class CpuModelRunner::Step {
 public:
  Step(const ModelConfig& config, const Weights& weights, uint32_t block_tokens,
       const StepLimits& limits, WorkerTeam& team)
      : config_(config),
        weights_(weights),
        layout_(KvLayoutFor(config, block_tokens)),
        limits_(limits),
        team_(team) {
    const uint32_t workers = static_cast<uint32_t>(team.worker_count());
    for (const KvGroup& group : layout_.groups) {
      plans_.emplace_back(AttentionPlan::Options{config.kv_head_count, config.group(), group.window,
                                                 workers, limits.max_rows, config.context_length});
    }
    layer_group_.resize(config.layer_count);
    layer_slot_.resize(config.layer_count);
    for (uint32_t g = 0; g < layout_.groups.size(); ++g) {
      const std::vector<uint32_t>& layers = layout_.groups[g].layers;
      for (uint32_t slot = 0; slot < layers.size(); ++slot) {
        layer_group_[layers[slot]] = g;
        layer_slot_[layers[slot]] = slot;
      }
    }
    for (const LayerConfig& layer : config.layers) {
      const double base = layer.rope_base;
      const auto found = std::find(rope_bases_.begin(), rope_bases_.end(), base);
      layer_rope_.push_back(static_cast<uint32_t>(found - rope_bases_.begin()));
      if (found != rope_bases_.end()) continue;
      rope_bases_.push_back(base);
      RopeFrequencies(base, rope_frequencies_.emplace_back(config.head_dim / 2));
    }
    row_sequence_.resize(limits.max_rows);
    moved_.resize(workers);
    logits_source_.resize(limits.max_logits_rows);
  }

  Status AllocateScratch() {
    ScratchLayout measure(nullptr);
    LayOut(measure);
    KV_ASSIGN_OR_RETURN(scratch_, HugeBuffer::Allocate(measure.used()));
    ScratchLayout place(scratch_.data());
    LayOut(place);
    return OkStatus();
  }

  void Run(const Batch& batch);

  const ModelConfig& config() const { return config_; }
  const KvLayout& kv_layout() const { return layout_; }
  const StepLimits& limits() const { return limits_; }
  size_t scratch_bytes() const { return scratch_.size(); }
  const StepCounters& last_step() const { return last_step_; }
  const StepCounters& totals() const { return totals_; }
  void set_profile(StepProfile* profile) { profile_ = profile; }
  std::span<const float> logits(uint32_t row) const {
    KV_CHECK_LT(row, logits_rows_);
    return {logits_ + static_cast<size_t>(row) * config_.vocab_size, config_.vocab_size};
  }

 private:
  struct RowPlace {
    uint32_t sequence;
    uint32_t position;
  };

  uint32_t q_width() const { return config_.q_width(); }
  uint32_t kv_width() const { return config_.kv_width(); }
  uint32_t group_size() const { return config_.group(); }
  // Of one AttentionState; rounded up, since its first part must be aligned.
  size_t state_floats() const {
    return (static_cast<size_t>(group_size()) * (config_.head_dim + 2) + 15) / 16 * 16;
  }

  void LayOut(ScratchLayout& scratch);
  void CheckBatch(const Batch& batch) const;
  void Program(int worker);
  void CountStep(uint32_t barriers_before);
  // Ends a phase in the profile, if one is wanted.
  void Mark(int worker, StepPhase phase);
  void Embed(int worker);
  void NormalizeForAttention(const LayerWeights& layer, const LayerWeights* previous);
  void ProjectQkv(const LayerWeights& layer, int worker);
  void RotateAndStore(uint32_t layer_index, const LayerWeights& layer, int worker);
  void AttendPieces(uint32_t layer_index, int worker);
  void CollectAttention(uint32_t layer_index);
  void NormalizeForFfn(const LayerWeights& layer);
  void ActivateGate();
  void ProjectLogits(int worker);

  AttentionTile TileOf(uint32_t layer_index, const AttentionPiece& piece) const;
  AttentionState StateAt(uint32_t slot) const;
  void MergeSplitRow(uint32_t layer_index, uint32_t row);
  Activations Rows(uint32_t cols) const { return {rows_, cols, hidden_, quantized_}; }
  float* Row(float* base, uint32_t row, uint32_t width) const {
    return base + static_cast<size_t>(row) * width;
  }
  // Runs body(row) for every row, shared out.
  template <typename Body>
  void ForRows(uint32_t rows, Body&& body) {
    team_.For(rows, rows >= 4 * kRowGrain ? kRowGrain : 1, [&](uint32_t begin, uint32_t end) {
      for (uint32_t row = begin; row < end; ++row) body(row);
    });
  }

  // One product of a phase: `matrix` times the shared input into `out`.
  struct Product {
    const PackedMatrix* matrix;
    float* out;
    uint32_t out_stride;
    Store store;
  };
  template <size_t N>
  void Multiply(const Activations& input, const Product (&products)[N], int worker);
  // The residual connection after a projection: directly, or through the norm that follows it.
  Product Residual(const PackedMatrix& matrix, bool normed) const {
    return {&matrix, normed ? branch_ : x_, config_.d_model, normed ? Store::kAssign : Store::kAdd};
  }

  const ModelConfig config_;
  const Weights& weights_;
  const KvLayout layout_;
  const StepLimits limits_;
  WorkerTeam& team_;
  std::vector<AttentionPlan> plans_;                   // [groups]
  std::vector<uint32_t> layer_group_;                  // [layers] index into layout_.groups
  std::vector<uint32_t> layer_slot_;                   // [layers] index into that group's layers
  std::vector<double> rope_bases_;                     // Distinct bases.
  std::vector<std::vector<double>> rope_frequencies_;  // [bases][head_dim / 2]
  std::vector<uint32_t> layer_rope_;                   // [layers] index into rope_bases_

  HugeBuffer scratch_;
  float* x_ = nullptr;       // [rows, d_model] the residual stream
  float* hidden_ = nullptr;  // [rows, widest] the float input of the next product
  float* branch_ = nullptr;  // [rows, d_model] a projection waiting for its own norm
  float* q_ = nullptr;       // [rows, heads * head_dim]
  float* k_ = nullptr;       // [rows, kv_heads * head_dim]
  float* v_ = nullptr;       // likewise
  float* gate_ = nullptr;    // [rows, d_ffn]
  float* up_ = nullptr;      // [rows, d_ffn]
  float* cosine_ = nullptr;  // [bases, rows, rope_dim / 2]
  float* sine_ = nullptr;
  float* states_ = nullptr;  // [max states, state_floats()]
  float* attend_ = nullptr;  // [workers, attend_floats_]
  size_t attend_floats_ = 0;
  std::byte* quantized_ = nullptr;  // The int8 form of hidden_.
  float* logits_hidden_ = nullptr;  // [logits rows, d_model]
  std::byte* logits_quantized_ = nullptr;
  float* logits_ = nullptr;  // [logits rows, vocab]

  const Batch* batch_ = nullptr;
  uint32_t rows_ = 0;
  uint32_t logits_rows_ = 0;
  std::vector<RowPlace> row_sequence_;   // [max_rows]
  std::vector<uint32_t> logits_source_;  // [max_logits_rows] batch row of each logits row

  std::vector<MovedBytes> moved_;  // [workers]
  StepCounters last_step_;
  StepCounters totals_;
  StepProfile* profile_ = nullptr;
  uint64_t last_mark_ = 0;
};

void CpuModelRunner::Step::LayOut(ScratchLayout& scratch) {
  const size_t rows = limits_.max_rows;
  const uint32_t widest = std::max({config_.d_model, q_width(), config_.d_ffn});
  x_ = scratch.Take<float>(rows * config_.d_model);
  hidden_ = scratch.Take<float>(rows * widest);
  branch_ = scratch.Take<float>(rows * config_.d_model);
  q_ = scratch.Take<float>(rows * q_width());
  k_ = scratch.Take<float>(rows * kv_width());
  v_ = scratch.Take<float>(rows * kv_width());
  gate_ = scratch.Take<float>(rows * config_.d_ffn);
  up_ = scratch.Take<float>(rows * config_.d_ffn);
  const size_t angles = rope_bases_.size() * rows * (config_.head_dim / 2);
  cosine_ = scratch.Take<float>(angles);
  sine_ = scratch.Take<float>(angles);
  uint32_t states = 0;
  for (const AttentionPlan& plan : plans_) states = std::max(states, plan.max_states());
  states_ = scratch.Take<float>(states * state_floats());
  const uint32_t tile_rows = std::max(1u, std::min(16u, kMaxAttentionRows / group_size()));
  attend_floats_ = (AttendScratchFloats(tile_rows, group_size(), config_.head_dim) + 15) / 16 * 16;
  attend_ = scratch.Take<float>(attend_floats_ * static_cast<size_t>(team_.worker_count()));
  quantized_ = scratch.Take<std::byte>(ActivationBytes(limits_.max_rows, widest));
  logits_hidden_ = scratch.Take<float>(size_t{limits_.max_logits_rows} * config_.d_model);
  logits_quantized_ =
      scratch.Take<std::byte>(ActivationBytes(limits_.max_logits_rows, config_.d_model));
  logits_ = scratch.Take<float>(size_t{limits_.max_logits_rows} * config_.vocab_size);
}

void CpuModelRunner::Step::CheckBatch(const Batch& batch) const {
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

void CpuModelRunner::Step::Run(const Batch& batch) {
  CheckBatch(batch);
  batch_ = &batch;
  rows_ = 0;
  logits_rows_ = 0;
  for (uint32_t s = 0; s < batch.sequences.size(); ++s) {
    const BatchSequence& sequence = batch.sequences[s];
    for (uint32_t i = 0; i < sequence.tokens.size(); ++i) {
      if (i >= sequence.logits_begin) logits_source_[logits_rows_++] = rows_;
      row_sequence_[rows_++] = {s, sequence.start + i};
    }
  }
  if (rows_ == 0) return;
  for (AttentionPlan& plan : plans_) plan.Build(batch);
  std::fill(moved_.begin(), moved_.end(), MovedBytes{});
  const uint32_t barriers_before = team_.barrier_count();
  last_mark_ = profile_ == nullptr ? 0 : Now();
  team_.Run([this](int worker) { Program(worker); });
  CountStep(barriers_before);
  batch_ = nullptr;
}

void CpuModelRunner::Step::CountStep(uint32_t barriers_before) {
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

void CpuModelRunner::Step::Mark(int worker, StepPhase phase) {
  if (worker != 0 || profile_ == nullptr) return;
  const uint64_t now = Now();
  profile_->phases[static_cast<size_t>(phase)].work += now - last_mark_;
  last_mark_ = now;
}

void CpuModelRunner::Step::Program(int worker) {
  Embed(worker);
  Mark(worker, StepPhase::kEmbed);
  const std::vector<LayerWeights>& layers = weights_.layers();
  for (uint32_t i = 0; i < layers.size(); ++i) {
    const LayerWeights& layer = layers[i];
    NormalizeForAttention(layer, i == 0 ? nullptr : &layers[i - 1]);
    Mark(worker, StepPhase::kNorm);
    ProjectQkv(layer, worker);
    Mark(worker, StepPhase::kQkv);
    RotateAndStore(i, layer, worker);
    Mark(worker, StepPhase::kRope);
    AttendPieces(i, worker);
    Mark(worker, StepPhase::kAttention);
    CollectAttention(i);
    Mark(worker, StepPhase::kCollect);
    Multiply(Rows(q_width()), {Residual(layer.attn_output, !layer.post_attn_norm.empty())}, worker);
    Mark(worker, StepPhase::kOutput);
    NormalizeForFfn(layer);
    Mark(worker, StepPhase::kFfnNorm);
    Multiply(Rows(config_.d_model),
             {Product{&layer.gate, gate_, config_.d_ffn, Store::kAssign},
              Product{&layer.up, up_, config_.d_ffn, Store::kAssign}},
             worker);
    Mark(worker, StepPhase::kGateUp);
    ActivateGate();
    Mark(worker, StepPhase::kActivation);
    Multiply(Rows(config_.d_ffn), {Residual(layer.down, !layer.post_ffn_norm.empty())}, worker);
    Mark(worker, StepPhase::kDown);
  }
  if (logits_rows_ > 0) ProjectLogits(worker);
  Mark(worker, StepPhase::kHead);
}

template <size_t N>
void CpuModelRunner::Step::Multiply(const Activations& input, const Product (&products)[N],
                                    int worker) {
  MovedBytes& moved = moved_[static_cast<size_t>(worker)];
  uint32_t panels = 0;
  for (const Product& product : products) panels += product.matrix->panel_count();
  // Claims big enough to stream, small enough that the last one does not keep the others waiting.
  const uint32_t claims = static_cast<uint32_t>(team_.worker_count()) * 8;
  uint32_t grain = std::clamp(panels / claims, 1u, 64u);
  // Big tiles are computed two panels side by side (kernels/matmul.h).
  if (input.rows > kTileRows) grain = (grain + 1) / 2 * 2;
  team_.For(panels, grain, [&](uint32_t begin, uint32_t end) {
    uint32_t first = 0;
    for (const Product& product : products) {
      const uint32_t count = product.matrix->panel_count();
      const uint32_t from = std::max(begin, first);
      const uint32_t to = std::min(end, first + count);
      if (from < to) {
        MatMulPanels(*product.matrix, input, from - first, to - first, product.store, product.out,
                     product.out_stride);
        moved.weights +=
            (to - from) * PackedPanelBytes(product.matrix->format, product.matrix->cols);
      }
      first += count;
    }
  });
}

void CpuModelRunner::Step::Embed(int worker) {
  const PackedMatrix& table = weights_.token_embedding();
  const size_t row_bytes = PackedPanelBytes(table.format, table.cols) / kPanelRows;
  ForRows(rows_, [&](uint32_t row) {
    const RowPlace& place = row_sequence_[row];
    const BatchSequence& sequence = batch_->sequences[place.sequence];
    const TokenId token = sequence.tokens[place.position - sequence.start];
    const std::span<float> x(Row(x_, row, config_.d_model), config_.d_model);
    moved_[static_cast<size_t>(worker)].weights += row_bytes;
    UnpackRow(table, static_cast<uint32_t>(Index(token)), x);
    if (config_.embedding_scale != 1.0) Scale(x, static_cast<float>(config_.embedding_scale));
    const uint32_t half = config_.head_dim / 2;
    for (size_t base = 0; base < rope_bases_.size(); ++base) {
      const size_t at = (base * limits_.max_rows + row) * half;
      RopeTable(place.position, rope_frequencies_[base], {cosine_ + at, half}, {sine_ + at, half});
    }
  });
}

void CpuModelRunner::Step::NormalizeForAttention(const LayerWeights& layer,
                                                 const LayerWeights* previous) {
  const uint32_t width = config_.d_model;
  const Activations input = Rows(width);
  ForRows(rows_, [&](uint32_t row) {
    const std::span<float> x(Row(x_, row, width), width);
    const std::span<float> h(Row(hidden_, row, width), width);
    if (previous != nullptr && !previous->post_ffn_norm.empty()) {
      const std::span<float> branch(Row(branch_, row, width), width);
      RmsNorm(branch, previous->post_ffn_norm, config_.norm_eps, branch);
      Add(x, branch);
    }
    RmsNorm(x, layer.attn_norm, config_.norm_eps, h);
    QuantizeRow(h, row, input);
  });
}

void CpuModelRunner::Step::ProjectQkv(const LayerWeights& layer, int worker) {
  Multiply(Rows(config_.d_model),
           {Product{&layer.q, q_, q_width(), Store::kAssign},
            Product{&layer.k, k_, kv_width(), Store::kAssign},
            Product{&layer.v, v_, kv_width(), Store::kAssign}},
           worker);
}

void CpuModelRunner::Step::RotateAndStore(uint32_t layer_index, const LayerWeights& layer,
                                          int worker) {
  const uint32_t dim = config_.head_dim;
  const uint32_t half = config_.head_dim / 2;
  const uint32_t group = layer_group_[layer_index];
  const uint32_t slot = layer_slot_[layer_index];
  ForRows(rows_, [&](uint32_t row) {
    const RowPlace& place = row_sequence_[row];
    const size_t at = (size_t{layer_rope_[layer_index]} * limits_.max_rows + row) * half;
    const std::span<const float> cosine(cosine_ + at, half);
    const std::span<const float> sine(sine_ + at, half);
    const auto prepare = [&](float* head, std::span<const float> norm) {
      const std::span<float> values(head, dim);
      if (!norm.empty()) RmsNorm(values, norm, config_.norm_eps, values);
      Rope(values, cosine, sine, config_.rope_pairing);
    };
    for (uint32_t h = 0; h < config_.head_count; ++h) {
      prepare(Row(q_, row, q_width()) + h * dim, layer.q_norm);
    }
    std::byte* block =
        batch_->sequences[place.sequence].blocks[group][place.position / layout_.block_tokens];
    for (uint32_t h = 0; h < config_.kv_head_count; ++h) {
      float* k = Row(k_, row, kv_width()) + h * dim;
      prepare(k, layer.k_norm);
      WriteKv({k, dim}, {Row(v_, row, kv_width()) + h * dim, dim}, block,
              layout_.k_offset(group, slot, h), layout_.v_offset(group, slot, h),
              place.position % layout_.block_tokens);
    }
    moved_[static_cast<size_t>(worker)].kv_written += 2 * sizeof(uint16_t) * kv_width();
  });
}

AttentionTile CpuModelRunner::Step::TileOf(uint32_t layer_index,
                                           const AttentionPiece& piece) const {
  const uint32_t group = layer_group_[layer_index];
  const uint32_t slot = layer_slot_[layer_index];
  AttentionTile tile;
  tile.q = q_ + static_cast<size_t>(piece.first_row) * q_width() +
           static_cast<size_t>(piece.kv_head) * group_size() * config_.head_dim;
  tile.q_stride = q_width();
  tile.row_count = piece.row_count;
  tile.group = group_size();
  tile.head_dim = config_.head_dim;
  tile.scale = static_cast<float>(config_.attention_scale);
  tile.first_position = piece.position;
  tile.window = config_.layers[layer_index].window;
  tile.kv.blocks = batch_->sequences[piece.sequence].blocks[group].data();
  tile.kv.block_tokens = layout_.block_tokens;
  tile.kv.k_offset = layout_.k_offset(group, slot, piece.kv_head);
  tile.kv.v_offset = layout_.v_offset(group, slot, piece.kv_head);
  return tile;
}

AttentionState CpuModelRunner::Step::StateAt(uint32_t slot) const {
  float* o = states_ + slot * state_floats();
  float* max = o + static_cast<size_t>(group_size()) * config_.head_dim;
  return {o, max, max + group_size()};
}

void CpuModelRunner::Step::AttendPieces(uint32_t layer_index, int worker) {
  const std::vector<AttentionPiece>& pieces = plans_[layer_group_[layer_index]].pieces();
  float* scratch = attend_ + attend_floats_ * static_cast<size_t>(worker);
  const size_t unit_bytes = size_t{kUnitTokens} * config_.head_dim * sizeof(uint16_t);
  uint64_t units = 0;
  team_.For(static_cast<uint32_t>(pieces.size()), 1, [&](uint32_t begin, uint32_t end) {
    for (uint32_t i = begin; i < end; ++i) {
      const AttentionPiece& piece = pieces[i];
      const AttentionTile tile = TileOf(layer_index, piece);
      if (piece.chunk == kWholeRange) {
        float* out = hidden_ + static_cast<size_t>(piece.first_row) * q_width() +
                     static_cast<size_t>(piece.kv_head) * group_size() * config_.head_dim;
        units += Attend(tile, scratch, out, q_width());
      } else {
        units += AttendChunk(tile, piece.chunk, StateAt(piece.state));
      }
    }
  });
  moved_[static_cast<size_t>(worker)].kv_read += units * unit_bytes;
}

void CpuModelRunner::Step::MergeSplitRow(uint32_t layer_index, uint32_t row) {
  const SplitRow& split = plans_[layer_group_[layer_index]].split(row);
  const RowPlace& place = row_sequence_[row];
  for (uint32_t head = 0; head < config_.kv_head_count; ++head) {
    const uint32_t first = split.first_state + head * split.chunk_count;
    const AttentionState total = StateAt(first);
    for (uint32_t c = 1; c < split.chunk_count; ++c) {
      MergeAttention(group_size(), config_.head_dim, StateAt(first + c), total);
    }
    const AttentionPiece piece{place.sequence, row, 1, place.position, head, kWholeRange, 0};
    FinishAttention(TileOf(layer_index, piece), total,
                    Row(hidden_, row, q_width()) + head * group_size() * config_.head_dim,
                    q_width());
  }
}

void CpuModelRunner::Step::CollectAttention(uint32_t layer_index) {
  const AttentionPlan& plan = plans_[layer_group_[layer_index]];
  const Activations input = Rows(q_width());
  ForRows(rows_, [&](uint32_t row) {
    if (plan.split(row).chunk_count > 0) MergeSplitRow(layer_index, row);
    QuantizeRow({Row(hidden_, row, q_width()), q_width()}, row, input);
  });
}

void CpuModelRunner::Step::NormalizeForFfn(const LayerWeights& layer) {
  const uint32_t width = config_.d_model;
  const Activations input = Rows(width);
  ForRows(rows_, [&](uint32_t row) {
    const std::span<float> x(Row(x_, row, width), width);
    const std::span<float> h(Row(hidden_, row, width), width);
    if (!layer.post_attn_norm.empty()) {
      const std::span<float> branch(Row(branch_, row, width), width);
      RmsNorm(branch, layer.post_attn_norm, config_.norm_eps, branch);
      Add(x, branch);
    }
    RmsNorm(x, layer.ffn_norm, config_.norm_eps, h);
    QuantizeRow(h, row, input);
  });
}

void CpuModelRunner::Step::ActivateGate() {
  const uint32_t width = config_.d_ffn;
  const Activations input = Rows(width);
  ForRows(rows_, [&](uint32_t row) {
    const std::span<float> h(Row(hidden_, row, width), width);
    GatedActivation(config_.activation, {Row(gate_, row, width), width},
                    {Row(up_, row, width), width}, h);
    QuantizeRow(h, row, input);
  });
}

void CpuModelRunner::Step::ProjectLogits(int worker) {
  const uint32_t width = config_.d_model;
  const Activations input{logits_rows_, width, logits_hidden_, logits_quantized_};
  const std::span<const float> post_norm = weights_.layers().back().post_ffn_norm;
  ForRows(logits_rows_, [&](uint32_t i) {
    const std::span<float> x(Row(x_, logits_source_[i], width), width);
    const std::span<float> h(Row(logits_hidden_, i, width), width);
    if (!post_norm.empty()) {
      const std::span<float> branch(Row(branch_, logits_source_[i], width), width);
      RmsNorm(branch, post_norm, config_.norm_eps, branch);
      Add(x, branch);
    }
    RmsNorm(x, weights_.output_norm(), config_.norm_eps, h);
    QuantizeRow(h, i, input);
  });
  Multiply(input, {Product{&weights_.head(), logits_, config_.vocab_size, Store::kAssign}}, worker);
}

StatusOr<std::unique_ptr<CpuModelRunner>> CpuModelRunner::Create(const ModelConfig& config,
                                                                 const Weights& weights,
                                                                 uint32_t block_tokens,
                                                                 const StepLimits& limits,
                                                                 WorkerTeam& team) {
  KV_CHECK_GT(limits.max_rows, 0u);
  KV_CHECK_GT(limits.max_sequences, 0u);
  KV_CHECK_GT(limits.max_logits_rows, 0u);
  auto step = std::make_unique<Step>(config, weights, block_tokens, limits, team);
  KV_RETURN_IF_ERROR(step->AllocateScratch());
  return std::unique_ptr<CpuModelRunner>(new CpuModelRunner(std::move(step)));
}

CpuModelRunner::CpuModelRunner(std::unique_ptr<Step> step) : step_(std::move(step)) {}
CpuModelRunner::~CpuModelRunner() = default;

const ModelConfig& CpuModelRunner::config() const { return step_->config(); }
const KvLayout& CpuModelRunner::kv_layout() const { return step_->kv_layout(); }
const StepLimits& CpuModelRunner::limits() const { return step_->limits(); }
void CpuModelRunner::Run(const Batch& batch) { step_->Run(batch); }
std::span<const float> CpuModelRunner::logits(uint32_t row) const { return step_->logits(row); }
size_t CpuModelRunner::scratch_bytes() const { return step_->scratch_bytes(); }
const StepCounters& CpuModelRunner::last_step() const { return step_->last_step(); }
const StepCounters& CpuModelRunner::totals() const { return step_->totals(); }
void CpuModelRunner::set_profile(StepProfile* profile) { step_->set_profile(profile); }

}  // namespace kvasir
