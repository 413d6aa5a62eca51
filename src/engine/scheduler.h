// Scheduler: which tokens of which sequences the next step computes.
//
// Continuous batching by Plan -> act -> Commit: Plan() decides and returns a value, the caller runs
// the model on it, Commit() takes the chosen tokens. No I/O, no clock (time is an argument), no
// locks: the same calls give the same decisions, so that tests and simulations replay it.
//
// There is no prefill and no decode phase: a sequence has known tokens and computed ones, and each
// step moves computed towards known within the step's rows. Rules (docs/SCHEDULING.md has the
// reasons):
//  - Admission, in this order: priority (lower first; waiting improves it by one per ageing_us, up
//    to the best that waits or runs), fewest running sequences of its tenant, first come first. A
//    request whose next block is being computed by a running sequence waits for it, holding nothing
//    (in-flight dedupe, where the KV strategy shares with running sequences); others pass it by.
//    One that does not fit the KV memory holds up those behind it.
//  - At max_batch, and when KV memory is needed, the sequence that ranks worst makes way: it
//    publishes what it computed and goes back to the queue with its old place (preemption).
//    Admitted by ageing, it keeps the better rank.
//  - Within a step, sequences one token behind go first, each one row. What the step has left goes
//    to the shortest remainder first, unless one has waited longer than prefill_ageing_us. While
//    streams run it is bounded by step_target_us and step_stretch (predicted) or prefill_chunk.
//  - Rows that prompts do not want may verify drafts (engine/drafter.h): a stream then moves by
//    several tokens in a step, the same as without. Drafts never preempt anybody.
//  - Choice 0 reads the prompt, others are forked from it; those without a place queue.
//
// Invariant: every submitted request ends exactly once, by Plan or by Commit.
// Thread: engine thread. Steady decoding allocates nothing but the events' text.
// Source: Yu et al. 2022 (Orca); Kwon et al. 2023 (PagedAttention); Agrawal et al. 2024
// (Sarathi-Serve).
#ifndef KVASIR_ENGINE_SCHEDULER_H_
#define KVASIR_ENGINE_SCHEDULER_H_

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "engine/adaptive_limits.h"
#include "engine/cost_model.h"
#include "engine/drafter.h"
#include "engine/generate_request.h"
#include "engine/scheduler_options.h"
#include "engine/step_plan.h"
#include "engine/step_times.h"
#include "kv/kv_cache.h"
#include "text/tokenizer.h"

namespace kvasir {

class Scheduler {
 public:
  // `kv` and `tokenizer` must outlive it. REQUIRES: kv was made for max_batch sequences.
  Scheduler(const SchedulerOptions& options, const CostModel::Options& cost, KvCache& kv,
            const Tokenizer& tokenizer, uint32_t vocab_size);
  ~Scheduler();

  // Takes a request into the queue. kInvalidArgument as Sequence::Create, or when the KV memory
  // or the queue could never hold it; kResourceExhausted when the queue is too full with those of
  // other requests. Nothing happened then.
  // REQUIRES: a new id.
  Status Submit(GenerateRequest request, TimeUs now);

  // Ends a request at the next Plan; unknown and ended ids are ignored.
  void Cancel(RequestId id);
  // Ends all.
  void CancelAll(RequestEnd end);

  // Decides the next step; the batch may be empty (nothing to do, or company is awaited until
  // NextWakeUp()). `outcome` gets what ended meanwhile. The plan is valid until the next call.
  const StepPlan& Plan(TimeUs now, StepOutcome* outcome);

  // Takes the step's results: tokens[i] belongs to plan.samples[i], scores[i] to plan.scores[i].
  // `elapsed_us` is what acting took. REQUIRES: the last Plan's batch was run.
  void Commit(std::span<const SampledToken> tokens, std::span<const SampledToken> scores,
              TimeUs now, TimeUs elapsed_us, StepOutcome* outcome);

  bool idle() const { return requests_.empty(); }
  // When an idle caller must call Plan again at the latest: the earliest deadline or the end of the
  // wait.
  TimeUs NextWakeUp() const;

  const SchedulerCounters& counters() const { return counters_; }
  const CostModel& cost_model() const { return cost_model_; }

  // Crashes on the first broken rule. O(everything): for tests.
  void CheckInvariants() const;

 private:
  struct Request;
  struct Choice;
  enum class State : uint8_t;

  Status CheckPlaces(const GenerateRequest& request);
  void ExpireRequests(TimeUs now, StepOutcome* outcome);
  void Admit(TimeUs now);
  Choice* NextInLine(TimeUs now);
  bool WaitsForAnother(Choice& choice);
  bool TryStart(Choice& choice, TimeUs now);
  bool FitsNow();
  int64_t QueuePriority(const Choice& choice, TimeUs now, int64_t best) const;
  int64_t BestPriority() const;
  void NoteDivergence(Request& request, std::span<const TokenId> prompt) const;
  void RegisterInFlight(Choice& choice);
  void ForgetInFlight(Choice& choice);
  void InheritPriorities(TimeUs now);
  Choice* WorstRunning() const;
  bool RanksBefore(const Choice& a, const Choice& b) const;
  void Preempt(Choice& choice);
  void PlanRows(TimeUs now);
  void PlanPrefill();
  double PrefillBudget() const;
  void Adapt(TimeUs elapsed_us);
  uint32_t LogitsRowsLeft() const;
  bool ReserveFor(Choice& choice, uint32_t rows);
  void PlanDrafts();
  void AddToBatch(Choice& choice, uint32_t rows, uint32_t draft_rows);
  void FillBlocks();
  void CountPlaces();
  void PublishInFlight(Choice& choice, uint32_t start);
  void AddSample(const Choice& choice, uint32_t logits_row, uint32_t ahead);
  size_t StartSiblings(Choice& stem, std::span<const SampledToken> tokens, size_t* next_sample,
                       TimeUs now, StepOutcome* outcome);
  size_t CountSamples(const Choice& choice, size_t first) const;
  uint32_t TakeSamples(Choice& choice, std::span<const SampledToken> tokens, TimeUs now,
                       StepOutcome* outcome);
  void Append(Choice& choice, const SampledToken& sampled, TimeUs now, StepOutcome* outcome);
  void EndIfFinished(Choice& choice, TimeUs now, StepOutcome* outcome);
  void StopRunning(Choice& choice);
  void EndRequest(Request& request, RequestEnd end, TimeUs now, StepOutcome* outcome);

  SchedulerOptions options_;
  KvCache& kv_;
  const Tokenizer& tokenizer_;
  uint32_t vocab_size_;
  CostModel cost_model_;
  StepTimes step_times_;
  AdaptiveLimits limits_;
  uint32_t recomputed_now_ = 0;  // Since the last Adapt, under the present running limit.
  std::unordered_map<RequestId, std::unique_ptr<Request>> requests_;
  std::vector<Choice*> queue_;    // Unordered; NextInLine picks.
  std::vector<Choice*> running_;  // In order of admission.
  std::vector<Choice*> decode_;   // Scratch of PlanRows, as the next three.
  std::vector<Choice*> prefill_;
  std::vector<Choice*> drafting_;  // By entry of drafts_.
  std::vector<Draft> drafts_;
  std::vector<Choice*> planned_;   // By batch sequence.
  std::vector<KvDemand> demands_;  // Scratch of FitsNow.
  std::vector<uint32_t> tenant_running_;
  struct HashOfBlock {
    size_t operator()(const BlockHash& hash) const;
  };
  std::unordered_map<BlockHash, Choice*, HashOfBlock> in_flight_;  // Who computes which block.
  uint64_t next_arrival_ = 0;
  std::vector<RequestId> ending_;      // Cancelled since the last Plan.
  TimeUs earliest_deadline_ = kNever;  // Not later than any request's.
  TimeUs company_until_ = kNever;      // Admission waits for this; kNever: no wait is on.
  uint32_t planned_forks_ = 0;         // Siblings that Commit will add to running_.
  StepPlan plan_;
  SchedulerCounters counters_;
};

}  // namespace kvasir

#endif  // KVASIR_ENGINE_SCHEDULER_H_
