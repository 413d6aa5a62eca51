#include "kernels/head_sketch.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/check.h"
#include "kernels/matmul_layout.h"
#include "kernels/row_ops.h"
#include "kernels/weight_block.h"

namespace kvasir {
namespace {

constexpr uint32_t kMaxCols = 4096;
constexpr uint32_t kSampleRows = 512;
constexpr float kRoundUp = 1.0001f;  // More than the rounding of any sum of 4096 squares.
constexpr uint32_t kFineFileBytes = 34;
constexpr uint32_t kCoarseFileBytes = 18;
constexpr uint32_t kNormsFileBytes = 20;

size_t Aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

float HalfAt(const std::byte* p) {
  uint16_t half = 0;
  std::memcpy(&half, p, 2);
  return FloatFromHalf(half);
}

void PutHalf(std::byte* p, uint16_t half) { std::memcpy(p, &half, 2); }

// For value >= 0.
uint16_t HalfNotAbove(float value) {
  const uint16_t half = HalfFromFloat(value);
  return FloatFromHalf(half) > value ? static_cast<uint16_t>(half - 1) : half;
}
uint16_t HalfNotBelow(float value) {
  const uint16_t half = HalfFromFloat(value);
  return FloatFromHalf(half) < value ? static_cast<uint16_t>(half + 1) : half;
}

// Eight sums, so that the compiler may use vectors.
float SumOfSquares(const float* x) {
  float sum[8] = {};
  for (uint32_t i = 0; i < kBlockValues; i += 8) {
    for (uint32_t j = 0; j < 8; ++j) sum[j] += x[i + j] * x[i + j];
  }
  return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

struct Extremes {
  float low;
  float high;
};

Extremes ExtremesOf(const float* x) {
  float low[8] = {}, high[8] = {};
  for (uint32_t i = 0; i < kBlockValues; i += 8) {
    for (uint32_t j = 0; j < 8; ++j) {
      low[j] = x[i + j] < low[j] ? x[i + j] : low[j];
      high[j] = x[i + j] > high[j] ? x[i + j] : high[j];
    }
  }
  return {*std::min_element(low, low + 8), *std::max_element(high, high + 8)};
}

// code[i] = x[i] / scale rounded, within [low, high]; rest[i] = x[i] - scale * code[i].
void Quantize(const float* x, float scale, float low, float high, float* code, float* rest) {
  const float inverse = scale == 0.0f ? 0.0f : 1.0f / scale;
  for (uint32_t i = 0; i < kBlockValues; ++i) {
    const float near = __builtin_nearbyintf(x[i] * inverse);
    const float above = near > low ? near : low;
    code[i] = above < high ? above : high;
    rest[i] = x[i] - scale * code[i];
  }
}

// One Q8_0 block, and the square of what it leaves out.
float WriteFine(const float* x, std::byte* file) {
  const Extremes ends = ExtremesOf(x);
  const uint16_t half = HalfFromFloat(std::max(ends.high, -ends.low) / 127.0f);
  PutHalf(file, half);
  float code[kBlockValues], rest[kBlockValues];
  Quantize(x, FloatFromHalf(half), -127.0f, 127.0f, code, rest);
  for (uint32_t i = 0; i < kBlockValues; ++i) {
    file[2 + i] = static_cast<std::byte>(static_cast<int8_t>(code[i]));
  }
  return SumOfSquares(rest);
}

// One Q4_0 block, codes -8 to 7: the side with the larger end gets the code -8.
float WriteCoarse(const float* x, std::byte* file) {
  const Extremes ends = ExtremesOf(x);
  const uint16_t half = HalfFromFloat((ends.high > -ends.low ? ends.high : ends.low) / -8.0f);
  PutHalf(file, half);
  float code[kBlockValues], rest[kBlockValues];
  Quantize(x, FloatFromHalf(half), -8.0f, 7.0f, code, rest);
  for (uint32_t i = 0; i < kBlockValues / 2; ++i) {
    const int low = static_cast<int>(code[i]) + 8;
    const int high = static_cast<int>(code[i + kBlockValues / 2]) + 8;
    file[2 + i] = static_cast<std::byte>(low | high << 4);
  }
  return SumOfSquares(rest);
}

// One Q4_1 block whose values are at least x, all >= 0. False when f16 cannot hold them.
bool WriteNotBelow(std::span<const float> x, std::byte* file) {
  for (const float v : x) {
    if (!(v < 60000.0f)) return false;  // NaN too.
  }
  const auto [low, high] = std::minmax_element(x.begin(), x.end());
  const uint16_t min_half = HalfNotAbove(*low);
  const float min = FloatFromHalf(min_half);
  const uint16_t step_half = HalfNotBelow((*high - min) / 15.0f * 1.0001f);
  const float step = FloatFromHalf(step_half);
  PutHalf(file, step_half);
  PutHalf(file + 2, min_half);
  uint8_t code[kBlockValues];
  for (uint32_t i = 0; i < kBlockValues; ++i) {
    // Codes, steps and minima have few bits: min + step * code is exact enough in double to
    // compare.
    const auto reaches = [&](int c) { return double{min} + double{step} * c >= double{x[i]}; };
    int c = step == 0.0f ? 0 : static_cast<int>((x[i] - min) / step);
    while (c < 15 && !reaches(c)) ++c;
    if (!reaches(c)) return false;
    code[i] = static_cast<uint8_t>(c);
  }
  for (uint32_t i = 0; i < kBlockValues / 2; ++i) {
    file[4 + i] = static_cast<std::byte>(code[i] | code[i + kBlockValues / 2] << 4);
  }
  return true;
}

// What a product makes of x [cols]: the exact values of its codes times its scales.
void RoundTrip(std::span<const float> x, std::span<double> out) {
  alignas(64) std::byte records[kMaxCols / kBlockValues * matmul::kRecordBytes];
  const Activations one{1, static_cast<uint32_t>(x.size()), x.data(), records};
  QuantizeRow(x, 0, one);
  for (uint32_t b = 0; b < x.size() / kBlockValues; ++b) {
    const std::byte* record = records + b * matmul::kRecordBytes;
    float scale = 0;
    std::memcpy(&scale, record + kBlockValues + 4 * matmul::kSlotScale, 4);
    for (uint32_t i = 0; i < kBlockValues; ++i) {
      out[b * kBlockValues + i] = double{scale} * static_cast<int8_t>(record[i]);
    }
  }
}

double NormOf(std::span<const double> x) {
  double sum = 0;
  for (const double v : x) sum += v * v;
  return std::sqrt(sum);
}

}  // namespace

// One row of the sketch in file form, and the norms of what it leaves out.
struct HeadSketch::Row {
  std::array<std::byte, kFineColumns / kBlockValues * kFineFileBytes> fine;
  std::array<std::byte, kMaxCols / kBlockValues * kCoarseFileBytes> coarse;
  Norms norms;
};

bool HeadSketch::Suits(WeightFormat format, uint32_t cols) {
  return format == WeightFormat::kQ8_0 && cols >= 2 * kFineColumns && cols <= kMaxCols &&
         cols % kBlockValues == 0;
}

StatusOr<HeadSketch> HeadSketch::Create(std::span<const std::byte> file, uint32_t rows,
                                        uint32_t cols, std::span<const float> channel_weights) {
  KV_CHECK(Suits(WeightFormat::kQ8_0, cols));
  KV_CHECK_EQ(file.size(), rows * FileRowBytes(WeightFormat::kQ8_0, cols));
  KV_CHECK_EQ(channel_weights.size(), size_t{cols});
  HeadSketch sketch;
  sketch.rows_ = rows;
  sketch.cols_ = cols;
  sketch.group_blocks_ = (cols / kBlockValues + kGroups - 1) / kGroups;
  sketch.order_.resize(cols);
  std::iota(sketch.order_.begin(), sketch.order_.end(), 0u);
  std::stable_sort(sketch.order_.begin(), sketch.order_.end(), [&](uint32_t a, uint32_t b) {
    return std::abs(channel_weights[a]) > std::abs(channel_weights[b]);
  });
  sketch.fine_ = {WeightFormat::kQ8_0, rows, kFineColumns, nullptr};
  sketch.coarse_ = {WeightFormat::kQ4_0, rows, cols - kFineColumns, nullptr};
  sketch.norms_ = {WeightFormat::kQ4_1, rows, kSlots, nullptr};
  size_t bytes = 0;
  for (PackedMatrix* matrix : {&sketch.fine_, &sketch.coarse_, &sketch.norms_}) {
    const size_t panel_bytes = PackedPanelBytes(matrix->format, matrix->cols);
    sketch.panel_bytes_ += panel_bytes;
    bytes += matrix->panel_count() * panel_bytes;
  }
  KV_ASSIGN_OR_RETURN(sketch.buffer_, HugeBuffer::Allocate(bytes));
  const std::byte* at = sketch.buffer_.data();
  for (PackedMatrix* matrix : {&sketch.fine_, &sketch.coarse_, &sketch.norms_}) {
    matrix->bytes = at;
    at += matrix->panel_count() * PackedPanelBytes(matrix->format, matrix->cols);
  }
  sketch.MeasureSample(file);
  return sketch;
}

void HeadSketch::MeasureSample(std::span<const std::byte> file) {
  const size_t row_bytes = FileRowBytes(WeightFormat::kQ8_0, cols_);
  const uint32_t stride = std::max(1u, rows_ / kSampleRows);
  std::array<double, kSlots> sums{};
  double count = 0;
  Row row;
  for (uint32_t r = 0; r < rows_; r += stride, ++count) {
    TakeRow(file.data() + r * row_bytes, &row);
    for (uint32_t s = 0; s < kSlots; ++s) sums[s] += std::isfinite(row.norms[s]) ? row.norms[s] : 0;
  }
  for (uint32_t s = 0; s < kSlots; ++s) {
    const float mean = static_cast<float>(sums[s] / count);
    typical_[s] = mean > 1e-20f ? mean : 1.0f;
  }
}

void HeadSketch::TakeRow(const std::byte* file_row, Row* row) const {
  float values[kMaxCols];
  float* at = values;
  for (uint32_t b = 0; b < cols_ / kBlockValues; ++b, file_row += kFineFileBytes) {
    const float scale = HalfAt(file_row);
    for (uint32_t i = 0; i < kBlockValues; ++i) {
      *at++ = scale * static_cast<float>(static_cast<int8_t>(file_row[2 + i]));
    }
  }
  Norms squares{};
  float ordered[kBlockValues];
  for (uint32_t b = 0; b < cols_ / kBlockValues; ++b) {
    for (uint32_t i = 0; i < kBlockValues; ++i) ordered[i] = values[order_[b * kBlockValues + i]];
    const bool fine = b < kFineColumns / kBlockValues;
    squares[fine ? kFineNorm : kCoarseNorm] += SumOfSquares(ordered);
    squares[GroupOf(b)] +=
        fine ? WriteFine(ordered, &row->fine[b * kFineFileBytes])
             : WriteCoarse(ordered,
                           &row->coarse[(b - kFineColumns / kBlockValues) * kCoarseFileBytes]);
  }
  for (uint32_t s = 0; s < kSlots; ++s) row->norms[s] = std::sqrt(squares[s]) * kRoundUp;
}

bool HeadSketch::BuildPanels(std::span<const std::byte> file, uint32_t panel_begin,
                             uint32_t panel_end) {
  const size_t row_bytes = FileRowBytes(WeightFormat::kQ8_0, cols_);
  const size_t coarse_bytes = (cols_ - kFineColumns) / kBlockValues * kCoarseFileBytes;
  Row row;
  const size_t fine_bytes = row.fine.size();
  std::vector<std::byte> fine(kPanelRows * fine_bytes), coarse(kPanelRows * coarse_bytes),
      norms(kPanelRows * kNormsFileBytes);
  for (uint32_t panel = panel_begin; panel < panel_end; ++panel) {
    const uint32_t count = std::min(kPanelRows, rows_ - panel * kPanelRows);
    for (uint32_t r = 0; r < count; ++r) {
      TakeRow(file.data() + (size_t{panel} * kPanelRows + r) * row_bytes, &row);
      Norms relative;
      for (uint32_t s = 0; s < kSlots; ++s) {
        // A division may round down by half a unit.
        relative[s] = row.norms[s] / typical_[s] * kRoundUp;
      }
      // Slots without a group are multiplied by nothing; a low value widens no step.
      for (uint32_t s = GroupOf(cols_ / kBlockValues - 1) + 1; s < kGroups; ++s) {
        relative[s] = relative[kCoarseNorm];
      }
      if (!WriteNotBelow(relative, &norms[r * kNormsFileBytes])) return false;
      std::memcpy(&fine[r * fine_bytes], row.fine.data(), fine_bytes);
      std::memcpy(&coarse[r * coarse_bytes], row.coarse.data(), coarse_bytes);
    }
    const auto pack = [&](const PackedMatrix& matrix, const std::vector<std::byte>& rows) {
      const size_t bytes = PackedPanelBytes(matrix.format, matrix.cols);
      const size_t offset =
          static_cast<size_t>(matrix.bytes - buffer_.data()) + size_t{panel} * bytes;
      PackPanels(matrix.format, std::span(rows).first(rows.size() / kPanelRows * count), count,
                 matrix.cols, 0, 1, buffer_.bytes().subspan(offset, bytes));
    };
    pack(fine_, fine);
    pack(coarse_, coarse);
    pack(norms_, norms);
  }
  return true;
}

size_t HeadSketch::PreparedBytes(uint32_t rows) const {
  return Aligned(ActivationBytes(rows, cols_ - kFineColumns)) +
         Aligned(ActivationBytes(rows, kFineColumns)) + Aligned(ActivationBytes(rows, kSlots));
}

Activations HeadSketch::Part(const PackedMatrix& matrix, uint32_t rows, std::byte* prepared) const {
  size_t offset = 0;
  for (const PackedMatrix* part : {&fine_, &coarse_, &norms_}) {
    if (part == &matrix) break;
    offset += Aligned(ActivationBytes(rows, part->cols));
  }
  return {rows, matrix.cols, nullptr, prepared + offset};
}

bool HeadSketch::PrepareRow(std::span<const float> h, uint32_t row, uint32_t rows,
                            std::byte* prepared) const {
  KV_CHECK_EQ(h.size(), size_t{cols_});
  KV_CHECK_LT(row, rows);
  double exact[kMaxCols], rounded[kMaxCols], difference[kMaxCols];
  float ordered[kMaxCols];
  const std::span<double> all(exact, cols_);
  RoundTrip(h, all);
  const double size = NormOf(all);
  if (!(size > 1e-15 && size < 1e15)) return false;  // NaN too.
  for (uint32_t j = 0; j < cols_; ++j) ordered[j] = static_cast<float>(exact[order_[j]]);
  const std::span<const float> fine(ordered, kFineColumns);
  const std::span<const float> coarse(ordered + kFineColumns, cols_ - kFineColumns);
  QuantizeRow(fine, row, Part(fine_, rows, prepared));
  QuantizeRow(coarse, row, Part(coarse_, rows, prepared));
  RoundTrip(fine, {rounded, fine.size()});
  RoundTrip(coarse, {rounded + kFineColumns, coarse.size()});
  for (uint32_t j = 0; j < cols_; ++j) difference[j] = exact[order_[j]] - rounded[j];

  // The rounding of both float computations, each at most (blocks + a few) units of 2^-24 of the
  // sum of the terms' magnitudes.
  const double rounding = (cols_ / kBlockValues + 16) * 0x1p-22 * size;
  std::array<float, kSlots> factors{};
  const uint32_t groups = GroupOf(cols_ / kBlockValues - 1) + 1;
  const uint32_t width = group_blocks_ * kBlockValues;
  float largest = 0;
  const auto put = [&](uint32_t slot, double norm) {
    factors[slot] = static_cast<float>(norm * typical_[slot]) * kRoundUp;
    largest = std::max(largest, factors[slot]);
  };
  for (uint32_t g = 0; g < groups; ++g) {
    const uint32_t begin = g * width;
    put(g, NormOf({rounded + begin, std::min(width, cols_ - begin)}));
  }
  put(kFineNorm, NormOf({difference, kFineColumns}) + rounding);
  put(kCoarseNorm, NormOf({difference + kFineColumns, cols_ - kFineColumns}) + rounding);
  // Quantization to 127 steps of the largest moves a factor by at most a 254th of it.
  for (uint32_t s = 0; s < kSlots; ++s) {
    if (s < groups || s >= kFineNorm) factors[s] += largest / 250.0f;
  }
  if (!(largest > 1e-15f && largest < 1e15f)) return false;
  QuantizeRow(factors, row, Part(norms_, rows, prepared));
  return true;
}

void HeadSketch::BoundPanels(uint32_t rows, const std::byte* prepared, uint32_t panel_begin,
                             uint32_t panel_end, float* out, size_t out_stride) const {
  std::byte* bytes = const_cast<std::byte*>(prepared);  // Activations serve writers too.
  Store store = Store::kAssign;
  for (const PackedMatrix* matrix : {&fine_, &coarse_, &norms_}) {
    MatMulPanels(*matrix, Part(*matrix, rows, bytes), panel_begin, panel_end, store, out,
                 out_stride);
    store = Store::kAdd;
  }
}

}  // namespace kvasir
