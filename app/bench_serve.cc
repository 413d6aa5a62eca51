// kvasir bench serve: load on an OpenAI-compatible server, or the same load on two of them in turn.
#include <fmt/chrono.h>

#include <chrono>
#include <cstdio>
#include <ctime>
#include <memory>
#include <string>
#include <utility>

#include "base/rng.h"
#include "bench_serve_report.h"
#include "command.h"
#include "load_client.h"
#include "load_plan.h"
#include "load_run.h"
#include "load_text.h"
#include "output.h"
#include "report_file.h"
#include "terminal.h"

namespace kvasir {
namespace {

constexpr uint32_t kDefaultRequests = 32;
constexpr uint32_t kDefaultConcurrency = 8;
constexpr uint32_t kMostAtOnce = 4096;
constexpr uint32_t kDefaultOpenLimit = 512;  // Threads that an open loop may use.
constexpr uint32_t kMostTokens = 1'000'000;
constexpr double kMostSeconds = 1e6;
constexpr uint64_t kWarmupSeed = 0x3A41;
constexpr uint64_t kSampleWords = 400;

std::string ScenarioProblem(const std::string& text) {
  if (LoadScenarioNamed(text).has_value()) return {};
  return "must be shared, chat, unique or replay, is " + text;
}

std::string EndpointProblem(const std::string& text) {
  if (text == "chat" || text == "completions") return {};
  return "must be chat or completions, is " + text;
}

std::string UrlProblem(const std::string& text) {
  const StatusOr<HttpUrl> url = ParseHttpUrl(text);
  return url.ok() ? std::string() : std::string(MessageOf(url.status()));
}

struct Side {
  LoadTarget target;
  BenchedServer server;
};

class BenchServeCommand : public Command {
 public:
  std::vector<std::string> path() const override { return {"bench", "serve"}; }
  std::string description() const override {
    return "Put load on an OpenAI-compatible server, or on two in turn, and measure";
  }

  void Register(Options& options) override {
    RegisterServers(options);
    RegisterLoad(options);
    RegisterTrace(options);
    options.Add("--json", &json_, "Write everything measured as JSON; - is standard output")
        .Type("FILE")
        .Check(ReportPathProblem)
        .CommandLineOnly();
    options.Add("--html", &html_, "Write a page with tables and charts; - is standard output")
        .Type("FILE")
        .Check(ReportPathProblem)
        .CommandLineOnly();
  }

  StatusOr<int> Run() override {
    KV_RETURN_IF_ERROR(Prepare());
    std::vector<Side> sides;
    KV_ASSIGN_OR_RETURN(Side first, MakeSide("A", url_, model_, api_key_));
    sides.push_back(std::move(first));
    if (vs_url_.has_value()) {
      KV_ASSIGN_OR_RETURN(Side second, MakeSide("B", *vs_url_, vs_model_,
                                                vs_api_key_.empty() ? api_key_ : vs_api_key_));
      sides.push_back(std::move(second));
    }
    MeasureTokens(sides[0].target);
    CatchInterrupts();  // Not before: until now there is nothing to show.
    for (uint32_t round = 0; round < rounds_ && !report_.interrupted; ++round) {
      for (Side& side : sides) RunRound(round, &side);
    }
    for (Side& side : sides) {
      side.server.summary = Summarise(side.server.rounds);
      report_.servers.push_back(std::move(side.server));
    }
    KV_RETURN_IF_ERROR(Show());
    return ExitCode();
  }

 private:
  void RegisterServers(Options& options) {
    options.Add("--url", &url_, "Server to measure, such as http://127.0.0.1:8080")
        .Type("URL")
        .Check(UrlProblem)
        .Required();
    options.Add("--vs-url", &vs_url_, "Second server, which gets the same load in turn")
        .Type("URL")
        .Check(UrlProblem);
    options.Add("--model", &model_, "Model to ask for; default: the server's first")
        .Type("NAME")
        .CommandLineOnly();  // The environment's MODEL is a file.
    options.Add("--vs-model", &vs_model_, "The same for the second server").Type("NAME");
    options.Add("--api-key", &api_key_, "Key to send").Type("KEY");
    options.Add("--vs-api-key", &vs_api_key_, "Key for the second server; default: the same")
        .Type("KEY");
    options.Add("--endpoint", &endpoint_, "chat or completions")
        .Type("NAME")
        .Check(EndpointProblem)
        .ShowDefault();
    options.Add("--timeout", &timeout_s_, "Seconds that one request may take")
        .Type("S")
        .Range(0, kMostSeconds)
        .ShowDefault();
  }

  void RegisterLoad(Options& options) {
    options.Add("--scenario", &scenario_, "shared, chat, unique or replay")
        .Type("NAME")
        .Check(ScenarioProblem)
        .ShowDefault();
    options
        .Add("-n,--requests", &requests_,
             "Requests of each round; default 32, or no limit with "
             "--duration, or all of a trace")
        .Type("N")
        .Range(1, 1e9);
    options
        .Add("-c,--concurrency", &concurrency_,
             "Requests always under way (8); with --rate or a "
             "trace's times: at most (512)")
        .Type("N")
        .Range(1, kMostAtOnce);
    options.Add("--rate", &rate_, "Requests a second, at random times, whatever the server does")
        .Type("R")
        .Range(0, 1e6);
    options.Add("--duration", &duration_s_, "Seconds after which a round begins nothing more")
        .Type("S")
        .Range(0, kMostSeconds);
    options.Add("--rounds", &rounds_, "Rounds, with new texts each; two servers take turns")
        .Type("N")
        .Range(1, 1000)
        .ShowDefault();
    options.Add("--warmup", &warmup_, "Short requests before each round, not counted")
        .Type("N")
        .Range(0, 1000)
        .ShowDefault();
    options.Add("--prefix-tokens", &prefix_tokens_, "Tokens that all prompts have in common")
        .Type("N")
        .Range(0, kMostTokens)
        .ShowDefault();
    options
        .Add("--tail-tokens", &tail_tokens_,
             "Tokens of each request's, or turn's, own (40; "
             "unique: 1240)")
        .Type("N")
        .Range(1, kMostTokens);
    options.Add("--output-tokens", &output_tokens_, "Longest answer")
        .Type("N")
        .Range(1, kMostTokens)
        .ShowDefault();
    options.Add("--turns", &turns_, "Turns of a conversation in chat")
        .Type("N")
        .Range(1, 1000)
        .ShowDefault();
    options.AddFlag(
        "--ignore-eos", &ignore_eos_,
        "Send ignore_eos, which Kvasir, llama-server and vLLM know: all answers are long");
    options.Add("--seed", &seed_, "Of texts and times (1)").Type("N");
  }

  void RegisterTrace(Options& options) {
    options
        .Add("--trace", &trace_,
             "Trace for replay: JSON lines with timestamp, input_length, "
             "output_length, hash_ids")
        .Type("FILE")
        .CommandLineOnly();
    options.Add("--trace-block", &trace_block_, "Tokens that one of its hash_ids stands for")
        .Type("N")
        .Range(1, kMostTokens)
        .ShowDefault();
    options.Add("--trace-speed", &trace_speed_, "Divides the trace's times")
        .Type("X")
        .Range(0, 1e6)
        .ShowDefault();
    options.Add("--trace-scale", &trace_scale_, "Multiplies the trace's lengths")
        .Type("X")
        .Range(0, 1000)
        .ShowDefault();
  }

  // From options to plan and pace.
  Status Prepare() {
    LoadPlan::Options& plan = report_.plan;
    plan.scenario = *LoadScenarioNamed(scenario_);
    const bool replay = plan.scenario == LoadScenario::kReplay;
    if (replay != trace_.has_value()) {
      return InvalidArgument("--scenario replay and --trace FILE need each other");
    }
    if (json_ == "-" && html_ == "-")
      return InvalidArgument("--json and --html: only one can be -");
    if (json_.has_value()) KV_RETURN_IF_ERROR(CheckReportFile(*json_));
    if (html_.has_value()) KV_RETURN_IF_ERROR(CheckReportFile(*html_));
    if (timeout_s_ < 0.001f) return InvalidArgument("--timeout: must be at least 0.001 s");
    if (trace_speed_ <= 0.0f) return InvalidArgument("--trace-speed: must be above 0");
    if (trace_scale_ <= 0.0f) return InvalidArgument("--trace-scale: must be above 0");
    if (vs_model_.has_value() && !vs_url_.has_value()) {
      return InvalidArgument("--vs-model needs --vs-url");
    }
    if (replay) {
      KV_ASSIGN_OR_RETURN(auto trace, ReadTraceFile(*trace_, trace_block_, TraceNeeds::kAll));
      plan.trace = std::make_shared<const std::vector<TraceEntry>>(std::move(trace));
    }
    plan.seed = seed_.value_or(1);
    plan.requests = requests_;
    if (!requests_.has_value() && duration_s_ <= 0.0f && !replay) plan.requests = kDefaultRequests;
    plan.prefix_tokens = prefix_tokens_;
    const bool unique = plan.scenario == LoadScenario::kUnique;
    plan.tail_tokens = tail_tokens_.value_or(unique ? 1240 : 40);
    plan.output_tokens = output_tokens_;
    plan.turns = turns_;
    plan.rate = rate_;
    plan.trace_block_tokens = trace_block_;
    plan.trace_speed = trace_speed_;
    plan.trace_scale = trace_scale_;
    plan.trace_times = !concurrency_.has_value();
    LoadPace& pace = report_.pace;
    pace.open = rate_ > 0.0f || (replay && plan.trace_times);
    pace.concurrency = concurrency_.value_or(pace.open ? kDefaultOpenLimit : kDefaultConcurrency);
    pace.duration_s = duration_s_;
    report_.chat = endpoint_ == "chat";
    report_.ignore_eos = ignore_eos_;
    report_.warmup = warmup_;
    report_.started = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
    return OkStatus();
  }

  StatusOr<Side> MakeSide(const char* label, const std::string& url,
                          const std::optional<std::string>& model, const std::string& key) const {
    Side side;
    LoadTarget& target = side.target;
    KV_ASSIGN_OR_RETURN(target.url, ParseHttpUrl(url));
    // Clients are told ".../v1" as a rule; both forms name the same server.
    constexpr std::string_view kVersion = "/v1";
    std::string& path = target.url.path;
    if (path.size() >= kVersion.size() &&
        path.compare(path.size() - kVersion.size(), kVersion.size(), kVersion) == 0) {
      path.resize(path.size() - kVersion.size());
    }
    if (key.find_first_of(std::string_view("\r\n\0", 3)) != std::string::npos) {
      return InvalidArgument("--api-key: must be one line");
    }
    target.api_key = key;
    target.chat = endpoint_ == "chat";
    target.ignore_eos = ignore_eos_;
    target.timeout_s = timeout_s_;
    if (model.has_value()) {
      target.model = *model;
    } else {
      KV_ASSIGN_OR_RETURN(target.model, AskModelName(target));
    }
    side.server.label = label;
    side.server.url = url;
    side.server.model = target.model;
    return side;
  }

  // How many words make a token; 1 when the server does not say. Both servers get the same texts.
  void MeasureTokens(const LoadTarget& target) {
    const StatusOr<uint64_t> tokens =
        AskTokenCount(target, CommonWords(kWarmupSeed, 0, kSampleWords));
    if (!tokens.ok() || *tokens == 0) return;
    report_.tokens_measured = true;
    report_.plan.words_per_token = static_cast<double>(kSampleWords) / static_cast<double>(*tokens);
  }

  void RunRound(uint32_t round, Side* side) {
    if (report_.interrupted) return;
    const std::string label =
        fmt::format("{}{}:", vs_url_.has_value() ? side->server.label + " " : "",
                    rounds_ > 1 ? fmt::format("round {} of {}", round + 1, rounds_) : "load");
    LoadPlan::Options plan = report_.plan;
    // Without new texts every round but the first would find its prompts in the cache.
    plan.seed = round == 0 ? plan.seed : Mix64(plan.seed + round);
    if (warmup_ > 0) {
      LoadPlan::Options warm;
      warm.scenario = LoadScenario::kUnique;
      warm.seed = Mix64(plan.seed ^ kWarmupSeed);
      warm.requests = warmup_;
      warm.output_tokens = 8;
      LoadPace pace;
      pace.concurrency = std::min(warmup_, report_.pace.concurrency);
      LoadRun run(side->target, LoadPlan(warm), pace, label + " warming up:");
      if (run.Run().interrupted) {
        report_.interrupted = true;
        return;
      }
    }
    LoadRun run(side->target, LoadPlan(plan), report_.pace, label);
    LoadResult result = run.Run();
    report_.interrupted = result.interrupted;
    side->server.rounds.push_back(std::move(result));
  }

  Status Show() const {
    // What reads JSON from standard output wants nothing else there.
    if (json_ != "-" && html_ != "-") PrintTable(report_);
    if (html_.has_value()) KV_RETURN_IF_ERROR(WriteReportFile(*html_, ToHtml(report_)));
    if (json_.has_value()) KV_RETURN_IF_ERROR(WriteReportFile(*json_, ToJson(report_)));
    return OkStatus();
  }

  int ExitCode() const {
    if (report_.interrupted) return kExitInterrupted;
    for (const BenchedServer& server : report_.servers) {
      if (server.summary.succeeded == 0) return kExitFailure;
    }
    return kExitOk;
  }

  std::string url_;
  std::optional<std::string> vs_url_;
  std::optional<std::string> model_;
  std::optional<std::string> vs_model_;
  std::string api_key_;
  std::string vs_api_key_;
  std::string endpoint_ = "chat";
  float timeout_s_ = 300.0f;
  std::string scenario_ = "shared";
  std::optional<uint32_t> requests_;
  std::optional<uint32_t> concurrency_;
  float rate_ = 0.0f;
  float duration_s_ = 0.0f;
  uint32_t rounds_ = 1;
  uint32_t warmup_ = 1;
  uint32_t prefix_tokens_ = 1200;
  std::optional<uint32_t> tail_tokens_;
  uint32_t output_tokens_ = 64;
  uint32_t turns_ = 4;
  bool ignore_eos_ = false;
  std::optional<uint64_t> seed_;
  std::optional<std::string> trace_;
  uint32_t trace_block_ = 512;
  float trace_speed_ = 1.0f;
  float trace_scale_ = 1.0f;
  std::optional<std::string> json_;
  std::optional<std::string> html_;
  BenchServeReport report_;
};

}  // namespace

std::unique_ptr<Command> MakeBenchServeCommand() { return std::make_unique<BenchServeCommand>(); }

}  // namespace kvasir
