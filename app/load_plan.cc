#include "load_plan.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "load_text.h"

namespace kvasir {
namespace {

constexpr struct {
  LoadScenario scenario;
  std::string_view name;
} kScenarios[] = {{LoadScenario::kShared, "shared"},
                  {LoadScenario::kChat, "chat"},
                  {LoadScenario::kUnique, "unique"},
                  {LoadScenario::kReplay, "replay"}};

// Streams of CommonWords: disjoint ranges, so that no two texts meant to differ begin alike.
constexpr uint64_t kPrefixStream = uint64_t{1} << 62;
constexpr uint64_t kTurnStream = uint64_t{1} << 61;  // Plus the turn's number; replay: plus the id.

}  // namespace

std::optional<LoadScenario> LoadScenarioNamed(std::string_view name) {
  for (const auto& entry : kScenarios) {
    if (entry.name == name) return entry.scenario;
  }
  return std::nullopt;
}

std::string_view NameOf(LoadScenario scenario) {
  for (const auto& entry : kScenarios) {
    if (entry.scenario == scenario) return entry.name;
  }
  return "?";
}

LoadPlan::LoadPlan(Options options)
    : options_(std::move(options)), arrivals_(Mix64(options_.seed ^ 0xA221)) {
  const bool common =
      options_.scenario == LoadScenario::kShared || options_.scenario == LoadScenario::kChat;
  if (!common || options_.prefix_tokens == 0) return;
  prefix_ = CommonWords(options_.seed, kPrefixStream, Words(options_.prefix_tokens)) + "\n";
}

uint64_t LoadPlan::Words(double tokens) const {
  return static_cast<uint64_t>(std::max(1.0, std::round(tokens * options_.words_per_token)));
}

std::string LoadPlan::ReplayText(const TraceEntry& entry) const {
  const uint32_t block = options_.trace_block_tokens;
  std::string text;
  for (size_t i = 0; i < entry.blocks.size(); ++i) {
    const uint32_t before = static_cast<uint32_t>(i) * block;
    const double tokens = std::min(block, entry.input_tokens - before) * options_.trace_scale;
    if (i > 0) text += ' ';
    text += CommonWords(options_.seed, kTurnStream + entry.blocks[i], Words(tokens));
  }
  return text;
}

void LoadPlan::AddTurns(uint64_t count, Conversation* conversation) {
  for (uint64_t i = 0; i < count; ++i) {
    LoadTurn turn;
    if (i == 0) turn.text = prefix_;
    turn.text += CommonWords(options_.seed, kTurnStream + turn_count_, Words(options_.tail_tokens));
    turn.output_tokens = options_.output_tokens;
    conversation->turns.push_back(std::move(turn));
    ++turn_count_;
  }
}

std::optional<Conversation> LoadPlan::Next() {
  if (options_.requests.has_value() && turn_count_ >= *options_.requests) return std::nullopt;
  const bool replay = options_.scenario == LoadScenario::kReplay;
  if (replay && index_ >= options_.trace->size()) return std::nullopt;
  const uint64_t most =
      options_.requests.has_value() ? *options_.requests - turn_count_ : options_.turns;
  const uint64_t turns =
      options_.scenario == LoadScenario::kChat ? std::min<uint64_t>(options_.turns, most) : 1;
  if (options_.rate > 0.0 && index_ > 0) {
    // Exponential intervals. 1 - u is never 0.
    clock_s_ -= std::log(1.0 - arrivals_.Uniform()) * static_cast<double>(turns) / options_.rate;
  }
  Conversation conversation;
  conversation.start_s = clock_s_;
  if (replay) {
    const TraceEntry& entry = (*options_.trace)[index_];
    if (options_.rate == 0.0 && options_.trace_times) {
      conversation.start_s = entry.start_s / options_.trace_speed;
    }
    const double output = std::max(1.0, std::round(entry.output_tokens * options_.trace_scale));
    conversation.turns.push_back({ReplayText(entry), static_cast<uint32_t>(output)});
    ++turn_count_;
  } else {
    AddTurns(turns, &conversation);
  }
  ++index_;
  return conversation;
}

}  // namespace kvasir
