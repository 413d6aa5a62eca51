// The phases of CpuStep that work row by row, and the products.
#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "kernels/row_ops.h"
#include "model/cpu_step.h"

namespace kvasir {
namespace {

// Rows claimed at a time: even shares, of neighbours, since rows of one tile of activations lie in
// common cache lines.
uint32_t RowGrain(uint32_t rows, int workers) {
  return std::clamp(rows / (static_cast<uint32_t>(workers) * 2), 1u, 16u);
}

}  // namespace

// The residual connection after a projection: directly, or through the norm that follows it.
MatrixProduct CpuStep::Residual(const PackedMatrix& matrix, bool normed) const {
  return {&matrix, normed ? branch_ : x_, config_.d_model, normed ? Store::kAssign : Store::kAdd};
}

// Where `worker` finds the residual stream. A norm between a projection and its residual makes the
// addition a part of the next phase: then workers that normalize for themselves add, too.
float* CpuStep::ResidualStream(int worker) const {
  return redundant() && post_norms_ ? OwnOf(worker).x : x_;
}

Activations CpuStep::Normed(int worker, uint32_t rows) const {
  const WorkerBuffers& own = OwnOf(worker);
  return redundant() ? Activations{rows, config_.d_model, own.normed, own.normed_q}
                     : Activations{rows, config_.d_model, normed_, normed_q_};
}

void CpuStep::EmbedRow(uint32_t row, float* x) const {
  const BatchRowPlace& place = row_places_[row];
  const BatchSequence& sequence = batch_->sequences[place.sequence];
  const TokenId token = sequence.tokens[place.position - sequence.start];
  UnpackRow(weights_.token_embedding(), static_cast<uint32_t>(Index(token)), {x, config_.d_model});
  if (config_.embedding_scale != 1.0) {
    Scale({x, config_.d_model}, static_cast<float>(config_.embedding_scale));
  }
}

void CpuStep::Embed(int worker) {
  const PackedMatrix& table = weights_.token_embedding();
  const size_t row_bytes = PackedPanelBytes(table.format, table.cols) / kPanelRows;
  float* const x = ResidualStream(worker);
  const bool own = x != x_;
  for (uint32_t row = 0; own && row < rows_; ++row) EmbedRow(row, Row(x, row, config_.d_model));
  const uint32_t half = config_.rope_dim / 2;
  const auto body = [&](uint32_t begin, uint32_t end) {
    for (uint32_t row = begin; row < end; ++row) {
      if (!own) EmbedRow(row, Row(x, row, config_.d_model));
      Moved(worker).weights += row_bytes;
      for (size_t kind = 0; kind < rope_frequencies_.size(); ++kind) {
        const size_t at = (kind * limits_.max_rows + row) * half;
        RopeTable(row_places_[row].position, rope_frequencies_[kind], {cosine_ + at, half},
                  {sine_ + at, half}, config_.rope_magnitude);
      }
    }
  };
  Share(worker, StepPhase::kEmbed, rows_, RowGrain(rows_, team_.worker_count()), body);
}

// x += norm(branch) if there is a branch to add, then norm(x) as row `out_row` of `into`.
void CpuStep::NormalizeRow(int worker, uint32_t row, std::span<const float> branch_norm,
                           std::span<const float> norm, uint32_t out_row, const Activations& into) {
  const uint32_t width = config_.d_model;
  const WorkerBuffers& own = OwnOf(worker);
  const std::span<float> x(Row(ResidualStream(worker), row, width), width);
  if (!branch_norm.empty()) {
    const std::span<float> branch(own.branch, width);
    RmsNorm({Row(branch_, row, width), width}, branch_norm, config_.norm_eps, branch);
    Add(x, branch);
  }
  const std::span<float> out(own.row, width);
  RmsNorm(x, norm, config_.norm_eps, out);
  if (float_inputs_) {
    float* const values = redundant() ? own.normed : normed_;
    std::memcpy(Row(values, out_row, width), out.data(), width * sizeof(float));
  }
  QuantizeRow(out, out_row, into);
}

void CpuStep::Normalize(int worker, StepPhase phase, std::span<const float> branch_norm,
                        std::span<const float> norm) {
  const Activations into = Normed(worker, rows_);
  const auto body = [&](uint32_t begin, uint32_t end) {
    for (uint32_t row = begin; row < end; ++row) {
      NormalizeRow(worker, row, branch_norm, norm, row, into);
    }
  };
  if (redundant()) {
    body(0, rows_);
    MarkWork(worker, phase);
  } else {
    Share(worker, phase, rows_, RowGrain(rows_, team_.worker_count()), body);
  }
}

void CpuStep::MultiplyPanels(int worker, const Activations& input,
                             std::span<const MatrixProduct> products, uint32_t row_block,
                             uint32_t begin, uint32_t end) {
  uint32_t first = 0;
  for (const MatrixProduct& product : products) {
    const uint32_t count = product.matrix->panel_count();
    const uint32_t from = std::max(begin, first);
    const uint32_t to = std::min(end, first + count);
    if (from < to) {
      MatMulRowBlock(*product.matrix, input, row_block, from - first, to - first, product.store,
                     product.out, product.out_stride);
      Moved(worker).weights +=
          (to - from) * PackedPanelBytes(product.matrix->format, product.matrix->cols);
    }
    first += count;
  }
}

void CpuStep::Multiply(int worker, StepPhase phase, const Activations& input,
                       std::span<const MatrixProduct> products) {
  uint32_t panels = 0;
  for (const MatrixProduct& product : products) panels += product.matrix->panel_count();
  const uint32_t grain = PanelGrain(panels, input.rows, team_.worker_count());
  const uint32_t units = panels * RowBlocks(input.rows, input.cols);
  // Of neighbours, so that each worker reads one run of the weights.
  team_.ClaimNear(worker, units, grain, [&](uint32_t begin, uint32_t end) {
    ForRowBlocks(panels, begin, end, [&](uint32_t block, uint32_t from, uint32_t to) {
      MultiplyPanels(worker, input, products, block, from, to);
    });
  });
  EndPhase(worker, phase);
}

namespace {

// The panels of a matrix from `begin` on as a matrix of their own.
PackedMatrix PanelsFrom(const PackedMatrix& matrix, uint32_t begin) {
  PackedMatrix part = matrix;
  part.rows -= begin * kPanelRows;
  part.bytes += begin * PackedPanelBytes(matrix.format, matrix.cols);
  return part;
}

}  // namespace

// Blocks of 32 columns of the activation, each from two panels of gate and the same two of up:
// products, activation and quantization while all of it is in the nearest cache.
void CpuStep::GateUpBlocks(int worker, const LayerWeights& layer, uint32_t begin, uint32_t end) {
  constexpr uint32_t kPanels = kActivationBlock / kPanelRows;
  const WorkerBuffers& own = OwnOf(worker);
  const Activations input = Normed(worker, rows_);
  const Activations output = Activated();
  const uint32_t width = (end - begin) * kActivationBlock;
  const uint32_t panels = (end - begin) * kPanels;
  for (const auto& [matrix, out] : {std::pair(&layer.gate, own.gate), {&layer.up, own.up}}) {
    MatMulPanels(PanelsFrom(*matrix, begin * kPanels), input, 0, panels, Store::kAssign, out,
                 width);
    Moved(worker).weights += panels * PackedPanelBytes(matrix->format, matrix->cols);
  }
  // Rows of the worker's buffers lie one behind the other; so many at once stay in the L1.
  constexpr uint32_t kRows = 32;
  for (uint32_t row = 0; row < rows_; row += kRows) {
    const uint32_t row_end = std::min(row + kRows, rows_);
    const std::span<float> gate(Row(own.gate, row, width), size_t{row_end - row} * width);
    GatedActivation(config_.activation, gate, {Row(own.up, row, width), gate.size()}, gate);
    QuantizeRows(gate.data(), width, width, row, row_end, begin, output);
  }
  for (uint32_t row = 0; float_inputs_ && row < rows_; ++row) {
    std::memcpy(Row(activated_, row, config_.d_ffn) + begin * kActivationBlock,
                Row(own.gate, row, width), width * sizeof(float));
  }
}

void CpuStep::GateUp(int worker, const LayerWeights& layer) {
  const uint32_t blocks = config_.d_ffn / kActivationBlock;
  uint32_t grain = 1;
  if (rows_ <= kSmallGateRows) {
    const uint32_t claims = static_cast<uint32_t>(team_.worker_count()) * 8;
    grain = std::clamp(blocks / claims, 1u, uint32_t{kSmallGateCols / kActivationBlock});
  }
  team_.ClaimNear(worker, blocks, grain,
                  [&](uint32_t begin, uint32_t end) { GateUpBlocks(worker, layer, begin, end); });
  EndPhase(worker, StepPhase::kGateUp);
}

// Blocks of logits, and the notes of them while they lie in the nearest cache.
void CpuStep::ProjectBlocks(int worker, const Activations& input, uint32_t begin, uint32_t end) {
  constexpr uint32_t kPanels = kLogitsBlock / kPanelRows;
  static_assert(kLogitsBlock % kPanelRows == 0);
  const PackedMatrix& head = weights_.head();
  const uint32_t panel_end = std::min(end * kPanels, head.panel_count());
  MatMulPanels(head, input, begin * kPanels, panel_end, Store::kAssign, logits_,
               config_.vocab_size);
  Moved(worker).weights += (panel_end - begin * kPanels) * PackedPanelBytes(head.format, head.cols);
  const size_t first = begin * kLogitsBlock;
  const size_t size = std::min(end * kLogitsBlock, size_t{config_.vocab_size}) - first;
  const size_t row_blocks = LogitsBlocks(config_.vocab_size);
  for (uint32_t row = 0; row < logits_rows_; ++row) {
    const size_t notes = row * row_blocks + begin;
    const std::span<float> logits(Row(logits_, row, config_.vocab_size) + first, size);
    if (config_.logit_cap != 0.0) SoftCap(logits, static_cast<float>(config_.logit_cap));
    SummarizeBlocks(logits, {logits_maxima_ + notes, end - begin},
                    {logits_sums_ + notes, sums_wanted_[row] != 0 ? end - begin : size_t{0}});
  }
}

void CpuStep::ProjectLogits(int worker) {
  const WorkerBuffers& own = OwnOf(worker);
  const Activations input = Normed(worker, logits_rows_);
  const std::span<const float> post_norm = weights_.layers().back().post_ffn_norm;
  const auto body = [&](uint32_t begin, uint32_t end) {
    for (uint32_t i = begin; i < end; ++i) {
      NormalizeRow(worker, logits_sources_[i], post_norm, weights_.output_norm(), i, input);
      if (!scans_head_) continue;
      // The bounds want floats: NormalizeRow has left them in the worker's row.
      std::memcpy(Row(redundant() ? own.normed : normed_, i, config_.d_model), own.row,
                  config_.d_model * sizeof(float));
    }
  };
  if (redundant()) {
    body(0, logits_rows_);
  } else {
    Share(worker, StepPhase::kHead, logits_rows_, RowGrain(logits_rows_, team_.worker_count()),
          body);
  }
  if (scans_head_) {
    Moved(worker).weights += head_scan_->ArgMaxLogits(input, logits_, config_.vocab_size, worker);
    MarkWork(worker, StepPhase::kHead);
    return;
  }
  const uint32_t blocks = static_cast<uint32_t>(LogitsBlocks(config_.vocab_size));
  const uint32_t claims = static_cast<uint32_t>(team_.worker_count()) * 16;
  team_.ClaimNear(worker, blocks, std::clamp(blocks / claims, 1u, 2u),
                  [&](uint32_t begin, uint32_t end) { ProjectBlocks(worker, input, begin, end); });
  EndPhase(worker, StepPhase::kHead);
}

}  // namespace kvasir
