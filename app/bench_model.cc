// kvasir bench model: prefill and decode speed of one model, beside what the machine could do.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/counted.h"
#include "bench_kv_types.h"
#include "bench_load.h"
#include "command.h"
#include "kernels/isa.h"
#include "machine_limits.h"
#include "model_flags.h"
#include "model_path.h"
#include "option_values.h"
#include "output.h"
#include "terminal.h"
#include "timing.h"

namespace kvasir {
namespace {

struct PrefillResult {
  Timing timing;
  double tok_s = 0.0;
  double gmac_s = 0.0;
  StepProfile profile;  // Of one prefill.
};

struct DecodeResult {
  uint32_t batch = 0;
  Timing step;
  double tok_s = 0.0;
  StepCounters counters;  // Of the measured steps together.
  double gb_s = 0.0;
  double gmac_s = 0.0;
  StepProfile profile;
};

class BenchModelCommand : public Command {
 public:
  std::vector<std::string> path() const override { return {"bench", "model"}; }
  std::string description() const override {
    return "Measure prefill and decode speed, and their share of the machine's limits";
  }

  void Register(Options& options) override {
    flags_.Register(options);
    options.Add("-p,--prefill", &prefill_tokens_, "Prompt tokens of the prefill measurement")
        .Type("N")
        .Range(1u, kMaxContext)
        .ShowDefault();
    options.Add("-n,--decode", &decode_steps_, "Decode steps of each measurement")
        .Type("N")
        .Range(1u, kMaxContext)
        .ShowDefault();
    options.Add("-b,--batch", &batches_, "Batch sizes, such as 1,8,32")
        .Type("LIST")
        .Check(CountsProblem)
        .ShowDefault();
    options.Add("--context", &context_, "Tokens in each sequence before decoding")
        .Type("N")
        .Range(1u, kMaxContext)
        .ShowDefault();
    options.Add("-r,--repeat", &repeats_, "Repetitions; medians are reported")
        .Type("N")
        .Range(1, 1000)
        .ShowDefault();
    options
        .Add("--shared-prefix", &shared_prefix_,
             "Tokens before each sequence's own context that all of a batch share")
        .Type("N")
        .Range(0u, kMaxContext)
        .ShowDefault();
    options.Add("--prefill-depth", &prefill_depth_, "Cached tokens before the measured prompt")
        .Type("N")
        .Range(0u, kMaxContext)
        .ShowDefault();
    options
        .Add("--kv-types", &compared_types_,
             "Compare decoding with these KV types by turns, such as f16,int8,int4, instead")
        .Type("LIST")
        .Check(KvTypeListProblem);
    options.AddFlag("--breakdown", &breakdown_, "Show where the time of a step goes");
    options.AddFlag("--json", &json_, "Print one JSON object");
  }

  StatusOr<int> Run() override {
    KV_RETURN_IF_ERROR(FetchModel(&flags_.path, flags_.models_dir));
    if (!compared_types_.empty()) return RunKvTypes();
    KV_ASSIGN_OR_RETURN(const std::vector<uint32_t> batches, ParseCounts(batches_));
    const uint32_t largest = *std::max_element(batches.begin(), batches.end());
    if (largest > kMaxBatch) return InvalidArgument("-b: at most {} sequences", kMaxBatch);
    OpenNeeds needs;
    needs.max_sequences = largest;
    KV_RETURN_IF_ERROR(AskForContext(&needs));
    KV_ASSIGN_OR_RETURN(const OpenedModel opened, OpenModel(flags_, needs));
    LoadedModel& model = *opened.model;
    KV_ASSIGN_OR_RETURN(limits_, MeasureMachineLimits(model.team(), model.weights().step_bytes()));
    KV_ASSIGN_OR_RETURN(const PrefillResult prefill, MeasurePrefill(model));
    std::vector<DecodeResult> decode;
    for (const uint32_t batch : batches) {
      KV_ASSIGN_OR_RETURN(const DecodeResult result, MeasureDecode(model, batch));
      decode.push_back(result);
    }
    json_ ? PrintJson(model, prefill, decode) : PrintTable(model, prefill, decode);
    return kExitOk;
  }

 private:
  static constexpr uint32_t kMaxBatch = 512;

  // The context that the measurements need, and which options ask for that much.
  Status AskForContext(OpenNeeds* needs) const {
    const uint64_t prefill = uint64_t{prefill_depth_} + prefill_tokens_;
    const uint64_t decode = uint64_t{shared_prefix_} + context_ +
                            uint64_t{decode_steps_} * static_cast<uint64_t>(repeats_);
    std::string advice;
    if (prefill >= decode) {
      advice = fmt::format("lower -p {}", prefill_tokens_);
      if (prefill_depth_ > 0) advice += fmt::format(" or --prefill-depth {}", prefill_depth_);
    } else {
      advice = "lower ";
      if (shared_prefix_ > 0) advice += fmt::format("--shared-prefix {}, ", shared_prefix_);
      advice += fmt::format("--context {}, -n {} or -r {}", context_, decode_steps_, repeats_);
    }
    const uint64_t tokens = std::max(prefill, decode) + 1;
    if (tokens > kMaxContext) {
      return InvalidArgument("a context of {} tokens is more than any model's {}; {}", tokens,
                             kMaxContext, advice);
    }
    needs->context_tokens = static_cast<uint32_t>(tokens);
    needs->context_advice = advice;
    return OkStatus();
  }

  StatusOr<int> RunKvTypes() const {
    if (decode_steps_ < 2) return InvalidArgument("-n: --kv-types needs at least 2 steps");
    KV_ASSIGN_OR_RETURN(const std::vector<KvTypes> types, ParseKvTypeList(compared_types_));
    KV_ASSIGN_OR_RETURN(const OpenedModel opened, OpenModel(flags_, OpenNeeds()));
    const KvTypeLoad load{context_, decode_steps_, repeats_};
    KV_ASSIGN_OR_RETURN(const std::vector<KvTypeSpeed> speeds,
                        CompareKvTypes(*opened.model, types, load));
    if (json_) {
      PrintOut("{}\n", KvTypeSpeedsJson(speeds, load));
    } else {
      PrintKvTypeSpeeds(speeds, load);
    }
    return kExitOk;
  }

  StatusOr<PrefillResult> MeasurePrefill(LoadedModel& model) const {
    PrefillResult result;
    std::vector<double> seconds;
    for (int round = 0; round <= repeats_; ++round) {
      BenchLoad load(model, static_cast<uint64_t>(round));
      KV_RETURN_IF_ERROR(load.Open());
      if (prefill_depth_ > 0) KV_RETURN_IF_ERROR(load.Step(0, prefill_depth_, /*logits=*/false));
      if (breakdown_ && round > 0) model.runner().set_profile(&result.profile);
      const double start = NowSeconds();
      KV_RETURN_IF_ERROR(load.Step(0, prefill_tokens_, /*logits=*/true));
      if (round > 0) seconds.push_back(NowSeconds() - start);  // The first one warms up.
      model.runner().set_profile(nullptr);
    }
    result.timing = Summarise(seconds);
    result.tok_s = prefill_tokens_ / result.timing.median_s;
    const double macs = static_cast<double>(model.weights().layer_macs()) * prefill_tokens_ +
                        static_cast<double>(model.weights().head_macs()) +
                        AttentionMacs(model.config(), prefill_depth_, prefill_tokens_);
    result.gmac_s = macs / result.timing.median_s * 1e-9;
    return result;
  }

  StatusOr<DecodeResult> MeasureDecode(LoadedModel& model, uint32_t batch) const {
    BenchLoad load(model, batch);
    KV_RETURN_IF_ERROR(load.Open());
    KV_RETURN_IF_ERROR(load.Step(0, shared_prefix_, /*logits=*/false));
    for (uint32_t i = 1; i < batch; ++i) {
      KV_RETURN_IF_ERROR(shared_prefix_ > 0 ? load.OpenAsFirst() : load.Open());
      KV_RETURN_IF_ERROR(load.Step(i, context_, /*logits=*/false));
    }
    // The first comes last: its prefix must not have grown when the others fork from it.
    KV_RETURN_IF_ERROR(load.StepFirst(context_));
    DecodeResult result;
    result.batch = batch;
    if (breakdown_) model.runner().set_profile(&result.profile);
    const StepCounters before = model.runner().totals();
    std::vector<double> seconds;
    for (int round = 0; round < repeats_; ++round) {
      const double start = NowSeconds();
      for (uint32_t step = 0; step < decode_steps_; ++step) {
        KV_RETURN_IF_ERROR(load.Step(0, 1, /*logits=*/true));
      }
      seconds.push_back((NowSeconds() - start) / decode_steps_);
    }
    model.runner().set_profile(nullptr);
    result.step = Summarise(seconds);
    result.tok_s = batch / result.step.median_s;
    result.counters = model.runner().totals() - before;
    const double steps = static_cast<double>(result.counters.steps);
    const double bytes =
        static_cast<double>(result.counters.weight_bytes + result.counters.kv_read_bytes) / steps;
    result.gb_s = bytes / result.step.median_s * 1e-9;
    // The middle of the measured stretch stands for all of it.
    const uint32_t depth =
        shared_prefix_ + context_ + decode_steps_ * static_cast<uint32_t>(repeats_) / 2;
    const double macs_a_row =
        static_cast<double>(model.weights().layer_macs() + model.weights().head_macs()) +
        AttentionMacs(model.config(), depth, 1);
    result.gmac_s = batch * macs_a_row / result.step.median_s * 1e-9;
    return result;
  }

  // Scores and weighted values of rows [start, start + rows).
  static double AttentionMacs(const ModelConfig& config, uint32_t start, uint32_t rows) {
    double macs = 0.0;
    for (const LayerConfig& layer : config.layers) {
      for (uint32_t row = start; row < start + rows; ++row) {
        const uint32_t seen = layer.window == 0 ? row + 1 : std::min(layer.window, row + 1);
        macs += 2.0 * seen * config.q_width();
      }
    }
    return macs;
  }

  static double Share(double value, double limit) { return limit > 0.0 ? value / limit : 0.0; }

  // Counts by step; the attention's bytes grow with the context, so theirs are a mean.
  static nlohmann::ordered_json CountersJson(const StepCounters& counters) {
    const double steps = static_cast<double>(counters.steps);
    return {{"barriers", static_cast<double>(counters.barriers) / steps},
            {"weight_bytes", static_cast<double>(counters.weight_bytes) / steps},
            {"kv_read_bytes", static_cast<double>(counters.kv_read_bytes) / steps},
            {"kv_written_bytes", static_cast<double>(counters.kv_written_bytes) / steps}};
  }

  // Milliseconds of each phase in a step of `step_s`: worker 0's share of ticks.
  static nlohmann::ordered_json BreakdownJson(const StepProfile& profile, double step_s) {
    const double ms_a_tick = step_s * 1e3 / static_cast<double>(profile.total());
    nlohmann::ordered_json json;
    for (size_t i = 0; i < kStepPhaseCount; ++i) {
      const StepProfile::Ticks& ticks = profile.phases[i];
      json[kStepPhaseNames[i]] = {{"work", static_cast<double>(ticks.work) * ms_a_tick},
                                  {"wait", static_cast<double>(ticks.wait) * ms_a_tick}};
    }
    return json;
  }

  void PrintBreakdown(const std::vector<DecodeResult>& decode, const PrefillResult& prefill) const {
    PrintOut("\nms a step (of it waiting)   {:>16}", "prefill");
    for (const DecodeResult& row : decode) PrintOut("{:>10} {:>5}", "decode", row.batch);
    const auto cell = [](const StepProfile& profile, double step_s, size_t phase) {
      const double ms_a_tick = step_s * 1e3 / static_cast<double>(profile.total());
      const StepProfile::Ticks& ticks = profile.phases[phase];
      PrintOut("{:>8.3f} ({:5.3f})", static_cast<double>(ticks.work + ticks.wait) * ms_a_tick,
               static_cast<double>(ticks.wait) * ms_a_tick);
    };
    for (size_t i = 0; i < kStepPhaseCount; ++i) {
      PrintOut("\n{:<28}", kStepPhaseNames[i]);
      cell(prefill.profile, prefill.timing.median_s, i);
      for (const DecodeResult& row : decode) cell(row.profile, row.step.median_s, i);
    }
    PrintOut("\n{:<28}{:>8.3f}        ", "sum", prefill.timing.median_s * 1e3);
    for (const DecodeResult& row : decode) PrintOut("{:>8.3f}        ", row.step.median_s * 1e3);
    PrintOut("\n");
    for (const DecodeResult& row : decode) {
      const double steps = static_cast<double>(row.counters.steps);
      PrintOut(
          "decode {:>3}: a step meets {:.0f} barriers, reads {:.1f} MB of weights and {:.1f} MB "
          "of KV\n",
          row.batch, static_cast<double>(row.counters.barriers) / steps,
          static_cast<double>(row.counters.weight_bytes) / steps * 1e-6,
          static_cast<double>(row.counters.kv_read_bytes) / steps * 1e-6);
    }
  }

  void PrintJson(LoadedModel& model, const PrefillResult& prefill,
                 const std::vector<DecodeResult>& decode) const {
    nlohmann::ordered_json json;
    json["model"] = flags_.path;
    json["isa"] = std::string(IsaName(ActiveIsa()));
    json["threads"] = model.team().worker_count();
    json["prefill_tok_s"] = prefill.tok_s;
    json["prefill"] = {{"tokens", prefill_tokens_},
                       {"prefill_tok_s", prefill.tok_s},
                       {"spread", prefill.timing.spread},
                       {"gmac_s", prefill.gmac_s},
                       {"int8_share", Share(prefill.gmac_s, limits_.int8_gmac_s)}};
    if (breakdown_) {
      json["prefill"]["breakdown_ms"] = BreakdownJson(prefill.profile, prefill.timing.median_s);
    }
    json["decode"] = nlohmann::ordered_json::array();
    for (const DecodeResult& row : decode) {
      json["decode"].push_back({{"batch", row.batch},
                                {"decode_tok_s", row.tok_s},
                                {"step_ms", row.step.median_s * 1e3},
                                {"spread", row.step.spread},
                                {"gb_s", row.gb_s},
                                {"read_share", Share(row.gb_s, limits_.read_gb_s)},
                                {"gmac_s", row.gmac_s},
                                {"int8_share", Share(row.gmac_s, limits_.int8_gmac_s)},
                                {"per_step", CountersJson(row.counters)}});
      if (breakdown_) {
        json["decode"].back()["breakdown_ms"] = BreakdownJson(row.profile, row.step.median_s);
      }
    }
    json["context"] = context_;
    json["shared_prefix"] = shared_prefix_;
    json["repeats"] = repeats_;
    json["limits"] = {{"read_gb_s", limits_.read_gb_s},
                      {"int8_gmac_s", limits_.int8_gmac_s},
                      {"fp32_gmac_s", limits_.fp32_gmac_s}};
    PrintOut("{}\n", json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace));
  }

  void PrintTable(LoadedModel& model, const PrefillResult& prefill,
                  const std::vector<DecodeResult>& decode) const {
    PrintOut("{}  {}, {}, medians of {}\n", flags_.path,
             Counted(model.team().worker_count(), "thread"), IsaName(ActiveIsa()), repeats_);
    PrintOut("limits   memory {:.1f} GB/s, int8 {:.0f} GMAC/s, fp32 {:.0f} GMAC/s\n\n",
             limits_.read_gb_s, limits_.int8_gmac_s, limits_.fp32_gmac_s);
    constexpr const char* kRow =
        "{:<10}{:>7}{:>11.1f} tok/s  +-{:3.0f} %{:>9.1f} GB/s {:4.0f} %{:>9.1f} GMAC/s {:4.0f} %\n";
    const double prefill_gb_s =
        static_cast<double>(model.weights().step_bytes()) / prefill.timing.median_s * 1e-9;
    PrintOut(kRow, "prefill", prefill_tokens_, prefill.tok_s, 50.0 * prefill.timing.spread,
             prefill_gb_s, 100.0 * Share(prefill_gb_s, limits_.read_gb_s), prefill.gmac_s,
             100.0 * Share(prefill.gmac_s, limits_.int8_gmac_s));
    for (const DecodeResult& row : decode) {
      PrintOut(kRow, "decode", row.batch, row.tok_s, 50.0 * row.step.spread, row.gb_s,
               100.0 * Share(row.gb_s, limits_.read_gb_s), row.gmac_s,
               100.0 * Share(row.gmac_s, limits_.int8_gmac_s));
    }
    PrintOut("\nprefill: tokens in the prompt; decode: sequences a step, {} each before\n",
             Counted(context_, "token"));
    if (breakdown_) PrintBreakdown(decode, prefill);
  }

  ModelFlags flags_;
  uint32_t prefill_tokens_ = 512;
  uint32_t decode_steps_ = 32;
  std::string batches_ = "1,8,32";
  uint32_t context_ = 128;
  uint32_t shared_prefix_ = 0;
  uint32_t prefill_depth_ = 0;
  int repeats_ = 5;
  std::string compared_types_;  // Empty: prefill and decode with --kv-type.
  bool breakdown_ = false;
  bool json_ = false;
  MachineLimits limits_;
};

}  // namespace

std::unique_ptr<Command> MakeBenchModelCommand() { return std::make_unique<BenchModelCommand>(); }

}  // namespace kvasir
