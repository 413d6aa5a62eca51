// EngineLoop: the one thread that acts on the scheduler's plans: it drains commands, plans, runs
// the model, samples, commits, and hands events to the streams of their requests.
//
// It decides nothing (Scheduler does) and computes nothing (ModelRunner does). Handlers talk to it
// through EngineClient only. Thread: Run on the engine thread, everything else from any thread.
#ifndef KVASIR_ENGINE_ENGINE_LOOP_H_
#define KVASIR_ENGINE_ENGINE_LOOP_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/mailbox.h"
#include "base/mutex.h"
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
using EngineCommand = std::variant<SubmitCommand, CancelCommand>;

// A consistent picture for metrics and pages, renewed after every step.
struct EngineSnapshot {
  SchedulerCounters scheduler;
  KvCounters kv;
  struct Group {
    uint32_t blocks = 0;
    uint32_t free_blocks = 0;
    uint32_t cached_blocks = 0;  // Held by the tree alone.
  };
  std::vector<Group> groups;
  uint64_t last_step_rows = 0;
  TimeUs last_step_us = 0;
  double macs_per_us = 0;
  LockWaits lock_waits;  // Of the engine thread.
};

class EngineLoop {
 public:
  struct Options {
    SchedulerOptions scheduler;
    CostModel::Options cost;
    size_t mailbox_capacity = 4096;
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
  EngineSnapshot snapshot() const KV_EXCLUDES(snapshot_mutex_);

 private:
  void TakeCommands();
  void Act(const StepPlan& plan);
  void Deliver();
  void PublishSnapshot(uint64_t rows, TimeUs elapsed_us) KV_EXCLUDES(snapshot_mutex_);

  ModelRunner& runner_;
  KvCache& kv_;
  const Clock& clock_;
  Mailbox<EngineCommand> mailbox_;
  Scheduler scheduler_;
  SamplerScratch scratch_;
  std::unordered_map<RequestId, std::shared_ptr<TokenStream>> streams_;
  std::vector<EngineCommand> commands_;
  std::vector<SampledToken> tokens_;
  std::vector<SampledToken> scores_;
  StepOutcome outcome_;
  std::atomic<bool> stop_now_{false};
  mutable Mutex snapshot_mutex_;
  EngineSnapshot snapshot_ KV_GUARDED_BY(snapshot_mutex_);
};

}  // namespace kvasir

#endif  // KVASIR_ENGINE_ENGINE_LOOP_H_
