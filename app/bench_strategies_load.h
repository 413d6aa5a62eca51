// ScriptedLoad: the requests of `kvasir bench strategies`, token by token, before any of them is
// sent.
//
// The same options and vocabulary make the same load, so that every strategy is asked the same.
// Lengths are drawn around their means, from half to three halves of them; texts are common English
// words. A conversation's later turns follow the exact tokens of the earlier ones and their
// answers. Plain values. Thread: any.
#ifndef KVASIR_APP_BENCH_STRATEGIES_LOAD_H_
#define KVASIR_APP_BENCH_STRATEGIES_LOAD_H_

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "text/tokenizer.h"

namespace kvasir {

enum class StrategyScenario : uint8_t {
  kShared,  // Every prompt begins with one long text, and ends with its own.
  kChat,    // Conversations of several turns, all with the same short instruction.
  kUnique,  // Nothing is shared.
  kMixed,   // Three of four are short, the rest long; every other one begins with an instruction.
};

std::optional<StrategyScenario> StrategyScenarioNamed(std::string_view name);
std::string_view NameOf(StrategyScenario scenario);

struct ScriptedTurn {
  std::vector<TokenId> tokens;  // After those of the conversation so far.
  uint32_t output_tokens = 0;
};

struct ScriptedConversation {
  uint32_t first_request = 0;  // Number of its first turn among all requests.
  std::vector<ScriptedTurn> turns;
};

struct ScriptedLoad {
  struct Options {
    StrategyScenario scenario = StrategyScenario::kMixed;
    uint64_t seed = 1;
    uint32_t requests = 0;
    uint32_t clients = 0;
    uint32_t prefix_tokens = 0;  // That prompts have in common; exact.
    uint32_t tail_tokens = 0;    // Of each request's own, on average; mixed: of a short one.
    uint32_t output_tokens = 0;  // On average.
    uint32_t turns = 1;          // Of a conversation.
  };
  static constexpr uint32_t kLongTimes = 8;  // A long tail of mixed is so many short ones.

  // A load that shows what the scenario is about and is done in about ten seconds by a model of
  // 135 million parameters on two cores.
  static Options Defaults(StrategyScenario scenario);

  // Tokens that no request of such a load exceeds, prompt and answer.
  static uint64_t MostTokens(const Options& options);

  // REQUIRES: all counts but prefix_tokens above 0.
  static ScriptedLoad Make(const Options& options, const Tokenizer& tokenizer);

  Options options;
  std::vector<ScriptedConversation> conversations;
  uint32_t request_count = 0;
  uint32_t longest_tokens = 0;  // Prompt and answer of the longest request.
  uint64_t prompt_tokens = 0;   // Of all requests, with the conversation before each.
  uint64_t output_tokens = 0;
};

}  // namespace kvasir

#endif  // KVASIR_APP_BENCH_STRATEGIES_LOAD_H_
