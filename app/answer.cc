#include "answer.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/counted.h"
#include "engine/generation.h"
#include "terminal.h"

namespace kvasir {

std::string Answer::Summary() const {
  // One token has no rate of its own; the time to it stands in.
  double rate = decode_tok_s();
  if (rate == 0.0 && prompt_s > 0.0) rate = static_cast<double>(tokens.size()) / prompt_s;
  std::string summary =
      fmt::format("{} ({} reused), {} generated, {:.1f} tokens/s",
                  Counted(prompt_tokens, "prompt token"), cached_tokens, tokens.size(), rate);
  if (draft_tokens > 0) {
    summary += fmt::format(", {} of {} right", accepted_draft_tokens,
                           Counted(draft_tokens, "guess", "guesses"));
  }
  return summary;
}

std::string FullContextNote(const LoadedModel& model, const Answer& answer,
                            uint32_t max_new_tokens) {
  const uint64_t context = model.context_tokens();
  const bool full = answer.prompt_tokens + answer.tokens.size() >= context;
  if (answer.finish != FinishReason::kLength || !full) return {};
  if (answer.tokens.size() >= max_new_tokens) return {};
  // Twice as much, where nobody said how long it should be.
  uint64_t wanted = std::min<uint64_t>(2 * context, model.config().context_length);
  if (max_new_tokens != UINT32_MAX) wanted = uint64_t{answer.prompt_tokens} + max_new_tokens;
  return fmt::format("the context of {} is full: {}", context,
                     model.AdviceFor(std::max(wanted, context + 1)));
}

StatusOr<Answer> GenerateAnswer(LoadedModel& model, std::vector<TokenId> prompt,
                                SequenceOptions options, Speculation speculate,
                                const std::function<void(std::string_view)>& show) {
  KV_ASSIGN_OR_RETURN(const std::unique_ptr<Generation> generation,
                      Generation::Start(model, std::move(prompt), std::move(options), speculate));
  Answer answer;
  answer.prompt_tokens = generation->sequence().prompt_tokens();
  answer.cached_tokens = generation->cached_tokens();
  const double start = NowSeconds();
  double first_token = start;
  const auto take = [&](std::string_view text) {
    if (text.empty()) return;
    answer.text.append(text);
    show(text);
  };
  while (!generation->finished()) {
    if (Interrupted().load(std::memory_order_relaxed)) {
      take(generation->Cancel());
      break;
    }
    const bool reading = !generation->prompt_done();
    KV_ASSIGN_OR_RETURN(const std::string_view text, generation->Step());
    if (reading) first_token = NowSeconds();
    take(text);
  }
  answer.prompt_s = first_token - start;
  answer.decode_s = NowSeconds() - first_token;
  const std::span<const TokenId> generated = generation->sequence().generated();
  answer.tokens.assign(generated.begin(), generated.end());
  answer.draft_tokens = generation->draft_tokens();
  answer.accepted_draft_tokens = generation->accepted_draft_tokens();
  answer.finish = generation->sequence().finish_reason();
  return answer;
}

}  // namespace kvasir
