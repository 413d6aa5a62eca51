// kvasir quantize: a model file with its matrices in another format.
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/counted.h"
#include "base/worker_team.h"
#include "command.h"
#include "engine/perplexity.h"
#include "io/mapped_parts.h"
#include "io/whole_file.h"
#include "kernels/weight_encoder.h"
#include "model/gguf_output.h"
#include "model/quantize_plan.h"
#include "model_flags.h"
#include "output.h"
#include "terminal.h"
#include "text/utf8.h"
#include "text_input.h"

namespace kvasir {
namespace {

constexpr size_t kSliceBytes = size_t{8} << 20;  // Of output, encoded and written at once.
constexpr uint32_t kCheckWindow = 512;
constexpr uint32_t kCheckRows = 256;
constexpr uint32_t kCheckLogitsRows = 64;

std::string TypeProblem(const std::string& text) {
  if (FindQuantizeType(text) != nullptr) return {};
  std::string names;
  for (const QuantizeType& type : QuantizeTypes()) {
    names += names.empty() ? "" : ", ";
    names += type.name;
  }
  return "'" + text + "' is unknown; the types are " + names;
}

bool IsSameFile(const std::string& a, const std::string& b) {
  struct stat of_a = {};
  struct stat of_b = {};
  return ::stat(a.c_str(), &of_a) == 0 && ::stat(b.c_str(), &of_b) == 0 &&
         of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
}

// What was written, and how far it is from what was read.
struct Tally {
  uint64_t tensors = 0;
  uint64_t bytes = 0;
  double squares = 0;  // Sum of the values' squares.
  double errors = 0;   // Sum of squared errors.

  double relative_error() const { return squares > 0 ? std::sqrt(errors / squares) : 0.0; }
};

// Writes the tensors of one file, on all workers.
class TensorWriter {
 public:
  TensorWriter(const MappedParts& source, const WholeFile& target, WorkerTeam& team)
      : source_(source), target_(target), team_(team) {}

  // kCancelled when `go_on` said false; it is told how many bytes of the output are done.
  template <typename GoOn>
  StatusOr<Tally> Write(const PlannedTensor& planned, uint64_t offset, GoOn&& go_on) {
    const GgufTensor& tensor = *planned.tensor;
    const uint32_t cols = static_cast<uint32_t>(tensor.cols());
    const size_t from_bytes = FileRowBytes(tensor.format, cols);
    const size_t to_bytes = FileRowBytes(planned.format, cols);
    const uint64_t slice_rows = std::max<uint64_t>(1, kSliceBytes / to_bytes);
    Tally tally;
    tally.tensors = 1;
    for (uint64_t row = 0; row < tensor.rows(); row += slice_rows) {
      const uint64_t rows = std::min(slice_rows, tensor.rows() - row);
      const std::span<const std::byte> from =
          tensor.bytes.subspan(row * from_bytes, rows * from_bytes);
      std::span<const std::byte> bytes = from;
      if (planned.format != tensor.format) {
        KV_RETURN_IF_ERROR(Encode(planned, from, static_cast<uint32_t>(rows), &tally));
        bytes = encoded_;
      }
      KV_RETURN_IF_ERROR(target_.WriteAt(offset + row * to_bytes, bytes));
      source_.ReleasePages(from);
      tally.bytes += bytes.size();
      if (!go_on(bytes.size())) return MakeStatus(StatusCode::kCancelled, "stopped");
    }
    return tally;
  }

 private:
  // Sums of one row, kept apart so that their sum does not depend on who computed what.
  struct RowSums {
    double squares = 0;
    double errors = 0;
    bool is_finite = true;
  };

  Status Encode(const PlannedTensor& planned, std::span<const std::byte> from, uint32_t rows,
                Tally* tally) {
    const GgufTensor& tensor = *planned.tensor;
    const uint32_t cols = static_cast<uint32_t>(tensor.cols());
    const size_t from_bytes = FileRowBytes(tensor.format, cols);
    const size_t to_bytes = FileRowBytes(planned.format, cols);
    encoded_.resize(rows * to_bytes);
    sums_.assign(rows, {});
    team_.Run([&](int) {
      std::vector<float> values(cols);
      std::vector<float> decoded(cols);
      team_.For(rows, 1, [&](uint32_t begin, uint32_t end) {
        for (uint32_t r = begin; r < end; ++r) {
          const std::span<std::byte> to = std::span(encoded_).subspan(r * to_bytes, to_bytes);
          DequantizeRow(tensor.format, from.subspan(r * from_bytes, from_bytes), values);
          if (std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); })) {
            EncodeRow(planned.format, values, to);
          }
          DequantizeRow(planned.format, to, decoded);
          sums_[r] = Compare(values, decoded);
        }
      });
    });
    for (const RowSums& sums : sums_) {
      if (!sums.is_finite) {
        return InvalidArgument(
            "tensor '{}': it holds values that {} cannot: not a number, or too large", tensor.name,
            TraitsOf(planned.format).name);
      }
      tally->squares += sums.squares;
      tally->errors += sums.errors;
    }
    return OkStatus();
  }

  static RowSums Compare(std::span<const float> values, std::span<const float> decoded) {
    RowSums sums;
    for (size_t i = 0; i < values.size(); ++i) {
      const double error = double{values[i]} - decoded[i];
      sums.squares += double{values[i]} * values[i];
      sums.errors += error * error;
    }
    sums.is_finite = std::isfinite(sums.squares) && std::isfinite(sums.errors);
    return sums;
  }

  const MappedParts& source_;
  const WholeFile& target_;
  WorkerTeam& team_;
  std::vector<std::byte> encoded_;
  std::vector<RowSums> sums_;
};

// Tensors that got another format than the type has for them, with rows of one length.
struct Fallback {
  WeightFormat wanted = WeightFormat::kF32;
  WeightFormat format = WeightFormat::kF32;
  uint64_t cols = 0;
  uint64_t tensors = 0;
};

std::vector<Fallback> FallbacksOf(const std::vector<PlannedTensor>& plan) {
  std::vector<Fallback> fallbacks;  // Few: in the order of the first tensor of each.
  for (const PlannedTensor& planned : plan) {
    if (!planned.instead_of.has_value()) continue;
    const auto same = std::find_if(fallbacks.begin(), fallbacks.end(), [&](const Fallback& f) {
      return f.wanted == *planned.instead_of && f.format == planned.format &&
             f.cols == planned.tensor->cols();
    });
    if (same != fallbacks.end()) {
      ++same->tensors;
    } else {
      fallbacks.push_back({*planned.instead_of, planned.format, planned.tensor->cols(), 1});
    }
  }
  return fallbacks;
}

class QuantizeCommand : public Command {
 public:
  std::vector<std::string> path() const override { return {"quantize"}; }
  std::string description() const override {
    return "Write a model file with its matrices in a smaller format";
  }

  void Register(Options& options) override {
    options.Add("IN", &in_, "Model file (GGUF), F32, F16 or BF16").Type("FILE").Required();
    options.Add("OUT", &out_, "File to write").Type("FILE").Required();
    options.Add("TYPE", &type_, "F16, Q8_0, Q6_K, Q5_0, Q4_K_M (a mix), Q4_K, Q4_1 or Q4_0")
        .Type("TYPE")
        .Check(TypeProblem)
        .Required();
    options.Add("--check", &check_, "Print the perplexity of this text before and after")
        .Type("FILE")
        .CommandLineOnly();
    options.AddFlag("--force", &force_, "Replace OUT if it exists");
    options.AddFlag("--allow-requantize", &allow_requantize_,
                    "Also from formats that have lost something already");
    options.AddFlag("--json", &json_, "Print one JSON object");
    options.Add("--threads", &flags_.threads, "Worker threads (default: the usable cores)")
        .Type("N")
        .Range(1, 1024)
        .Group("Machine");
  }

  StatusOr<int> Run() override {
    const QuantizeType& type = *FindQuantizeType(type_);  // The option's check has found it.
    std::string text;
    if (!check_.empty()) {
      KV_ASSIGN_OR_RETURN(text, ReadText(check_));
      KV_RETURN_IF_ERROR(WithPrefix(ValidateUtf8(text), InputName(check_)));
    }
    // Not a second Ctrl-C either may end the process while a file is half written.
    CatchInterrupts(SecondInterrupt::kIsIgnored);
    const StatusOr<int> code = Convert(type, text);
    if (!code.ok() && code.status().code() == StatusCode::kCancelled) return kExitInterrupted;
    return code;
  }

 private:
  StatusOr<int> Convert(const QuantizeType& type, const std::string& text) {
    KV_ASSIGN_OR_RETURN(const MappedParts source, MappedParts::Open(in_));
    for (const MappedFile& file : source.files()) {
      if (IsSameFile(file.path(), out_)) {
        return InvalidArgument("{}: is the file that is read; give the new one another name", out_);
      }
    }
    const StatusOr<GgufFile> gguf = GgufFile::ParseParts(source.parts());
    if (!gguf.ok()) return WithPrefix(gguf.status(), in_);
    const StatusOr<std::vector<PlannedTensor>> plan =
        PlanQuantization(*gguf, type, allow_requantize_);
    if (!plan.ok()) return WithPrefix(plan.status(), in_);
    fallbacks_ = FallbacksOf(*plan);
    const GgufOutput layout = LayOutGguf(*gguf, *plan, type.file_type);
    const auto existing = force_ ? WholeFile::Existing::kReplace : WholeFile::Existing::kRefuse;
    StatusOr<WholeFile> created = WholeFile::Create(out_, layout.file_bytes, existing);
    if (created.status().code() == StatusCode::kAlreadyExists) {
      return InvalidArgument("{}: exists; pass --force to replace it", out_);
    }
    KV_ASSIGN_OR_RETURN(WholeFile target, std::move(created));

    PerplexityScores before;
    if (!check_.empty()) {
      KV_ASSIGN_OR_RETURN(before, Score(in_, text, "before"));
    }
    const double start = NowSeconds();
    KV_RETURN_IF_ERROR(WriteAll(source, *plan, layout, target));
    KV_RETURN_IF_ERROR(target.Commit());
    const double seconds = NowSeconds() - start;
    PerplexityScores after;
    if (!check_.empty()) {
      KV_ASSIGN_OR_RETURN(after, Score(out_, text, "after"));
    }
    json_ ? PrintJson(type, *gguf, layout, seconds, before, after)
          : PrintText(type, *gguf, layout, seconds, before, after);
    return kExitOk;
  }

  Status WriteAll(const MappedParts& source, const std::vector<PlannedTensor>& plan,
                  const GgufOutput& layout, const WholeFile& target) {
    KV_ASSIGN_OR_RETURN(const int threads, ApplyMachineFlags(flags_));
    KV_ASSIGN_OR_RETURN(const std::unique_ptr<WorkerTeam> team, WorkerTeam::Create(threads));
    KV_RETURN_IF_ERROR(target.WriteAt(0, std::as_bytes(std::span(layout.header))));
    ProgressBar bar("quantizing");
    TensorWriter writer(source, target, *team);
    uint64_t done = layout.header.size();
    for (size_t i = 0; i < plan.size(); ++i) {
      const StatusOr<Tally> tally = writer.Write(plan[i], layout.offsets[i], [&](uint64_t bytes) {
        done += bytes;
        bar.Update(static_cast<double>(done) / static_cast<double>(layout.file_bytes));
        return !Interrupted().load();
      });
      KV_RETURN_IF_ERROR(tally.status());
      Tally& total = tallies_[static_cast<size_t>(plan[i].format)];
      total.tensors += tally->tensors;
      total.bytes += tally->bytes;
      total.squares += tally->squares;
      total.errors += tally->errors;
    }
    return OkStatus();
  }

  StatusOr<PerplexityScores> Score(const std::string& path, const std::string& text,
                                   const char* when) const {
    ModelFlags flags = flags_;
    flags.path = path;
    flags.context_tokens = kCheckWindow;
    OpenNeeds needs;
    needs.max_rows = kCheckRows;
    needs.max_logits_rows = kCheckLogitsRows;
    KV_ASSIGN_OR_RETURN(const OpenedModel opened, OpenModel(flags, needs));
    LoadedModel& model = *opened.model;
    const Tokenizer& tokenizer = model.text().tokenizer();
    EncodeOptions options;
    options.add_bos = false;  // Every window gets its own.
    const std::vector<TokenId> tokens = tokenizer.Encode(text, options);
    if (tokens.size() < 3) {
      return InvalidArgument("{}: is too short: {}, at least 3 are needed", InputName(check_),
                             Counted(tokens.size(), "token"));
    }
    const std::optional<TokenId> bos = tokenizer.adds_bos() ? tokenizer.bos() : std::nullopt;
    PerplexityMeter meter({{&model.runner(), &model.kv()}}, model.team());
    ProgressBar bar(fmt::format("perplexity {}", when));
    KV_RETURN_IF_ERROR(meter.Score(tokens, bos, kCheckWindow, [&](size_t scored) {
      bar.Update(static_cast<double>(scored) / static_cast<double>(tokens.size()));
      return !Interrupted().load();
    }));
    return meter.scores().front();
  }

  void PrintText(const QuantizeType& type, const GgufFile& from, const GgufOutput& to,
                 double seconds, const PerplexityScores& before,
                 const PerplexityScores& after) const {
    constexpr double kMb = 1e6;
    PrintOut("{}: {}, {:.1f} MB of {:.1f} MB, {:.1f} s\n", out_, type.name,
             static_cast<double>(to.file_bytes) / kMb, static_cast<double>(from.file_bytes()) / kMb,
             seconds);
    for (size_t f = 0; f < tallies_.size(); ++f) {
      const Tally& tally = tallies_[f];
      if (tally.tensors == 0) continue;
      PrintOut("  {:<7} {:>4} tensors {:>9.1f} MB", TraitsOf(static_cast<WeightFormat>(f)).name,
               tally.tensors, static_cast<double>(tally.bytes) / kMb);
      if (tally.squares > 0) PrintOut("  error {:.3f} %", tally.relative_error() * 100);
      PrintOut("\n");
    }
    for (const Fallback& fallback : fallbacks_) {
      PrintOut("  {} instead of {} for {} tensor{}: rows of {} are no whole blocks of {}\n",
               TraitsOf(fallback.format).name, TraitsOf(fallback.wanted).name, fallback.tensors,
               fallback.tensors == 1 ? "" : "s", fallback.cols,
               TraitsOf(fallback.wanted).block_values);
    }
    if (check_.empty()) return;
    PrintOut("perplexity {:.4f} +- {:.4f} before, {:.4f} +- {:.4f} after ({:+.2f} %), {} tokens\n",
             before.perplexity(), before.standard_error(), after.perplexity(),
             after.standard_error(), (after.perplexity() / before.perplexity() - 1) * 100,
             after.nll.count());
  }

  void PrintJson(const QuantizeType& type, const GgufFile& from, const GgufOutput& to,
                 double seconds, const PerplexityScores& before,
                 const PerplexityScores& after) const {
    nlohmann::ordered_json json;
    json["model"] = out_;
    json["type"] = std::string(type.name);
    json["bytes"] = to.file_bytes;
    json["bytes_before"] = from.file_bytes();
    json["seconds"] = seconds;
    json["formats"] = nlohmann::ordered_json::object();
    for (size_t f = 0; f < tallies_.size(); ++f) {
      const Tally& tally = tallies_[f];
      if (tally.tensors == 0) continue;
      json["formats"][std::string(TraitsOf(static_cast<WeightFormat>(f)).name)] = {
          {"tensors", tally.tensors},
          {"bytes", tally.bytes},
          {"relative_error", tally.relative_error()}};
    }
    json["fallbacks"] = nlohmann::ordered_json::array();
    for (const Fallback& fallback : fallbacks_) {
      json["fallbacks"].push_back({{"wanted", std::string(TraitsOf(fallback.wanted).name)},
                                   {"format", std::string(TraitsOf(fallback.format).name)},
                                   {"row_values", fallback.cols},
                                   {"tensors", fallback.tensors}});
    }
    if (!check_.empty()) {
      json["perplexity_before"] = before.perplexity();
      json["stderr_before"] = before.standard_error();
      json["perplexity_after"] = after.perplexity();
      json["stderr_after"] = after.standard_error();
      json["tokens"] = after.nll.count();
    }
    PrintOut("{}\n", json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  }

  ModelFlags flags_;
  std::string in_;
  std::string out_;
  std::string type_;
  std::string check_;
  bool force_ = false;
  bool allow_requantize_ = false;
  bool json_ = false;
  std::vector<Fallback> fallbacks_;
  std::array<Tally, kWeightFormatCount> tallies_{};  // Of what was written, by format.
};

}  // namespace

std::unique_ptr<Command> MakeQuantizeCommand() { return std::make_unique<QuantizeCommand>(); }

}  // namespace kvasir
