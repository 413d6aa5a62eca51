// kvasir bench kernels: the matrix products by weight format, shape and rows, attention by KV type,
// and the row operations, beside what the machine could do.
//
// The weights of one measurement are copies of one random matrix, as many as fill --memory, and are
// gone through in turn, as a model's layers are: more than the second-level cache by default, more
// than the last one when --memory says so.
#include <algorithm>
#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/huge_buffer.h"
#include "base/rng.h"
#include "bench_kernels_rows.h"
#include "command.h"
#include "kernels/isa.h"
#include "kernels/matmul.h"
#include "machine_limits.h"
#include "model_flags.h"
#include "option_values.h"
#include "output.h"
#include "quiet_rounds.h"
#include "terminal.h"
#include "timing.h"

namespace kvasir {
namespace {

constexpr uint32_t kMaxRows = 4096;
constexpr uint32_t kMaxSide = 1u << 20;
constexpr uint64_t kMaxValues = uint64_t{1}
                                << 28;  // Of a matrix, or of activations: 1 GiB of floats.
// Of one timed round, at least. A short one is undisturbed more often.
constexpr double kRoundSeconds = 0.01;
constexpr double kShortRoundSeconds = 0.002;

struct Shape {
  uint32_t out_rows = 0;
  uint32_t cols = 0;
};

StatusOr<std::vector<WeightFormat>> ParseFormats(std::string_view text) {
  std::vector<WeightFormat> formats;
  for (const std::string_view name : SplitList(text)) {
    int found = -1;
    for (int f = 0; f < kWeightFormatCount; ++f) {
      if (TraitsOf(static_cast<WeightFormat>(f)).name == name) found = f;
    }
    if (found < 0) {
      return InvalidArgument(
          "format '{}' is unknown; use F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, "
          "Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS or MXFP4",
          name);
    }
    formats.push_back(static_cast<WeightFormat>(found));
  }
  return formats;
}

std::string FormatsProblem(const std::string& text) {
  const StatusOr<std::vector<WeightFormat>> parsed = ParseFormats(text);
  return parsed.ok() ? std::string() : std::string(MessageOf(parsed.status()));
}

// "1536x576": outputs by inputs.
StatusOr<std::vector<Shape>> ParseShapes(std::string_view text) {
  std::vector<Shape> shapes;
  for (const std::string_view item : SplitList(text)) {
    Shape shape;
    const char* const end = item.data() + item.size();
    const auto first = std::from_chars(item.data(), end, shape.out_rows);
    bool good = first.ec == std::errc() && first.ptr != end && *first.ptr == 'x';
    if (good) {
      const auto second = std::from_chars(first.ptr + 1, end, shape.cols);
      good = second.ec == std::errc() && second.ptr == end && shape.out_rows > 0 &&
             shape.out_rows <= kMaxSide && shape.cols > 0 && shape.cols <= kMaxSide &&
             uint64_t{shape.out_rows} * shape.cols <= kMaxValues &&
             shape.cols % kActivationBlock == 0;
    }
    if (!good) {
      return InvalidArgument(
          "'{}' is not a shape; write OUTPUTSxINPUTS such as 1536x576, inputs a multiple of {}, "
          "neither above {}, and at most {} weights",
          item, kActivationBlock, kMaxSide, kMaxValues);
    }
    shapes.push_back(shape);
  }
  return shapes;
}

std::string ShapesProblem(const std::string& text) {
  const StatusOr<std::vector<Shape>> parsed = ParseShapes(text);
  return parsed.ok() ? std::string() : std::string(MessageOf(parsed.status()));
}

std::string KernelsProblem(const std::string& text) {
  for (const std::string_view kind : SplitList(text)) {
    if (kind != "products" && kind != "attention" && kind != "rows") {
      return fmt::format("'{}' is no kind of kernel; use products, attention, rows", kind);
    }
  }
  return {};
}

bool MultipliesIntegers(WeightFormat format) {
  return format != WeightFormat::kF32 && format != WeightFormat::kF16 &&
         format != WeightFormat::kBF16;
}

// The share of the int8 peak that the arithmetic of a format leaves on AVX-512: a 32-block of 16
// outputs takes 8 dot products and, on the same ports, 2 float operations for each scale and 1 for
// a minimum (Q2_K, where each half of a block has its own: 2 for each).
double Ceiling(WeightFormat format) {
  switch (format) {
    case WeightFormat::kQ4_1:
    case WeightFormat::kQ4_K:
    case WeightFormat::kQ5_1:
    case WeightFormat::kQ5_K:
      return 8.0 / 11.0;
    case WeightFormat::kQ3_K:
    case WeightFormat::kQ6_K:
      return 8.0 / 12.0;
    case WeightFormat::kQ2_K:
      return 8.0 / 16.0;
    default:
      return MultipliesIntegers(format) ? 8.0 / 10.0 : 1.0;
  }
}

struct Measurement {
  WeightFormat format = WeightFormat::kF32;
  Shape shape;
  uint32_t rows = 0;
  double gmac_s = 0.0;
  double peak_share = 0.0;  // Median of rounds, each beside a round of the peak.
  double gb_s = 0.0;        // Packed weights, once a product.
  double spread = 0.0;      // (slowest - fastest) / median.
  int undisturbed = 0;      // Repetitions that were; 0: all counted.
};

// Copies of one matrix in panels.
class Matrices {
 public:
  static StatusOr<Matrices> Create(WeightFormat format, const Shape& shape, size_t memory_bytes) {
    Matrices matrices;
    matrices.one_ = {format, shape.out_rows, shape.cols, nullptr};
    const uint32_t panels = matrices.one_.panel_count();
    matrices.bytes_ = panels * PackedPanelBytes(format, shape.cols);
    matrices.copies_ = std::max<size_t>(1, (memory_bytes + matrices.bytes_ - 1) / matrices.bytes_);
    KV_ASSIGN_OR_RETURN(matrices.buffer_, HugeBuffer::Allocate(matrices.bytes_ * matrices.copies_));
    const std::span<std::byte> first = matrices.buffer_.bytes().first(matrices.bytes_);
    PackPanels(format, RandomFile(format, shape), shape.out_rows, shape.cols, 0, panels, first);
    for (size_t i = 1; i < matrices.copies_; ++i) {
      std::memcpy(matrices.buffer_.data() + i * matrices.bytes_, first.data(), matrices.bytes_);
    }
    return matrices;
  }

  size_t copies() const { return copies_; }
  size_t bytes() const { return bytes_; }  // Of one.
  PackedMatrix at(size_t i) const {
    PackedMatrix matrix = one_;
    matrix.bytes = buffer_.data() + i * bytes_;
    return matrix;
  }

 private:
  static std::vector<std::byte> RandomFile(WeightFormat format, const Shape& shape) {
    Rng rng(1);
    std::vector<std::byte> file(shape.out_rows * FileRowBytes(format, shape.cols));
    // 0x3B keeps every half and float, wherever it lies, below 1: no infinities, few subnormals.
    for (std::byte& b : file) b = static_cast<std::byte>(rng.Below(256) & 0x3B);
    // Where a byte is most of an exponent, products would be subnormal, and slow.
    const uint32_t block_bytes = TraitsOf(format).block_bytes;
    const bool is_float = format == WeightFormat::kF32 || format == WeightFormat::kBF16;
    const size_t exponent = is_float ? block_bytes - 1 : 0;
    if (is_float || format == WeightFormat::kMXFP4) {
      for (size_t i = exponent; i < file.size(); i += block_bytes) file[i] = std::byte{0x3B};
    }
    return file;
  }

  PackedMatrix one_;
  size_t bytes_ = 0;
  size_t copies_ = 0;
  HugeBuffer buffer_;
};

// The activations and outputs of products of `rows` rows with matrices of one shape.
class Product {
 public:
  static StatusOr<Product> Create(const Shape& shape, uint32_t rows) {
    Product product;
    Rng rng(2);
    product.x_.resize(size_t{rows} * shape.cols);
    for (float& v : product.x_) v = rng.Normal();
    KV_ASSIGN_OR_RETURN(product.quantized_,
                        HugeBuffer::Allocate(ActivationBytes(rows, shape.cols)));
    KV_ASSIGN_OR_RETURN(product.out_,
                        HugeBuffer::Allocate(size_t{rows} * shape.out_rows * sizeof(float)));
    product.activations_ = {rows, shape.cols, product.x_.data(), product.quantized_.data()};
    for (uint32_t r = 0; r < rows; ++r) {
      QuantizeRow({&product.x_[size_t{r} * shape.cols], shape.cols}, r, product.activations_);
    }
    return product;
  }

  // Seconds of products with `count` matrices from number `first` on, modulo all of them, shared
  // out as the model runner does.
  double Time(WorkerTeam& team, const Matrices& matrices, size_t first, size_t count) const {
    const double start = NowSeconds();
    team.Run([&](int worker) {
      for (size_t i = first; i < first + count; ++i) {
        const PackedMatrix w = matrices.at(i % matrices.copies());
        const uint32_t panels = w.panel_count();
        const uint32_t grain = PanelGrain(panels, activations_.rows, team.worker_count());
        const uint32_t units = panels * RowBlocks(activations_.rows, activations_.cols);
        team.ClaimNear(worker, units, grain, [&](uint32_t begin, uint32_t end) {
          ForRowBlocks(panels, begin, end, [&](uint32_t block, uint32_t from, uint32_t to) {
            MatMulRowBlock(w, activations_, block, from, to, Store::kAssign,
                           reinterpret_cast<float*>(out_.data()), w.rows);
          });
        });
        team.Barrier();
      }
    });
    return NowSeconds() - start;
  }

 private:
  std::vector<float> x_;
  HugeBuffer quantized_;
  HugeBuffer out_;
  Activations activations_;
};

class BenchKernelsCommand : public Command {
 public:
  std::vector<std::string> path() const override { return {"bench", "kernels"}; }
  std::string description() const override {
    return "Measure every kind of kernel, and its share of the machine's limits";
  }

  void Register(Options& options) override {
    options.Add("--kernels", &kernels_, "Which: products, attention, rows")
        .Type("LIST")
        .Check(KernelsProblem)
        .ShowDefault();
    options.Add("--format", &formats_, "Weight formats, such as Q4_1,Q8_0")
        .Type("LIST")
        .Check(FormatsProblem)
        .ShowDefault();
    options.Add("--shape", &shapes_, "Outputs by inputs, such as 1536x576,576x1536")
        .Type("LIST")
        .Check(ShapesProblem)
        .ShowDefault();
    options.Add("--rows", &rows_, "Activation rows, such as 1,8,512")
        .Type("LIST")
        .Check(CountsProblem)
        .ShowDefault();
    options
        .Add("--memory", &memory_, "Weights that a measurement goes through; 1G comes from memory")
        .Type("SIZE")
        .Check(ByteSizeProblem)
        .ShowDefault();
    options.Add("-r,--repeat", &repeats_, "Repetitions; medians are reported")
        .Type("N")
        .Range(1, 1000)
        .ShowDefault();
    options.AddFlag(
        "--undisturbed", &undisturbed_,
        "Count only repetitions before and after which a loop of loads ran at its "
        "best speed: no stranger on the cores' other threads. Up to 20 times as many are "
        "made");
    options.AddFlag("--json", &json_, "Print one JSON object");
    options.Add("--threads", &flags_.threads, "Worker threads (default: the usable cores)")
        .Type("N")
        .Range(1, 1024)
        .Group("Machine");
    options.Add("--isa", &flags_.isa, "Instruction set: avx512, avx2 or scalar (default: the best)")
        .Type("NAME")
        .Check(IsaProblem)
        .Group("Machine");
  }

  StatusOr<int> Run() override {
    KV_ASSIGN_OR_RETURN(const std::vector<WeightFormat> formats, ParseFormats(formats_));
    KV_ASSIGN_OR_RETURN(const std::vector<Shape> shapes, ParseShapes(shapes_));
    KV_ASSIGN_OR_RETURN(const std::vector<uint32_t> row_counts, ParseCounts(rows_));
    KV_ASSIGN_OR_RETURN(const uint64_t memory, ParseByteSize(memory_));
    if (*std::max_element(row_counts.begin(), row_counts.end()) > kMaxRows) {
      return InvalidArgument("--rows: at most {}", kMaxRows);
    }
    for (const Shape& shape : shapes) {
      const uint64_t side = std::max(shape.out_rows, shape.cols);
      if (*std::max_element(row_counts.begin(), row_counts.end()) * side > kMaxValues) {
        return InvalidArgument("--rows, --shape: rows times outputs or inputs are at most {}",
                               kMaxValues);
      }
    }
    KV_ASSIGN_OR_RETURN(const int threads, ApplyMachineFlags(flags_));
    KV_ASSIGN_OR_RETURN(const std::unique_ptr<WorkerTeam> team, WorkerTeam::Create(threads));
    KV_ASSIGN_OR_RETURN(limits_, MeasureMachineLimits(*team, memory));
    QuietRounds rounds(*team, repeats_, undisturbed_);
    std::vector<KernelFigure> others;
    if (Wants("attention")) {
      KV_ASSIGN_OR_RETURN(others, MeasureAttention(*team, rounds));
    }
    if (Wants("rows")) {
      const std::vector<KernelFigure> rows_too = MeasureRowOps(*team, rounds);
      others.insert(others.end(), rows_too.begin(), rows_too.end());
    }
    std::vector<Measurement> results;
    for (const WeightFormat format : formats) {
      if (!Wants("products")) break;
      for (const Shape& shape : shapes) {
        // The models' K-quants are the matrices whose rows are whole blocks of 256.
        if (shape.cols % TraitsOf(format).block_values != 0) continue;
        KV_RETURN_IF_ERROR(Measure(*team, rounds, format, shape, row_counts, memory, &results));
      }
    }
    if (results.empty() && Wants("products")) {
      return InvalidArgument("--shape: no shape has a whole number of blocks of the formats");
    }
    if (json_) {
      PrintJson(results, others, threads, rounds);
      return kExitOk;
    }
    PrintOut("{} threads, {}, {} of weights, medians of {}\n", threads, IsaName(ActiveIsa()),
             memory_, repeats_);
    if (undisturbed_) {
      PrintOut("undisturbed: {} of {} repetitions counted\n", rounds.counted(), rounds.made());
    }
    PrintOut("limits   memory {:.1f} GB/s, int8 {:.0f} GMAC/s, fp32 {:.0f} GMAC/s\n",
             limits_.read_gb_s, limits_.int8_gmac_s, limits_.fp32_gmac_s);
    if (!results.empty()) PrintProducts(results);
    if (!others.empty()) PrintOthers(others);
    return kExitOk;
  }

 private:
  bool Wants(std::string_view kind) const {
    const std::vector<std::string_view> kinds = SplitList(kernels_);
    return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
  }

  Status Measure(WorkerTeam& team, QuietRounds& rounds, WeightFormat format, const Shape& shape,
                 const std::vector<uint32_t>& row_counts, size_t memory,
                 std::vector<Measurement>* results) const {
    KV_ASSIGN_OR_RETURN(const Matrices matrices, Matrices::Create(format, shape, memory));
    for (const uint32_t row_count : row_counts) {
      KV_ASSIGN_OR_RETURN(const Product product, Product::Create(shape, row_count));
      const size_t all = matrices.copies();
      product.Time(team, matrices, 0, all);  // Pages are touched, caches filled.
      const double one_s = product.Time(team, matrices, 0, all) / static_cast<double>(all);
      const double round_s = undisturbed_ ? kShortRoundSeconds : kRoundSeconds;
      const size_t count = static_cast<size_t>(std::max(1.0, round_s / one_s));
      size_t next = 0;
      const double macs = static_cast<double>(shape.out_rows) * shape.cols * row_count;
      const auto peak = MultipliesIntegers(format) ? MeasureInt8Round : MeasureFp32Round;
      const int counted_before = rounds.counted();
      const auto measured = rounds.Collect([&] {
        const double seconds = product.Time(team, matrices, next, count);
        next = (next + count) % all;
        return std::pair(seconds / static_cast<double>(count), peak(team));
      });
      std::vector<double> seconds;
      std::vector<double> shares;
      for (const auto& [product_s, peak_gmac_s] : measured) {
        seconds.push_back(product_s);
        shares.push_back(Share(macs / product_s * 1e-9, peak_gmac_s));
      }
      const Timing timing = Summarise(seconds);
      results->push_back({format, shape, row_count, macs / timing.median_s * 1e-9,
                          Summarise(shares).median_s,
                          static_cast<double>(matrices.bytes()) / timing.median_s * 1e-9,
                          timing.spread, rounds.counted() - counted_before});
    }
    return OkStatus();
  }

  static double Share(double value, double limit) { return limit > 0.0 ? value / limit : 0.0; }

  void PrintJson(const std::vector<Measurement>& results, const std::vector<KernelFigure>& others,
                 int threads, const QuietRounds& rounds) const {
    nlohmann::ordered_json json;
    json["isa"] = std::string(IsaName(ActiveIsa()));
    json["threads"] = threads;
    json["memory"] = memory_;
    json["repeats"] = repeats_;
    if (undisturbed_) {
      json["undisturbed"] = {{"counted", rounds.counted()}, {"made", rounds.made()}};
    }
    json["kernels"] = nlohmann::ordered_json::array();
    for (const Measurement& m : results) {
      json["kernels"].push_back({{"format", std::string(TraitsOf(m.format).name)},
                                 {"outputs", m.shape.out_rows},
                                 {"inputs", m.shape.cols},
                                 {"rows", m.rows},
                                 {"gmac_s", m.gmac_s},
                                 {"peak_share", m.peak_share},
                                 {"gb_s", m.gb_s},
                                 {"read_share", Share(m.gb_s, limits_.read_gb_s)},
                                 {"spread", m.spread}});
      if (undisturbed_) json["kernels"].back()["undisturbed"] = m.undisturbed;
    }
    json["others"] = nlohmann::ordered_json::array();
    for (const KernelFigure& figure : others) {
      json["others"].push_back({{"kernel", figure.kernel},
                                {"shape", figure.shape},
                                {"call_us", figure.call_us},
                                {"gmac_s", figure.gmac_s},
                                {"peak_share", Share(figure.gmac_s, limits_.fp32_gmac_s)},
                                {"gb_s", figure.gb_s},
                                {"spread", figure.spread}});
    }
    json["limits"] = {{"read_gb_s", limits_.read_gb_s},
                      {"int8_gmac_s", limits_.int8_gmac_s},
                      {"fp32_gmac_s", limits_.fp32_gmac_s}};
    PrintOut("{}\n", json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace));
  }

  void PrintOthers(const std::vector<KernelFigure>& figures) const {
    PrintOut("\n{:<17}{:<36}{:>9}{:>10}  of fp32{:>10}\n", "kernel", "of", "us a call", "GMAC/s",
             "GB/s");
    for (const KernelFigure& figure : figures) {
      const double share = Share(figure.gmac_s, limits_.fp32_gmac_s);
      PrintOut("{:<17}{:<36}{:>9.2f}{:>10}{:>9}{:>10.1f}  +-{:.0f} %\n", figure.kernel,
               figure.shape, figure.call_us,
               figure.gmac_s > 0.0 ? fmt::format("{:.1f}", figure.gmac_s) : "-",
               figure.gmac_s > 0.0 ? fmt::format("{:.0f} %", 100.0 * share) : "-", figure.gb_s,
               50.0 * figure.spread);
    }
    PrintOut("\nall workers at once, each on memory of its own; GB/s: read and written\n");
  }

  void PrintProducts(const std::vector<Measurement>& results) const {
    PrintOut(
        "\nformat  outputs x inputs   rows     GMAC/s  of peak  of ceiling     GB/s  of memory\n");
    for (const Measurement& m : results) {
      const double peak = m.peak_share;
      const double ceiling = ActiveIsa() == Isa::kAvx512 ? peak / Ceiling(m.format) : 0.0;
      PrintOut(
          "{:<8}{:>7} x {:<10}{:>5}{:>11.1f}{:>7.0f} %{:>10} %{:>9.1f}{:>9.0f} %  +-{:.0f} %{}\n",
          TraitsOf(m.format).name, m.shape.out_rows, m.shape.cols, m.rows, m.gmac_s, 100.0 * peak,
          ceiling > 0.0 ? fmt::format("{:.0f}", 100.0 * ceiling) : "-", m.gb_s,
          100.0 * Share(m.gb_s, limits_.read_gb_s), 50.0 * m.spread,
          undisturbed_ ? fmt::format("  {:>3} undisturbed", m.undisturbed) : "");
    }
    PrintOut(
        "\npeak: int8 dot products (F32, F16: float multiply-adds) on registers; ceiling: what the "
        "format's arithmetic leaves of it\n");
  }

  ModelFlags flags_;  // Machine options only.
  std::string kernels_ = "products,attention,rows";
  std::string formats_ = "Q4_0,Q4_1,Q5_0,Q8_0,Q4_K,Q6_K";
  std::string shapes_ = "1536x576,576x1536,2048x640,640x2048";  // The models' feed-forward layers.
  std::string rows_ = "1,2,4,8,16,32,64,512";
  std::string memory_ = "16M";
  int repeats_ = 5;
  bool json_ = false;
  bool undisturbed_ = false;
  MachineLimits limits_;
};

}  // namespace

std::unique_ptr<Command> MakeBenchKernelsCommand() {
  return std::make_unique<BenchKernelsCommand>();
}

}  // namespace kvasir
