#include "kernels/weight_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "kernels/weight_rows_for_test.h"

namespace kvasir {
namespace {

// testdata/dequantize.txt comes from the gguf Python package (make_dequantize.py beside it).
TEST(WeightFormat, DequantizesAsTheGgufPackageDoes) {
  std::ifstream file(std::string(KVASIR_TESTDATA_DIR) + "/dequantize.txt");
  ASSERT_TRUE(file.is_open());
  std::vector<std::string> seen;
  std::string name, blocks_hex, values_hex;
  while (file >> name >> blocks_hex >> values_hex) {
    SCOPED_TRACE(name);
    seen.push_back(name);
    const WeightFormat format = FormatNamed(name);
    const std::vector<std::byte> blocks = FromHex(blocks_hex);
    const std::vector<std::byte> expected = FromHex(values_hex);
    std::vector<float> values(expected.size() / 4);
    ASSERT_EQ(blocks.size(), FileRowBytes(format, static_cast<uint32_t>(values.size())));
    DequantizeRow(format, blocks, values);
    for (size_t i = 0; i < values.size(); ++i) {
      uint32_t bits = 0;
      std::memcpy(&bits, &expected[i * 4], 4);
      ASSERT_EQ(std::bit_cast<uint32_t>(values[i]), bits) << "value " << i << ": " << values[i];
    }
  }
  EXPECT_THAT(seen,
              testing::ElementsAre("F16", "Q4_0", "Q4_1", "Q5_0", "Q8_0", "Q4_K", "Q6_K", "BF16",
                                   "Q5_1", "Q2_K", "Q3_K", "Q5_K", "IQ4_NL", "IQ4_XS", "MXFP4"));
}

TEST(WeightFormat, F32IsCopied) {
  const std::vector<float> file = {0.0f, -0.0f, 1.5f, -3.25e-40f, 3.0e38f};
  std::vector<float> out(file.size());
  DequantizeRow(WeightFormat::kF32, std::as_bytes(std::span(file)), out);
  EXPECT_EQ(std::memcmp(out.data(), file.data(), file.size() * 4), 0);
}

TEST(WeightFormat, RowBytes) {
  EXPECT_EQ(FileRowBytes(WeightFormat::kF32, 3), 12u);
  EXPECT_EQ(FileRowBytes(WeightFormat::kF16, 3), 6u);
  EXPECT_EQ(FileRowBytes(WeightFormat::kQ4_0, 64), 36u);
  EXPECT_EQ(FileRowBytes(WeightFormat::kQ4_1, 64), 40u);
  EXPECT_EQ(FileRowBytes(WeightFormat::kQ5_0, 64), 44u);
  EXPECT_EQ(FileRowBytes(WeightFormat::kQ8_0, 64), 68u);
  EXPECT_EQ(FileRowBytes(WeightFormat::kQ4_K, 512), 288u);
  EXPECT_EQ(FileRowBytes(WeightFormat::kQ6_K, 512), 420u);
  EXPECT_EQ(FileRowBytes(WeightFormat::kBF16, 3), 6u);
  EXPECT_EQ(FileRowBytes(WeightFormat::kQ5_1, 64), 48u);
  EXPECT_EQ(FileRowBytes(WeightFormat::kQ2_K, 512), 168u);
  EXPECT_EQ(FileRowBytes(WeightFormat::kQ3_K, 512), 220u);
  EXPECT_EQ(FileRowBytes(WeightFormat::kQ5_K, 512), 352u);
  EXPECT_EQ(FileRowBytes(WeightFormat::kIQ4_NL, 64), 36u);
  EXPECT_EQ(FileRowBytes(WeightFormat::kIQ4_XS, 512), 272u);
  EXPECT_EQ(FileRowBytes(WeightFormat::kMXFP4, 64), 34u);
}

TEST(WeightFormatDeathTest, PartOfABlock) {
  EXPECT_DEATH(FileRowBytes(WeightFormat::kQ4_K, 128), "block_values");
}

}  // namespace
}  // namespace kvasir
