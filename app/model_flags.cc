#include "model_flags.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <utility>

#include "base/worker_team.h"
#include "kernels/isa.h"
#include "model_path.h"
#include "option_values.h"
#include "terminal.h"

namespace kvasir {
namespace {

constexpr int kMaxThreads = 1024;
// Attention multiplies floats, a quarter as many at a time as the matrices' int8.
constexpr double kInt8PerFloat = 4.0;

// Bytes that the kernel thinks can be had without swapping; nullopt where it does not say.
std::optional<uint64_t> AvailableMemoryBytes() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  uint64_t kib = 0;
  while (file >> key >> kib) {
    if (key == "MemAvailable:") return kib * 1024;
    file.ignore(256, '\n');
  }
  return std::nullopt;
}

uint64_t MemoryBytes() {
  return static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
         static_cast<uint64_t>(::sysconf(_SC_PAGE_SIZE));
}

// Weights and scratch want the other half.
uint64_t HalfOfAvailable() { return AvailableMemoryBytes().value_or(MemoryBytes()) / 2; }

std::string KvEvictProblem(const std::string& text) {
  if (KvEvictFromName(text).has_value()) return {};
  return "must be lru, lfu, gdsf, s3fifo or adaptive, is " + text;
}

std::string KvTypeProblem(const std::string& text) {
  if (ParseKvTypes(text).ok()) return {};
  return "must be f16, int8 or int4, or both like k=int8,v=int4, is " + text;
}

std::string StrategyProblem(const std::string& text) {
  if (KvStrategyFromName(text).has_value()) return "";
  std::string names;
  for (const KvStrategy strategy : AllKvStrategies()) {
    names += names.empty() ? "" : ", ";
    names += KvStrategyName(strategy);
  }
  return "'" + text + "' is unknown; the strategies are " + names;
}

StatusOr<LoadedModelOptions> LoadOptions(const ModelFlags& flags, const OpenNeeds& needs) {
  LoadedModelOptions options;
  KV_ASSIGN_OR_RETURN(options.thread_count, ApplyMachineFlags(flags));
  options.context_tokens = std::max(flags.context_tokens, needs.context_tokens);
  if (needs.context_tokens > flags.context_tokens) options.context_advice = needs.context_advice;
  const std::optional<KvStrategy> strategy = KvStrategyFromName(flags.kv_strategy);
  if (strategy.has_value())
    options.kv_strategy = *strategy;  // The option's check has seen to that.
  options.max_sequences = needs.max_sequences;
  options.limits.max_sequences = needs.max_sequences;
  options.limits.max_rows = needs.max_rows;
  options.limits.max_logits_rows = std::max(needs.max_logits_rows, needs.max_sequences);
  if (!flags.kv_evict.empty() && options.kv_strategy != KvStrategy::kPaged) {
    return InvalidArgument(
        "--kv-evict {}: --kv-strategy {} gives up whole sequences, the one at rest longest first; "
        "only paged has a choice",
        flags.kv_evict, flags.kv_strategy);
  }
  // The option's check has seen that it is one.
  options.kv_evict = KvEvictFromName(flags.kv_evict).value_or(options.kv_evict);
  KV_ASSIGN_OR_RETURN(options.kv_types, ParseKvTypes(flags.kv_type));
  if (!flags.kv_memory.empty()) {
    KV_ASSIGN_OR_RETURN(options.kv_bytes, ParseByteSize(flags.kv_memory));
    KV_RETURN_IF_ERROR(CheckMachineHolds("--kv-memory", flags.kv_memory, options.kv_bytes));
  }
  options.kv_bytes_cap = HalfOfAvailable();
  return options;
}

}  // namespace

Status CheckMachineHolds(const char* flag, const std::string& text, uint64_t bytes) {
  if (bytes <= MemoryBytes()) return OkStatus();
  return InvalidArgument(
      "{} {} is more than the {} MiB of this machine; {}M, half of what is free, leaves room for "
      "the rest",
      flag, text, MemoryBytes() >> 20, std::max<uint64_t>(1, HalfOfAvailable() >> 20));
}

void ModelFlags::Register(Options& options) {
  AddModelPath(options, &path, &models_dir);
  options.Add("--threads", &threads, "Worker threads (default: the cores this process may use)")
      .Type("N")
      .Range(1, kMaxThreads)
      .Group("Machine");
  options.Add("--isa", &isa, "Instruction set: avx512, avx2 or scalar (default: the best)")
      .Type("NAME")
      .Check(IsaProblem)
      .Group("Machine");
  options.Add("--ctx", &context_tokens, context_help)
      .Type("N")
      .Range(least_context, kMaxContext)
      .Group("Machine");
  options
      .AddFlag("--head-sketch", &head_sketch,
               "Keep bounds of the output head: greedy answers read less of it, exactly")
      .Group("Machine");
  options.Add("--kv-memory", &kv_memory, "Limit of the KV cache, such as 512M or 2G")
      .Type("SIZE")
      .Check(ByteSizeProblem)
      .Group("Machine");
  options
      .Add("--kv-type", &kv_type,
           "How keys and values are stored: f16, int8, int4, or both like k=int8,v=int4")
      .Type("TYPE")
      .Check(KvTypeProblem)
      .ShowDefault()
      .Group("Machine");
  options
      .Add(
          "--kv-evict", &kv_evict,
          "What a full KV cache gives up first: lru, lfu, gdsf, s3fifo or adaptive (default: gdsf; "
          "adaptive with --kv-adapt on)")
      .Type("NAME")
      .Check(KvEvictProblem)
      .Group("Machine");
  options
      .Add("--kv-strategy", &kv_strategy,
           "How KV lies in memory: static, dynamic, shared or paged; the text is the same")
      .Type("NAME")
      .Check(StrategyProblem)
      .ShowDefault()
      .Group("Machine");
}

CostModel::Options CostOf(const LoadedModel& model) {
  const ModelConfig& config = model.config();
  CostModel::Options cost;
  cost.linear_macs = static_cast<double>(model.weights().layer_macs());
  cost.attention_macs = 0.0;
  for (const LayerConfig& layer : config.layers) {
    // Scores and weighted values: two products of the queries' width for each token that is seen.
    const double per_token = kInt8PerFloat * 2.0 * config.q_width();
    if (layer.window == 0) {
      cost.attention_macs += per_token;
    } else {
      cost.linear_macs += per_token * layer.window;
    }
  }
  return cost;
}

StatusOr<int> ApplyMachineFlags(const ModelFlags& flags) {
  if (!flags.isa.empty()) {
    const std::optional<Isa> isa = IsaFromName(flags.isa);
    if (isa.has_value()) SetActiveIsa(*isa);  // The option's check has seen that it runs here.
  }
  return flags.threads > 0 ? flags.threads : std::min(WorkerTeam::UsableCores(), kMaxThreads);
}

StatusOr<OpenedModel> OpenModel(const ModelFlags& flags, const OpenNeeds& needs) {
  KV_ASSIGN_OR_RETURN(LoadedModelOptions options, LoadOptions(flags, needs));
  OpenedModel opened;
  KV_ASSIGN_OR_RETURN(opened.file, MappedParts::Open(flags.path));
  ProgressBar bar("loading");
  options.loading.head_sketch = flags.head_sketch;
  options.loading.release = [&file = opened.file](std::span<const std::byte> range) {
    file.ReleasePages(range);
  };
  options.loading.progress = [&bar](double share) { bar.Update(share); };
  StatusOr<std::unique_ptr<LoadedModel>> model = LoadedModel::Load(opened.file.parts(), options);
  if (!model.ok()) return WithPrefix(model.status(), flags.path);
  opened.model = *std::move(model);
  return opened;
}

}  // namespace kvasir
