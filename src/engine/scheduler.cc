#include "engine/scheduler.h"

#include <cstring>
#include <utility>

#include "base/check.h"
#include "engine/scheduler_state.h"

namespace kvasir {

size_t Scheduler::HashOfBlock::operator()(const BlockHash& hash) const {
  size_t word;  // Any eight bytes of a SHA-256 are a hash.
  std::memcpy(&word, hash.bytes.data(), sizeof(word));
  return word;
}

Scheduler::Scheduler(const SchedulerOptions& options, const CostModel::Options& cost, KvCache& kv,
                     const Tokenizer& tokenizer, uint32_t vocab_size)
    : options_(options),
      kv_(kv),
      tokenizer_(tokenizer),
      vocab_size_(vocab_size),
      cost_model_(cost),
      limits_({.most_running = options.max_batch, .stretch = options.step_stretch}) {
  KV_CHECK_GT(options.max_batch, 0u);
  KV_CHECK_GE(options.max_batch_tokens, options.max_batch);
  KV_CHECK_GE(options.max_logits_rows, options.max_batch);
  KV_CHECK_GT(options.ageing_us, 0);
  // The steady step must not grow them.
  queue_.reserve(options.max_queue + options.max_batch);
  running_.reserve(options.max_batch);
  demands_.reserve(options.max_batch);
  decode_.reserve(options.max_batch);
  prefill_.reserve(options.max_batch);
  drafting_.reserve(options.max_batch);
  drafts_.reserve(options.max_batch);
  planned_.reserve(options.max_batch);
  plan_.batch.sequences.reserve(options.max_batch);
  plan_.members.reserve(options.max_batch);
  plan_.samples.reserve(options.max_batch + options.max_logits_rows);
  kv_.SetDepthCost(cost_model_.depth_cost());
}

Scheduler::~Scheduler() = default;

Status Scheduler::Submit(GenerateRequest request, TimeUs now) {
  KV_CHECK_GT(request.choice_count, 0u);
  KV_CHECK(!requests_.contains(request.id));
  KV_RETURN_IF_ERROR(CheckPlaces(request));
  const uint64_t tokens = std::min<uint64_t>(
      uint64_t{request.prompt.size()} + request.options.max_new_tokens, kv_.max_sequence_tokens());
  if (tokens > kv_.most_tokens_alone()) {
    return InvalidArgument(
        "prompt and max_tokens together are {} tokens, more than the {} that the KV memory holds",
        tokens, kv_.most_tokens_alone());
  }
  // The last token is chosen and never computed: a prompt that asks for no more than one may fill
  // the context (to be scored, say).
  const uint32_t context_tokens =
      kv_.max_sequence_tokens() + (request.options.max_new_tokens == 1 ? 1 : 0);
  auto record = std::make_unique<Request>();
  for (uint32_t i = 0; i < request.choice_count; ++i) {
    SequenceOptions options = request.options;
    options.sampling.choice = i;
    auto choice = std::make_unique<Choice>();
    KV_ASSIGN_OR_RETURN(choice->sequence, Sequence::Create(tokenizer_, vocab_size_, context_tokens,
                                                           request.prompt, std::move(options)));
    choice->request = record.get();
    choice->index = i;
    record->choices.push_back(std::move(choice));
  }
  record->arrival = next_arrival_++;
  record->submitted_at = now;
  record->summary.prompt_tokens = static_cast<uint32_t>(request.prompt.size());
  record->want = std::move(request);
  earliest_deadline_ = std::min(earliest_deadline_, record->want.deadline);
  if (record->want.tenant >= tenant_running_.size()) {
    tenant_running_.resize(record->want.tenant + 1);
  }
  record->stem().state = State::kQueued;
  queue_.push_back(&record->stem());
  requests_.emplace(record->want.id, std::move(record));
  ++counters_.submitted;
  return OkStatus();
}

void Scheduler::Cancel(RequestId id) {
  const auto found = requests_.find(id);
  if (found == requests_.end() || found->second->ending.has_value()) return;
  found->second->ending = RequestEnd::kCancelled;
  ending_.push_back(id);
}

void Scheduler::CancelAll(RequestEnd end) {
  for (auto& [id, request] : requests_) {
    if (!request->ending.has_value()) ending_.push_back(id);
    request->ending = end;
  }
}

const StepPlan& Scheduler::Plan(TimeUs now, StepOutcome* outcome) {
  plan_.batch.sequences.clear();
  plan_.members.clear();
  plan_.samples.clear();
  plan_.scores.clear();
  plan_.decode_rows = plan_.draft_rows = plan_.prefill_rows = 0;
  plan_.cost = plan_.decode_cost = plan_.decode_us = 0;
  planned_forks_ = 0;
  planned_.clear();
  ExpireRequests(now, outcome);
  Admit(now);
  PlanRows(now);
  FillBlocks();
  CountPlaces();
  return plan_;
}

void Scheduler::CountPlaces() {
  counters_.adaptive = limits_.report();
  counters_.running = static_cast<uint32_t>(running_.size());
  counters_.waiting = static_cast<uint32_t>(queue_.size());
}

void Scheduler::ExpireRequests(TimeUs now, StepOutcome* outcome) {
  for (const RequestId id : ending_) {
    const auto found = requests_.find(id);
    if (found != requests_.end()) EndRequest(*found->second, *found->second->ending, now, outcome);
  }
  ending_.clear();
  if (now < earliest_deadline_) return;
  earliest_deadline_ = kNever;
  std::vector<Request*> late;
  for (const auto& [id, request] : requests_) {
    if (request->want.deadline <= now) {
      late.push_back(request.get());
    } else {
      earliest_deadline_ = std::min(earliest_deadline_, request->want.deadline);
    }
  }
  // The order of a hash map must not show.
  std::sort(late.begin(), late.end(),
            [](const Request* a, const Request* b) { return a->arrival < b->arrival; });
  for (Request* request : late) EndRequest(*request, RequestEnd::kTimedOut, now, outcome);
}

bool Scheduler::RanksBefore(const Choice& a, const Choice& b) const {
  if (a.effective_rank() != b.effective_rank()) return a.effective_rank() < b.effective_rank();
  if (a.request != b.request) return a.request->arrival < b.request->arrival;
  return a.index < b.index;
}

Scheduler::Choice* Scheduler::WorstRunning() const {
  Choice* worst = nullptr;
  for (Choice* choice : running_) {
    if (!choice->planned && (worst == nullptr || RanksBefore(*worst, *choice))) worst = choice;
  }
  return worst;
}

void Scheduler::StopRunning(Choice& choice) {
  KV_CHECK(choice.state == State::kRunning);
  ForgetInFlight(choice);
  kv_.Close(choice.kv);
  running_.erase(std::find(running_.begin(), running_.end(), &choice));
  --tenant_running_[choice.request->want.tenant];
  choice.planned = false;
  choice.drafter.reset();
}

void Scheduler::Preempt(Choice& choice) {
  choice.computed_before = kv_.computed(choice.kv);
  choice.made_way_at = limits_.running_moves();
  StopRunning(choice);
  choice.state = State::kQueued;
  queue_.push_back(&choice);
  ++choice.request->summary.preemptions;
  ++counters_.preemptions;
}

void Scheduler::EndRequest(Request& request, RequestEnd end, TimeUs now, StepOutcome* outcome) {
  for (const std::unique_ptr<Choice>& choice : request.choices) {
    if (choice->state == State::kRunning) StopRunning(*choice);
    if (choice->state == State::kQueued) {
      queue_.erase(std::find(queue_.begin(), queue_.end(), choice.get()));
    }
  }
  RequestSummary& summary = request.summary;
  summary.end = end;
  const TimeUs admitted = request.admitted_at < 0 ? now : request.admitted_at;
  const TimeUs first_token = request.first_token_at < 0 ? now : request.first_token_at;
  summary.queue_us = admitted - request.submitted_at;
  summary.prefill_us = std::max<TimeUs>(0, first_token - admitted);
  summary.decode_us = std::max<TimeUs>(0, now - first_token);
  outcome->ended.push_back({request.want.id, summary});
  switch (end) {
    case RequestEnd::kFinished:
      ++counters_.finished;
      break;
    case RequestEnd::kTimedOut:
      ++counters_.timed_out;
      break;
    case RequestEnd::kCancelled:
    case RequestEnd::kShutDown:
      ++counters_.cancelled;
      break;
  }
  requests_.erase(request.want.id);  // The last use: `request` dies here.
}

TimeUs Scheduler::NextWakeUp() const {
  return std::min(earliest_deadline_, running_.empty() ? company_until_ : kNever);
}

void Scheduler::CheckInvariants() const {
  size_t queued = 0, running = 0;
  std::vector<uint32_t> tenants(tenant_running_.size());
  for (const auto& [id, request] : requests_) {
    KV_CHECK(id == request->want.id);
    uint32_t done = 0;
    for (const std::unique_ptr<Choice>& choice : request->choices) {
      const bool in_queue = std::count(queue_.begin(), queue_.end(), choice.get()) == 1;
      const bool in_running = std::count(running_.begin(), running_.end(), choice.get()) == 1;
      KV_CHECK_EQ(in_queue, choice->state == State::kQueued);
      KV_CHECK_EQ(in_running, choice->state == State::kRunning);
      KV_CHECK_EQ(choice->sequence->finished(), choice->state == State::kDone);
      if (choice->state == State::kBehindStem) KV_CHECK(!request->siblings_started);
      queued += in_queue;
      running += in_running;
      done += choice->state == State::kDone;
      if (in_running) {
        ++tenants[request->want.tenant];
        KV_CHECK_GT(choice->remaining(kv_), 0u);
      }
    }
    KV_CHECK_EQ(done, request->done);
    KV_CHECK_LT(done, request->choices.size());
  }
  KV_CHECK_EQ(queued, queue_.size());
  KV_CHECK_EQ(running, running_.size());
  KV_CHECK_LE(running_.size(), options_.max_batch);
  KV_CHECK_EQ(running_.size(), kv_.open_sequences());
  KV_CHECK(tenants == tenant_running_);
  for (const auto& [hash, choice] : in_flight_) KV_CHECK(choice->state == State::kRunning);
}

}  // namespace kvasir
