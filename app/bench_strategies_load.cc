#include "bench_strategies_load.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/rng.h"
#include "load_text.h"

namespace kvasir {
namespace {

struct ScenarioName {
  StrategyScenario scenario;
  std::string_view name;
};
constexpr ScenarioName kScenarios[] = {
    {StrategyScenario::kShared, "shared"},
    {StrategyScenario::kChat, "chat"},
    {StrategyScenario::kUnique, "unique"},
    {StrategyScenario::kMixed, "mixed"},
};

constexpr uint64_t kPrefixStream = 0;
constexpr uint64_t kTurnStream = 1;  // And those after it, one a request.
constexpr uint64_t kLengthSeed = 0x5C21;
constexpr uint32_t kLongEvery = 4;

// Exactly `count` tokens of text.
std::vector<TokenId> TextTokens(const Tokenizer& tokenizer, uint64_t seed, uint64_t stream,
                                uint32_t count) {
  EncodeOptions options;
  options.add_bos = false;
  std::vector<TokenId> tokens;
  // Words are one token each, or more in small vocabularies, so that this is enough.
  for (uint64_t words = uint64_t{count} + 8; tokens.size() < count; words *= 2) {
    tokens = tokenizer.Encode(CommonWords(seed, stream, words), options);
  }
  tokens.resize(count);
  return tokens;
}

uint32_t Around(uint32_t mean, Rng& rng) {
  const int64_t half = mean / 2;
  return static_cast<uint32_t>(std::max<int64_t>(1, rng.Between(mean - half, mean + half)));
}

}  // namespace

std::optional<StrategyScenario> StrategyScenarioNamed(std::string_view name) {
  for (const ScenarioName& entry : kScenarios) {
    if (entry.name == name) return entry.scenario;
  }
  return std::nullopt;
}

std::string_view NameOf(StrategyScenario scenario) {
  for (const ScenarioName& entry : kScenarios) {
    if (entry.scenario == scenario) return entry.name;
  }
  return "unknown";
}

ScriptedLoad::Options ScriptedLoad::Defaults(StrategyScenario scenario) {
  Options options;
  options.scenario = scenario;
  switch (scenario) {
    case StrategyScenario::kShared:
      options.requests = 48;
      options.clients = 24;
      options.prefix_tokens = 384;
      options.tail_tokens = 32;
      options.output_tokens = 32;
      break;
    case StrategyScenario::kChat:
      // The turns of `bench serve --scenario chat --prefix-tokens 300 --tail-tokens 50
      // --output-tokens 48` (a chat template puts about ten tokens around each), until
      // conversations that are over have filled 256 MiB: that is what a server's cache looks like.
      options.requests = 128;
      options.clients = 8;
      options.prefix_tokens = 300;
      options.tail_tokens = 60;
      options.output_tokens = 48;
      options.turns = 4;
      break;
    case StrategyScenario::kUnique:
      options.requests = 40;
      options.clients = 20;
      options.tail_tokens = 256;
      options.output_tokens = 32;
      break;
    case StrategyScenario::kMixed:
      options.requests = 64;
      options.clients = 48;
      options.prefix_tokens = 64;
      options.tail_tokens = 48;
      options.output_tokens = 48;
      break;
  }
  return options;
}

uint64_t ScriptedLoad::MostTokens(const Options& options) {
  const auto most = [](uint64_t mean) { return mean + mean / 2; };
  const uint64_t turns = options.scenario == StrategyScenario::kChat ? options.turns : 1;
  const uint64_t times = options.scenario == StrategyScenario::kMixed ? kLongTimes : 1;
  const uint64_t prefix =
      options.scenario == StrategyScenario::kUnique ? 0 : uint64_t{options.prefix_tokens};
  return 1 + prefix + turns * (times * most(options.tail_tokens) + most(options.output_tokens));
}

ScriptedLoad ScriptedLoad::Make(const Options& options, const Tokenizer& tokenizer) {
  KV_CHECK_GT(options.requests, 0u);
  KV_CHECK_GT(options.turns, 0u);
  ScriptedLoad load;
  load.options = options;
  Rng rng(Mix64(options.seed ^ kLengthSeed));
  const bool chat = options.scenario == StrategyScenario::kChat;
  const bool mixed = options.scenario == StrategyScenario::kMixed;
  std::vector<TokenId> bos;
  if (tokenizer.adds_bos() && tokenizer.bos().has_value()) bos.push_back(*tokenizer.bos());
  std::vector<TokenId> prefix = bos;
  if (options.scenario != StrategyScenario::kUnique && options.prefix_tokens > 0) {
    const std::vector<TokenId> text =
        TextTokens(tokenizer, options.seed, kPrefixStream, options.prefix_tokens);
    prefix.insert(prefix.end(), text.begin(), text.end());
  }
  while (load.request_count < options.requests) {
    ScriptedConversation conversation;
    conversation.first_request = load.request_count;
    uint32_t length = 0;
    const uint32_t turns = chat ? options.turns : 1;
    for (uint32_t i = 0; i < turns && load.request_count < options.requests; ++i) {
      const uint32_t number = load.request_count++;
      const bool is_long = mixed && number % kLongEvery == kLongEvery - 1;
      const bool begins_common = !mixed || number % 2 == 0;
      ScriptedTurn turn;
      if (i == 0) turn.tokens = begins_common ? prefix : bos;
      const uint32_t own = Around(options.tail_tokens, rng) * (is_long ? kLongTimes : 1);
      const std::vector<TokenId> text =
          TextTokens(tokenizer, options.seed, kTurnStream + number, own);
      turn.tokens.insert(turn.tokens.end(), text.begin(), text.end());
      turn.output_tokens = Around(options.output_tokens, rng);
      length += static_cast<uint32_t>(turn.tokens.size());
      load.prompt_tokens += length;
      load.output_tokens += turn.output_tokens;
      length += turn.output_tokens;
      conversation.turns.push_back(std::move(turn));
    }
    load.longest_tokens = std::max(load.longest_tokens, length);
    load.conversations.push_back(std::move(conversation));
  }
  return load;
}

}  // namespace kvasir
