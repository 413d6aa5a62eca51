// Scheduler, second half of Plan (which rows the step computes) and Commit.
#include <algorithm>

#include "base/check.h"
#include "engine/scheduler.h"
#include "engine/scheduler_state.h"

namespace kvasir {
namespace {
// However slow the machine is predicted to be, a prompt moves by this much a step.
constexpr uint32_t kLeastPrefillRows = 16;
}  // namespace

void Scheduler::PlanRows(TimeUs now) {
  std::sort(running_.begin(), running_.end(),
            [this](const Choice* a, const Choice* b) { return RanksBefore(*a, *b); });
  decode_.clear();
  prefill_.clear();
  // ReserveFor may preempt, which shortens running_ behind the one it works for.
  for (size_t i = 0; i < running_.size(); ++i) {
    Choice& choice = *running_[i];
    if (choice.remaining(kv_) > 1 || !ReserveFor(choice, 1)) continue;
    choice.planned = true;
    decode_.push_back(&choice);
  }
  plan_.decode_rows = static_cast<uint32_t>(decode_.size());
  for (Choice* choice : running_) {
    if (choice->remaining(kv_) > 1) prefill_.push_back(choice);
  }
  // Shortest remainder first, so that a short prompt does not wait for a long one; but who has
  // waited too long goes before all, longest wait first.
  std::sort(prefill_.begin(), prefill_.end(), [&](const Choice* a, const Choice* b) {
    const bool a_aged = now - a->last_rows_at >= options_.prefill_ageing_us;
    const bool b_aged = now - b->last_rows_at >= options_.prefill_ageing_us;
    if (a_aged != b_aged) return a_aged;
    if (a_aged && a->last_rows_at != b->last_rows_at) return a->last_rows_at < b->last_rows_at;
    const uint32_t a_rows = a->remaining(kv_), b_rows = b->remaining(kv_);
    return a_rows != b_rows ? a_rows < b_rows : RanksBefore(*a, *b);
  });
  PlanDrafts();
  PlanPrefill();
}

void Scheduler::PlanPrefill() {
  const bool streams_run = plan_.decode_rows > 0;
  uint32_t rows_left = options_.max_batch_tokens - plan_.decode_rows;
  if (streams_run && options_.prefill_chunk > 0) {
    rows_left = std::min(rows_left, options_.prefill_chunk);
  }
  plan_.decode_cost = plan_.cost;
  plan_.decode_us = !streams_run             ? 0.0
                    : step_times_.measured() ? step_times_.Predict(plan_.batch.row_count())
                                             : cost_model_.MicrosecondsFor(plan_.cost);
  double budget_us = PrefillBudget();
  for (Choice* choice : prefill_) {
    if (rows_left == 0) break;
    // An earlier one of this loop may have needed its blocks.
    if (choice->state != State::kRunning) continue;
    const uint32_t depth = kv_.computed(choice->kv);
    uint32_t rows = std::min(choice->remaining(kv_), rows_left);
    if (streams_run && options_.prefill_chunk == 0) {
      const uint32_t least = plan_.prefill_rows == 0 ? std::min(rows, kLeastPrefillRows) : 0;
      rows = std::max(least, cost_model_.RowsWithin(budget_us, depth, rows));
    }
    if (choice->request->want.prompt_logprobs) rows = std::min(rows, LogitsRowsLeft());
    if (rows == 0) continue;
    if (!ReserveFor(*choice, rows)) {
      // Not all of the chunk: what one block holds lets it go on while others finish.
      rows = std::min(rows, kv_.layout().block_tokens);
      if (!ReserveFor(*choice, rows)) continue;
    }
    budget_us -= cost_model_.MicrosecondsFor(cost_model_.RowsCost(rows, depth));
    rows_left -= rows;
    plan_.prefill_rows += rows;
    AddToBatch(*choice, rows, 0);
  }
}

// Time for prompts in a step with running streams. Where streams alone are fast, their clients see
// a step of many times that length as a stop, however short it is.
double Scheduler::PrefillBudget() const {
  double target_us = static_cast<double>(options_.step_target_us);
  if (limits_.stretch() > 0 && step_times_.measured()) {
    target_us = std::min(target_us, limits_.stretch() * plan_.decode_us);
  }
  return target_us - plan_.decode_us;
}

uint32_t Scheduler::LogitsRowsLeft() const {
  // Every running sequence may still ask for the row that chooses its next token.
  const uint32_t spoken_for =
      plan_.batch.logits_row_count() + options_.max_batch - static_cast<uint32_t>(planned_.size());
  return options_.max_logits_rows > spoken_for ? options_.max_logits_rows - spoken_for + 1 : 1;
}

bool Scheduler::ReserveFor(Choice& choice, uint32_t rows) {
  while (!kv_.Reserve(choice.kv, rows)) {
    Choice* worst = WorstRunning();
    if (worst == nullptr || worst == &choice || RanksBefore(*worst, choice)) return false;
    Preempt(*worst);
  }
  return true;
}

void Scheduler::AddToBatch(Choice& choice, uint32_t rows, uint32_t draft_rows) {
  const Sequence::Chunk chunk = choice.sequence->NextChunk(kv_.computed(choice.kv), rows);
  KV_CHECK(draft_rows == 0 || (rows == 1 && chunk.ends_known));
  BatchSequence& sequence = plan_.batch.sequences.emplace_back();
  sequence.tokens = draft_rows == 0
                        ? chunk.tokens
                        : std::span<const TokenId>(choice.draft_rows).first(1 + draft_rows);
  sequence.start = chunk.start;
  sequence.logits_begin = chunk.ends_known ? rows - 1 : rows;
  sequence.arg_max_only = choice.sequence->chooses_largest() &&
                          !choice.request->want.want_logprobs &&
                          !choice.request->want.prompt_logprobs;
  sequence.wants_log_sums =
      choice.request->want.want_logprobs || choice.request->want.prompt_logprobs;
  plan_.cost += cost_model_.RowsCost(rows + draft_rows, chunk.start);
  choice.planned = true;
  planned_.push_back(&choice);
  Request& request = *choice.request;
  plan_.members.push_back({request.want.id, choice.index});
  uint32_t logits_row = plan_.batch.logits_row_count() - (chunk.ends_known ? 1 + draft_rows : 0);
  if (request.want.prompt_logprobs && choice.index == 0 &&
      chunk.start < request.want.prompt.size()) {
    // Rows of the prompt whose next token is of the prompt, too.
    sequence.logits_begin = 0;
    for (uint32_t i = 0; i < rows; ++i) {
      const size_t next = size_t{chunk.start} + i + 1;
      // A preempted prompt is read again, but each position is told once.
      if (next >= request.want.prompt.size() || next <= request.scored) continue;
      request.scored = next;
      plan_.scores.push_back(
          {request.want.id, logits_row + i, request.want.prompt[next], request.want.top_logprobs});
    }
    logits_row += rows - 1;
  }
  if (!chunk.ends_known) return;
  for (uint32_t ahead = 0; ahead <= draft_rows; ++ahead) {
    AddSample(choice, logits_row + ahead, ahead);
  }
  if (choice.index != 0 || request.siblings_started) return;
  // The end of the prompt: siblings that find a place draw their first token from the same row.
  for (size_t i = 1; i < request.choices.size(); ++i) {
    if (running_.size() + planned_forks_ == options_.max_batch) break;
    ++planned_forks_;
    AddSample(*request.choices[i], logits_row, 0);
  }
}

void Scheduler::AddSample(const Choice& choice, uint32_t logits_row, uint32_t ahead) {
  const GenerateRequest& want = choice.request->want;
  plan_.samples.push_back({want.id, choice.index, logits_row, choice.sequence.get(),
                           std::span<const TokenId>(choice.draft_rows).subspan(1, ahead),
                           want.want_logprobs, want.top_logprobs});
}

void Scheduler::FillBlocks() {
  for (size_t i = 0; i < planned_.size(); ++i) {
    for (uint32_t group = 0; group < kv_.layout().group_count(); ++group) {
      plan_.batch.sequences[i].blocks[group] = kv_.table(planned_[i]->kv, group).addresses();
    }
    plan_.batch.sequences[i].tail = kv_.tail(planned_[i]->kv);
  }
}

void Scheduler::Adapt(TimeUs elapsed_us) {
  AdaptiveStep step;
  step.elapsed_us = elapsed_us;
  step.running = static_cast<uint32_t>(running_.size());
  for (const Choice* choice : queue_) step.waiting += choice->awaited.has_value() ? 0 : 1;
  step.computed_tokens = plan_.batch.row_count();
  step.recomputed_tokens = recomputed_now_;
  recomputed_now_ = 0;
  step.prompt_tokens = plan_.prefill_rows;
  for (size_t i = 0; i < planned_.size(); ++i) {
    const uint32_t rows = static_cast<uint32_t>(plan_.batch.sequences[i].tokens.size());
    const uint32_t remaining = planned_[i]->remaining(kv_);
    step.prompt_backlog += remaining > rows ? remaining - rows : 0;
  }
  for (const Choice* choice : running_) {
    if (!choice->planned && choice->remaining(kv_) > 1)
      step.prompt_backlog += choice->remaining(kv_);
  }
  step.streams = plan_.decode_rows > 0;
  limits_.Observe(step);
}

void Scheduler::Commit(std::span<const SampledToken> tokens, std::span<const SampledToken> scores,
                       TimeUs now, TimeUs elapsed_us, StepOutcome* outcome) {
  KV_CHECK_EQ(tokens.size(), plan_.samples.size());
  KV_CHECK_EQ(scores.size(), plan_.scores.size());
  const uint32_t rows = plan_.batch.row_count();
  if (plan_.prefill_rows == 0) {
    step_times_.Observe(rows, elapsed_us);
  } else if (plan_.decode_rows > 0) {
    // The rate is that of prompt rows in steps like those that it will size: what the streams' own
    // rows take is known by itself, and whole chunks of a prompt alone are faster for each row.
    cost_model_.Observe(plan_.cost - plan_.decode_cost, plan_.prefill_rows,
                        elapsed_us - static_cast<TimeUs>(plan_.decode_us));
  } else {
    cost_model_.ObservePrompts(plan_.cost, plan_.prefill_rows, elapsed_us);
    kv_.SetDepthCost(cost_model_.depth_cost());
  }
  counters_.computed_tokens += rows;
  ++counters_.steps;
  counters_.step_rows.Add(rows);
  if (plan_.decode_rows > 0) counters_.prompt_rows_beside.Add(plan_.prefill_rows);
  for (size_t i = 0; i < scores.size(); ++i) {
    TokenEvent event;
    event.of_prompt = true;
    event.token = plan_.scores[i].next;
    event.logprobs = scores[i].logprobs;
    outcome->events.push_back({plan_.scores[i].request, std::move(event)});
  }
  if (options_.adapt) Adapt(elapsed_us);
  size_t next_sample = 0;
  for (size_t i = 0; i < planned_.size(); ++i) {
    Choice& choice = *planned_[i];
    const BatchSequence& sequence = plan_.batch.sequences[i];
    choice.planned = false;
    choice.last_rows_at = now;
    const size_t samples = CountSamples(choice, next_sample);
    if (samples == 0) {
      kv_.Commit(choice.kv, sequence.tokens);
      PublishInFlight(choice, sequence.start);
      continue;
    }
    const uint32_t taken = TakeSamples(choice, tokens.subspan(next_sample, samples), now, outcome);
    // Only the KV before the newest token may ever be seen: that of wrong guesses is written over.
    kv_.Commit(choice.kv, sequence.tokens.first(sequence.tokens.size() - samples + taken));
    PublishInFlight(choice, sequence.start);
    next_sample += samples;
    Request& request = *choice.request;
    const bool first = choice.index == 0 && !request.siblings_started;
    const size_t forks = first ? StartSiblings(choice, tokens, &next_sample, now, outcome) : 0;
    // The last of these may end the request, so nothing of it is touched between them.
    for (size_t k = 0; k <= forks; ++k) {
      EndIfFinished(k == 0 ? choice : *request.choices[k], now, outcome);
    }
  }
  planned_.clear();
  CountPlaces();
}

void Scheduler::PublishInFlight(Choice& choice, uint32_t start) {
  const std::vector<BlockHash>& hashes = choice.request->want.hashes;
  const uint32_t block_tokens = kv_.layout().block_tokens;
  const size_t end = std::min<size_t>(hashes.size(), kv_.computed(choice.kv) / block_tokens);
  for (size_t i = start / block_tokens; i < end; ++i) {
    const auto found = in_flight_.find(hashes[i]);
    if (found != in_flight_.end() && found->second == &choice) in_flight_.erase(found);
  }
}

// Forks the choices that the plan has samples for, as far as there is place, and gives them their
// first tokens; returns how many: choices 1 to that number.
size_t Scheduler::StartSiblings(Choice& stem, std::span<const SampledToken> tokens,
                                size_t* next_sample, TimeUs now, StepOutcome* outcome) {
  Request& request = *stem.request;
  request.siblings_started = true;
  size_t forks = 0;
  for (size_t i = 1; i < request.choices.size(); ++i) {
    Choice& sibling = *request.choices[i];
    std::optional<SequenceId> id;
    const bool planned = *next_sample < plan_.samples.size() &&
                         plan_.samples[*next_sample].sequence == sibling.sequence.get();
    if (planned && forks == i - 1) id = kv_.Fork(stem.kv);
    if (id.has_value()) {
      sibling.kv = *id;
      sibling.state = State::kRunning;
      sibling.rank = stem.rank;
      sibling.last_rows_at = now;
      running_.push_back(&sibling);
      ++tenant_running_[request.want.tenant];
      Append(sibling, tokens[*next_sample], now, outcome);
      ++forks;
    } else {
      // No place now: it will start from the prompt, and choose the same first token.
      sibling.state = State::kQueued;
      queue_.push_back(&sibling);
    }
    if (planned) ++*next_sample;
  }
  return forks;
}

void Scheduler::Append(Choice& choice, const SampledToken& sampled, TimeUs now,
                       StepOutcome* outcome) {
  Request& request = *choice.request;
  if (request.first_token_at < 0) request.first_token_at = now;
  ++request.summary.generated_tokens;
  ++counters_.generated_tokens;
  RequestEvent& event = outcome->events.emplace_back();
  event.request = request.want.id;
  event.event.choice = choice.index;
  event.event.token = sampled.token;
  event.event.logprobs = sampled.logprobs;
  event.event.text = choice.sequence->Append(sampled.token);
  event.event.finish = choice.sequence->finish_reason();
}

void Scheduler::EndIfFinished(Choice& choice, TimeUs now, StepOutcome* outcome) {
  if (!choice.sequence->finished()) return;
  Request& request = *choice.request;
  StopRunning(choice);
  choice.state = State::kDone;
  if (++request.done == request.choices.size()) {
    EndRequest(request, RequestEnd::kFinished, now, outcome);
  }
}

}  // namespace kvasir
