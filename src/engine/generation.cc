#include "engine/generation.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "base/byte_size.h"
#include "base/check.h"
#include "base/counted.h"
#include "engine/draft_grants.h"
#include "engine/propose_draft.h"

namespace kvasir {
namespace {
constexpr double kNoTimeLimit = std::numeric_limits<double>::infinity();  // Nobody else waits.
}  // namespace

StatusOr<std::unique_ptr<Generation>> Generation::Start(LoadedModel& model,
                                                        std::vector<TokenId> prompt,
                                                        SequenceOptions options,
                                                        Speculation speculate) {
  if (prompt.size() >= model.context_tokens()) {
    return InvalidArgument(
        "the prompt has {}, {} for {} with the answer: {}", Counted(prompt.size(), "token"),
        model.memory_limits_context() ? "the KV memory has room" : "the context has room",
        model.context_tokens(), model.AdviceFor(prompt.size() + 1));
  }
  KV_ASSIGN_OR_RETURN(
      std::unique_ptr<Sequence> sequence,
      Sequence::Create(model.text().tokenizer(), model.config().vocab_size, model.context_tokens(),
                       std::move(prompt), std::move(options)));
  const std::optional<SequenceId> id =
      model.kv().Open(model.Root(/*tenant_salt=*/""), sequence->known());
  if (!id.has_value()) return ResourceExhausted("too many sequences are running");
  return std::unique_ptr<Generation>(new Generation(model, std::move(sequence), *id, speculate));
}

Generation::Generation(LoadedModel& model, std::unique_ptr<Sequence> sequence, SequenceId id,
                       Speculation speculate)
    : model_(model),
      sequence_(std::move(sequence)),
      id_(id),
      cached_tokens_(model.kv().computed(id)),
      speculate_(speculate),
      scratch_(model.config().vocab_size) {
  batch_.sequences.resize(1);
}

Generation::~Generation() { model_.kv().Close(id_); }

void Generation::PlanDraft() {
  if (!ProposeDraft(*sequence_, model_.kv(), id_, &drafter_, &draft_)) return;
  const StepLimits& limits = model_.runner().limits();
  const uint32_t most_rows = std::min(limits.max_rows, limits.max_logits_rows) - 1;
  const std::span<Draft> drafts(&draft_, 1);
  if (speculate_ == Speculation::kNgram) {
    GrantAllDrafts(drafts, most_rows);
  } else {
    GrantDrafts(drafts, /*stream_count=*/1, most_rows, kNoTimeLimit, model_.step_times());
  }
  // Guesses never ask for memory that others may want.
  if (!model_.kv().Reserve(id_, 1 + draft_.count)) draft_.count = 0;
  draft_rows_[0] = sequence_->known().back();
  std::copy_n(draft_.tokens.begin(), draft_.count, draft_rows_.begin() + 1);
}

uint32_t Generation::TakeTokens() {
  uint32_t taken = 0;
  while (true) {
    const TokenId token = sequence_->Choose(model_.runner().logits_row(taken), scratch_);
    text_.append(sequence_->Append(token));
    if (++taken > draft_.count || token != draft_rows_[taken]) return taken;
    ++accepted_draft_tokens_;
    if (sequence_->finished()) return taken;
  }
}

StatusOr<std::string_view> Generation::Step() {
  KvCache& kv = model_.kv();
  ModelRunner& runner = model_.runner();

  const Sequence::Chunk chunk = sequence_->NextChunk(kv.computed(id_), runner.limits().max_rows);
  const uint32_t rows = static_cast<uint32_t>(chunk.tokens.size());
  const bool decodes = rows == 1 && chunk.ends_known;
  draft_.count = 0;
  if (decodes && speculate_ != Speculation::kOff) PlanDraft();
  if (!kv.Reserve(id_, rows + draft_.count)) {
    return ResourceExhausted("the KV memory of {} is full at {}; give more with --kv-memory",
                             ShownBytes(model_.kv_bytes()), Counted(kv.computed(id_), "token"));
  }
  BatchSequence& row = batch_.sequences.front();
  row.tokens = chunk.tokens;
  if (draft_.count > 0) row.tokens = std::span(draft_rows_).first(1 + draft_.count);
  row.start = chunk.start;
  row.logits_begin = chunk.ends_known ? rows - 1 : rows;
  row.arg_max_only = sequence_->chooses_largest();
  for (uint32_t group = 0; group < kv.layout().group_count(); ++group) {
    row.blocks[group] = kv.table(id_, group).addresses();
  }
  row.tail = kv.tail(id_);

  const TimeUs start = clock_.Now();
  runner.Run(batch_);
  text_.clear();
  if (!chunk.ends_known) {
    kv.Commit(id_, chunk.tokens);
    return text_;
  }
  const uint32_t taken = TakeTokens();
  if (decodes) model_.step_times().Observe(1 + draft_.count, clock_.Now() - start);
  draft_tokens_ += draft_.count;
  // The KV of wrong guesses is written over by the next step.
  kv.Commit(id_, row.tokens.first(row.tokens.size() - (1 + draft_.count) + taken));
  return text_;
}

}  // namespace kvasir
