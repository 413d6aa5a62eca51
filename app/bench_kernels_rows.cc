#include "bench_kernels_rows.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "base/huge_buffer.h"
#include "base/rng.h"
#include "kernels/attention.h"
#include "kernels/logits_row.h"
#include "kernels/matmul.h"
#include "kernels/row_ops.h"
#include "output.h"
#include "terminal.h"
#include "timing.h"

namespace kvasir {
namespace {

constexpr double kRoundSeconds = 0.005;  // Of one timed round, at least.

// Seconds that one call takes when every worker makes calls at the same time.
Timing TimeCalls(WorkerTeam& team, QuietRounds& rounds,
                 const std::function<void(int worker)>& call) {
  const auto seconds_of = [&](int calls) {
    const double start = NowSeconds();
    team.Run([&](int worker) {
      for (int i = 0; i < calls; ++i) call(worker);
      team.Barrier();
    });
    return NowSeconds() - start;
  };
  seconds_of(1);  // Pages are touched, caches filled.
  int calls = 1;
  while (seconds_of(calls) < kRoundSeconds) calls *= 2;
  return rounds.Measure([&] { return seconds_of(calls) / calls; });
}

struct AttentionShape {
  uint32_t head_dim;
  uint32_t group;
  uint32_t rows;     // The last ones of the context.
  uint32_t context;  // Tokens.
};

// One worker's KV of one head, and a tile over it.
class AttentionCase {
 public:
  static StatusOr<AttentionCase> Create(const AttentionShape& shape, StoredType type) {
    AttentionCase made;
    made.shape_ = shape;
    made.type_ = type;
    const size_t k_bytes = KUnitBytes(type, shape.head_dim);
    const size_t unit_bytes = k_bytes + VUnitBytes(type, shape.head_dim);
    const uint32_t units = shape.context / kUnitTokens;
    KV_ASSIGN_OR_RETURN(made.kv_, HugeBuffer::Allocate(units * unit_bytes));
    KV_ASSIGN_OR_RETURN(made.own_k_,
                        HugeBuffer::Allocate(KUnitBytes(StoredType::kF16, shape.head_dim)));
    const size_t floats = AttendScratchFloats(shape.rows, shape.group, shape.head_dim);
    KV_ASSIGN_OR_RETURN(made.scratch_, HugeBuffer::Allocate(floats * sizeof(float)));
    Rng rng(1);
    for (uint32_t unit = 0; unit < units; ++unit) {
      std::byte* const k = made.kv_.data() + unit * unit_bytes;
      made.Fill(rng, k, k + k_bytes);
      made.blocks_.push_back(k);
    }
    const size_t stride = size_t{shape.group} * shape.head_dim;
    made.q_.resize(stride * shape.rows);
    made.out_.resize(made.q_.size());
    for (float& x : made.q_) x = rng.Normal();
    return made;
  }

  // The units gone through.
  uint32_t Call() {
    const size_t stride = size_t{shape_.group} * shape_.head_dim;
    AttentionRow rows[kMaxAttentionRows];
    const float* q[kMaxAttentionRows];
    float* out[kMaxAttentionRows];
    const std::byte* own_k[kMaxAttentionRows];
    for (uint32_t i = 0; i < shape_.rows; ++i) {
      rows[i] = {shape_.context - shape_.rows + i, 0, i == 0 ? 0 : kWholeSequence, blocks_.data()};
      q[i] = q_.data() + i * stride;
      out[i] = out_.data() + i * stride;
      own_k[i] = own_k_.data();
    }
    AttentionTile tile;
    tile.rows = rows;
    tile.q = q;
    tile.row_count = shape_.rows;
    tile.group = shape_.group;
    tile.head_dim = shape_.head_dim;
    tile.scale = 1.0f / std::sqrt(static_cast<float>(shape_.head_dim));
    tile.block_tokens = kUnitTokens;
    tile.v_offset = KUnitBytes(type_, shape_.head_dim);
    tile.k_type = type_;
    tile.v_type = type_;
    tile.own_k = own_k;
    return Attend(tile, reinterpret_cast<float*>(scratch_.data()), out);
  }

 private:
  // A unit of random keys and values; the last one's keys stay in f16 as a row's own, too.
  void Fill(Rng& rng, std::byte* k, std::byte* v) {
    std::vector<float> row(shape_.head_dim);
    for (uint32_t place = 0; place < kUnitTokens; ++place) {
      for (float& x : row) x = rng.Normal();
      WriteK(StoredType::kF16, row, own_k_.data(), place);
      if (!IsStaged(type_)) WriteK(type_, row, k, place);
      WriteV(type_, row, v, place);
    }
    if (IsStaged(type_)) QuantizeKUnit(type_, shape_.head_dim, own_k_.data(), k);
  }

  AttentionShape shape_{};
  StoredType type_ = StoredType::kF16;
  HugeBuffer kv_, own_k_, scratch_;
  std::vector<const std::byte*> blocks_;
  std::vector<float> q_, out_;
};

std::string_view NameOf(StoredType type) {
  return type == StoredType::kF16 ? "f16" : type == StoredType::kInt8 ? "int8" : "int4";
}

// Rows of floats of one worker, and what is made of them.
struct RowBuffers {
  std::vector<float> x, y, out;
  std::vector<uint32_t> indices;
  std::vector<std::byte> quantized;

  explicit RowBuffers(size_t size) : x(size), y(size, 0.6f), out(size), indices(size) {
    // As cosines and sines: turning again and again must not shrink a row to subnormals.
    std::fill(y.begin() + static_cast<std::ptrdiff_t>(size / 2), y.end(), 0.8f);
    Rng rng(3);
    for (float& v : x) v = rng.Normal();
    quantized.resize(ActivationBytes(1, static_cast<uint32_t>((size + 31) / 32 * 32)) + 64);
  }
  std::byte* aligned_quantized() {
    void* place = quantized.data();
    size_t space = quantized.size();
    return static_cast<std::byte*>(std::align(64, 1, place, space));
  }
};

struct RowOp {
  std::string_view name;
  size_t size;           // Floats of the row.
  double bytes_a_float;  // Read and written.
  std::function<void(RowBuffers& row)> call;
};

std::vector<RowOp> RowOps() {
  std::vector<RowOp> ops;
  for (const size_t width : {size_t{576}, size_t{640}}) {
    ops.push_back(
        {"rms norm", width, 12.0, [](RowBuffers& row) { RmsNorm(row.x, row.y, 1e-5f, row.out); }});
    ops.push_back({"quantize row", width, 6.0, [](RowBuffers& row) {
                     const uint32_t cols = static_cast<uint32_t>(row.x.size());
                     QuantizeRow(row.x, 0, {1, cols, row.x.data(), row.aligned_quantized()});
                   }});
    ops.push_back({"residual add", width, 12.0, [](RowBuffers& row) { Add(row.out, row.y); }});
  }
  for (const size_t dim : {size_t{64}, size_t{256}}) {
    ops.push_back({"rope", dim, 12.0, [](RowBuffers& row) {
                     const size_t half = row.x.size() / 2;
                     Rope(row.out, std::span(row.y).first(half), std::span(row.y).last(half),
                          RopePairing::kHalves);
                   }});
  }
  ops.push_back({"silu gate", 1536, 12.0, [](RowBuffers& row) {
                   GatedActivation(Activation::kSilu, row.x, row.y, row.out);
                 }});
  ops.push_back({"gelu gate", 2048, 12.0, [](RowBuffers& row) {
                   GatedActivation(Activation::kGeluTanh, row.x, row.y, row.out);
                 }});
  for (const size_t vocab : {size_t{49152}, size_t{262144}}) {
    ops.push_back({"arg max", vocab, 4.0,
                   [](RowBuffers& row) { row.indices[0] = ArgMax(LogitsRow(row.x)); }});
    ops.push_back({"log sum exp", vocab, 4.0,
                   [](RowBuffers& row) { row.out[0] = LogSumExp(LogitsRow(row.x)); }});
    ops.push_back({"top 40", vocab, 4.0, [](RowBuffers& row) {
                     uint32_t best[40];
                     row.indices[0] = TopK(LogitsRow(row.x), 40, row.indices, best);
                   }});
  }
  return ops;
}

}  // namespace

StatusOr<std::vector<KernelFigure>> MeasureAttention(WorkerTeam& team, QuietRounds& rounds) {
  constexpr AttentionShape kShapes[] = {{64, 3, 1, 128},  {64, 3, 1, 8000},  {64, 3, 16, 2000},
                                        {256, 4, 1, 512}, {256, 4, 1, 8000}, {256, 4, 16, 2000}};
  const size_t workers = static_cast<size_t>(team.worker_count());
  std::vector<KernelFigure> figures;
  for (const StoredType type : {StoredType::kF16, StoredType::kInt8, StoredType::kInt4}) {
    for (const AttentionShape& shape : kShapes) {
      std::vector<AttentionCase> cases;
      for (size_t i = 0; i < workers; ++i) {
        KV_ASSIGN_OR_RETURN(AttentionCase made, AttentionCase::Create(shape, type));
        cases.push_back(std::move(made));
      }
      const double units = cases[0].Call();
      const Timing timing =
          TimeCalls(team, rounds, [&](int worker) { cases[static_cast<size_t>(worker)].Call(); });
      const double rate = static_cast<double>(workers) / timing.median_s * 1e-9;
      const double seen = shape.context - (shape.rows - 1) / 2.0;  // By the average row.
      const double macs = 2.0 * seen * shape.rows * shape.group * shape.head_dim;
      const double unit_bytes =
          static_cast<double>(KUnitBytes(type, shape.head_dim) + VUnitBytes(type, shape.head_dim)) /
          2.0;
      figures.push_back(
          {fmt::format("attention {}", NameOf(type)),
           fmt::format("head {} x {}, {} row{}, {} tokens", shape.head_dim, shape.group, shape.rows,
                       shape.rows == 1 ? "" : "s", shape.context),
           timing.median_s * 1e6, macs * rate, units * unit_bytes * rate, timing.spread});
    }
  }
  return figures;
}

std::vector<KernelFigure> MeasureRowOps(WorkerTeam& team, QuietRounds& rounds) {
  const size_t workers = static_cast<size_t>(team.worker_count());
  std::vector<KernelFigure> figures;
  for (const RowOp& op : RowOps()) {
    std::vector<RowBuffers> rows(workers, RowBuffers(op.size));
    const Timing timing =
        TimeCalls(team, rounds, [&](int worker) { op.call(rows[static_cast<size_t>(worker)]); });
    const double bytes = op.bytes_a_float * static_cast<double>(op.size);
    figures.push_back(
        {std::string(op.name), fmt::format("{} floats", op.size), timing.median_s * 1e6, 0.0,
         bytes * static_cast<double>(workers) / timing.median_s * 1e-9, timing.spread});
  }
  return figures;
}

}  // namespace kvasir
