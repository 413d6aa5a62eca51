// kvasir bench evict: what each eviction policy would have saved on a trace of requests.
#include <algorithm>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/counted.h"
#include "command.h"
#include "kv/cache_replay.h"
#include "option_values.h"
#include "output.h"
#include "terminal.h"
#include "text_input.h"
#include "trace_file.h"

namespace kvasir {
namespace {

constexpr uint64_t kEndless = std::numeric_limits<uint64_t>::max();

// "5859,inf"
StatusOr<std::vector<uint64_t>> ParseCapacities(std::string_view text) {
  std::vector<uint64_t> capacities;
  for (const std::string_view item : SplitList(text)) {
    uint64_t blocks = kEndless;
    const char* const end = item.data() + item.size();
    if (item != "inf") {
      const auto parsed = std::from_chars(item.data(), end, blocks);
      if (parsed.ec != std::errc() || parsed.ptr != end || blocks == 0 || blocks > kMaxKvBlocks) {
        return InvalidArgument("'{}' is not a capacity: blocks from 1 to {}, or inf", item,
                               kMaxKvBlocks);
      }
    }
    if (std::find(capacities.begin(), capacities.end(), blocks) != capacities.end()) {
      return InvalidArgument("{} is named twice", item);
    }
    capacities.push_back(blocks);
  }
  return capacities;
}

std::string CapacitiesProblem(const std::string& text) {
  const StatusOr<std::vector<uint64_t>> parsed = ParseCapacities(text);
  return parsed.ok() ? std::string() : std::string(MessageOf(parsed.status()));
}

struct NamedPolicy {
  std::string name;
  std::optional<KvEvict> evict;  // nullopt: belady.
};

StatusOr<std::vector<NamedPolicy>> ParsePolicies(std::string_view text) {
  std::vector<NamedPolicy> policies;
  for (const std::string_view item : SplitList(text)) {
    const std::optional<KvEvict> evict = KvEvictFromName(item);
    if (!evict.has_value() && item != "belady") {
      return InvalidArgument("policy '{}' is unknown; use lru, lfu, gdsf, s3fifo, adaptive, belady",
                             item);
    }
    const auto same = [item](const NamedPolicy& policy) { return policy.name == item; };
    if (std::any_of(policies.begin(), policies.end(), same)) {
      return InvalidArgument("{} is named twice", item);
    }
    policies.push_back({std::string(item), evict});
  }
  return policies;
}

std::string PoliciesProblem(const std::string& text) {
  const StatusOr<std::vector<NamedPolicy>> parsed = ParsePolicies(text);
  return parsed.ok() ? std::string() : std::string(MessageOf(parsed.status()));
}

// Ids of any size become numbers in order of appearance: there are fewer of them than bytes in a
// trace, so that they fit.
RequestTrace BlocksOf(std::span<const TraceEntry> entries) {
  RequestTrace trace;
  std::unordered_map<uint64_t, TokenId> numbers;
  std::vector<TokenId> ids;
  for (const TraceEntry& entry : entries) {
    ids.clear();
    for (const uint64_t block : entry.blocks) {
      const TokenId next{static_cast<int32_t>(numbers.size())};
      ids.push_back(numbers.try_emplace(block, next).first->second);
    }
    trace.Add(ids);
  }
  return trace;
}

struct Row {
  std::string policy;
  uint64_t capacity = 0;
  ReplayResult result;
};

std::string CapacityText(uint64_t capacity) {
  return capacity == kEndless ? "inf" : fmt::format("{}", capacity);
}

class BenchEvictCommand : public Command {
 public:
  std::vector<std::string> path() const override { return {"bench", "evict"}; }
  std::string description() const override {
    return "Replay a trace of requests through the cache: what each eviction policy saves";
  }

  void Register(Options& options) override {
    options.Add("--trace", &trace_, "Requests, one JSON object with hash_ids a line; - is stdin")
        .Type("FILE")
        .Required();
    options.Add("--capacities", &capacities_, "Sizes of the cache in blocks; inf is endless")
        .Type("LIST")
        .Check(CapacitiesProblem)
        .ShowDefault();
    options
        .Add("--policies", &policies_,
             "lru, lfu, gdsf, s3fifo, adaptive; belady knows the future: a bound")
        .Type("LIST")
        .Check(PoliciesProblem)
        .ShowDefault();
    options
        .Add("--double-depth", &double_depth_,
             "At how many blocks before it a block costs twice as much to compute as the first")
        .Type("BLOCKS")
        .Range(1, 1e9)
        .ShowDefault();
    options.Add("--trace-block", &trace_block_, "Tokens that one of its hash_ids stands for")
        .Type("N")
        .Range(1, 1'000'000)
        .ShowDefault();
    options.AddFlag("--json", &json_, "Print one JSON object");
  }

  StatusOr<int> Run() override {
    KV_ASSIGN_OR_RETURN(const std::vector<uint64_t> capacities, ParseCapacities(capacities_));
    KV_ASSIGN_OR_RETURN(const std::vector<NamedPolicy> policies, ParsePolicies(policies_));
    KV_ASSIGN_OR_RETURN(const std::vector<TraceEntry> entries,
                        ReadTraceFile(trace_, trace_block_, TraceNeeds::kBlocks));
    const RequestTrace trace = BlocksOf(entries);
    if (trace.block_count() == 0) {
      return InvalidArgument("{}: no request with a block in it", InputName(trace_));
    }
    CatchInterrupts();
    std::vector<Row> rows;
    {
      ProgressBar bar("replaying");
      const double runs = static_cast<double>(capacities.size() * policies.size());
      for (const uint64_t capacity : capacities) {
        for (const NamedPolicy& policy : policies) {
          CacheReplay replay(trace, ReplayOptions{capacity, policy.evict, 1.0 / double_depth_});
          while (!replay.done()) {
            replay.Step();
            bar.Update((static_cast<double>(rows.size()) + replay.progress()) / runs);
            if (Interrupted().load()) return kExitInterrupted;
          }
          rows.push_back({policy.name, capacity, replay.result()});
        }
      }
    }
    json_ ? PrintJson(trace, rows) : PrintTable(trace, rows);
    return kExitOk;
  }

 private:
  void PrintJson(const RequestTrace& trace, const std::vector<Row>& rows) const {
    nlohmann::ordered_json json;
    json["trace"] = trace_;
    json["requests"] = trace.request_count();
    json["references"] = trace.reference_count();
    json["blocks"] = trace.block_count();
    json["rows"] = nlohmann::ordered_json::array();
    for (const Row& row : rows) {
      nlohmann::ordered_json out;
      out["policy"] = row.policy;
      if (row.capacity == kEndless) {
        out["capacity"] = "inf";
      } else {
        out["capacity"] = row.capacity;
      }
      out["hit_rate"] = row.result.hit_rate();
      out["compute_saved"] = row.result.compute_saved();
      const KvEviction& eviction = row.result.eviction;
      if (eviction.policy == KvEvict::kAdaptive) {
        out["ruling"] = KvEvictName(eviction.ruling);
        out["switches"] = eviction.switches;
        for (uint32_t i = 0; i < kFixedKvEvicts; ++i) {
          out["evictions"][std::string(KvEvictName(static_cast<KvEvict>(i)))] =
              eviction.evictions[i];
        }
      }
      json["rows"].push_back(std::move(out));
    }
    PrintOut("{}\n", json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace));
  }

  void PrintTable(const RequestTrace& trace, const std::vector<Row>& rows) const {
    PrintOut("{}: {}, {}, {}\n", InputName(trace_), Counted(trace.request_count(), "request"),
             Counted(trace.reference_count(), "block reference"),
             Counted(trace.block_count(), "different block"));
    PrintOut("\n{:>10}  {:<9}{:>10}{:>15}\n", "capacity", "policy", "hit rate", "compute saved");
    uint64_t before = 0;
    for (const Row& row : rows) {
      if (before != 0 && row.capacity != before) PrintOut("\n");
      before = row.capacity;
      PrintOut("{:>10}  {:<9}{:>9.2f}%{:>14.2f}%", CapacityText(row.capacity), row.policy,
               100.0 * row.result.hit_rate(), 100.0 * row.result.compute_saved());
      const KvEviction& eviction = row.result.eviction;
      if (eviction.policy == KvEvict::kAdaptive) {
        PrintOut("  {} rules, {}", KvEvictName(eviction.ruling),
                 Counted(eviction.switches, "switch", "switches"));
      }
      PrintOut("\n");
    }
  }

  std::string trace_;
  std::string capacities_ = "5859,inf";
  std::string policies_ = "lru,lfu,gdsf,s3fifo,adaptive";
  int double_depth_ = 48;
  uint32_t trace_block_ = 512;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeBenchEvictCommand() { return std::make_unique<BenchEvictCommand>(); }

}  // namespace kvasir
