// Scheduler, first half of Plan: who gets a place in the batch.
#include <algorithm>
#include <string>

#include "base/check.h"
#include "base/counted.h"
#include "engine/scheduler.h"
#include "engine/scheduler_state.h"

namespace kvasir {

Status Scheduler::CheckPlaces(const GenerateRequest& request) {
  const uint32_t own = std::max(request.group_sequences, request.choice_count);
  const size_t all_places = size_t{options_.max_queue} + options_.max_batch;
  if (own > all_places) {
    return InvalidArgument(
        "n = {} for {} makes {} sequences, more than the {} that this server takes at a "
        "time (--max-batch {} and --max-queue {}); ask for fewer in one request",
        request.choice_count, Counted(own / request.choice_count, "prompt"), own, all_places,
        options_.max_batch, options_.max_queue);
  }
  const RequestId group = request.group.value_or(request.id);
  size_t waiting = 0, running = 0;  // Of others.
  for (const auto& [id, other] : requests_) {
    if (other->want.group.value_or(id) == group) continue;
    for (const std::unique_ptr<Choice>& choice : other->choices) {
      running += choice->state == State::kRunning;
      // Choices that wait for their prompt to be read will wait in the queue, too; those of a
      // request that is ending have left it.
      if (other->ending.has_value()) continue;
      waiting += choice->state == State::kQueued || choice->state == State::kBehindStem;
    }
  }
  if (running + waiting + own <= all_places) return OkStatus();
  ++counters_.refused;
  return ResourceExhausted(
      "the queue is full: of other requests, sequences waiting: {}, running: {}; no room for the "
      "{} "
      "of this one; try again later",
      waiting, running, own);
}

int64_t Scheduler::BestPriority() const {
  int64_t best = INT64_MAX;
  for (const Choice* choice : queue_) {
    best = std::min<int64_t>(best, choice->request->want.priority);
  }
  for (const Choice* choice : running_) best = std::min(best, choice->effective_rank());
  return best;
}

int64_t Scheduler::QueuePriority(const Choice& choice, TimeUs now, int64_t best) const {
  const int64_t base = choice.request->want.priority;
  const int64_t aged = base - (now - choice.request->submitted_at) / options_.ageing_us;
  // Waiting lifts a request to the level of the best there is, not above: among equals the fair
  // shares of tenants decide, however long one of them has waited.
  return std::max(aged, std::min(base, best));
}

void Scheduler::Admit(TimeUs now) {
  for (Choice* choice : queue_) {
    if (choice->awaited.has_value() && !in_flight_.contains(*choice->awaited)) {
      choice->awaited.reset();
    }
  }
  if (running_.empty() && !queue_.empty() && options_.batch_wait_us > 0) {
    if (company_until_ == kNever) company_until_ = now + options_.batch_wait_us;
    if (now < company_until_ && queue_.size() < options_.max_batch) return;
  }
  company_until_ = kNever;
  while (Choice* next = NextInLine(now)) {
    if (!TryStart(*next, now)) break;
  }
  InheritPriorities(now);
}

Scheduler::Choice* Scheduler::NextInLine(TimeUs now) {
  const int64_t best = BestPriority();
  const auto before = [&](const Choice& a, const Choice& b) {
    const int64_t priority_a = QueuePriority(a, now, best);
    const int64_t priority_b = QueuePriority(b, now, best);
    if (priority_a != priority_b) return priority_a < priority_b;
    const uint32_t share_a = tenant_running_[a.request->want.tenant];
    const uint32_t share_b = tenant_running_[b.request->want.tenant];
    if (share_a != share_b) return share_a < share_b;
    if (a.request != b.request) return a.request->arrival < b.request->arrival;
    return a.index < b.index;
  };
  while (true) {
    Choice* first = nullptr;
    for (Choice* choice : queue_) {
      if (choice->awaited.has_value()) continue;
      if (first == nullptr || before(*choice, *first)) first = choice;
    }
    // Whether it must wait is asked only of the one whose turn it is: the answer costs a look-up
    // of its whole prompt.
    if (first == nullptr || !WaitsForAnother(*first)) return first;
  }
}

bool Scheduler::WaitsForAnother(Choice& choice) {
  const GenerateRequest& want = choice.request->want;
  if (in_flight_.empty() || want.prompt_logprobs || !kv_.shares_running()) return false;
  const uint32_t matched = kv_.MatchTokens(want.root, choice.sequence->known());
  const uint32_t block = matched / kv_.layout().block_tokens;
  if (block >= want.hashes.size() || !in_flight_.contains(want.hashes[block])) return false;
  choice.awaited = want.hashes[block];
  ++counters_.dedupe_waits;
  return true;
}

bool Scheduler::FitsNow() {
  // With nothing else running everything but its own blocks can be evicted, and Submit has seen
  // that it fits.
  if (running_.size() <= 1) return true;
  demands_.clear();
  for (const Choice* other : running_) {
    demands_.push_back({other->kv, static_cast<uint32_t>(other->sequence->known().size()) + 1});
  }
  return kv_.FitsTogether(demands_, options_.max_batch_tokens);
}

bool Scheduler::TryStart(Choice& choice, TimeUs now) {
  Request& request = *choice.request;
  const int64_t rank = QueuePriority(choice, now, BestPriority());
  const auto make_room = [&] {
    Choice* worst = WorstRunning();
    if (worst == nullptr || worst->effective_rank() <= request.want.priority) return false;
    Preempt(*worst);
    return true;
  };
  if (running_.size() >= limits_.running_limit() && !make_room()) return false;
  // Log-probabilities of the prompt need its rows: begin with nothing of it.
  const std::span<const TokenId> known = choice.sequence->known();
  const std::span<const TokenId> reusable = request.want.prompt_logprobs ? known.first(1) : known;
  const uint32_t most_tokens = request.want.length_given ? choice.sequence->max_tokens() : 0;
  std::optional<SequenceId> id;
  while (!(id = kv_.Open(request.want.root, reusable, most_tokens)).has_value()) {
    // Submit has seen that it fits when it is alone.
    KV_CHECK(!running_.empty());
    if (!make_room()) return false;
  }
  queue_.erase(std::find(queue_.begin(), queue_.end(), &choice));
  choice.state = State::kRunning;
  choice.kv = *id;
  choice.rank = rank;
  choice.inherited_rank = INT64_MAX;
  choice.last_rows_at = now;
  running_.push_back(&choice);
  ++tenant_running_[request.want.tenant];
  while (!FitsNow()) {
    Choice* worst = WorstRunning();
    if (worst != &choice && make_room()) continue;
    StopRunning(choice);
    choice.state = State::kQueued;
    queue_.push_back(&choice);
    return false;
  }
  RegisterInFlight(choice);
  if (choice.computed_before > kv_.computed(choice.kv)) {
    const uint32_t lost = choice.computed_before - kv_.computed(choice.kv);
    counters_.recomputed_tokens += lost;
    if (choice.made_way_at == limits_.running_moves()) recomputed_now_ += lost;
  }
  choice.computed_before = 0;
  if (request.admitted_at < 0) {
    request.admitted_at = now;
    NoteDivergence(request, known);
    request.summary.cached_tokens =
        std::min(kv_.computed(choice.kv), request.summary.prompt_tokens);
    counters_.prompt_tokens += request.summary.prompt_tokens;
    counters_.cached_tokens += request.summary.cached_tokens;
  }
  return true;
}

void Scheduler::NoteDivergence(Request& request, std::span<const TokenId> prompt) const {
  const std::optional<KvDivergence> divergence = kv_.DivergedAt(request.want.root, prompt);
  if (!divergence.has_value()) return;
  request.summary.diverged_at = divergence->at;
  std::string cached, own;
  for (uint32_t i = 0; i < divergence->cached_count; ++i) {
    cached += tokenizer_.TokenBytes(divergence->cached[i]);
  }
  const size_t first_own = tokenizer_.TokenBytes(prompt[divergence->at]).size();
  for (size_t i = divergence->at; i < prompt.size() && own.size() < cached.size(); ++i) {
    own += tokenizer_.TokenBytes(prompt[i]);
  }
  // Different tokens with the same bytes, as far as both are known and past the first of each.
  const size_t common = std::min(cached.size(), own.size());
  const size_t first_cached = tokenizer_.TokenBytes(divergence->cached[0]).size();
  request.summary.diverged_by_retokenization = common >= std::max(first_own, first_cached) &&
                                               common > 0 &&
                                               cached.compare(0, common, own, 0, common) == 0;
}

void Scheduler::RegisterInFlight(Choice& choice) {
  const std::vector<BlockHash>& hashes = choice.request->want.hashes;
  const uint32_t first = kv_.computed(choice.kv) / kv_.layout().block_tokens;
  for (size_t i = first; i < hashes.size(); ++i) in_flight_.emplace(hashes[i], &choice);
}

void Scheduler::ForgetInFlight(Choice& choice) {
  for (const BlockHash& hash : choice.request->want.hashes) {
    const auto found = in_flight_.find(hash);
    if (found != in_flight_.end() && found->second == &choice) in_flight_.erase(found);
  }
}

void Scheduler::InheritPriorities(TimeUs now) {
  for (Choice* choice : running_) choice->inherited_rank = INT64_MAX;
  const int64_t best = BestPriority();
  for (const Choice* waiter : queue_) {
    if (!waiter->awaited.has_value()) continue;
    const auto leader = in_flight_.find(*waiter->awaited);
    if (leader == in_flight_.end()) continue;
    int64_t& inherited = leader->second->inherited_rank;
    inherited = std::min(inherited, QueuePriority(*waiter, now, best));
  }
}

}  // namespace kvasir
