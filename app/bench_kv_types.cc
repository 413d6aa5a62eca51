#include "bench_kv_types.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/counted.h"
#include "bench_load.h"
#include "option_values.h"
#include "output.h"
#include "terminal.h"

namespace kvasir {
namespace {

constexpr uint32_t kComputed = 256;  // Tokens of the context that are computed.

// One type's runner, cache and sequence. The load goes first, the cache is what it closes into.
struct Contestant {
  std::unique_ptr<CpuModelRunner> runner;
  std::unique_ptr<KvCache> kv;
  std::unique_ptr<BenchLoad> load;
  std::vector<double> seconds;  // A step, by round.
};

StatusOr<Contestant> Prepare(LoadedModel& model, KvTypes types, const KvTypeLoad& load) {
  Contestant contestant;
  KV_ASSIGN_OR_RETURN(
      contestant.runner,
      CpuModelRunner::Create(model.config(), model.weights(), model.kv().layout().block_tokens,
                             model.runner().limits(), model.team(), types));
  KvCache::Options options;
  options.layout = contestant.runner->kv_layout();
  const uint32_t block_tokens = options.layout.block_tokens;
  options.max_sequences = 1;
  options.max_sequence_tokens =
      load.context + load.steps * static_cast<uint32_t>(load.rounds + 1) + block_tokens;
  options.block_counts.assign(options.layout.group_count(),
                              options.max_sequence_tokens / block_tokens + 2);
  KV_ASSIGN_OR_RETURN(contestant.kv, KvCache::Create(options));
  contestant.load =
      std::make_unique<BenchLoad>(*contestant.runner, *contestant.kv, model.Root(""), 1);
  KV_RETURN_IF_ERROR(contestant.load->Open());
  const uint32_t computed = std::min(load.context, kComputed);
  KV_RETURN_IF_ERROR(contestant.load->StepFirst(computed));
  const uint32_t copied = (load.context - computed) / block_tokens * block_tokens;
  KV_RETURN_IF_ERROR(contestant.load->RepeatFirst(copied, kComputed));
  KV_RETURN_IF_ERROR(contestant.load->StepFirst(load.context - computed - copied));
  return contestant;
}

}  // namespace

StatusOr<std::vector<KvTypes>> ParseKvTypeList(const std::string& text) {
  std::vector<KvTypes> all;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(';', begin), text.size());
    const std::string_view item = std::string_view(text).substr(begin, end - begin);
    const bool apart = item.find('=') != std::string_view::npos;
    for (const std::string_view name : apart ? std::vector{item} : SplitList(item)) {
      KV_ASSIGN_OR_RETURN(const KvTypes types, ParseKvTypes(name));
      all.push_back(types);
    }
    begin = end + 1;
  }
  return all;
}

std::string KvTypeListProblem(const std::string& text) {
  const auto parsed = ParseKvTypeList(text);
  return parsed.ok() ? std::string() : std::string(MessageOf(parsed.status()));
}

StatusOr<std::vector<KvTypeSpeed>> CompareKvTypes(LoadedModel& model,
                                                  std::span<const KvTypes> types,
                                                  const KvTypeLoad& load) {
  const uint64_t decoded = uint64_t{load.steps} * static_cast<uint64_t>(load.rounds + 1);
  if (load.context + decoded > model.config().context_length) {
    return InvalidArgument(
        "--context {} and {} decoded tokens are more than the model's {}: lower it, -n {} or -r {}",
        load.context, decoded, model.config().context_length, load.steps, load.rounds);
  }
  std::vector<Contestant> contestants;
  for (const KvTypes one : types) {
    KV_ASSIGN_OR_RETURN(Contestant contestant, Prepare(model, one, load));
    contestants.push_back(std::move(contestant));
  }
  std::vector<StepCounters> before;
  for (const Contestant& one : contestants) before.push_back(one.runner->totals());
  for (int round = 0; round <= load.rounds; ++round) {
    for (Contestant& one : contestants) {
      // The others had the caches: the first step of a turn is not measured.
      KV_RETURN_IF_ERROR(one.load->Step(0, 1, /*logits=*/true));
      const double start = NowSeconds();
      for (uint32_t step = 1; step < load.steps; ++step) {
        KV_RETURN_IF_ERROR(one.load->Step(0, 1, /*logits=*/true));
      }
      if (round > 0) one.seconds.push_back((NowSeconds() - start) / (load.steps - 1));
    }
  }
  std::vector<KvTypeSpeed> speeds;
  for (size_t i = 0; i < contestants.size(); ++i) {
    const Contestant& one = contestants[i];
    std::vector<double> gains;
    for (size_t round = 0; round < one.seconds.size(); ++round) {
      gains.push_back(contestants[0].seconds[round] / one.seconds[round]);
    }
    const StepCounters counters = one.runner->totals() - before[i];
    speeds.push_back(
        {types[i], one.kv->layout().bytes_per_token(),
         static_cast<double>(counters.kv_read_bytes) / static_cast<double>(counters.steps),
         Summarise(one.seconds), Summarise(gains)});
  }
  return speeds;
}

void PrintKvTypeSpeeds(std::span<const KvTypeSpeed> speeds, const KvTypeLoad& load) {
  PrintOut("{:<16}{:>14}{:>14}{:>12}{:>12}{:>16}\n", "KV type", "bytes/token", "MB of KV",
           "ms/step", "tok/s", "times the first");
  for (const KvTypeSpeed& speed : speeds) {
    PrintOut("{:<16}{:>14}{:>14.1f}{:>12.2f}{:>12.1f}{:>9.2f} +-{:2.0f} %\n",
             KvTypesName(speed.types), speed.bytes_per_token, speed.kv_read_bytes * 1e-6,
             speed.step.median_s * 1e3, 1.0 / speed.step.median_s, speed.gain.median_s,
             50.0 * speed.gain.spread);
  }
  PrintOut(
      "\none sequence behind {}; medians of {} of {}, the types by turns. All\n"
      "but the first {} tokens are copies of those, each block in memory of its own.\n",
      Counted(load.context, "token"), Counted(load.rounds, "round"),
      Counted(load.steps - 1, "step"), kComputed);
}

std::string KvTypeSpeedsJson(std::span<const KvTypeSpeed> speeds, const KvTypeLoad& load) {
  nlohmann::ordered_json json = {
      {"context", load.context}, {"steps", load.steps - 1}, {"rounds", load.rounds}};
  json["kv_types"] = nlohmann::ordered_json::array();
  for (const KvTypeSpeed& speed : speeds) {
    json["kv_types"].push_back({{"kv_type", KvTypesName(speed.types)},
                                {"bytes_per_token", speed.bytes_per_token},
                                {"kv_read_bytes", speed.kv_read_bytes},
                                {"step_ms", speed.step.median_s * 1e3},
                                {"spread", speed.step.spread},
                                {"decode_tok_s", 1.0 / speed.step.median_s},
                                {"gain", speed.gain.median_s},
                                {"gain_spread", speed.gain.spread}});
  }
  return json.dump(1);
}

}  // namespace kvasir
