// kvasir bench strategies: the same load with every way to keep KV.
#include <fmt/chrono.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/byte_size.h"
#include "base/counted.h"
#include "bench_kv_types.h"
#include "bench_strategies_report.h"
#include "command.h"
#include "kernels/isa.h"
#include "model_flags.h"
#include "model_path.h"
#include "option_values.h"
#include "output.h"
#include "report_file.h"
#include "terminal.h"

namespace kvasir {
namespace {

constexpr uint32_t kMostRequests = 1'000'000;
constexpr uint32_t kMostClients = 1024;
constexpr uint32_t kMostTokens = 1'000'000;
constexpr uint64_t kDefaultSeed = 1;

std::string StrategyNames() {
  std::string names;
  for (const KvStrategy strategy : AllKvStrategies()) {
    if (!names.empty()) names += ",";
    names += KvStrategyName(strategy);
  }
  return names;
}

StatusOr<std::vector<KvStrategy>> ParseStrategies(const std::string& text) {
  std::vector<KvStrategy> strategies;
  for (const std::string_view name : SplitList(text)) {
    const std::optional<KvStrategy> strategy = KvStrategyFromName(name);
    if (!strategy.has_value()) {
      return InvalidArgument("strategy '{}' is unknown; use {}", name, StrategyNames());
    }
    if (std::find(strategies.begin(), strategies.end(), *strategy) != strategies.end()) {
      return InvalidArgument("{} is named twice", name);
    }
    strategies.push_back(*strategy);
  }
  return strategies;
}

StatusOr<std::vector<KvTypes>> ParseDistinctKvTypes(const std::string& text) {
  KV_ASSIGN_OR_RETURN(std::vector<KvTypes> all, ParseKvTypeList(text));
  for (auto types = all.begin(); types != all.end(); ++types) {
    if (std::find(all.begin(), types, *types) != types) {
      return InvalidArgument("{} is named twice", KvTypesName(*types));
    }
  }
  return all;
}

template <typename T>
std::string ProblemOf(const StatusOr<T>& parsed) {
  return parsed.ok() ? std::string() : std::string(MessageOf(parsed.status()));
}

std::string StrategiesProblem(const std::string& text) { return ProblemOf(ParseStrategies(text)); }
std::string TypesProblem(const std::string& text) { return ProblemOf(ParseDistinctKvTypes(text)); }

std::string ScenarioProblem(const std::string& text) {
  if (StrategyScenarioNamed(text).has_value()) return {};
  return "must be shared, chat, unique or mixed, is " + text;
}

std::string EvictProblem(const std::string& text) {
  if (KvEvictFromName(text).has_value()) return {};
  return "must be lru, lfu, gdsf, s3fifo or adaptive, is " + text;
}

std::string CpuName() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    const size_t colon = line.find(": ");
    if (line.compare(0, 10, "model name") == 0 && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return "unknown CPU";
}

class BenchStrategiesCommand : public Command {
 public:
  std::vector<std::string> path() const override { return {"bench", "strategies"}; }
  std::string description() const override {
    return "Put the same load on every way to keep KV, and compare speed and memory";
  }

  void Register(Options& options) override {
    AddModelPath(options, &flags_.path, &flags_.models_dir);
    options.Add("--budget", &budget_, "KV memory that each strategy gets")
        .Type("SIZE")
        .Check(ByteSizeProblem)
        .ShowDefault();
    options.Add("--ctx", &context_tokens_, "Longest sequence in tokens")
        .Type("N")
        .Range(2, kMostTokens)
        .ShowDefault();
    options.Add("--scenario", &scenario_, "shared, chat, unique or mixed")
        .Type("NAME")
        .Check(ScenarioProblem)
        .ShowDefault();
    options.Add("--strategies", &strategies_, "Which ones")
        .Type("LIST")
        .Check(StrategiesProblem)
        .ShowDefault();
    options
        .Add("--kv-types", &kv_types_,
             "How keys and values are stored; f16;k=int8,v=int4 for types of their own")
        .Type("LIST")
        .Check(TypesProblem)
        .ShowDefault();
    options.Add("--kv-evict", &evict_, "What paged gives up first (gdsf)")
        .Type("NAME")
        .Check(EvictProblem);
    options.AddFlag("--json", &json_, "Print one JSON object");
    options.Add("--html", &html_, "Write a page with tables and charts; - is standard output")
        .Type("FILE")
        .Check(ReportPathProblem)
        .CommandLineOnly();
    RegisterLoad(options);
    options.Add("--threads", &flags_.threads, "Worker threads (default: all usable cores)")
        .Type("N")
        .Range(1, 1024)
        .Group("Machine");
    options.Add("--isa", &flags_.isa, "Instruction set: avx512, avx2 or scalar")
        .Type("NAME")
        .Check(IsaProblem)
        .Group("Machine");
  }

  StatusOr<int> Run() override {
    KV_ASSIGN_OR_RETURN(report_.budget_bytes, ParseByteSize(budget_));
    KV_RETURN_IF_ERROR(CheckMachineHolds("--budget", budget_, report_.budget_bytes));
    KV_ASSIGN_OR_RETURN(const std::vector<KvStrategy> strategies, ParseStrategies(strategies_));
    KV_ASSIGN_OR_RETURN(const std::vector<KvTypes> types, ParseDistinctKvTypes(kv_types_));
    KV_RETURN_IF_ERROR(CheckFlags(strategies));
    flags_.context_tokens = context_tokens_;
    OpenNeeds needs;
    needs.max_rows = 16;  // Its own runner computes nothing here.
    KV_RETURN_IF_ERROR(FetchModel(&flags_.path, flags_.models_dir));
    KV_ASSIGN_OR_RETURN(const OpenedModel opened, OpenModel(flags_, needs));
    LoadedModel& model = *opened.model;
    KV_RETURN_IF_ERROR(Prepare(model));
    CatchInterrupts();  // Not before: until now there is nothing to show.
    for (const KvTypes type : types) {
      for (const KvStrategy strategy : strategies) {
        StrategyRow& row = report_.rows.emplace_back();
        row.strategy = strategy;
        row.types = type;
      }
    }
    SayLength();
    for (uint32_t round = 0; round < report_.rounds; ++round) {
      for (StrategyRow& row : report_.rows) {
        if (row.ok() && !report_.interrupted) RunOne(model, &row);
      }
    }
    std::erase_if(report_.rows, [](const StrategyRow& row) {  // Interrupted before its turn.
      return row.ok() && row.rounds.empty();
    });
    const bool none_ran = NoneRan();
    for (StrategyRow& row : report_.rows) Summarise(&row);
    if (none_ran) {
      if (json_) PrintOut("{}", ToJson(report_));
      return WhyNoneRan(model);
    }
    if (html_.has_value()) KV_RETURN_IF_ERROR(WriteReportFile(*html_, ToHtml(report_)));
    if (json_) {
      PrintOut("{}", ToJson(report_));
    } else if (html_ != "-") {
      PrintTable(report_);
    }
    return ExitCode();
  }

 private:
  void RegisterLoad(Options& options) {
    const auto add = [&options](const char* name, std::optional<uint32_t>* value, double low,
                                double high, const char* description) {
      options.Add(name, value, description).Type("N").Range(low, high).Group("Load");
    };
    add("-n,--requests", &requests_, 1, kMostRequests,
        "Requests of each run (default: the scenario's, as below)");
    add("-c,--clients", &clients_, 1, kMostClients,
        "Who ask at once, each again when it was answered");
    add("--prefix-tokens", &prefix_tokens_, 0, kMostTokens, "Tokens that prompts have in common");
    add("--tail-tokens", &tail_tokens_, 1, kMostTokens,
        "Tokens of each request's own, on average; mixed: of a short one");
    add("--output-tokens", &output_tokens_, 1, kMostTokens, "Tokens of an answer, on average");
    add("--turns", &turns_, 1, 1000, "Turns of a conversation in chat");
    options.Add("--rounds", &rounds_, "All of them so many times in turn; times are the median's")
        .Type("N")
        .Range(1, 1000)
        .ShowDefault()
        .Group("Load");
    options.Add("--seed", &seed_, "Of texts and lengths (1)").Type("N").Group("Load");
    options
        .Add("--prefill-rows", &prefill_rows_,
             "Prompt tokens in a step beside running answers: fixed, so that counts repeat")
        .Type("N")
        .Range(1, 512)
        .ShowDefault()
        .Group("Load");
  }

  // What is wrong with them together, before the model is read.
  Status CheckFlags(const std::vector<KvStrategy>& strategies) const {
    const StrategyScenario scenario = *StrategyScenarioNamed(scenario_);
    if (prefix_tokens_.has_value() && scenario == StrategyScenario::kUnique) {
      return InvalidArgument(
          "--prefix-tokens: prompts of --scenario unique have nothing in common; use shared, chat "
          "or mixed");
    }
    if (turns_.has_value() && scenario != StrategyScenario::kChat) {
      return InvalidArgument("--turns: only --scenario chat has conversations, not {}", scenario_);
    }
    const bool has_paged =
        std::find(strategies.begin(), strategies.end(), KvStrategy::kPaged) != strategies.end();
    if (evict_.has_value() && !has_paged) {
      return InvalidArgument("--kv-evict is for the strategy paged, which is not among {}",
                             strategies_);
    }
    if (!html_.has_value()) return OkStatus();
    if (html_ == "-" && json_) {
      return InvalidArgument("--json and --html - cannot both go to standard output");
    }
    return CheckReportFile(*html_);
  }

  Status Prepare(LoadedModel& model) {
    ScriptedLoad::Options load = ScriptedLoad::Defaults(*StrategyScenarioNamed(scenario_));
    load.seed = seed_.value_or(kDefaultSeed);
    load.requests = requests_.value_or(load.requests);
    load.clients = std::min(clients_.value_or(load.clients), load.requests);
    load.prefix_tokens = prefix_tokens_.value_or(load.prefix_tokens);
    load.tail_tokens = tail_tokens_.value_or(load.tail_tokens);
    load.output_tokens = output_tokens_.value_or(load.output_tokens);
    load.turns = turns_.value_or(load.turns);
    const uint64_t longest = ScriptedLoad::MostTokens(load);
    if (longest > context_tokens_) {
      return InvalidArgument("requests of this load may come to {} tokens, --ctx is {}", longest,
                             context_tokens_);
    }
    report_.load = ScriptedLoad::Make(load, model.text().tokenizer());
    report_.started = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
    report_.model = flags_.path;
    report_.machine =
        fmt::format("{}, {}, {}", CpuName(), Counted(model.team().worker_count(), "thread"),
                    IsaName(ActiveIsa()));
    report_.context_tokens = context_tokens_;
    report_.block_tokens = model.kv().layout().block_tokens;
    report_.prefill_rows = prefill_rows_;
    report_.rounds = rounds_;
    report_.evict = evict_.has_value() ? *KvEvictFromName(*evict_) : KvCache::Options().evict;
    return OkStatus();
  }

  size_t run_count() const { return report_.rows.size() * report_.rounds; }

  void SayLength() const {
    if (!IsTerminal(STDERR_FILENO)) return;
    PrintError(
        "{} of {}: {} prompt and {} answer tokens each; the first one shows how long it takes\n",
        Counted(run_count(), "run"), Counted(report_.load.request_count, "request"),
        report_.load.prompt_tokens, report_.load.output_tokens);
  }

  void RunOne(LoadedModel& model, StrategyRow* row) {
    const StrategyRunOptions options = OptionsOf(*row);
    const std::string left = runs_done_ == 0
                                 ? std::string()
                                 : fmt::format(", about {:.0f} s left",
                                               spent_s_ / static_cast<double>(runs_done_) *
                                                   static_cast<double>(run_count() - runs_done_));
    ProgressBar bar(fmt::format("{} of {}: {} {}{}", runs_done_ + 1, run_count(),
                                KvStrategyName(row->strategy), KvTypesName(row->types), left));
    const double start = NowSeconds();
    StatusOr<StrategyOutcome> outcome =
        RunStrategy(model, report_.load, options, [&](double share) {
          bar.Update(share);
          return !Interrupted().load();
        });
    spent_s_ += NowSeconds() - start;
    ++runs_done_;
    if (!outcome.ok()) {
      row->problem = MessageOf(outcome.status());
      const uint64_t least = LeastBudget(model, report_.load, options);
      if (options.budget_bytes < least) {
        row->problem += fmt::format(" (--budget {} is enough)", SizeForAtLeast(least));
      }
      return;
    }
    report_.interrupted = outcome->interrupted;
    // A round that was cut short counts only where there is no other.
    if (outcome->interrupted && !row->rounds.empty()) return;
    row->rounds.push_back(*std::move(outcome));
  }

  int ExitCode() const {
    if (report_.interrupted) return kExitInterrupted;
    if (FindDifference(report_).has_value()) return kExitFailure;
    const auto differs = [](const StrategyRow& row) { return row.rounds.size() > 1; };
    if (std::any_of(report_.rows.begin(), report_.rows.end(), differs)) return kExitFailure;
    return kExitOk;
  }

  bool NoneRan() const {  // Before Summarise, which takes the rounds.
    return !report_.interrupted &&
           std::none_of(report_.rows.begin(), report_.rows.end(),
                        [](const StrategyRow& row) { return !row.rounds.empty(); });
  }

  // That is what was asked for, not this machine.
  Status WhyNoneRan(LoadedModel& model) const {
    std::string budgets, reasons;
    bool all_for_budget = true;
    for (const StrategyRow& row : report_.rows) {
      const std::string name =
          fmt::format("{} {}", KvStrategyName(row.strategy), KvTypesName(row.types));
      const uint64_t least = LeastBudget(model, report_.load, OptionsOf(row));
      all_for_budget = all_for_budget && report_.budget_bytes < least;
      budgets += fmt::format("{}{} {}", budgets.empty() ? "" : ", ", name, SizeForAtLeast(least));
      reasons += fmt::format("; {}: {}", name, row.problem);
    }
    if (!all_for_budget) return InvalidArgument("no strategy can run this load{}", reasons);
    return InvalidArgument(
        "no strategy can run this load with --budget {}; the least that each needs: {}", budget_,
        budgets);
  }

  StrategyRunOptions OptionsOf(const StrategyRow& row) const {
    StrategyRunOptions options;
    options.strategy = row.strategy;
    options.types = row.types;
    options.evict = report_.evict;
    options.budget_bytes = report_.budget_bytes;
    options.context_tokens = context_tokens_;
    options.prefill_rows = prefill_rows_;
    return options;
  }

  ModelFlags flags_;
  std::string budget_ = "256MiB";
  uint32_t context_tokens_ = 2048;
  std::string scenario_ = "mixed";
  std::string strategies_ = StrategyNames();
  std::string kv_types_ = "f16,int8,int4";
  std::optional<std::string> evict_;
  bool json_ = false;
  std::optional<std::string> html_;
  std::optional<uint32_t> requests_;
  std::optional<uint32_t> clients_;
  std::optional<uint32_t> prefix_tokens_;
  std::optional<uint32_t> tail_tokens_;
  std::optional<uint32_t> output_tokens_;
  std::optional<uint32_t> turns_;
  std::optional<uint64_t> seed_;
  uint32_t prefill_rows_ = 128;
  uint32_t rounds_ = 1;
  StrategiesReport report_;
  double spent_s_ = 0.0;
  size_t runs_done_ = 0;
};

}  // namespace

std::unique_ptr<Command> MakeBenchStrategiesCommand() {
  return std::make_unique<BenchStrategiesCommand>();
}

}  // namespace kvasir
