// kvasir serve: the OpenAI-compatible server.
//
// Listens at once and says 503 while the model loads. Threads: this one waits for signals; one
// loads; one is the engine's; the HTTP server has its own.
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "adapt_log.h"
#include "api/service.h"
#include "base/byte_size.h"
#include "base/clock.h"
#include "base/counted.h"
#include "chat_prompt.h"
#include "command.h"
#include "engine/engine_client.h"
#include "engine/engine_loop.h"
#include "io/http_server.h"
#include "model_flags.h"
#include "model_path.h"
#include "option_values.h"
#include "output.h"
#include "speculation_flag.h"
#include "text_input.h"

namespace kvasir {
namespace {

constexpr const char* kVersion = KVASIR_VERSION;
constexpr std::chrono::milliseconds kPoll{50};
// What replies that are already written get to reach their clients.
constexpr std::chrono::milliseconds kFlush{2'000};
// The same after a second signal.
constexpr std::chrono::milliseconds kFlushAtOnce{80};

std::string PrefillChunkProblem(const std::string& text) {
  if (text == "auto") return {};
  const bool digits = !text.empty() && text.size() <= 6 &&
                      text.find_first_not_of("0123456789") == std::string::npos;
  return digits && std::stoul(text) > 0 ? std::string() : "must be auto or a number, is " + text;
}

// How the KV memory is divided, for the start's message.
std::string KvPlaces(LoadedModel& model, KvStrategy strategy) {
  const KvCache& kv = model.kv();
  if (strategy != KvStrategy::kStatic) return std::string(KvStrategyName(strategy));
  const uint32_t block_tokens = kv.layout().block_tokens;
  const uint32_t region = (model.context_tokens() + block_tokens - 1) / block_tokens;
  return fmt::format("static: {} of {}", Counted(kv.block_count(0) / region, "slot"),
                     Counted(model.context_tokens(), "token"));
}

std::string OnOffProblem(const std::string& text) {
  return text == "on" || text == "off" ? std::string() : "must be on or off, is " + text;
}

// Everything that exists once the model is loaded. Not moved: parts refer to each other.
struct Serving {
  OpenedModel opened;
  SteadyClock clock;
  std::unique_ptr<EngineLoop> loop;
  std::unique_ptr<EngineClient> client;
  std::shared_ptr<const ServedModel> served;
};

struct SchedulerFlags {
  uint32_t max_batch = 32;
  uint32_t max_batch_tokens = 512;
  uint32_t batch_wait_ms = 0;
  std::string prefill_chunk = "auto";
  uint32_t step_target_ms = 80;
  uint32_t step_stretch = 3;
  uint32_t max_queue = 512;
  SpeculationFlag speculate;
  std::string adapt = "off";

  void Register(Options& options) {
    const auto add = [&options](const char* name, uint32_t* value, double low, double high,
                                const char* description) {
      options.Add(name, value, description)
          .Type("N")
          .Range(low, high)
          .ShowDefault()
          .Group("Batching");
    };
    add("--max-batch", &max_batch, 1, 1024, "Sequences computed at a time");
    add("--max-batch-tokens", &max_batch_tokens, 1, 65536, "Rows of one forward pass");
    add("--batch-wait-ms", &batch_wait_ms, 0, 10'000, "When nothing runs: wait for company");
    add("--step-target-ms", &step_target_ms, 1, 60'000,
        "How long a step with running streams may take; sizes automatic chunks");
    add("--step-stretch", &step_stretch, 0, 1000,
        "How many times longer than without prompts; 0: no limit");
    add("--max-queue", &max_queue, 0, 1'000'000, "Waiting sequences; beyond it 429");
    options
        .Add("--prefill-chunk", &prefill_chunk,
             "Prompt tokens in a step with running streams: auto or a number")
        .Type("auto|N")
        .Check(PrefillChunkProblem)
        .ShowDefault()
        .Group("Batching");
    options
        .Add("--kv-adapt", &adapt,
             "Under pressure, move --max-batch, --step-stretch and the eviction policy by what is "
             "measured: on or off")
        .Type("on|off")
        .Check(OnOffProblem)
        .ShowDefault()
        .Group("Batching");
    speculate.Register(options);
  }

  bool adapts() const { return adapt == "on"; }

  SchedulerOptions ToOptions(uint32_t max_logits_rows) const {
    SchedulerOptions options;
    options.max_batch = max_batch;
    options.max_batch_tokens = max_batch_tokens;
    options.max_logits_rows = max_logits_rows;
    options.max_queue = max_queue;
    options.prefill_chunk =
        prefill_chunk == "auto" ? 0 : static_cast<uint32_t>(std::stoul(prefill_chunk));
    options.step_target_us = TimeUs{step_target_ms} * 1000;
    options.step_stretch = step_stretch;
    options.speculate = speculate.value();
    options.batch_wait_us = TimeUs{batch_wait_ms} * 1000;
    options.adapt = adapts();
    return options;
  }
};

// Waits for SIGINT or SIGTERM, which must be blocked; false when the time is over.
bool SignalWithin(std::chrono::milliseconds time) {
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGINT);
  ::sigaddset(&signals, SIGTERM);
  const timespec wait = {time.count() / 1000, (time.count() % 1000) * 1'000'000};
  return ::sigtimedwait(&signals, nullptr, &wait) > 0;
}

// Blocks them here and in every thread started from here on.
void BlockSignals() {
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGINT);
  ::sigaddset(&signals, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);  // A reader of our output that leaves must not end us.
}

// Ends the process, whatever still runs: a step of a large model, a long text that is tokenized, a
// client that does not read. Replies get a moment to reach those who read.
[[noreturn]] void EndAtOnce(HttpServer& server) {
  server.BeginDrain();
  const bool all_ended = server.WaitDrained(kFlushAtOnce);
  PrintError("kvasir: stopped {}\n", all_ended ? "at once" : "before all requests were done");
  ::_exit(kExitOk);
}

// What has been written reaches its clients, within kFlush.
void Flush(HttpServer& server) {
  server.BeginDrain();
  const auto deadline = std::chrono::steady_clock::now() + kFlush;
  while (!server.WaitDrained(kPoll)) {
    if (SignalWithin(std::chrono::milliseconds(0))) EndAtOnce(server);
    if (std::chrono::steady_clock::now() < deadline) continue;
    PrintError("kvasir: closing open connections\n");
    return;
  }
}

std::string Trimmed(const std::string& line) {
  constexpr const char* kBlanks = " \t\r";
  const size_t begin = line.find_first_not_of(kBlanks);
  if (begin == std::string::npos) return {};
  return line.substr(begin, line.find_last_not_of(kBlanks) + 1 - begin);
}

void Say(const std::string& line) {
  PrintOut("{}\n", line);
  std::fflush(stdout);
}

class ServeCommand : public Command {
 public:
  std::vector<std::string> path() const override { return {"serve"}; }
  std::string description() const override { return "Serve a model to OpenAI clients over HTTP"; }

  void Register(Options& options) override {
    flags_.Register(options);
    scheduler_.Register(options);
    RegisterNetwork(options);
    options.Add("--chat-template", &template_path_, "Use this Jinja template, not the model's")
        .Type("FILE");
    options
        .Add("--served-model-name", &served_names_,
             "Name of the model in requests; repeatable (default: the file's name)")
        .Type("NAME");
    options.AddFlag("--any-model", &any_model_, "Answer requests for any model name");
    options.AddFlag("--log-json", &log_json_, "Log lines as JSON objects").Group("Log");
    options.AddFlag("--log-prompts", &log_prompts_, "Log the text of prompts").Group("Log");
    options.AddFlag("--kv-show-text", &kv_show_text_,
                    "GET /v1/kv shows the text of what is cached");
  }

  StatusOr<int> Run() override {
    KV_RETURN_IF_ERROR(FetchModel(&flags_.path, flags_.models_dir));
    KV_ASSIGN_OR_RETURN(ApiService::Options api, ApiOptions());
    KV_ASSIGN_OR_RETURN(HttpServer::Options http, HttpOptions());
    if (scheduler_.max_batch_tokens < scheduler_.max_batch) {
      return InvalidArgument(
          "--max-batch-tokens {} is less than --max-batch {}; give --max-batch-tokens {} or "
          "--max-batch {}",
          scheduler_.max_batch_tokens, scheduler_.max_batch, scheduler_.max_batch,
          scheduler_.max_batch_tokens);
    }
    BlockSignals();
    ApiService service(std::move(api));
    http.on_rejection = [&service](const HttpRejection& rejection) {
      service.LogRejection(rejection);
    };
    KV_ASSIGN_OR_RETURN(const std::unique_ptr<HttpServer> server,
                        HttpServer::Create(std::move(http), service.Routes()));
    service.SetHttpServer(server.get());
    server->Start();
    Say(fmt::format("kvasir {}: listening on http://{}, loading {}", kVersion, server->address(),
                    flags_.path));
    Serving serving;
    const Status loaded = LoadWhileServing(&serving);
    if (!loaded.ok()) {
      server->Stop();
      return loaded;
    }
    service.SetReady(serving.served);
    SayReady(serving, *server);
    ServeUntilSignal(serving, service, *server);
    Flush(*server);
    server->Stop();
    return kExitOk;
  }

 private:
  void RegisterNetwork(Options& options) {
    const char* group = "Network";
    options.Add("--host", &host_, "Address to listen on")
        .Type("ADDRESS")
        .ShowDefault()
        .Group(group);
    options.Add("--port", &port_, "Port; 0: any free one")
        .Type("N")
        .Range(0, 65535)
        .ShowDefault()
        .Group(group);
    options
        .Add("--api-key", &api_keys_,
             "Answer only requests with this key; repeatable, each with a cache of its own")
        .Type("KEY")
        .Group(group);
    options.Add("--api-key-file", &api_key_file_, "Keys, one a line; # begins a comment")
        .Type("FILE")
        .Group(group);
    options
        .Add("--cors-origin", &cors_origin_,
             "Let pages of this origin (or *) use the server (default: none)")
        .Type("ORIGIN")
        .Group(group);
    options.Add("--max-body", &max_body_, "Largest request body")
        .Type("SIZE")
        .Check(ByteSizeProblem)
        .ShowDefault()
        .Group(group);
    options.Add("--max-connections", &max_connections_, "Open connections; beyond it 503")
        .Type("N")
        .Range(1, 1'000'000)
        .ShowDefault()
        .Group(group);
    options.Add("--request-timeout", &request_timeout_s_, "Longest a request may take; 0: no limit")
        .Type("SECONDS")
        .Range(0, 86'400)
        .ShowDefault()
        .Group(group);
    options
        .Add("--drain-timeout", &drain_timeout_s_,
             "After SIGTERM: how long running requests may go on")
        .Type("SECONDS")
        .Range(0, 86'400)
        .ShowDefault()
        .Group(group);
  }

  StatusOr<ApiService::Options> ApiOptions() const {
    ApiService::Options options;
    for (const std::string& name : served_names_) {
      if (name.empty()) return InvalidArgument("--served-model-name is empty");
    }
    options.served_names = served_names_;
    if (options.served_names.empty()) {
      options.served_names.push_back(std::filesystem::path(flags_.path).stem().string());
    }
    options.any_model = any_model_;
    options.api_keys = api_keys_;
    if (!api_key_file_.empty()) {
      KV_ASSIGN_OR_RETURN(const std::string text, ReadText(api_key_file_));
      for (size_t begin = 0; begin < text.size();) {
        const size_t end = std::min(text.find('\n', begin), text.size());
        const std::string line = Trimmed(text.substr(begin, end - begin));
        if (!line.empty() && line.front() != '#') options.api_keys.push_back(line);
        begin = end + 1;
      }
      // An empty file must not open the server to everybody.
      if (options.api_keys.empty()) return InvalidArgument("{}: holds no key", api_key_file_);
    }
    for (const std::string& key : options.api_keys) {
      if (key.empty()) return InvalidArgument("--api-key is empty");
    }
    options.request_timeout_us = static_cast<TimeUs>(request_timeout_s_ * 1e6);
    options.version = kVersion;
    options.log_json = log_json_;
    options.log_prompts = log_prompts_;
    options.kv_show_text = kv_show_text_;
    options.log = [](const std::string& line) {
      const std::string whole = line + "\n";  // One write a line, so that lines stay whole.
      Write(stderr, whole);
    };
    options.wall_clock = [] { return std::time(nullptr); };
    std::random_device random;
    options.random_seed = (uint64_t{random()} << 32) | random();
    return options;
  }

  StatusOr<HttpServer::Options> HttpOptions() const {
    HttpServer::Options options;
    options.host = host_;
    options.port = static_cast<uint16_t>(port_);
    options.max_connections = max_connections_;
    KV_ASSIGN_OR_RETURN(options.max_body_bytes, ParseByteSize(max_body_));
    options.cors_origin = cors_origin_;
    return options;
  }

  // Loads on another thread, so that a signal ends the program at once meanwhile.
  Status LoadWhileServing(Serving* serving) const {
    std::atomic<bool> done{false};
    Status status;
    std::thread loader([&] {
      status = Load(serving);
      done.store(true);
    });
    while (!done.load()) {
      if (!SignalWithin(kPoll)) continue;
      PrintError("kvasir: stopped while loading\n");
      ::_exit(kExitOk);  // Nothing was promised to anybody yet.
    }
    loader.join();
    return status;
  }

  Status Load(Serving* serving) const {
    OpenNeeds needs;
    needs.max_sequences = scheduler_.max_batch;
    needs.max_logits_rows = std::max(scheduler_.max_batch, 64u);
    needs.max_rows = scheduler_.max_batch_tokens;
    ModelFlags flags = flags_;
    if (scheduler_.adapts() && flags.kv_evict.empty() &&
        KvStrategyFromName(flags.kv_strategy) == KvStrategy::kPaged) {
      flags.kv_evict = KvEvictName(KvEvict::kAdaptive);
    }
    KV_ASSIGN_OR_RETURN(serving->opened, OpenModel(flags, needs));
    LoadedModel& model = *serving->opened.model;

    auto served = std::make_shared<ServedModel>();
    served->text = &model.text();
    if (!template_path_.empty() || model.text().chat_template().has_value()) {
      StatusOr<ChatTemplate> parsed = LoadChatTemplate(model.text(), template_path_);
      if (parsed.ok()) {
        served->chat_template.emplace(*std::move(parsed));
      } else if (!template_path_.empty()) {
        return parsed.status();
      } else {
        PrintError("kvasir: {}: {}; chat requests will be refused\n", flags_.path,
                   MessageOf(parsed.status()));
      }
    }
    EngineLoop::Options options;
    options.scheduler = scheduler_.ToOptions(needs.max_logits_rows);
    options.cost = CostOf(model);
    serving->loop = std::make_unique<EngineLoop>(options, model.runner(), model.kv(),
                                                 model.text().tokenizer(), serving->clock);
    serving->client = std::make_unique<EngineClient>(*serving->loop);
    served->engine = serving->client.get();
    served->clock = &serving->clock;
    served->root = [&model](const std::string& salt) { return model.Root(salt); };
    served->vocab_size = model.config().vocab_size;
    served->context_tokens = model.context_tokens();
    if (model.memory_limits_context()) {
      served->unlimited_context_tokens = model.config().context_length;
    }
    served->block_tokens = model.kv().layout().block_tokens;
    served->fingerprint = fmt::format("kvasir-{}-{}", kVersion, ToHex(model.Root("")).substr(0, 8));
    serving->served = std::move(served);
    return OkStatus();
  }

  // A server that refuses what its model could answer must say so before the first request.
  void WarnOfShortContext(const LoadedModel& model) const {
    if (!model.memory_limits_context()) return;
    PrintError(
        "kvasir: warning: the KV memory ({}) holds sequences of {}; longer requests are refused. "
        "For "
        "all of the model's context {}; --ctx {} says that this is enough\n",
        flags_.kv_memory.empty() ? "half of what was free" : "--kv-memory " + flags_.kv_memory,
        Counted(model.context_tokens(), "token"), model.AdviceFor(model.config().context_length),
        model.context_tokens());
  }

  void SayReady(const Serving& serving, const HttpServer& server) const {
    LoadedModel& model = *serving.opened.model;
    WarnOfShortContext(model);
    Say(fmt::format(
        "kvasir: ready on http://{} (context {}, KV memory {} of {}, {} bytes a token, {}; {})",
        server.address(), Counted(model.context_tokens(), "token"), ShownBytes(model.kv_bytes()),
        KvTypesName(model.kv().layout().types), model.kv().layout().bytes_per_token(),
        KvPlaces(model, *KvStrategyFromName(flags_.kv_strategy)),
        Counted(model.team().worker_count(), "thread")));
    const bool chat = serving.served->chat_template.has_value();
    const bool keys = !api_keys_.empty() || !api_key_file_.empty();
    Say(fmt::format("try it:\n  curl http://{}/v1/{} -H 'Content-Type: application/json'{} -d '{}'",
                    server.address(), chat ? "chat/completions" : "completions",
                    keys ? " -H \"Authorization: Bearer $KEY\"" : "",
                    chat ? R"({"messages": [{"role": "user", "content": "Why is the sky blue?"}]})"
                         : R"({"prompt": "Once upon a time", "max_tokens": 50})"));
  }

  // Runs the engine until a signal; then lets running requests end. A second one ends the process.
  void ServeUntilSignal(Serving& serving, ApiService& service, HttpServer& server) const {
    std::atomic<bool> ended{false};
    std::thread engine([&] {
      serving.loop->Run();
      ended.store(true);
    });
    AdaptLog log;
    while (!SignalWithin(std::chrono::seconds(1))) {
      for (const std::string& line : log.News(serving.client->snapshot())) {
        PrintError("kvasir: {}\n", line);
      }
    }
    service.BeginDrain();
    serving.loop->Stop(/*drain=*/true);
    PrintError("kvasir: draining for up to {} s; a second signal stops now\n", drain_timeout_s_);
    const TimeUs deadline = serving.clock.Now() + static_cast<TimeUs>(drain_timeout_s_ * 1e6);
    bool cut = false;
    while (!ended.load()) {
      if (SignalWithin(kPoll)) {
        serving.loop->Stop(/*drain=*/false);
        EndAtOnce(server);
      }
      if (serving.clock.Now() < deadline) continue;
      cut = !ended.load();
      serving.loop->Stop(/*drain=*/false);
      break;
    }
    engine.join();
    if (cut) PrintError("kvasir: stopped before all requests were done\n");
  }

  ModelFlags flags_;
  SchedulerFlags scheduler_;
  std::string host_ = "127.0.0.1";
  uint32_t port_ = 8080;
  std::vector<std::string> api_keys_;
  std::string api_key_file_;
  std::optional<std::string> cors_origin_;
  std::string max_body_ = "16M";
  uint32_t max_connections_ = 1024;
  float request_timeout_s_ = 0.0f;
  float drain_timeout_s_ = 30.0f;
  std::string template_path_;
  std::vector<std::string> served_names_;
  bool any_model_ = false;
  bool log_json_ = false;
  bool log_prompts_ = false;
  bool kv_show_text_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeServeCommand() { return std::make_unique<ServeCommand>(); }

}  // namespace kvasir
