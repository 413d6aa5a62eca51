#include "bench_load.h"

#include <algorithm>
#include <optional>

namespace kvasir {

BenchLoad::~BenchLoad() {
  for (const SequenceId id : ids_) model_.kv().Close(id);
  model_.kv().EvictAll();
}

TokenId BenchLoad::RandomToken() {
  return TokenId{static_cast<int32_t>(rng_.Below(model_.config().vocab_size))};
}

Status BenchLoad::Open() {
  tokens_.push_back({RandomToken()});
  const std::optional<SequenceId> id = model_.kv().Open(model_.Root(""), tokens_.back());
  if (!id.has_value()) return ResourceExhausted("no sequence is free");
  ids_.push_back(*id);
  return OkStatus();
}

Status BenchLoad::OpenAsFirst() {
  const std::optional<SequenceId> id = model_.kv().Fork(ids_.front());
  if (!id.has_value()) return ResourceExhausted("no sequence is free");
  tokens_.emplace_back();
  ids_.push_back(*id);
  return OkStatus();
}

Status BenchLoad::Step(size_t first, uint32_t count, bool logits) {
  return StepRange(first, ids_.size(), count, logits);
}

Status BenchLoad::StepFirst(uint32_t count) { return StepRange(0, 1, count, /*logits=*/false); }

Status BenchLoad::StepRange(size_t first, size_t end, uint32_t count, bool logits) {
  while (count > 0) {
    const uint32_t sequences = static_cast<uint32_t>(end - first);
    const uint32_t most = std::max(model_.runner().limits().max_rows / sequences, 1u);
    const uint32_t rows = std::min(count, most);
    KV_RETURN_IF_ERROR(StepOnce(first, end, rows, logits && rows == count));
    count -= rows;
  }
  return OkStatus();
}

Status BenchLoad::StepOnce(size_t first, size_t end, uint32_t rows, bool logits) {
  KvCache& kv = model_.kv();
  batch_.sequences.resize(end - first);
  for (size_t i = first; i < end; ++i) {
    if (!kv.Reserve(ids_[i], rows)) return ResourceExhausted("the KV memory is full");
    tokens_[i].resize(rows);
    for (TokenId& token : tokens_[i]) token = RandomToken();
    BatchSequence& sequence = batch_.sequences[i - first];
    sequence.tokens = tokens_[i];
    sequence.start = kv.computed(ids_[i]);
    sequence.logits_begin = logits ? rows - 1 : rows;
    for (uint32_t group = 0; group < kv.layout().group_count(); ++group) {
      sequence.blocks[group] = kv.table(ids_[i], group).addresses();
    }
    sequence.tail = kv.tail(ids_[i]);
  }
  model_.runner().Run(batch_);
  for (size_t i = first; i < end; ++i) kv.Commit(ids_[i], tokens_[i]);
  return OkStatus();
}

}  // namespace kvasir
