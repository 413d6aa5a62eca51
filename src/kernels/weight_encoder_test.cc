#include "kernels/weight_encoder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "base/rng.h"
#include "kernels/weight_rows_for_test.h"

namespace kvasir {
namespace {

std::vector<float> RoundTrip(WeightFormat format, const std::vector<float>& values) {
  std::vector<std::byte> bytes(FileRowBytes(format, static_cast<uint32_t>(values.size())));
  EncodeRow(format, values, bytes);
  std::vector<float> decoded(values.size());
  DequantizeRow(format, bytes, decoded);
  return decoded;
}

double RelativeError(const std::vector<float>& values, const std::vector<float>& decoded) {
  double squares = 0;
  double errors = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    squares += double{values[i]} * values[i];
    errors += (double{values[i]} - decoded[i]) * (double{values[i]} - decoded[i]);
  }
  return std::sqrt(errors / squares);
}

std::vector<float> NormalRow(size_t count, uint64_t seed) {
  Rng rng(seed);
  std::vector<float> values(count);
  for (float& v : values) v = 0.05f * rng.Normal();
  return values;
}

// testdata/encode.txt comes from the gguf Python package (make_encode.py beside it).
TEST(EncodeRow, StandardRoundingIsTheGgufPackages) {
  std::ifstream file(std::string(KVASIR_TESTDATA_DIR) + "/encode.txt");
  ASSERT_TRUE(file.is_open());
  int count = 0;
  std::string name, values_hex, bytes_hex;
  while (file >> name >> values_hex >> bytes_hex) {
    SCOPED_TRACE(testing::Message() << name << " " << count);
    const std::vector<std::byte> raw = FromHex(values_hex);
    std::vector<float> values(raw.size() / 4);
    std::memcpy(values.data(), raw.data(), raw.size());
    const std::vector<std::byte> expected = FromHex(bytes_hex);
    std::vector<std::byte> bytes(expected.size());
    EncodeRow(FormatNamed(name), values, bytes);
    EXPECT_EQ(bytes, expected);
    ++count;
  }
  EXPECT_EQ(count, 36);
}

// Errors of normal values, a little above what was measured: a lost refinement would show.
TEST(EncodeRow, ErrorsOfNormalValues) {
  const std::vector<float> values = NormalRow(256 * 64, 1);
  const std::pair<WeightFormat, double> bounds[] = {
      {WeightFormat::kF16, 3e-4},    {WeightFormat::kBF16, 2e-3},   {WeightFormat::kQ8_0, 0.0056},
      {WeightFormat::kQ6_K, 0.0180}, {WeightFormat::kQ5_0, 0.0436}, {WeightFormat::kQ4_K, 0.0740},
      {WeightFormat::kQ4_1, 0.0800}, {WeightFormat::kQ4_0, 0.0870},
  };
  for (const auto& [format, bound] : bounds) {
    const double error = RelativeError(values, RoundTrip(format, values));
    EXPECT_LT(error, bound) << TraitsOf(format).name;
    EXPECT_GT(error, bound / 2) << TraitsOf(format).name;
  }
}

TEST(EncodeRow, GridsAreMetExactly) {
  // Values that a K-quant can express: the search must find them.
  std::vector<float> ranges(256);
  std::vector<float> scales(256);
  for (int i = 0; i < 256; ++i) {
    ranges[static_cast<size_t>(i)] = 0.25f * static_cast<float>(i * 7 % 16) - 1.0f;
    scales[static_cast<size_t>(i)] = 0.5f * static_cast<float>(i % 16 * 11 % 64 - 32);
  }
  EXPECT_LT(RelativeError(ranges, RoundTrip(WeightFormat::kQ4_K, ranges)), 2e-3);
  EXPECT_LT(RelativeError(scales, RoundTrip(WeightFormat::kQ6_K, scales)), 2e-3);
}

TEST(EncodeRow, UnusualBlocks) {
  for (const WeightFormat format :
       {WeightFormat::kQ4_0, WeightFormat::kQ4_1, WeightFormat::kQ5_0, WeightFormat::kQ8_0,
        WeightFormat::kQ4_K, WeightFormat::kQ6_K}) {
    SCOPED_TRACE(TraitsOf(format).name);
    const std::vector<float> zeros(256, 0.0f);
    EXPECT_EQ(RoundTrip(format, zeros), zeros);
    for (const float value : {0.7f, -0.7f, 1e-3f, -20.0f}) {
      const std::vector<float> equal(256, value);
      EXPECT_LT(RelativeError(equal, RoundTrip(format, equal)), 0.01) << value;
    }
    // One value much larger than the rest, in a row that holds nothing else of that block.
    std::vector<float> spike(256, 0.0f);
    spike[100] = 8.0f;
    EXPECT_LT(RelativeError(spike, RoundTrip(format, spike)), 0.01);
    // Beyond what scales can say: something finite or infinite comes out, nothing else happens.
    for (const float value : {1e-42f, 1e30f, -3e38f}) {
      std::vector<float> extreme = NormalRow(256, 2);
      extreme[7] = value;
      RoundTrip(format, extreme);
      RoundTrip(format, std::vector<float>(256, value));
    }
  }
}

TEST(EncodeRow, WhatCanBeEncoded) {
  EXPECT_TRUE(CanEncode(WeightFormat::kF32));
  EXPECT_TRUE(CanEncode(WeightFormat::kQ4_K));
  EXPECT_FALSE(CanEncode(WeightFormat::kQ2_K));
  EXPECT_FALSE(CanEncode(WeightFormat::kMXFP4));
}

}  // namespace
}  // namespace kvasir
