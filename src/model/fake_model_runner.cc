#include "model/fake_model_runner.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/rng.h"
#include "kernels/attention.h"

namespace kvasir {
namespace {

constexpr uint32_t kHeadDim = 16;
constexpr uint64_t kBeforeFirst = 0x6b76617369720001ull;

uint64_t NextDigest(uint64_t before, TokenId token) {
  return Mix64(before ^ (static_cast<uint64_t>(Index(token)) + 1) * 0x9E3779B97F4A7C15ull);
}

uint64_t Fold(uint64_t seen, uint64_t digest) { return Mix64(seen ^ digest) + 1; }

// The first channels of a slot's V row, and the same channels of its K column.
struct Slot {
  uint16_t* v;
  uint16_t* k;  // Channel d at k[d * kUnitTokens].
};

Slot SlotOf(const KvLayout& layout, uint32_t group, std::byte* block, uint32_t position) {
  KV_CHECK(block != nullptr);
  const uint32_t slot = position % layout.block_tokens;
  const size_t unit = size_t{slot / kUnitTokens} * kUnitTokens * kHeadDim;
  auto* k = reinterpret_cast<uint16_t*>(block + layout.k_offset(group, 0, 0)) + unit;
  auto* v = reinterpret_cast<uint16_t*>(block + layout.v_offset(group, 0, 0)) + unit;
  return {v + slot % kUnitTokens * kHeadDim, k + slot % kUnitTokens};
}

void Write(const Slot& slot, uint64_t digest) {
  for (uint32_t d = 0; d < 4; ++d) {
    const auto part = static_cast<uint16_t>(digest >> (16 * d));
    slot.v[d] = part;
    slot.k[d * kUnitTokens] = part;
  }
}

uint64_t Read(const Slot& slot) {
  uint64_t from_v = 0, from_k = 0;
  for (uint32_t d = 0; d < 4; ++d) {
    from_v |= uint64_t{slot.v[d]} << (16 * d);
    from_k |= uint64_t{slot.k[d * kUnitTokens]} << (16 * d);
  }
  // Half a copy is as wrong as none, and must show.
  return from_v == from_k ? from_v : from_v ^ Mix64(from_k);
}

uint32_t FirstSeen(uint32_t position, uint32_t window) {
  return window == 0 || position + 1 <= window ? 0 : position + 1 - window;
}

}  // namespace

FakeModelRunner::FakeModelRunner(const Options& options) : limits_(options.limits) {
  config_.architecture = "fake";
  config_.layer_count = 2;
  config_.d_model = config_.d_ffn = 32;
  config_.head_count = config_.kv_head_count = 1;
  config_.head_dim = kHeadDim;
  config_.context_length = options.context_length;
  config_.vocab_size = options.vocab_size;
  config_.layers.resize(2);
  config_.layers[1].window = options.window;
  layout_.block_tokens = options.block_tokens;
  layout_.groups.push_back({{0}, 1, kHeadDim, 0});
  layout_.groups.push_back({{1}, 1, kHeadDim, options.window});
  logits_.resize(size_t{limits_.max_logits_rows} * options.vocab_size);
}

void FakeModelRunner::Run(const Batch& batch) {
  KV_CHECK_LE(batch.row_count(), limits_.max_rows);
  KV_CHECK_LE(batch.sequences.size(), limits_.max_sequences);
  KV_CHECK_LE(batch.logits_row_count(), limits_.max_logits_rows);
  uint32_t logits_row = 0;
  for (const BatchSequence& sequence : batch.sequences) {
    KV_CHECK(!sequence.tokens.empty());
    const auto slot_at = [&](uint32_t group, uint32_t position) {
      std::byte* block = sequence.blocks[group][position / layout_.block_tokens];
      return SlotOf(layout_, group, block, position);
    };
    for (uint32_t i = 0; i < sequence.tokens.size(); ++i) {
      const uint32_t position = sequence.start + i;
      KV_CHECK_LT(position, config_.context_length);
      const uint64_t before = position == 0 ? kBeforeFirst : Read(slot_at(0, position - 1));
      const uint64_t digest = NextDigest(before, sequence.tokens[i]);
      for (uint32_t group = 0; group < 2; ++group) Write(slot_at(group, position), digest);
      ++rows_computed_;
      if (i < sequence.logits_begin) continue;
      uint64_t seen = 0;
      for (uint32_t group = 0; group < 2; ++group) {
        const uint32_t window = layout_.groups[group].window;
        for (uint32_t p = FirstSeen(position, window); p <= position; ++p) {
          seen = Fold(seen, Read(slot_at(group, p)));
        }
      }
      FillLogits(seen, std::span(logits_).subspan(size_t{logits_row++} * config_.vocab_size,
                                                  config_.vocab_size));
    }
  }
}

std::span<const float> FakeModelRunner::logits(uint32_t row) const {
  return std::span(logits_).subspan(size_t{row} * config_.vocab_size, config_.vocab_size);
}

std::vector<float> FakeModelRunner::Logits(std::span<const TokenId> tokens) const {
  KV_CHECK(!tokens.empty());
  std::vector<uint64_t> digests;
  for (const TokenId token : tokens) {
    digests.push_back(NextDigest(digests.empty() ? kBeforeFirst : digests.back(), token));
  }
  uint64_t seen = 0;
  const auto last = static_cast<uint32_t>(tokens.size() - 1);
  for (const KvGroup& group : layout_.groups) {
    for (uint32_t p = FirstSeen(last, group.window); p <= last; ++p) seen = Fold(seen, digests[p]);
  }
  std::vector<float> row(config_.vocab_size);
  FillLogits(seen, row);
  return row;
}

void FakeModelRunner::FillLogits(uint64_t digest, std::span<float> row) const {
  for (size_t i = 0; i < row.size(); ++i) {
    row[i] = static_cast<float>(Mix64(digest + i) >> 40) * 0x1p-22f;  // [0, 4)
  }
}

}  // namespace kvasir
