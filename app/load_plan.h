// LoadPlan: which requests a benchmark sends, in which order, and when.
//
// The same plan, made twice, gives the same texts and times: that is how two servers get equal
// load. It knows nothing about the servers' answers; a conversation's later turns are asked after
// the earlier ones were answered, by whoever runs the plan.
// Thread: one at a time.
#ifndef KVASIR_APP_LOAD_PLAN_H_
#define KVASIR_APP_LOAD_PLAN_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "trace_file.h"

namespace kvasir {

enum class LoadScenario : uint8_t { kShared, kChat, kUnique, kReplay };

// nullopt for a name that is none.
std::optional<LoadScenario> LoadScenarioNamed(std::string_view name);
std::string_view NameOf(LoadScenario scenario);

struct LoadTurn {
  std::string text;
  uint32_t output_tokens = 0;
};

struct Conversation {
  double start_s = 0.0;  // After the start of the load; 0 when the load is a closed loop.
  std::vector<LoadTurn> turns;
};

class LoadPlan {
 public:
  struct Options {
    LoadScenario scenario = LoadScenario::kShared;
    uint64_t seed = 1;
    std::optional<uint64_t> requests;  // At most so many turns; without: no end, but the trace's.
    uint32_t prefix_tokens = 1200;     // Common to all prompts; not in unique and replay.
    uint32_t tail_tokens = 40;         // Of each turn's own.
    uint32_t output_tokens = 64;
    uint32_t turns = 4;            // Of a conversation, in chat.
    double words_per_token = 1.0;  // What this vocabulary makes of CommonWords.
    // Conversations start at random intervals: `rate` requests a second on average; 0: all at once,
    // a trace's at its own times.
    double rate = 0.0;
    std::shared_ptr<const std::vector<TraceEntry>> trace;  // Of replay.
    uint32_t trace_block_tokens = 512;
    double trace_speed = 1.0;  // Times are divided by this.
    double trace_scale = 1.0;  // Lengths are multiplied by this.
    bool trace_times = true;   // Follow the trace's times when `rate` is 0.
  };

  explicit LoadPlan(Options options);

  // The next one, by start; nullopt at the end. O(length of its text).
  std::optional<Conversation> Next();

 private:
  uint64_t Words(double tokens) const;
  std::string ReplayText(const TraceEntry& entry) const;
  void AddTurns(uint64_t count, Conversation* conversation);

  const Options options_;
  Rng arrivals_;
  std::string prefix_;       // With a line end after it, or empty.
  double clock_s_ = 0.0;     // Start of the last conversation.
  uint64_t index_ = 0;       // Of the next conversation.
  uint64_t turn_count_ = 0;  // Given out so far.
};

}  // namespace kvasir

#endif  // KVASIR_APP_LOAD_PLAN_H_
