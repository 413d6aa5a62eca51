#include "engine/sequence.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/counted.h"

namespace kvasir {
namespace {

Status CheckPrompt(std::span<const TokenId> prompt, uint32_t vocab_size, uint32_t context_tokens) {
  if (prompt.empty()) return InvalidArgument("the prompt is empty");
  for (size_t i = 0; i < prompt.size(); ++i) {
    if (Index(prompt[i]) < 0 || static_cast<uint32_t>(Index(prompt[i])) >= vocab_size) {
      return InvalidArgument("token id {} at position {} is outside the vocabulary (0 to {})",
                             Index(prompt[i]), i, vocab_size - 1);
    }
  }
  if (prompt.size() >= context_tokens) {
    return InvalidArgument("the prompt has {}, the context of {} has room for at most {}",
                           Counted(prompt.size(), "token"), Counted(context_tokens, "token"),
                           context_tokens - 1);
  }
  return OkStatus();
}

}  // namespace

std::string_view NameOf(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone:
      return "";
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
  }
  return "?";
}

StatusOr<std::unique_ptr<Sequence>> Sequence::Create(const Tokenizer& tokenizer,
                                                     uint32_t vocab_size, uint32_t context_tokens,
                                                     std::vector<TokenId> prompt,
                                                     SequenceOptions options) {
  KV_CHECK_GT(context_tokens, 0u);
  KV_RETURN_IF_ERROR(CheckPrompt(prompt, vocab_size, context_tokens));
  if (options.max_new_tokens == 0) {
    return InvalidArgument("the number of tokens to generate must be at least 1");
  }
  KV_RETURN_IF_ERROR(options.sampling.Validate(vocab_size));
  KV_ASSIGN_OR_RETURN(StopMatcher stop_matcher, StopMatcher::Create(options.stops));
  return std::unique_ptr<Sequence>(new Sequence(tokenizer, vocab_size, context_tokens,
                                                std::move(prompt), std::move(options),
                                                std::move(stop_matcher)));
}

Sequence::Sequence(const Tokenizer& tokenizer, uint32_t vocab_size, uint32_t context_tokens,
                   std::vector<TokenId> prompt, SequenceOptions options, StopMatcher stop_matcher)
    : tokenizer_(&tokenizer),
      options_(std::move(options)),
      known_(std::move(prompt)),
      prompt_tokens_(static_cast<uint32_t>(known_.size())),
      sampler_(options_.sampling, vocab_size, context_tokens),
      detokenizer_(&tokenizer),
      stop_matcher_(std::move(stop_matcher)) {
  const uint32_t room = context_tokens - prompt_tokens_;
  options_.max_new_tokens = std::min(options_.max_new_tokens, room);
  known_.reserve(known_.size() + options_.max_new_tokens);
  sampler_.NotePrompt(known_);
  if (options_.min_new_tokens == 0) return;
  for (uint32_t i = 0; i < vocab_size; ++i) {
    const TokenId id{static_cast<int32_t>(i)};
    if (tokenizer.IsEndOfGeneration(id)) ends_.push_back(id);
  }
}

Sequence::Chunk Sequence::NextChunk(uint32_t computed, uint32_t max_tokens) const {
  KV_CHECK(!finished());
  KV_CHECK_LT(computed, known_.size());
  KV_CHECK_GT(max_tokens, 0u);
  const size_t count = std::min<size_t>(known_.size() - computed, max_tokens);
  Chunk chunk;
  chunk.tokens = std::span<const TokenId>(known_).subspan(computed, count);
  chunk.start = computed;
  chunk.ends_known = computed + count == known_.size();
  return chunk;
}

TokenId Sequence::Choose(const LogitsRow& logits, SamplerScratch& scratch,
                         std::span<const TokenId> ahead) const {
  const size_t position = known_.size() + ahead.size();
  const bool may_end = position - prompt_tokens_ >= options_.min_new_tokens;
  const auto banned = may_end ? std::span<const TokenId>() : std::span<const TokenId>(ends_);
  return sampler_.Sample(logits, position, scratch, banned, ahead);
}

std::string_view Sequence::Append(TokenId token) {
  KV_CHECK(!finished());
  known_.push_back(token);
  sampler_.NoteGenerated(token);
  text_.clear();
  if (!options_.ignore_eos && tokenizer_->IsEndOfGeneration(token)) {
    Finish(FinishReason::kStop);
    return text_;
  }
  const StopMatcher::Result result = stop_matcher_.Feed(detokenizer_.Append(token));
  text_.append(result.emit);
  if (result.matched.has_value()) {
    finish_ = FinishReason::kStop;  // Nothing is held back that would still be shown.
  } else if (known_.size() - prompt_tokens_ >= options_.max_new_tokens) {
    Finish(FinishReason::kLength);
  }
  return text_;
}

std::string_view Sequence::Cancel() {
  text_.clear();
  if (!finished()) Finish(FinishReason::kCancelled);
  return text_;
}

void Sequence::Finish(FinishReason reason) {
  finish_ = reason;
  // The beginning of a character is broken text if the model ends with it. If it is we who cut
  // there, it is left out: the model did not write what would stand for it.
  if (reason == FinishReason::kStop) {
    const StopMatcher::Result result = stop_matcher_.Feed(detokenizer_.Finish());
    text_.append(result.emit);
  }
  text_.append(stop_matcher_.Flush());
}

}  // namespace kvasir
