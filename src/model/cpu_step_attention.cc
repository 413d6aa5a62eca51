// The phases of CpuStep between the QKV and the output projection.
#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "kernels/head_spread.h"
#include "kernels/row_ops.h"
#include "model/cpu_step.h"

namespace kvasir {
namespace {

// Sums of spread values become sums of the values.
void SpreadSums(const AttentionTile& tile, float* const* out) {
  for (uint32_t head = 0; head < tile.row_count * tile.group; ++head) {
    SpreadHead({out[head / tile.group] + head % tile.group * tile.head_dim, tile.head_dim});
  }
}

}  // namespace

// Bias, norm and RoPE of one head of batch row `row`, in place; spread, of queries and keys alike,
// where keys of the stored type are.
void CpuStep::PrepareHead(float* head, std::span<const float> bias, std::span<const float> norm,
                          uint32_t layer, uint32_t row) const {
  const uint32_t half = config_.rope_dim / 2;
  const std::span<float> values(head, config_.head_dim);
  if (!bias.empty()) Add(values, bias);
  if (!norm.empty()) RmsNorm(values, norm, config_.norm_eps, values);
  const size_t at = (size_t{layer_rope_[layer]} * limits_.max_rows + row) * half;
  Rope(values.first(config_.rope_dim), {cosine_ + at, half}, {sine_ + at, half},
       config_.rope_pairing);
  if (SpreadsK(StoredTypeOf(layout_.types.k))) SpreadHead(values);
}

// K (after RoPE) and V of one head of batch row `row` to their units. Keys of a staged type wait
// for the rest of theirs.
void CpuStep::StoreKv(int worker, const LayerKvPlace& place, const LayerWeights& layer,
                      uint32_t row, uint32_t kv_head) {
  const uint32_t dim = config_.head_dim;
  float* const k = Row(k_, row, kv_width()) + kv_head * dim;
  PrepareHead(k, HeadBias(layer.k_bias, kv_head), layer.k_norm, place.layer, row);
  float* const v = Row(v_, row, kv_width()) + kv_head * dim;
  if (!layer.v_bias.empty()) Add({v, dim}, HeadBias(layer.v_bias, kv_head));
  if (SpreadsV(StoredTypeOf(layout_.types.v))) SpreadHead({v, dim});
  const BatchRowPlace& at = row_places_[row];
  std::byte* const block =
      batch_->sequences[at.sequence].blocks[place.group][at.position / layout_.block_tokens];
  const size_t unit = at.position % layout_.block_tokens / kUnitTokens;
  const size_t k_bytes = layout_.k_unit_bytes(place.group);
  const size_t v_bytes = layout_.v_unit_bytes(place.group);
  const uint32_t slot = at.position % kUnitTokens;
  if (staging_.staged()) {
    std::byte* const own =
        staging_.OwnUnit({place.group, place.slot, kv_head}, at.sequence, at.position);
    WriteK(StoredType::kF16, {k, dim}, own, slot);
  } else {
    WriteK(StoredTypeOf(layout_.types.k), {k, dim},
           block + layout_.k_offset(place.group, place.slot, kv_head) + unit * k_bytes, slot);
  }
  WriteV(StoredTypeOf(layout_.types.v), {v, dim},
         block + layout_.v_offset(place.group, place.slot, kv_head) + unit * v_bytes, slot);
  Moved(worker).kv_written += (k_bytes + v_bytes) / kUnitTokens;
}

// All rows of a sequence, where some of a unit's bytes hold several tokens: by one worker.
void CpuStep::StoreSequence(int worker, const LayerKvPlace& place, const LayerWeights& layer,
                            uint32_t sequence, uint32_t kv_head) {
  const KvHeadPlace head{place.group, place.slot, kv_head};
  uint32_t row = 0;
  for (uint32_t s = 0; s < sequence; ++s) {
    row += static_cast<uint32_t>(batch_->sequences[s].tokens.size());
  }
  if (staging_.staged()) staging_.Begin(head, sequence);
  for (size_t i = 0; i < batch_->sequences[sequence].tokens.size(); ++i, ++row) {
    StoreKv(worker, place, layer, row, kv_head);
  }
  if (staging_.staged()) staging_.End(head, sequence);
}

// A phase of its own, for batches in which pieces of attention read what other pieces would write.
// Units are a KV head of 16 rows, so that workers seldom write into the same cache lines of a
// block. Nibbles share bytes, and quantizing a unit needs all of it: then KV is stored in units of
// a KV head and a sequence, the first ones.
void CpuStep::RotateAndStore(int worker, const LayerKvPlace& place, const LayerWeights& layer) {
  const uint32_t heads = config_.kv_head_count;
  const uint32_t row_groups = (rows_ + kUnitTokens - 1) / kUnitTokens;
  const bool by_sequence = staging_.staged() || layout_.types.v == KvType::kInt4;
  const uint32_t store_units =
      by_sequence ? static_cast<uint32_t>(batch_->sequences.size()) * heads : 0;
  const auto body = [&](uint32_t begin, uint32_t end) {
    for (uint32_t unit = begin; unit < end; ++unit) {
      const uint32_t kv_head = unit % heads;
      if (unit < store_units) {
        StoreSequence(worker, place, layer, unit / heads, kv_head);
        continue;
      }
      const uint32_t first = (unit - store_units) / heads * kUnitTokens;
      for (uint32_t row = first; row < std::min(first + kUnitTokens, rows_); ++row) {
        float* const q = Row(q_, row, q_width()) + kv_head * head_floats();
        for (uint32_t g = 0; g < config_.group(); ++g) {
          PrepareHead(q + g * config_.head_dim,
                      HeadBias(layer.q_bias, kv_head * config_.group() + g), layer.q_norm,
                      place.layer, row);
        }
        if (!by_sequence) StoreKv(worker, place, layer, row, kv_head);
      }
    }
  };
  Share(worker, StepPhase::kRope, store_units + row_groups * heads, 1, body);
}

AttentionState CpuStep::StateAt(uint32_t slot, uint32_t rows) const {
  float* const o = states_ + slot * state_floats();
  float* const max = o + static_cast<size_t>(rows) * head_floats();
  return {o, max, max + rows * config_.group()};
}

// All chunks of a KV head of a tile that was cut, left to right, into the first one's state.
void CpuStep::MergeChunks(const AttentionTile& tile, const PlannedTile& planned,
                          uint32_t kv_head) const {
  const AttentionState total = StateAt(planned.state(kv_head, planned.first_chunk), tile.row_count);
  for (uint32_t c = 1; c < planned.chunk_count; ++c) {
    const uint32_t slot = planned.state(kv_head, planned.first_chunk + c);
    MergeAttention(tile.row_count * tile.group, tile.head_dim, StateAt(slot, tile.row_count),
                   total);
  }
}

void CpuStep::QuantizeAttended(const PlannedTile& planned, const AttentionPlan& plan,
                               uint32_t kv_head) {
  const Activations into = Attended();
  const uint32_t first_block = kv_head * head_floats() / kActivationBlock;
  for (uint32_t i = 0; i < planned.row_count; ++i) {
    const uint32_t row = plan.batch_rows()[planned.first_row + i];
    const float* const values = Row(attended_, row, q_width()) + kv_head * head_floats();
    QuantizeBlocks({values, head_floats()}, row, first_block, into);
  }
}

// The tile of a piece, but for its queries.
AttentionTile CpuStep::TileOf(const LayerKvPlace& place, const AttentionPiece& piece) const {
  const AttentionPlan& plan = plans_[place.group];
  const PlannedTile& planned = plan.tiles()[piece.tile];
  AttentionTile tile;
  tile.rows = plan.rows().data() + planned.first_row;
  tile.row_count = planned.row_count;
  tile.group = config_.group();
  tile.head_dim = config_.head_dim;
  tile.scale = static_cast<float>(config_.attention_scale);
  tile.cap = static_cast<float>(config_.attention_cap);
  tile.window = config_.layers[place.layer].window;
  tile.block_tokens = layout_.block_tokens;
  tile.k_offset = layout_.k_offset(place.group, place.slot, piece.kv_head);
  tile.v_offset = layout_.v_offset(place.group, place.slot, piece.kv_head);
  tile.k_type = StoredTypeOf(layout_.types.k);
  tile.v_type = StoredTypeOf(layout_.types.v);
  return tile;
}

void CpuStep::AttendPiece(int worker, const LayerKvPlace& place, const LayerWeights& layer,
                          const AttentionPiece& piece, const AttentionPiece* after) {
  const AttentionPlan& plan = plans_[place.group];
  const PlannedTile& planned = plan.tiles()[piece.tile];
  const WorkerBuffers& own = OwnOf(worker);
  const float* q[kMaxAttentionRows];
  float* out[kMaxAttentionRows];
  const std::byte* own_k[kMaxAttentionRows];
  for (uint32_t i = 0; i < planned.row_count; ++i) {
    const uint32_t row = plan.batch_rows()[planned.first_row + i];
    const float* const source = Row(q_, row, q_width()) + piece.kv_head * head_floats();
    q[i] = source;
    out[i] = Row(attended_, row, q_width()) + piece.kv_head * head_floats();
    if (staging_.staged()) {
      const BatchRowPlace& at = row_places_[row];
      own_k[i] =
          staging_.OwnUnit({place.group, place.slot, piece.kv_head}, at.sequence, at.position);
    }
    if (!pieces_store(place)) continue;
    // Several pieces may need these queries, so each turns a copy.
    float* const copy = Row(own.q, i, head_floats());
    std::memcpy(copy, source, head_floats() * sizeof(float));
    for (uint32_t g = 0; g < config_.group(); ++g) {
      PrepareHead(copy + g * config_.head_dim,
                  HeadBias(layer.q_bias, piece.kv_head * config_.group() + g), layer.q_norm,
                  place.layer, row);
    }
    q[i] = copy;
    // The new tokens are read by the piece that has their chunk, and by no other.
    if (piece.computes(row_places_[row].position / kChunkTokens)) {
      StoreKv(worker, place, layer, row, piece.kv_head);
    }
  }
  AttentionTile tile = TileOf(place, piece);
  tile.q = q;
  tile.own_k = own_k;
  AttentionTile after_tile;
  AttentionNext next;
  if (after != nullptr) {
    after_tile = TileOf(place, *after);
    next.tile = &after_tile;
    next.chunk = after->chunk == kWholeRange ? plan.tiles()[after->tile].first_chunk : after->chunk;
  }
  // Of a K and a V unit; a row's own K unit of a staged type counts like the others.
  const size_t unit_bytes =
      (layout_.k_unit_bytes(place.group) + layout_.v_unit_bytes(place.group)) / 2;
  if (piece.chunk == kWholeRange) {
    Moved(worker).kv_read += Attend(tile, own.attend, out, next) * unit_bytes;
  } else {
    uint32_t units = 0;
    for (uint32_t chunk = piece.chunk; chunk < piece.chunk + piece.chunks; ++chunk) {
      const AttentionState state = StateAt(planned.state(piece.kv_head, chunk), planned.row_count);
      const bool last = chunk + 1 == piece.chunk + piece.chunks;
      units += AttendChunk(tile, chunk, state, last ? next : AttentionNext{&tile, chunk + 1});
    }
    Moved(worker).kv_read += units * unit_bytes;
    // Whoever computes the last chunk of the head merges them all.
    std::atomic<uint32_t>& left = chunks_left_[place.group][planned.first_counter + piece.kv_head];
    if (left.fetch_sub(piece.chunks, std::memory_order_acq_rel) != piece.chunks) return;
    left.store(planned.chunk_count, std::memory_order_relaxed);  // For the next layer.
    MergeChunks(tile, planned, piece.kv_head);
    const AttentionState total =
        StateAt(planned.state(piece.kv_head, planned.first_chunk), planned.row_count);
    FinishAttention(tile, total, out);
  }
  if (SpreadsV(tile.v_type)) SpreadSums(tile, out);
  if (heads_are_blocks_) QuantizeAttended(planned, plan, piece.kv_head);
}

void CpuStep::AttendAll(int worker, const LayerKvPlace& place, const LayerWeights& layer) {
  const std::vector<AttentionPiece>& pieces = plans_[place.group].pieces();
  const uint32_t count = static_cast<uint32_t>(pieces.size());
  // Several pieces a claim, so that one's keys are fetched during the other; long ones one by one:
  // then the next is likely the one that the other workers' claims leave.
  const AttentionPlan& plan = plans_[place.group];
  const uint32_t workers = static_cast<uint32_t>(team_.worker_count());
  const bool single = plan.cuts() || !plan.one_tile_each();
  const uint32_t grain = single ? 1 : std::max(count / (workers * 4), 1u);
  Share(worker, StepPhase::kAttention, count, grain, [&](uint32_t begin, uint32_t end) {
    for (uint32_t i = begin; i < end; ++i) {
      const uint32_t next = single ? i + workers : i + 1;
      const bool known = next < (single ? count : end);
      AttendPiece(worker, place, layer, pieces[i], known ? &pieces[next] : nullptr);
    }
  });
  if (heads_are_blocks_) return;
  // A KV head's output ends inside a block of 32: quantize when all of them are there.
  Share(worker, StepPhase::kCollect, rows_, 1, [&](uint32_t begin, uint32_t end) {
    for (uint32_t row = begin; row < end; ++row) {
      QuantizeRow({Row(attended_, row, q_width()), q_width()}, row, Attended());
    }
  });
}

}  // namespace kvasir
