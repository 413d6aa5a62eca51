#include "api/generation_exchange.h"

#include <fmt/core.h>

#include <algorithm>
#include <span>
#include <utility>

#include "api/sse.h"
#include "base/counted.h"
#include "text/utf8.h"

namespace kvasir {
namespace {

// How much of the prompt an explanation shows on either side of where it left the cache.
constexpr size_t kDivergenceTokens = 12;

// `start` is on the steady clock, as HttpRequest::received_us.
double SecondsSince(TimeUs start) {
  return static_cast<double>(SteadyClock().Now() - start) * 1e-6;
}

bool AsksForExplanation(const HttpRequest& request) {
  const std::string* value = request.headers.Find("X-Kvasir-Explain");
  return value != nullptr && *value == "1";
}

}  // namespace

void GenerationExchange::Start(ApiService& service, std::shared_ptr<const ServedModel> model,
                               std::shared_ptr<HttpExchange> exchange, GenerationInput input) {
  const std::shared_ptr<GenerationExchange> self(
      new GenerationExchange(service, std::move(model), std::move(exchange), std::move(input)));
  const std::optional<ApiError> error = self->CheckLengths();
  if (error.has_value()) return self->Fail(*error);
  self->MakeParts();
  self->exchange_->OnDisconnect([weak = std::weak_ptr<GenerationExchange>(self)] {
    if (const auto alive = weak.lock()) alive->CancelAll();
  });
  self->Submit();
}

GenerationExchange::GenerationExchange(ApiService& service,
                                       std::shared_ptr<const ServedModel> model,
                                       std::shared_ptr<HttpExchange> exchange,
                                       GenerationInput input)
    : service_(service),
      model_(std::move(model)),
      exchange_(std::move(exchange)),
      input_(std::move(input)) {
  const GenerationParameters& parameters = input_.parameters;
  style_.chat = input_.chat;
  style_.id = fmt::format("{}-{:016x}", input_.chat ? "chatcmpl" : "cmpl", service_.NextRandom());
  style_.created = service_.UnixTime();
  style_.model = service_.ReplyName(parameters.model);
  style_.fingerprint = model_->fingerprint;
  style_.tokenizer = &model_->text->tokenizer();
  style_.logprobs = parameters.want_logprobs;
  style_.tokens_as_ids = parameters.return_tokens_as_token_ids;
  style_.usage_in_stream = parameters.include_usage;
  // The key was checked before the handler ran.
  tenant_ = service_.TenantOf(exchange_->request()).value_or(0);
  explain_ = parameters.explain || AsksForExplanation(exchange_->request());
  keep_generated_ = parameters.max_tokens != 0u;
}

std::optional<ApiError> GenerationExchange::CheckLengths() const {
  const uint32_t context = model_->context_tokens;
  const GenerationParameters& parameters = input_.parameters;
  for (const GenerationPrompt& prompt : input_.prompts) {
    if (prompt.tokens.empty()) return BadField(input_.where, "The prompt is empty");
    // Without max_tokens there must be room for one token.
    const uint64_t completion = parameters.max_tokens.value_or(1);
    if (prompt.tokens.size() + completion > context) {
      return model_->TooLong(prompt.tokens.size(), completion, input_.where);
    }
    if (prompt.tokens.size() + parameters.sequence.min_new_tokens > context) {
      return BadField("min_tokens", "'min_tokens' is {}, but the context has room for {}",
                      parameters.sequence.min_new_tokens,
                      Counted(context - prompt.tokens.size(), "token"));
    }
  }
  return std::nullopt;
}

void GenerationExchange::MakeParts() {
  uint32_t index = 0;
  for (const GenerationPrompt& prompt : input_.prompts) {
    Part& part = parts_.emplace_back();
    for (uint32_t i = 0; i < input_.parameters.choice_count; ++i) {
      part.choices.emplace_back().index = index++;
    }
    if (input_.echo && style_.logprobs) {
      part.prompt_tokens.push_back({prompt.tokens.front(), std::nullopt, prompt.bos_added});
    }
  }
}

GenerateRequest GenerationExchange::RequestFor(const GenerationPrompt& prompt, TimeUs deadline,
                                               uint64_t seed, const BlockHash& root) const {
  const GenerationParameters& parameters = input_.parameters;
  GenerateRequest request;
  request.prompt = prompt.tokens;
  request.root = root;
  request.hashes = HashBlocks(root, prompt.tokens, model_->block_tokens);
  request.tenant = tenant_;
  request.priority = parameters.priority;
  request.options = parameters.sequence;
  request.options.sampling.seed = seed;
  const uint32_t room = model_->context_tokens - static_cast<uint32_t>(prompt.tokens.size());
  request.options.max_new_tokens = std::max(1u, parameters.max_tokens.value_or(room));
  request.length_given = parameters.max_tokens.has_value();
  request.choice_count = parameters.choice_count;
  request.deadline = deadline;
  request.want_logprobs = parameters.want_logprobs;
  request.top_logprobs = parameters.top_logprobs;
  request.prompt_logprobs = input_.echo && parameters.want_logprobs;
  return request;
}

void GenerationExchange::Submit() {
  const GenerationParameters& parameters = input_.parameters;
  TimeUs allowed_us = service_.options().request_timeout_us;
  if (parameters.timeout_s.has_value()) {
    const TimeUs asked_us = static_cast<TimeUs>(*parameters.timeout_s * 1e6);
    allowed_us = allowed_us == 0 ? asked_us : std::min(allowed_us, asked_us);
  }
  const TimeUs deadline = allowed_us == 0 ? kNever : model_->clock->Now() + allowed_us;
  const uint64_t seed =
      parameters.seed_given ? parameters.sequence.sampling.seed : service_.NextRandom();
  std::string salt = service_.SaltOf(tenant_, parameters.cache_salt);
  // A name that nobody else can give: its blocks are nobody's hit and go when room is needed.
  if (parameters.no_store) salt += fmt::format("/no_store/{:016x}", service_.NextRandom());
  const BlockHash root = model_->root(salt);
  for (size_t i = 0; i < parts_.size(); ++i) {
    // The engine's thread only posts; the waker keeps this object while the stream lives.
    auto waker = [self = shared_from_this(), i] {
      self->exchange_->Post([self, i] { self->OnEvents(i); });
    };
    GenerateRequest request = RequestFor(input_.prompts[i], deadline, seed, root);
    if (i > 0) request.group = parts_.front().id;
    request.group_sequences = parameters.choice_count * static_cast<uint32_t>(parts_.size());
    StatusOr<EngineClient::Submitted> submitted =
        model_->engine->Submit(std::move(request), std::move(waker));
    if (!submitted.ok()) return Fail(ErrorFromStatus(submitted.status()));
    parts_[i].id = submitted->id;
    parts_[i].stream = std::move(submitted->stream);
  }
}

void GenerationExchange::OnEvents(size_t part_index) {
  Part& part = parts_[part_index];
  if (over_ || part.stream == nullptr) return;
  TokenStream::Batch batch = part.stream->Take();
  if (batch.rejected.has_value()) {
    part.stream = nullptr;
    return Fail(ErrorFromStatus(*batch.rejected));
  }
  part.accepted = part.accepted || batch.accepted;
  for (TokenEvent& event : batch.events) part.held.push_back(std::move(event));
  if (batch.end.has_value()) part.end = batch.end;
  if (!open_) {
    const bool all =
        std::all_of(parts_.begin(), parts_.end(), [](const Part& other) { return other.accepted; });
    if (!all) return;
    OpenReply();
  }
  for (Part& each : parts_) {
    for (TokenEvent& event : each.held) TakeEvent(each, event);
    each.held.clear();
  }
  if (!outbox_.empty()) exchange_->Write(std::exchange(outbox_, {}));
  const bool all_ended =
      std::all_of(parts_.begin(), parts_.end(), [](const Part& p) { return p.end.has_value(); });
  if (all_ended) Complete();
}

void GenerationExchange::OpenReply() {
  open_ = true;
  if (!input_.parameters.stream) return;
  // Proxies must neither keep nor collect the events.
  exchange_->StartStream(200, kSseContentType,
                         {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}});
}

void GenerationExchange::TakeEvent(Part& part, TokenEvent& event) {
  if (event.of_prompt) {
    // A sequence that was preempted reads its prompt, and reports it, once more.
    const size_t part_index = static_cast<size_t>(&part - parts_.data());
    if (part.prompt_tokens.size() == input_.prompts[part_index].tokens.size()) return;
    part.prompt_tokens.push_back({event.token, std::move(event.logprobs)});
    return;
  }
  Choice& choice = part.choices[event.choice];
  if (choice.last_token_us != 0) {
    service_.metrics().ObserveGap(SecondsSince(choice.last_token_us));
  } else if (event.choice == 0) {
    service_.metrics().ObserveFirstToken(SecondsSince(exchange_->request().received_us));
  }
  choice.last_token_us = SteadyClock().Now();
  if (!choice.begun) BeginChoice(part, static_cast<size_t>(&part - parts_.data()), choice);
  TakeToken(part, choice, event);
}

void GenerationExchange::BeginChoice(const Part& part, size_t part_index, Choice& choice) {
  choice.begun = true;
  if (input_.chat && input_.parameters.stream) {
    outbox_ += SseEvent(FormatRoleChunk(style_, choice.index));
  }
  if (!input_.echo) return;
  choice.tokens = part.prompt_tokens;
  if (input_.parameters.stream) {
    Emit(choice, input_.prompts[part_index].echo);
  } else {
    choice.text = input_.prompts[part_index].echo;
  }
}

void GenerationExchange::TakeToken(Part& part, Choice& choice, TokenEvent& event) {
  const bool stream = input_.parameters.stream;
  choice.finish = event.finish;
  if (!keep_generated_) {
    choice.finish = FinishReason::kLength;
    if (stream) Emit(choice, {});
    return;
  }
  // The token that ends an answer is no part of it.
  const bool ends_silently = event.finish == FinishReason::kStop &&
                             !input_.parameters.sequence.ignore_eos &&
                             style_.tokenizer->IsEndOfGeneration(event.token);
  if (style_.logprobs && !ends_silently) {
    choice.tokens.push_back({event.token, std::move(event.logprobs)});
  }
  if (!stream) {
    choice.text += event.text;
  } else if (!event.text.empty() || event.finish != FinishReason::kNone) {
    Emit(choice, std::move(event.text));
  }
}

void GenerationExchange::Emit(Choice& choice, std::string text) {
  ChoicePiece piece;
  piece.index = choice.index;
  piece.text = std::move(text);
  piece.first_offset = choice.offset;
  piece.finish = choice.finish;
  choice.offset += CharactersOf(*style_.tokenizer, choice.tokens);
  piece.tokens = std::exchange(choice.tokens, {});
  outbox_ += SseEvent(FormatChunk(style_, piece));
}

void GenerationExchange::CancelAll() {
  for (const Part& part : parts_) {
    if (part.stream != nullptr && !part.end.has_value()) model_->engine->Cancel(part.id);
  }
}

void GenerationExchange::Fail(const ApiError& error) {
  over_ = true;
  CancelAll();
  service_.ReplyError(*exchange_, input_.route, error);
  // Their ends are nobody's business any more, and their wakers hold this object.
  for (Part& part : parts_) part.stream = nullptr;
}

RequestSummary GenerationExchange::Total() const {
  RequestSummary total;
  for (const Part& part : parts_) {
    if (!part.end.has_value()) continue;
    const RequestSummary& end = *part.end;
    if (end.end != RequestEnd::kFinished) total.end = end.end;
    total.prompt_tokens += end.prompt_tokens;
    total.cached_tokens += end.cached_tokens;
    total.generated_tokens += end.generated_tokens;
    total.draft_tokens += end.draft_tokens;
    total.accepted_draft_tokens += end.accepted_draft_tokens;
    total.preemptions += end.preemptions;
    total.queue_us = std::max(total.queue_us, end.queue_us);
    total.prefill_us = std::max(total.prefill_us, end.prefill_us);
    total.decode_us = std::max(total.decode_us, end.decode_us);
  }
  if (!keep_generated_) total.generated_tokens = 0;
  return total;
}

void GenerationExchange::Complete() {
  over_ = true;
  const RequestSummary total = Total();
  service_.metrics().ObserveEnd(SecondsSince(exchange_->request().received_us),
                                static_cast<double>(total.queue_us) * 1e-6);
  if (!exchange_->connected()) {
    RecordEnd(499, total, "the client went away");
  } else if (total.end == RequestEnd::kFinished) {
    FinishReply(total);
    RecordEnd(200, total, "");
  } else {
    const ApiError error = total.end == RequestEnd::kTimedOut
                               ? TimedOut()
                               : NotAvailable("The server is shutting down");
    if (input_.parameters.stream) {
      exchange_->Write(SseEvent(FormatError(error)) + std::string(kSseDone));
      exchange_->Finish();
    } else {
      HttpHeaders headers;
      if (error.status == 503) headers.Add("Retry-After", "1");
      exchange_->Reply(error.status, "application/json", FormatError(error), headers);
    }
    RecordEnd(error.status, total, error.message);
  }
  for (Part& part : parts_) part.stream = nullptr;
}

Explanation GenerationExchange::Explain(const RequestSummary& total) const {
  Explanation explanation;
  explanation.cached_tokens = total.cached_tokens;
  explanation.draft_tokens = total.draft_tokens;
  explanation.accepted_draft_tokens = total.accepted_draft_tokens;
  explanation.queue_ms = static_cast<double>(total.queue_us) / 1000.0;
  explanation.prefill_ms = static_cast<double>(total.prefill_us) / 1000.0;
  explanation.decode_ms = static_cast<double>(total.decode_us) / 1000.0;
  for (size_t i = 0; i < parts_.size() && !explanation.diverged_at.has_value(); ++i) {
    const std::optional<uint32_t> at = parts_[i].end->diverged_at;
    if (!at.has_value()) continue;
    const std::span<const TokenId> tokens = input_.prompts[i].tokens;
    const size_t token = std::min<size_t>(*at, tokens.size());
    const size_t begin = token - std::min(token, kDivergenceTokens);
    const auto text = [&](size_t from, size_t to) {
      return RepairUtf8(
          style_.tokenizer->Decode(tokens.subspan(from, to - from), {.special = true}));
    };
    Divergence& divergence = explanation.diverged_at.emplace();
    divergence.prompt = static_cast<uint32_t>(i);
    divergence.token = *at;
    divergence.retokenized = parts_[i].end->diverged_by_retokenization;
    divergence.before = text(begin, token);
    divergence.after = text(token, std::min(tokens.size(), token + kDivergenceTokens));
  }
  return explanation;
}

void GenerationExchange::FinishReply(const RequestSummary& total) {
  const UsageCounts usage{total.prompt_tokens, total.cached_tokens, total.generated_tokens};
  std::optional<Explanation> explanation;
  if (explain_) explanation = Explain(total);
  if (input_.parameters.stream) {
    std::string closing;
    if (style_.usage_in_stream || explanation.has_value()) {
      std::optional<UsageCounts> shown;
      if (style_.usage_in_stream) shown = usage;
      closing = SseEvent(FormatClosingChunk(style_, shown, explanation));
    }
    exchange_->Write(closing + std::string(kSseDone));
    exchange_->Finish();
    return;
  }
  std::vector<ChoicePiece> pieces;
  for (Part& part : parts_) {
    for (Choice& choice : part.choices) {
      pieces.push_back(
          {choice.index, std::move(choice.text), std::move(choice.tokens), 0, choice.finish});
    }
  }
  exchange_->Reply(200, "application/json", FormatReply(style_, pieces, usage, explanation));
}

void GenerationExchange::RecordEnd(int status, const RequestSummary& total,
                                   const std::string& error) {
  RequestRecord record = RecordOf(*exchange_, status);
  record.error = error;
  GenerationRecord& generation = record.generation.emplace();
  generation.model = style_.model;
  generation.user = input_.parameters.user;
  generation.tenant = tenant_;
  generation.stream = input_.parameters.stream;
  generation.priority = input_.parameters.priority;
  generation.summary = total;
  for (const Part& part : parts_) {
    for (const Choice& choice : part.choices) {
      ++generation.choices;
      if (choice.finish == FinishReason::kNone) continue;
      if (!generation.finish.empty()) generation.finish += ',';
      generation.finish += NameOf(choice.finish);
    }
  }
  if (service_.options().log_prompts) generation.prompt = input_.prompt_text;
  service_.Record(input_.route, std::move(record));
}

}  // namespace kvasir
