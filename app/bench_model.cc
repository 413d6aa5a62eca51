// kvasir bench model: prefill and decode speed of one model, beside what the machine could do.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/rng.h"
#include "command.h"
#include "kernels/isa.h"
#include "machine_limits.h"
#include "model_flags.h"
#include "option_values.h"
#include "output.h"
#include "terminal.h"

namespace kvasir {
namespace {

struct Timing {
  double median_s = 0.0;
  double spread = 0.0;  // (slowest - fastest) / median.
};

Timing Summarise(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  const size_t half = seconds.size() / 2;
  Timing timing;
  timing.median_s =
      seconds.size() % 2 == 1 ? seconds[half] : 0.5 * (seconds[half - 1] + seconds[half]);
  timing.spread = (seconds.back() - seconds.front()) / timing.median_s;
  return timing;
}

struct PrefillResult {
  Timing timing;
  double tok_s = 0.0;
  double gmac_s = 0.0;
};

struct DecodeResult {
  uint32_t batch = 0;
  Timing step;
  double tok_s = 0.0;
  double gb_s = 0.0;  // Weights once a step, and every sequence's KV.
  double gmac_s = 0.0;
};

// Open sequences of random tokens: what is measured is the forward pass, so nothing is sampled and
// nothing is shared.
class Load {
 public:
  Load(LoadedModel& model, uint64_t seed) : model_(model), rng_(seed) {}
  ~Load() {
    for (const SequenceId id : ids_) model_.kv().Close(id);
    model_.kv().EvictAll();
  }
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;

  Status Open() {
    tokens_.push_back({RandomToken()});
    const std::optional<SequenceId> id = model_.kv().Open(model_.Root(""), tokens_.back());
    if (!id.has_value()) return ResourceExhausted("no sequence is free");
    ids_.push_back(*id);
    return OkStatus();
  }

  // Appends `count` tokens to sequences [first, end), in one step per `limits().max_rows` rows.
  Status Step(size_t first, uint32_t count, bool logits) {
    while (count > 0) {
      const uint32_t sequences = static_cast<uint32_t>(ids_.size() - first);
      const uint32_t most = std::max(model_.runner().limits().max_rows / sequences, 1u);
      const uint32_t rows = std::min(count, most);
      KV_RETURN_IF_ERROR(StepOnce(first, rows, logits && rows == count));
      count -= rows;
    }
    return OkStatus();
  }

 private:
  TokenId RandomToken() {
    return TokenId{static_cast<int32_t>(rng_.Below(model_.config().vocab_size))};
  }

  Status StepOnce(size_t first, uint32_t rows, bool logits) {
    KvCache& kv = model_.kv();
    batch_.sequences.resize(ids_.size() - first);
    for (size_t i = first; i < ids_.size(); ++i) {
      if (!kv.Reserve(ids_[i], rows)) return ResourceExhausted("the KV memory is full");
      tokens_[i].resize(rows);
      for (TokenId& token : tokens_[i]) token = RandomToken();
      BatchSequence& sequence = batch_.sequences[i - first];
      sequence.tokens = tokens_[i];
      sequence.start = kv.computed(ids_[i]);
      sequence.logits_begin = logits ? rows - 1 : rows;
      for (uint32_t group = 0; group < kv.layout().group_count(); ++group) {
        sequence.blocks[group] = kv.table(ids_[i], group).addresses();
      }
    }
    model_.runner().Run(batch_);
    for (size_t i = first; i < ids_.size(); ++i) kv.Commit(ids_[i], tokens_[i]);
    return OkStatus();
  }

  LoadedModel& model_;
  Rng rng_;
  std::vector<SequenceId> ids_;
  std::vector<std::vector<TokenId>> tokens_;  // Of the running step, by sequence.
  Batch batch_;
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
    options.AddFlag("--json", &json_, "Print one JSON object");
  }

  StatusOr<int> Run() override {
    KV_ASSIGN_OR_RETURN(const std::vector<uint32_t> batches, ParseCounts(batches_));
    const uint32_t largest = *std::max_element(batches.begin(), batches.end());
    if (largest > kMaxBatch) return InvalidArgument("-b: at most {} sequences", kMaxBatch);
    OpenNeeds needs;
    needs.max_sequences = largest;
    needs.context_tokens = std::max(prefill_tokens_, context_ + decode_steps_ * repeats_) + 1;
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

  StatusOr<PrefillResult> MeasurePrefill(LoadedModel& model) const {
    std::vector<double> seconds;
    for (int round = 0; round <= repeats_; ++round) {
      Load load(model, static_cast<uint64_t>(round));
      KV_RETURN_IF_ERROR(load.Open());
      const double start = NowSeconds();
      KV_RETURN_IF_ERROR(load.Step(0, prefill_tokens_, /*logits=*/true));
      if (round > 0) seconds.push_back(NowSeconds() - start);  // The first one warms up.
    }
    PrefillResult result;
    result.timing = Summarise(seconds);
    result.tok_s = prefill_tokens_ / result.timing.median_s;
    const double macs = static_cast<double>(model.weights().layer_macs()) * prefill_tokens_ +
                        static_cast<double>(model.weights().head_macs()) +
                        AttentionMacs(model.config(), 0, prefill_tokens_);
    result.gmac_s = macs / result.timing.median_s * 1e-9;
    return result;
  }

  StatusOr<DecodeResult> MeasureDecode(LoadedModel& model, uint32_t batch) const {
    Load load(model, batch);
    for (uint32_t i = 0; i < batch; ++i) {
      KV_RETURN_IF_ERROR(load.Open());
      KV_RETURN_IF_ERROR(load.Step(i, context_, /*logits=*/false));
    }
    std::vector<double> seconds;
    for (int round = 0; round < repeats_; ++round) {
      const double start = NowSeconds();
      for (uint32_t step = 0; step < decode_steps_; ++step) {
        KV_RETURN_IF_ERROR(load.Step(0, 1, /*logits=*/true));
      }
      seconds.push_back((NowSeconds() - start) / decode_steps_);
    }
    DecodeResult result;
    result.batch = batch;
    result.step = Summarise(seconds);
    result.tok_s = batch / result.step.median_s;
    // The middle of the measured stretch stands for all of it.
    const uint32_t depth = context_ + decode_steps_ * static_cast<uint32_t>(repeats_) / 2;
    const double bytes = static_cast<double>(model.weights().step_bytes()) +
                         static_cast<double>(batch) * VisibleKvBytes(model, depth);
    result.gb_s = bytes / result.step.median_s * 1e-9;
    const double macs_a_row =
        static_cast<double>(model.weights().layer_macs() + model.weights().head_macs()) +
        AttentionMacs(model.config(), depth, 1);
    result.gmac_s = batch * macs_a_row / result.step.median_s * 1e-9;
    return result;
  }

  // K and V bytes that attention reads for one row at position `depth`.
  static double VisibleKvBytes(LoadedModel& model, uint32_t depth) {
    const KvLayout& layout = model.kv().layout();
    double bytes = 0.0;
    for (uint32_t group = 0; group < layout.group_count(); ++group) {
      const uint32_t window = layout.groups[group].window;
      const uint32_t seen = window == 0 ? depth + 1 : std::min(window, depth + 1);
      bytes += static_cast<double>(layout.bytes_per_token(group)) * seen;
    }
    return bytes;
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
    json["decode"] = nlohmann::ordered_json::array();
    for (const DecodeResult& row : decode) {
      json["decode"].push_back({{"batch", row.batch},
                                {"decode_tok_s", row.tok_s},
                                {"step_ms", row.step.median_s * 1e3},
                                {"spread", row.step.spread},
                                {"gb_s", row.gb_s},
                                {"read_share", Share(row.gb_s, limits_.read_gb_s)},
                                {"gmac_s", row.gmac_s},
                                {"int8_share", Share(row.gmac_s, limits_.int8_gmac_s)}});
    }
    json["context"] = context_;
    json["repeats"] = repeats_;
    json["limits"] = {{"read_gb_s", limits_.read_gb_s},
                      {"int8_gmac_s", limits_.int8_gmac_s},
                      {"fp32_gmac_s", limits_.fp32_gmac_s}};
    PrintOut("{}\n", json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace));
  }

  void PrintTable(LoadedModel& model, const PrefillResult& prefill,
                  const std::vector<DecodeResult>& decode) const {
    PrintOut("{}  {} threads, {}, medians of {}\n", flags_.path, model.team().worker_count(),
             IsaName(ActiveIsa()), repeats_);
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
    PrintOut("\nprefill: tokens in the prompt; decode: sequences a step, {} tokens each before\n",
             context_);
  }

  ModelFlags flags_;
  uint32_t prefill_tokens_ = 512;
  uint32_t decode_steps_ = 32;
  std::string batches_ = "1,8,32";
  uint32_t context_ = 128;
  int repeats_ = 5;
  bool json_ = false;
  MachineLimits limits_;
};

}  // namespace

std::unique_ptr<Command> MakeBenchModelCommand() { return std::make_unique<BenchModelCommand>(); }

}  // namespace kvasir
