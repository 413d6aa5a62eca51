// EngineLoop: the one thread that acts on the scheduler's plans: it drains commands, plans, runs
// the model, samples, commits, and hands events to the streams of their requests.
//
// It decides nothing (Scheduler does) and computes nothing (ModelRunner does). Handlers talk to it
// through EngineClient only. Who only wants to know something never stops it: counters are
// published (snapshot), questions about the cache wait in the mailbox and are answered in bounded
// pages between steps (KvDesk), and while requests run a mailbox that somebody is at is left for
// the next turn. Thread: Run on the engine thread, everything else from any thread.
#ifndef KVASIR_ENGINE_ENGINE_LOOP_H_
#define KVASIR_ENGINE_ENGINE_LOOP_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/mailbox.h"
#include "base/mutex.h"
#include "base/published.h"
#include "engine/kv_desk.h"
#include "engine/kv_query.h"
#include "engine/scheduler.h"
#include "engine/token_stream.h"
#include "model/model_runner.h"

namespace kvasir {

struct SubmitCommand {
  GenerateRequest request;
  std::shared_ptr<TokenStream> stream;
};
struct CancelCommand {
  RequestId id{};
};
using EngineCommand = std::variant<SubmitCommand, CancelCommand, KvQuery>;

// A consistent picture for metrics and pages, renewed after every step. Trivially copyable: see
// Published.
struct EngineSnapshot {
  SchedulerCounters scheduler;
  KvCounters kv;
  KvUsage kv_usage;
  KvEviction eviction;
  struct Group {
    uint32_t blocks = 0;
    uint32_t free_blocks = 0;
    uint32_t cached_blocks = 0;  // Held by the tree alone.
  };
  std::array<Group, kMaxKvGroups> groups{};
  uint32_t group_count = 0;
  uint64_t last_step_rows = 0;
  TimeUs last_step_us = 0;
  double macs_per_us = 0;
  double depth_cost = 0;  // CostModel::depth_cost
  LockWaits lock_waits;   // Of the engine thread.
};

class EngineLoop {
 public:
  struct Options {
    SchedulerOptions scheduler;
    CostModel::Options cost;
    size_t mailbox_capacity = 4096;
    size_t kv_query_capacity = 256;  // Waiting questions about the cache.
  };

  // All referenced objects must outlive the loop.
  EngineLoop(const Options& options, ModelRunner& runner, KvCache& kv, const Tokenizer& tokenizer,
             const Clock& clock);

  // Works until Stop, then ends what is left with kShutDown.
  void Run();

  // One turn: drain, plan, act, commit. False when there was nothing to compute. For tests and
  // simulations, which call it instead of Run.
  bool RunOnce();

  // Refuses new work and returns from Run when nothing is left (drain) or after the current step.
  void Stop(bool drain);

  Mailbox<EngineCommand>& mailbox() { return mailbox_; }
  // As of the end of the last step. Never waits for the engine, nor makes it wait.
  EngineSnapshot snapshot() const { return snapshot_.Read(); }

 private:
  // Everything in the mailbox; while requests run only if nobody is at it.
  void TakeCommands(bool wait);
  void Take(SubmitCommand submit);
  void Act(const StepPlan& plan);
  void Deliver();
  void PublishSnapshot(uint64_t rows, TimeUs elapsed_us);

  ModelRunner& runner_;
  KvCache& kv_;
  const Clock& clock_;
  Mailbox<EngineCommand> mailbox_;
  Scheduler scheduler_;
  KvDesk desk_;
  SamplerScratch scratch_;
  std::unordered_map<RequestId, std::shared_ptr<TokenStream>> streams_;
  std::vector<EngineCommand> commands_;
  std::vector<SampledToken> tokens_;
  std::vector<SampledToken> scores_;
  StepOutcome outcome_;
  std::atomic<bool> stop_now_{false};
  EngineSnapshot latest_;  // The engine thread's own copy.
  Published<EngineSnapshot> snapshot_;
};

}  // namespace kvasir

#endif  // KVASIR_ENGINE_ENGINE_LOOP_H_
