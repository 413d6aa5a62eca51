#include "engine/generation.h"

#include <optional>
#include <utility>

#include "base/check.h"

namespace kvasir {

StatusOr<std::unique_ptr<Generation>> Generation::Start(LoadedModel& model,
                                                        std::vector<TokenId> prompt,
                                                        SequenceOptions options) {
  KV_ASSIGN_OR_RETURN(
      std::unique_ptr<Sequence> sequence,
      Sequence::Create(model.text().tokenizer(), model.config().vocab_size, model.context_tokens(),
                       std::move(prompt), std::move(options)));
  const std::optional<SequenceId> id =
      model.kv().Open(model.Root(/*tenant_salt=*/""), sequence->known());
  if (!id.has_value()) return ResourceExhausted("too many sequences are running");
  return std::unique_ptr<Generation>(new Generation(model, std::move(sequence), *id));
}

Generation::Generation(LoadedModel& model, std::unique_ptr<Sequence> sequence, SequenceId id)
    : model_(model),
      sequence_(std::move(sequence)),
      id_(id),
      cached_tokens_(model.kv().computed(id)),
      scratch_(model.config().vocab_size) {
  batch_.sequences.resize(1);
}

Generation::~Generation() { model_.kv().Close(id_); }

StatusOr<std::string_view> Generation::Step() {
  KvCache& kv = model_.kv();
  ModelRunner& runner = model_.runner();

  const Sequence::Chunk chunk = sequence_->NextChunk(kv.computed(id_), runner.limits().max_rows);
  const uint32_t rows = static_cast<uint32_t>(chunk.tokens.size());
  if (!kv.Reserve(id_, rows)) {
    return ResourceExhausted("the KV memory is full at {} tokens; give more with --kv-memory",
                             kv.computed(id_));
  }
  BatchSequence& row = batch_.sequences.front();
  row.tokens = chunk.tokens;
  row.start = chunk.start;
  row.logits_begin = chunk.ends_known ? rows - 1 : rows;
  for (uint32_t group = 0; group < kv.layout().group_count(); ++group) {
    row.blocks[group] = kv.table(id_, group).addresses();
  }

  runner.Run(batch_);

  kv.Commit(id_, chunk.tokens);
  if (!chunk.ends_known) return std::string_view();
  return sequence_->Append(sequence_->Choose(runner.logits(0), scratch_));
}

}  // namespace kvasir
