#include "kernels/matmul.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "base/rng.h"
#include "kernels/isa.h"
#include "kernels/row_ops.h"

namespace kvasir {
namespace {

constexpr WeightFormat kFormats[] = {
    WeightFormat::kF32,  WeightFormat::kF16,    WeightFormat::kQ4_0,   WeightFormat::kQ4_1,
    WeightFormat::kQ5_0, WeightFormat::kQ8_0,   WeightFormat::kQ4_K,   WeightFormat::kQ6_K,
    WeightFormat::kBF16, WeightFormat::kQ5_1,   WeightFormat::kQ2_K,   WeightFormat::kQ3_K,
    WeightFormat::kQ5_K, WeightFormat::kIQ4_NL, WeightFormat::kIQ4_XS, WeightFormat::kMXFP4};
static_assert(std::size(kFormats) == kWeightFormatCount);

// Bytes on a 64-byte boundary; the vector may not be moved into another once data() is used.
class AlignedBytes {
 public:
  explicit AlignedBytes(size_t size) : storage_(size + 64), size_(size) {}
  std::byte* data() {
    const uintptr_t address = reinterpret_cast<uintptr_t>(storage_.data());
    return storage_.data() + (64 - address % 64) % 64;
  }
  std::span<std::byte> bytes() { return {data(), size_}; }

 private:
  std::vector<std::byte> storage_;
  size_t size_;
};

class IsaRestorer {
 public:
  ~IsaRestorer() { SetActiveIsa(isa_); }

 private:
  Isa isa_ = ActiveIsa();
};

// Offsets in a block of its f16 fields.
std::vector<uint32_t> HalfOffsets(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32:
    case WeightFormat::kBF16:
    case WeightFormat::kMXFP4:
      return {};
    case WeightFormat::kF16:
    case WeightFormat::kQ4_0:
    case WeightFormat::kQ5_0:
    case WeightFormat::kQ8_0:
    case WeightFormat::kIQ4_NL:
    case WeightFormat::kIQ4_XS:
      return {0};
    case WeightFormat::kQ4_1:
    case WeightFormat::kQ5_1:
    case WeightFormat::kQ4_K:
    case WeightFormat::kQ5_K:
      return {0, 2};
    case WeightFormat::kQ2_K:
      return {80, 82};
    case WeightFormat::kQ3_K:
      return {108};
    case WeightFormat::kQ6_K:
      return {208};
  }
  return {};
}

enum class Scales { kOrdinary, kSubnormal, kLarge, kZero };

uint16_t RandomHalf(Scales scales, Rng& rng) {
  const uint16_t sign = static_cast<uint16_t>(rng.Below(2) << 15);
  switch (scales) {
    case Scales::kOrdinary:  // 2^-8 to 2^-4.
      return static_cast<uint16_t>(sign | rng.Between(7 << 10, (11 << 10) - 1));
    case Scales::kSubnormal:
      return static_cast<uint16_t>(sign | rng.Below(1024));
    case Scales::kLarge:
      return static_cast<uint16_t>(sign | rng.Between(28 << 10, 0x7BFF));
    case Scales::kZero:
      break;
  }
  return sign;
}

// Of MXFP4's scale 2^(exponent - 128).
std::byte RandomExponent(Scales scales, Rng& rng) {
  switch (scales) {
    case Scales::kOrdinary:
      return static_cast<std::byte>(rng.Between(118, 124));
    case Scales::kSubnormal:
      return static_cast<std::byte>(rng.Below(2));
    case Scales::kLarge:
      return static_cast<std::byte>(rng.Between(130, 150));
    case Scales::kZero:
      break;
  }
  return std::byte{0};  // There is no zero; this is the smallest.
}

// A matrix of any codes with scales of the wanted kind: no quantizer is needed to test a product.
std::vector<std::byte> RandomFile(WeightFormat format, uint32_t rows, uint32_t cols, Scales scales,
                                  Rng& rng) {
  std::vector<std::byte> file(rows * FileRowBytes(format, cols));
  if (format == WeightFormat::kF32 || format == WeightFormat::kBF16) {
    const size_t bytes = TraitsOf(format).block_bytes;
    for (size_t i = 0; i < file.size(); i += bytes) {
      const float value = FloatFromHalf(RandomHalf(scales, rng)) * rng.Normal();
      std::memcpy(&file[i], reinterpret_cast<const char*>(&value) + 4 - bytes, bytes);
    }
    return file;
  }
  for (std::byte& b : file) b = static_cast<std::byte>(rng.Below(256));
  const uint32_t block_bytes = TraitsOf(format).block_bytes;
  for (size_t block = 0; block < file.size(); block += block_bytes) {
    for (const uint32_t offset : HalfOffsets(format)) {
      const uint16_t half = RandomHalf(scales, rng);
      std::memcpy(&file[block + offset], &half, 2);
    }
    if (format == WeightFormat::kMXFP4) file[block] = RandomExponent(scales, rng);
  }
  return file;
}

std::vector<float> RandomRows(uint32_t rows, uint32_t cols, Rng& rng) {
  std::vector<float> x(size_t{rows} * cols);
  for (float& v : x) v = rng.Normal();
  return x;
}

struct Packed {
  AlignedBytes bytes;
  PackedMatrix matrix;
};

Packed Pack(WeightFormat format, const std::vector<std::byte>& file, uint32_t rows, uint32_t cols) {
  PackedMatrix matrix{format, rows, cols, nullptr};
  Packed packed{AlignedBytes(matrix.panel_count() * PackedPanelBytes(format, cols)), matrix};
  PackPanels(format, file, rows, cols, 0, matrix.panel_count(), packed.bytes.bytes());
  packed.matrix.bytes = packed.bytes.data();
  return packed;
}

// Product of `rows` float rows with all panels on the active instruction set.
std::vector<float> Multiply(const PackedMatrix& w, const float* x, uint32_t rows) {
  AlignedBytes quantized(ActivationBytes(rows, w.cols));
  const Activations activations{rows, w.cols, x, quantized.data()};
  for (uint32_t r = 0; r < rows; ++r) QuantizeRow({x + size_t{r} * w.cols, w.cols}, r, activations);
  std::vector<float> out(size_t{rows} * w.rows, -77.0f);
  MatMulPanels(w, activations, 0, w.panel_count(), Store::kAssign, out.data(), w.rows);
  return out;
}

// The same, row block by row block, the last one first: each row once, or the sum would show it.
std::vector<float> MultiplyByRowBlocks(const PackedMatrix& w, const float* x, uint32_t rows) {
  AlignedBytes quantized(ActivationBytes(rows, w.cols));
  const Activations activations{rows, w.cols, x, quantized.data()};
  for (uint32_t r = 0; r < rows; ++r) QuantizeRow({x + size_t{r} * w.cols, w.cols}, r, activations);
  std::vector<float> out(size_t{rows} * w.rows);
  const uint32_t blocks = RowBlocks(rows, w.cols);
  EXPECT_GT(blocks, 1u);
  for (uint32_t block = blocks; block-- > 0;) {
    MatMulRowBlock(w, activations, block, 0, w.panel_count(), Store::kAdd, out.data(), w.rows);
  }
  return out;
}

std::vector<double> MultiplyReference(const PackedMatrix& w, const float* x, uint32_t rows) {
  AlignedBytes quantized(ActivationBytes(rows, w.cols));
  const Activations activations{rows, w.cols, x, quantized.data()};
  for (uint32_t r = 0; r < rows; ++r) QuantizeRow({x + size_t{r} * w.cols, w.cols}, r, activations);
  std::vector<double> out(size_t{rows} * w.rows);
  MatMulReference(w, activations, out.data(), w.rows);
  return out;
}

// About what the largest of some hundred outputs is, three deviations: where there are few outputs
// all of them may have cancelled by chance, and no float32 sum can be accurate relative to that.
double LargestExpected(const PackedMatrix& w, std::span<const float> x) {
  std::vector<float> weights(w.cols);
  UnpackRow(w, 0, weights);
  double sum = 0;
  for (uint32_t c = 0; c < w.cols; ++c) sum += double{weights[c]} * weights[c] * x[c] * x[c];
  return 3 * std::sqrt(sum);
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class MatMulFormatTest : public testing::TestWithParam<WeightFormat> {
 protected:
  // Widths that the format allows.
  std::vector<uint32_t> Widths() const {
    // Up to several chunks, which end at a header or in the middle between two.
    if (TraitsOf(GetParam()).block_values == 256) return {256, 512, 1280, 1536, 2304, 2560, 4096};
    return {32, 64, 96, 256, 576, 672, 1344, 1536, 4096};
  }

 private:
  IsaRestorer restorer_;
};

TEST_P(MatMulFormatTest, UnpackRowEqualsDequantizeRow) {
  Rng rng(1);
  for (const uint32_t cols : Widths()) {
    for (const Scales scales :
         {Scales::kOrdinary, Scales::kSubnormal, Scales::kLarge, Scales::kZero}) {
      const uint32_t rows = 19;
      const std::vector<std::byte> file = RandomFile(GetParam(), rows, cols, scales, rng);
      const Packed packed = Pack(GetParam(), file, rows, cols);
      const size_t row_bytes = FileRowBytes(GetParam(), cols);
      for (uint32_t r = 0; r < rows; ++r) {
        std::vector<float> expected(cols);
        std::vector<float> actual(cols);
        DequantizeRow(GetParam(), std::span(file).subspan(r * row_bytes, row_bytes), expected);
        UnpackRow(packed.matrix, r, actual);
        ASSERT_TRUE(SameBits(actual, expected)) << "cols " << cols << " row " << r;
      }
    }
  }
}

TEST_P(MatMulFormatTest, PackingHardlyGrows) {
  const size_t file_bytes = FileRowBytes(GetParam(), 2048) * kPanelRows;
  const size_t packed_bytes = PackedPanelBytes(GetParam(), 2048);
  EXPECT_EQ(packed_bytes % 64, 0u);
  const double growth = static_cast<double>(packed_bytes) / static_cast<double>(file_bytes);
  switch (GetParam()) {
    case WeightFormat::kQ4_K:
    case WeightFormat::kQ5_K:
    case WeightFormat::kQ6_K:
      EXPECT_LE(growth, 1.03);
      break;
    case WeightFormat::kQ3_K:   // Its 6-bit scales take a byte.
    case WeightFormat::kMXFP4:  // Its 8-bit scales take two.
      EXPECT_LE(growth, 1.06);
      break;
    case WeightFormat::kIQ4_XS:  // Every line of codes is aligned.
      EXPECT_LE(growth, 1.09);
      break;
    default:
      EXPECT_EQ(packed_bytes, file_bytes);
  }
}

TEST_P(MatMulFormatTest, PackingRangesTouchTheirPanelsOnly) {
  Rng rng(2);
  const uint32_t rows = 40, cols = 256;
  const std::vector<std::byte> file = RandomFile(GetParam(), rows, cols, Scales::kOrdinary, rng);
  Packed whole = Pack(GetParam(), file, rows, cols);
  const size_t panel_bytes = PackedPanelBytes(GetParam(), cols);
  AlignedBytes part(3 * panel_bytes);
  std::fill(part.bytes().begin(), part.bytes().end(), std::byte{0xAB});
  PackPanels(GetParam(), file, rows, cols, 1, 2, part.bytes());
  for (size_t i = 0; i < panel_bytes; ++i) {
    ASSERT_EQ(part.data()[i], std::byte{0xAB});
    ASSERT_EQ(part.data()[2 * panel_bytes + i], std::byte{0xAB});
  }
  EXPECT_EQ(std::memcmp(part.data() + panel_bytes, whole.bytes.data() + panel_bytes, panel_bytes),
            0);
}

// The accuracy bound, and the same bits from every instruction set.
TEST_P(MatMulFormatTest, MatchesReferenceOnEveryIsa) {
  Rng rng(3);
  for (const uint32_t cols : Widths()) {
    for (const auto& [out_rows, rows] :
         {std::tuple(1u, 1u), std::tuple(15u, 3u), std::tuple(16u, 8u), std::tuple(17u, 17u),
          std::tuple(40u, 33u)}) {
      const std::vector<std::byte> file =
          RandomFile(GetParam(), out_rows, cols, Scales::kOrdinary, rng);
      const Packed packed = Pack(GetParam(), file, out_rows, cols);
      const std::vector<float> x = RandomRows(rows, cols, rng);
      const std::vector<double> expected = MultiplyReference(packed.matrix, x.data(), rows);
      std::vector<float> first;
      for (const Isa isa : SupportedIsas()) {
        SCOPED_TRACE(testing::Message() << IsaName(isa) << " cols " << cols << " out_rows "
                                        << out_rows << " rows " << rows);
        SetActiveIsa(isa);
        const std::vector<float> actual = Multiply(packed.matrix, x.data(), rows);
        double max_error = 0;
        double max_out = LargestExpected(packed.matrix, x);
        for (size_t i = 0; i < actual.size(); ++i) {
          max_error = std::max(max_error, std::fabs(actual[i] - expected[i]));
          max_out = std::max(max_out, std::fabs(expected[i]));
        }
        ASSERT_LE(max_error, 1e-6 * max_out);
        if (first.empty()) first = actual;
        ASSERT_TRUE(SameBits(actual, first));
      }
    }
  }
}

// A row's result does not depend on how many rows there are: all tile sizes, direct and expanded.
TEST_P(MatMulFormatTest, RowsDoNotDependOnTheirBatch) {
  Rng rng(4);
  const uint32_t out_rows = 40, cols = 1024, rows = 67;
  const std::vector<std::byte> file =
      RandomFile(GetParam(), out_rows, cols, Scales::kOrdinary, rng);
  const Packed packed = Pack(GetParam(), file, out_rows, cols);
  const std::vector<float> x = RandomRows(rows, cols, rng);
  for (const Isa isa : SupportedIsas()) {
    SetActiveIsa(isa);
    const std::vector<float> all = Multiply(packed.matrix, x.data(), rows);
    for (const uint32_t batch : {1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, 9u, 13u, 17u, 34u}) {
      const uint32_t start = rows - batch;
      const std::vector<float> some =
          Multiply(packed.matrix, x.data() + size_t{start} * cols, batch);
      ASSERT_EQ(std::memcmp(some.data(), all.data() + size_t{start} * out_rows, some.size() * 4), 0)
          << IsaName(isa) << " batch " << batch;
    }
  }
}

// More rows than one row block has, and more k than one chunk: blocking is invisible too, and row
// blocks one by one make the whole.
TEST_P(MatMulFormatTest, RowsDoNotDependOnBlocking) {
  Rng rng(9);
  const uint32_t out_rows = 20, cols = 1024, rows = 523;
  const std::vector<std::byte> file =
      RandomFile(GetParam(), out_rows, cols, Scales::kOrdinary, rng);
  const Packed packed = Pack(GetParam(), file, out_rows, cols);
  const std::vector<float> x = RandomRows(rows, cols, rng);
  std::vector<float> first;
  for (const Isa isa : SupportedIsas()) {
    SetActiveIsa(isa);
    const std::vector<float> all = Multiply(packed.matrix, x.data(), rows);
    if (first.empty()) first = all;
    ASSERT_TRUE(SameBits(all, first)) << IsaName(isa);
    ASSERT_TRUE(SameBits(MultiplyByRowBlocks(packed.matrix, x.data(), rows), first))
        << IsaName(isa);
    for (uint32_t row = 0; row < rows; row += 19) {
      const std::vector<float> one = Multiply(packed.matrix, x.data() + size_t{row} * cols, 1);
      ASSERT_EQ(std::memcmp(one.data(), all.data() + size_t{row} * out_rows, one.size() * 4), 0)
          << IsaName(isa) << " row " << row;
    }
  }
}

TEST_P(MatMulFormatTest, PanelRangesAndStore) {
  Rng rng(5);
  const uint32_t out_rows = 55, cols = 256, stride = 61;
  const std::vector<std::byte> file =
      RandomFile(GetParam(), out_rows, cols, Scales::kOrdinary, rng);
  const Packed packed = Pack(GetParam(), file, out_rows, cols);
  for (const uint32_t rows : {11u, 33u}) {
    const std::vector<float> x = RandomRows(rows, cols, rng);
    for (const Isa isa : SupportedIsas()) {
      SetActiveIsa(isa);
      const std::vector<float> all = Multiply(packed.matrix, x.data(), rows);
      AlignedBytes quantized(ActivationBytes(rows, cols));
      const Activations activations{rows, cols, x.data(), quantized.data()};
      for (uint32_t r = rows; r-- > 0;) {
        QuantizeRow({x.data() + size_t{r} * cols, cols}, r, activations);
      }
      // One float before the start: out is unaligned. 0.5 everywhere shows what is written.
      std::vector<float> out(size_t{rows} * stride + 1, 0.5f);
      MatMulPanels(packed.matrix, activations, 1, 2, Store::kAssign, out.data() + 1, stride);
      MatMulPanels(packed.matrix, activations, 2, 4, Store::kAdd, out.data() + 1, stride);
      MatMulPanels(packed.matrix, activations, 0, 0, Store::kAdd, out.data() + 1, stride);
      ASSERT_EQ(out[0], 0.5f);
      for (uint32_t r = 0; r < rows; ++r) {
        for (uint32_t o = 0; o < stride; ++o) {
          const float result = o < out_rows ? all[size_t{r} * out_rows + o] : 0.0f;
          const float expected = o >= 16 && o < 32 ? result : o >= 32 ? 0.5f + result : 0.5f;
          ASSERT_EQ(out[size_t{r} * stride + o + 1], expected)
              << IsaName(isa) << " row " << r << " out " << o;
        }
      }
    }
  }
}

TEST_P(MatMulFormatTest, ExtremeValues) {
  Rng rng(6);
  const uint32_t out_rows = 24, cols = 256, rows = 9;
  for (const Scales scales : {Scales::kSubnormal, Scales::kLarge, Scales::kZero}) {
    const std::vector<std::byte> file = RandomFile(GetParam(), out_rows, cols, scales, rng);
    const Packed packed = Pack(GetParam(), file, out_rows, cols);
    std::vector<float> x = RandomRows(rows, cols, rng);
    for (uint32_t c = 0; c < cols; ++c) {
      x[0 * cols + c] = 0.0f;
      x[1 * cols + c] *= 1e-30f;
      x[2 * cols + c] *= 1e20f;
      x[3 * cols + c] *= 1e-42f;  // Subnormal.
      x[4 * cols + c] = c % 2 == 0 ? 1.0f : -1.0f;
    }
    const std::vector<double> expected = MultiplyReference(packed.matrix, x.data(), rows);
    std::vector<float> first;
    for (const Isa isa : SupportedIsas()) {
      SetActiveIsa(isa);
      const std::vector<float> actual = Multiply(packed.matrix, x.data(), rows);
      if (first.empty()) first = actual;
      ASSERT_TRUE(SameBits(actual, first)) << IsaName(isa);
    }
    for (uint32_t r = 0; r < rows; ++r) {
      double max_error = 0;
      double max_out = 0;
      for (uint32_t o = 0; o < out_rows; ++o) {
        const size_t i = size_t{r} * out_rows + o;
        max_error = std::max(max_error, std::fabs(first[i] - expected[i]));
        max_out = std::max(max_out, std::fabs(expected[i]));
      }
      EXPECT_LE(max_error, 1e-6 * max_out + 1e-37) << "row " << r;
    }
  }
}

// A row quantized in pieces, in any order, is the row quantized at once.
// Units of all row blocks are shared out without a gap, whatever the claims.
TEST(ForRowBlocks, EveryPanelOfEveryBlockOnce) {
  for (const uint32_t panels : {1u, 2u, 5u, 36u}) {
    for (const uint32_t grain : {1u, 2u, 7u, 100u}) {
      std::vector<int> seen(size_t{panels} * 3);
      for (uint32_t begin = 0; begin < panels * 3; begin += grain) {
        const uint32_t end = std::min(begin + grain, panels * 3);
        ForRowBlocks(panels, begin, end, [&](uint32_t block, uint32_t from, uint32_t to) {
          ASSERT_LT(from, to);
          ASSERT_LE(to, panels);
          for (uint32_t panel = from; panel < to; ++panel) ++seen.at(block * panels + panel);
        });
      }
      EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), panels * 3) << panels << " by " << grain;
    }
  }
}

TEST(QuantizeBlocksTest, PiecesMakeTheRow) {
  const IsaRestorer restorer;
  Rng rng(8);
  const uint32_t cols = 320, rows = 17;
  const std::vector<float> x = RandomRows(rows, cols, rng);
  for (const Isa isa : SupportedIsas()) {
    SetActiveIsa(isa);
    AlignedBytes whole(ActivationBytes(rows, cols));
    AlignedBytes pieces(ActivationBytes(rows, cols));
    for (uint32_t r = 0; r < rows; ++r) {
      const std::span<const float> row(&x[size_t{r} * cols], cols);
      QuantizeRow(row, r, {rows, cols, nullptr, whole.data()});
      for (const auto& [first, count] : {std::pair(7u, 3u), {0u, 1u}, {1u, 6u}}) {
        QuantizeBlocks(row.subspan(first * 32, count * 32), r, first,
                       {rows, cols, nullptr, pieces.data()});
      }
    }
    EXPECT_EQ(std::memcmp(whole.data(), pieces.data(), whole.bytes().size()), 0) << IsaName(isa);
  }
}

// A NaN or an infinity spoils its own row, visibly, and no other.
TEST_P(MatMulFormatTest, NonFiniteActivationsStayInTheirRow) {
  Rng rng(7);
  const uint32_t out_rows = 20, cols = 256, rows = 4;
  const std::vector<std::byte> file =
      RandomFile(GetParam(), out_rows, cols, Scales::kOrdinary, rng);
  const Packed packed = Pack(GetParam(), file, out_rows, cols);
  std::vector<float> x = RandomRows(rows, cols, rng);
  for (const Isa isa : SupportedIsas()) {
    SetActiveIsa(isa);
    const std::vector<float> clean = Multiply(packed.matrix, x.data(), rows);
    std::vector<float> dirty = x;
    dirty[0 * cols + 77] = std::numeric_limits<float>::quiet_NaN();
    dirty[2 * cols + 5] = -std::numeric_limits<float>::infinity();
    const std::vector<float> out = Multiply(packed.matrix, dirty.data(), rows);
    for (uint32_t r = 0; r < rows; ++r) {
      for (uint32_t o = 0; o < out_rows; ++o) {
        const float value = out[size_t{r} * out_rows + o];
        if (r % 2 == 0) {
          ASSERT_FALSE(std::isfinite(value)) << IsaName(isa);
        } else {
          ASSERT_EQ(value, clean[size_t{r} * out_rows + o]) << IsaName(isa);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, MatMulFormatTest, testing::ValuesIn(kFormats),
                         [](const testing::TestParamInfo<WeightFormat>& param) {
                           return std::string(TraitsOf(param.param).name);
                         });

// A matrix small enough to compute by hand: Q8_0 weights 1..32 times scale 0.5, activations whose
// largest value is 127, so that their codes are the values themselves.
TEST(MatMul, ByHand) {
  std::vector<std::byte> file(34);
  const uint16_t half = 0x3800;
  std::memcpy(file.data(), &half, 2);
  for (int i = 0; i < 32; ++i) file[2 + i] = static_cast<std::byte>(i + 1);
  const Packed packed = Pack(WeightFormat::kQ8_0, file, 1, 32);
  std::vector<float> x(32, 1.0f);
  x[31] = -127.0f;
  // 0.5 * (1 + ... + 31 - 127 * 32)
  EXPECT_EQ(Multiply(packed.matrix, x.data(), 1)[0], 0.5f * (496 - 4064));
}

TEST(QuantizeRow, SameBytesOnEveryIsaHalvesToEven) {
  const IsaRestorer restorer;
  Rng rng(8);
  const uint32_t cols = 576;
  for (const uint32_t rows : {1u, 5u, 9u}) {
    std::vector<float> x = RandomRows(rows, cols, rng);
    // Scale 1 in row 0's first block: codes are the values rounded, halves to even.
    const float halves[6] = {127.0f, 0.5f, 1.5f, -2.5f, -0.5f, 126.5f};
    const int8_t codes[6] = {127, 0, 2, -2, 0, 126};
    std::memcpy(x.data(), halves, sizeof(halves));
    for (uint32_t c = 64; c < 96; ++c) x[c] *= 1e-38f;
    x[100] = std::numeric_limits<float>::infinity();
    AlignedBytes first(ActivationBytes(rows, cols));
    for (const Isa isa : SupportedIsas()) {
      SetActiveIsa(isa);
      AlignedBytes bytes(ActivationBytes(rows, cols));
      const Activations activations{rows, cols, x.data(), bytes.data()};
      for (uint32_t r = 0; r < rows; ++r)
        QuantizeRow({x.data() + size_t{r} * cols, cols}, r, activations);
      EXPECT_EQ(std::memcmp(bytes.data(), codes, sizeof(codes)), 0) << IsaName(isa);
      if (isa == Isa::kScalar) std::memcpy(first.data(), bytes.data(), bytes.bytes().size());
      EXPECT_EQ(std::memcmp(bytes.data(), first.data(), bytes.bytes().size()), 0) << IsaName(isa);
    }
  }
}

TEST(MatMulDeathTest, ShapesMustMeet) {
  const std::vector<std::byte> file(FileRowBytes(WeightFormat::kQ4_0, 64));
  const Packed packed = Pack(WeightFormat::kQ4_0, file, 1, 64);
  AlignedBytes quantized(ActivationBytes(1, 32));
  const Activations activations{1, 32, nullptr, quantized.data()};
  float out = 0;
  EXPECT_DEATH(MatMulPanels(packed.matrix, activations, 0, 1, Store::kAssign, &out, 1), "cols");
}

}  // namespace
}  // namespace kvasir
