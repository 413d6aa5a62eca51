#include "bench_strategies_run.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "engine/engine_client.h"
#include "engine/engine_loop.h"
#include "kv/tail_store.h"
#include "load_client.h"
#include "model/cpu_model_runner.h"
#include "model_flags.h"
#include "terminal.h"

namespace kvasir {
namespace {

constexpr uint32_t kMaxRows = 512;
// What a step takes on the scheduler's clock: about what one with a full batch and a chunk of a
// prompt takes on two cores, so that who has waited long goes first as soon as in serve.
constexpr TimeUs kStepUs = 50'000;
constexpr int kMostIdleTurns = 10'000;  // Of an engine that has work and does none: a bug.

// Time as the scheduler sees it: steps.
class StepClock : public Clock {
 public:
  TimeUs Now() const override { return now_; }
  void Advance() { now_ += kStepUs; }

 private:
  TimeUs now_ = 0;
};

// One who asks, reads the whole answer, and asks again.
struct Client {
  const ScriptedConversation* conversation = nullptr;  // None: there is nothing left to ask.
  size_t turn = 0;
  std::vector<TokenId> history;  // The prompt and what was answered so far.
  std::shared_ptr<TokenStream> stream;
  LoadRecord record;
  std::string answer;

  uint32_t request() const { return conversation->first_request + static_cast<uint32_t>(turn); }
};

class StrategyRun {
 public:
  StrategyRun(LoadedModel& model, const ScriptedLoad& load) : model_(model), load_(load) {}

  Status Create(const StrategyRunOptions& options);
  Status Run(const std::function<bool(double)>& progress);
  StrategyOutcome Take() { return std::move(outcome_); }

 private:
  Status Ask(Client& client);
  // The next conversation of the script, if any is left.
  Status Begin(Client& client);
  // Takes what has come for the client; asks again when its request is over.
  Status Listen(Client& client, double now_s);
  void NoteStep(double now_s);

  LoadedModel& model_;
  const ScriptedLoad& load_;
  StepClock clock_;
  std::unique_ptr<CpuModelRunner> runner_;
  std::unique_ptr<KvCache> kv_;
  std::unique_ptr<EngineLoop> loop_;
  std::unique_ptr<EngineClient> engine_;
  BlockHash root_{};
  std::vector<Client> clients_;
  size_t next_conversation_ = 0;
  uint32_t done_ = 0;  // Requests.
  double start_s_ = 0.0;
  StrategyOutcome outcome_;
};

Status StrategyRun::Create(const StrategyRunOptions& options) {
  const uint32_t clients = load_.options.clients;
  StepLimits limits;
  limits.max_rows = std::max(kMaxRows, clients);
  limits.max_sequences = clients;
  limits.max_logits_rows = clients;
  KV_ASSIGN_OR_RETURN(runner_, CpuModelRunner::Create(model_.config(), model_.weights(),
                                                      model_.kv().layout().block_tokens, limits,
                                                      model_.team(), options.types));
  KvCache::Options cache;
  cache.strategy = options.strategy;
  cache.evict = options.evict;
  cache.layout = runner_->kv_layout();
  cache.max_sequences = clients;
  cache.max_sequence_tokens = options.context_tokens;
  cache.memory_bytes = options.budget_bytes;
  KV_ASSIGN_OR_RETURN(kv_, KvCache::Create(cache));
  outcome_.bytes_per_token = cache.layout.bytes_per_token();

  EngineLoop::Options engine;
  engine.scheduler.max_batch = clients;
  engine.scheduler.max_batch_tokens = limits.max_rows;
  engine.scheduler.max_logits_rows = clients;
  engine.scheduler.max_queue = clients;
  engine.scheduler.prefill_chunk = options.prefill_rows;
  engine.cost = CostOf(model_);
  loop_ = std::make_unique<EngineLoop>(engine, *runner_, *kv_, model_.text().tokenizer(), clock_);
  engine_ = std::make_unique<EngineClient>(*loop_);
  // The cache is this run's own, so that only what the prompt says tells blocks apart.
  root_ = model_.Root(KvTypesName(options.types));
  clients_.resize(clients);
  outcome_.answers.resize(load_.request_count);
  LoadRecord pending;  // Until it is done: what an interrupt leaves is no answer.
  pending.error = LoadClient::kCancelledError;
  outcome_.load.records.assign(load_.request_count, pending);
  return OkStatus();
}

Status StrategyRun::Ask(Client& client) {
  const ScriptedTurn& turn = client.conversation->turns[client.turn];
  client.history.insert(client.history.end(), turn.tokens.begin(), turn.tokens.end());
  GenerateRequest request;
  request.prompt = client.history;
  request.root = root_;
  request.hashes = HashBlocks(root_, request.prompt, kv_->layout().block_tokens);
  request.options.max_new_tokens = turn.output_tokens;
  request.options.ignore_eos = true;
  client.answer.clear();
  client.record = LoadRecord();
  client.record.intended_s = NowSeconds() - start_s_;
  KV_ASSIGN_OR_RETURN(EngineClient::Submitted submitted,
                      engine_->Submit(std::move(request), nullptr));
  client.stream = std::move(submitted.stream);
  return OkStatus();
}

Status StrategyRun::Begin(Client& client) {
  client.conversation = nullptr;
  client.history.clear();
  client.turn = 0;
  if (next_conversation_ == load_.conversations.size()) return OkStatus();
  client.conversation = &load_.conversations[next_conversation_++];
  return Ask(client);
}

Status StrategyRun::Listen(Client& client, double now_s) {
  const TokenStream::Batch batch = client.stream->Take();
  if (batch.rejected.has_value()) return *batch.rejected;
  for (const TokenEvent& event : batch.events) {
    client.history.push_back(event.token);
    client.answer += event.text;
    client.record.piece_s.push_back(now_s);
  }
  if (!batch.end.has_value()) return OkStatus();
  LoadRecord& record = client.record;
  record.end_s = now_s;
  record.has_usage = record.has_cached = true;
  record.prompt_tokens = batch.end->prompt_tokens;
  record.cached_tokens = batch.end->cached_tokens;
  record.output_tokens = batch.end->generated_tokens;
  outcome_.load.wall_s = now_s;
  outcome_.load.records[client.request()] = std::move(record);
  outcome_.answers[client.request()] = std::move(client.answer);
  ++done_;
  if (++client.turn < client.conversation->turns.size()) return Ask(client);
  return Begin(client);
}

void StrategyRun::NoteStep(double now_s) {
  const EngineSnapshot snapshot = loop_->snapshot();
  outcome_.samples.push_back(
      {now_s, snapshot.scheduler.running, snapshot.scheduler.waiting, snapshot.kv_usage});
  outcome_.scheduler = snapshot.scheduler;
  outcome_.kv = snapshot.kv;
}

Status StrategyRun::Run(const std::function<bool(double)>& progress) {
  const LockWaits before = LockWaits::OfThisThread();
  start_s_ = NowSeconds();
  for (Client& client : clients_) KV_RETURN_IF_ERROR(Begin(client));
  int idle_turns = 0;
  while (done_ < load_.request_count) {
    clock_.Advance();
    if (loop_->RunOnce()) {
      idle_turns = 0;
      NoteStep(NowSeconds() - start_s_);
    } else if (++idle_turns > kMostIdleTurns) {
      return Internal("{} requests wait and the engine does nothing", load_.request_count - done_);
    }
    const double now_s = NowSeconds() - start_s_;
    for (Client& client : clients_) {
      if (client.conversation != nullptr) KV_RETURN_IF_ERROR(Listen(client, now_s));
    }
    const uint64_t tokens = outcome_.scheduler.generated_tokens;
    if (!progress(static_cast<double>(tokens) / static_cast<double>(load_.output_tokens))) {
      outcome_.interrupted = true;
      break;
    }
  }
  kv_->CheckInvariants();
  const LockWaits after = LockWaits::OfThisThread();
  outcome_.lock_waits.count = after.count - before.count;
  outcome_.lock_waits.time = after.time - before.time;
  return OkStatus();
}

}  // namespace

double StrategySample::fragmentation() const {
  const uint64_t free = usage.total - usage.reserved;
  if (free == 0) return 0.0;
  return 1.0 - static_cast<double>(usage.largest_free) / static_cast<double>(free);
}

uint64_t LeastBudget(LoadedModel& model, const ScriptedLoad& load,
                     const StrategyRunOptions& options) {
  const uint64_t block_tokens = model.kv().layout().block_tokens;
  const KvLayout layout =
      KvLayoutFor(model.config(), model.kv().layout().block_tokens, options.types);
  // A slot of static holds the longest sequence there may be, whatever is asked for.
  const uint64_t tokens = options.strategy == KvStrategy::kStatic
                              ? options.context_tokens
                              : std::min(options.context_tokens, load.longest_tokens);
  // Paged keeps one block for the copy that a sequence makes which starts inside a cached one.
  const uint64_t blocks =
      (tokens + block_tokens - 1) / block_tokens + (options.strategy == KvStrategy::kPaged ? 1 : 0);
  return blocks * block_tokens * layout.bytes_per_token() +
         TailStore::SlotBytes(layout) * load.options.clients;
}

StatusOr<StrategyOutcome> RunStrategy(LoadedModel& model, const ScriptedLoad& load,
                                      const StrategyRunOptions& options,
                                      const std::function<bool(double share)>& progress) {
  StrategyRun run(model, load);
  KV_RETURN_IF_ERROR(run.Create(options));
  KV_RETURN_IF_ERROR(run.Run(progress));
  return run.Take();
}

}  // namespace kvasir
