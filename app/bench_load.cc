#include "bench_load.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/counted.h"

namespace kvasir {

BenchLoad::~BenchLoad() {
  for (const SequenceId id : ids_) kv_.Close(id);
  kv_.EvictAll();
}

TokenId BenchLoad::RandomToken() {
  return TokenId{static_cast<int32_t>(rng_.Below(runner_.config().vocab_size))};
}

Status BenchLoad::Open() {
  tokens_.push_back({RandomToken()});
  const std::optional<SequenceId> id = kv_.Open(root_, tokens_.back());
  if (!id.has_value()) return ResourceExhausted("no sequence is free");
  ids_.push_back(*id);
  return OkStatus();
}

Status BenchLoad::OpenAsFirst() {
  const std::optional<SequenceId> id = kv_.Fork(ids_.front());
  if (!id.has_value()) return ResourceExhausted("no sequence is free");
  tokens_.emplace_back();
  ids_.push_back(*id);
  return OkStatus();
}

Status BenchLoad::Step(size_t first, uint32_t count, bool logits) {
  return StepRange(first, ids_.size(), count, logits);
}

Status BenchLoad::KvFull() const {
  uint32_t longest = 0;
  for (const SequenceId id : ids_) longest = std::max(longest, kv_.computed(id));
  return ResourceExhausted(
      "the KV memory is full: {} have {} at most, and more do not fit; give more (--kv-memory), or "
      "measure fewer or shorter ones (--batch, --context, --prefill)",
      Counted(ids_.size(), "sequence"), Counted(longest, "token"));
}

Status BenchLoad::StepFirst(uint32_t count) { return StepRange(0, 1, count, /*logits=*/false); }

Status BenchLoad::RepeatFirst(uint32_t count, uint32_t period) {
  const KvLayout& layout = kv_.layout();
  const uint32_t blocks_back = period / layout.block_tokens;
  std::vector<TokenId> tokens(layout.block_tokens);
  for (; count >= layout.block_tokens; count -= layout.block_tokens) {
    const uint32_t block = kv_.computed(ids_[0]) / layout.block_tokens;
    if (!kv_.Reserve(ids_[0], layout.block_tokens)) {
      return KvFull();
    }
    for (uint32_t group = 0; group < layout.group_count(); ++group) {
      const std::span<std::byte* const> at = kv_.table(ids_[0], group).addresses();
      std::memcpy(at[block], at[block - blocks_back], layout.block_bytes(group));
    }
    for (TokenId& token : tokens) token = RandomToken();
    kv_.Commit(ids_[0], tokens);
  }
  return OkStatus();
}

Status BenchLoad::StepRange(size_t first, size_t end, uint32_t count, bool logits) {
  while (count > 0) {
    const uint32_t sequences = static_cast<uint32_t>(end - first);
    const uint32_t most = std::max(runner_.limits().max_rows / sequences, 1u);
    const uint32_t rows = std::min(count, most);
    KV_RETURN_IF_ERROR(StepOnce(first, end, rows, logits && rows == count));
    count -= rows;
  }
  return OkStatus();
}

Status BenchLoad::StepOnce(size_t first, size_t end, uint32_t rows, bool logits) {
  batch_.sequences.resize(end - first);
  for (size_t i = first; i < end; ++i) {
    if (!kv_.Reserve(ids_[i], rows)) return KvFull();
    tokens_[i].resize(rows);
    for (TokenId& token : tokens_[i]) token = RandomToken();
    BatchSequence& sequence = batch_.sequences[i - first];
    sequence.tokens = tokens_[i];
    sequence.start = kv_.computed(ids_[i]);
    sequence.logits_begin = logits ? rows - 1 : rows;
    for (uint32_t group = 0; group < kv_.layout().group_count(); ++group) {
      sequence.blocks[group] = kv_.table(ids_[i], group).addresses();
    }
    sequence.tail = kv_.tail(ids_[i]);
  }
  runner_.Run(batch_);
  for (size_t i = first; i < end; ++i) kv_.Commit(ids_[i], tokens_[i]);
  return OkStatus();
}

}  // namespace kvasir
