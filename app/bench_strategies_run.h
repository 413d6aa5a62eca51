// StrategyRun: one scripted load through the real engine with one KV strategy and type.
//
// Engine and clients share one thread: the engine makes a step, then each client reads what has
// come for it and, when its request is over, sends the next one of the script at once. The
// scheduler's clock counts steps, and the rows of prompts in a step are fixed, so that nothing it
// decides depends on how fast the machine is: counts repeat exactly, only times do not.
// Thread: one at a time.
#ifndef KVASIR_APP_BENCH_STRATEGIES_RUN_H_
#define KVASIR_APP_BENCH_STRATEGIES_RUN_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "bench_strategies_load.h"
#include "engine/loaded_model.h"
#include "engine/scheduler.h"
#include "load_run.h"

namespace kvasir {

struct StrategyRunOptions {
  KvStrategy strategy = KvStrategy::kPaged;
  KvTypes types;
  KvEvict evict = KvEvict::kLru;  // Of paged.
  uint64_t budget_bytes = 0;      // For blocks and for the tails of types that stage keys.
  uint32_t context_tokens = 0;
  uint32_t prefill_rows = 128;  // Of prompts, in a step beside running answers.
};

// The end of one step.
struct StrategySample {
  double end_s = 0.0;  // After the start of the load.
  uint32_t running = 0;
  uint32_t waiting = 0;
  KvUsage usage;

  // Of the free memory, what no single sequence could get: 0 when all of it is in one piece.
  double fragmentation() const;
};

struct StrategyOutcome {
  LoadResult load;                      // Records by request number.
  std::vector<std::string> answers;     // By request number.
  std::vector<StrategySample> samples;  // By step.
  SchedulerCounters scheduler;
  KvCounters kv;
  LockWaits lock_waits;  // Of the engine's thread.
  uint64_t bytes_per_token = 0;
  bool interrupted = false;  // What was under way is missing.
};

// The smallest budget with which the load comes to its end.
uint64_t LeastBudget(LoadedModel& model, const ScriptedLoad& load,
                     const StrategyRunOptions& options);

// `weights` and text come from `model`; its own runner and cache are left alone. `progress` gets
// the share of the load that is done after each step and says whether to go on.
// kInvalidArgument: the budget or context cannot hold what the load needs.
StatusOr<StrategyOutcome> RunStrategy(LoadedModel& model, const ScriptedLoad& load,
                                      const StrategyRunOptions& options,
                                      const std::function<bool(double share)>& progress);

}  // namespace kvasir

#endif  // KVASIR_APP_BENCH_STRATEGIES_RUN_H_
