#include "engine/engine_loop.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"

namespace kvasir {
namespace {
// Longest sleep without work; a lost wake-up would cost no more.
constexpr TimeUs kLongestSleepUs = 1'000'000;
constexpr TokenId kNoChoice{-1};  // No draft is that.
}  // namespace

EngineLoop::EngineLoop(const Options& options, ModelRunner& runner, KvCache& kv,
                       const Tokenizer& tokenizer, const Clock& clock)
    : runner_(runner),
      kv_(kv),
      clock_(clock),
      mailbox_(options.mailbox_capacity),
      scheduler_(options.scheduler, options.cost, kv, tokenizer, runner.config().vocab_size),
      desk_(kv, options.kv_query_capacity),
      scratch_(runner.config().vocab_size) {
  KV_CHECK_LE(options.scheduler.max_batch_tokens, runner.limits().max_rows);
  KV_CHECK_LE(options.scheduler.max_batch, runner.limits().max_sequences);
  KV_CHECK_LE(options.scheduler.max_logits_rows, runner.limits().max_logits_rows);
  tokens_.reserve(options.scheduler.max_batch + options.scheduler.max_logits_rows);
  PublishSnapshot(0, 0);
}

void EngineLoop::Run() {
  while (true) {
    const bool worked = RunOnce();
    if (mailbox_.closed() && (stop_now_.load() || (scheduler_.idle() && mailbox_.finished()))) {
      break;
    }
    if (worked) continue;
    const TimeUs now = clock_.Now();
    const TimeUs wake = std::min(scheduler_.NextWakeUp(), now + kLongestSleepUs);
    // A closed mailbox does not sleep: requests that wait for company or a deadline go on.
    if (mailbox_.closed()) continue;
    mailbox_.WaitUntil(std::chrono::steady_clock::now() +
                       std::chrono::microseconds(std::max<TimeUs>(0, wake - now)));
  }
  TakeCommands(/*wait=*/true);
  desk_.Close();
  scheduler_.CancelAll(RequestEnd::kShutDown);
  outcome_.Clear();
  scheduler_.Plan(clock_.Now(), &outcome_);
  Deliver();
  PublishSnapshot(0, 0);
}

void EngineLoop::Stop(bool drain) {
  if (!drain) stop_now_.store(true);
  mailbox_.Close();
}

bool EngineLoop::RunOnce() {
  TakeCommands(/*wait=*/scheduler_.idle());
  outcome_.Clear();
  const TimeUs start = clock_.Now();
  kv_.AdvanceTo(start);
  desk_.Work(start);
  const StepPlan& plan = scheduler_.Plan(start, &outcome_);
  Deliver();
  if (plan.batch.sequences.empty()) {
    PublishSnapshot(0, 0);
    return !desk_.idle();
  }
  const uint64_t rows = plan.batch.row_count();
  Act(plan);
  const TimeUs end = clock_.Now();
  outcome_.Clear();
  scheduler_.Commit(tokens_, scores_, end, end - start, &outcome_);
  // First the snapshot: who has the last event of a request in hand finds it counted.
  PublishSnapshot(rows, end - start);
  Deliver();
  return true;
}

void EngineLoop::TakeCommands(bool wait) {
  commands_.clear();
  if (wait) {
    mailbox_.Drain(&commands_);
  } else if (!mailbox_.TryDrain(&commands_)) {
    return;
  }
  for (EngineCommand& command : commands_) {
    if (auto* cancel = std::get_if<CancelCommand>(&command)) {
      scheduler_.Cancel(cancel->id);
    } else if (auto* query = std::get_if<KvQuery>(&command)) {
      desk_.Take(std::move(*query));
    } else {
      Take(std::move(std::get<SubmitCommand>(command)));
    }
  }
}

void EngineLoop::Take(SubmitCommand submit) {
  const RequestId id = submit.request.id;
  Status status = scheduler_.Submit(std::move(submit.request), clock_.Now());
  if (!status.ok()) {
    submit.stream->PushRejected(std::move(status));
    return;
  }
  submit.stream->PushAccepted();
  streams_.emplace(id, std::move(submit.stream));
}

void EngineLoop::Act(const StepPlan& plan) {
  runner_.Run(plan.batch);
  tokens_.clear();
  for (const PlannedSample& sample : plan.samples) {
    const LogitsRow logits = runner_.logits_row(sample.logits_row);
    // After a wrong guess nobody asks what would have followed it.
    const TokenId before = tokens_.empty() ? kNoChoice : tokens_.back().token;
    SampledToken& sampled = tokens_.emplace_back();
    if (!sample.ahead.empty() && sample.ahead.back() != before) {
      sampled.token = kNoChoice;
      continue;
    }
    sampled.token = sample.sequence->Choose(logits, scratch_, sample.ahead);
    if (sample.want_logprobs) {
      sampled.logprobs = ReportLogProbs(logits, sampled.token, sample.top_logprobs, scratch_);
    }
  }
  scores_.clear();
  for (const PlannedScore& score : plan.scores) {
    const LogitsRow logits = runner_.logits_row(score.logits_row);
    scores_.push_back(
        {score.next, ReportLogProbs(logits, score.next, score.top_logprobs, scratch_)});
  }
}

void EngineLoop::Deliver() {
  for (RequestEvent& event : outcome_.events) {
    streams_.at(event.request)->PushEvent(std::move(event.event));
  }
  for (const RequestEnded& ended : outcome_.ended) {
    const auto stream = streams_.find(ended.request);
    stream->second->PushEnd(ended.summary);
    streams_.erase(stream);
  }
}

void EngineLoop::PublishSnapshot(uint64_t rows, TimeUs elapsed_us) {
  EngineSnapshot& now = latest_;
  now.scheduler = scheduler_.counters();
  now.kv = kv_.counters();
  now.kv_usage = kv_.usage();
  now.eviction = kv_.eviction();
  now.group_count = kv_.layout().group_count();
  for (uint32_t group = 0; group < now.group_count; ++group) {
    now.groups[group] = {kv_.block_count(group), kv_.free_blocks(group), kv_.idle_blocks(group)};
  }
  if (rows > 0) {
    now.last_step_rows = rows;
    now.last_step_us = elapsed_us;
  }
  now.macs_per_us = scheduler_.cost_model().macs_per_us();
  now.depth_cost = scheduler_.cost_model().depth_cost();
  now.lock_waits = LockWaits::OfThisThread();
  snapshot_.Publish(now);
}

}  // namespace kvasir
