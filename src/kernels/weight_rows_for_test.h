// What tests of weight formats share: reading the rows in testdata, which say name and bytes.
#ifndef KVASIR_KERNELS_WEIGHT_ROWS_FOR_TEST_H_
#define KVASIR_KERNELS_WEIGHT_ROWS_FOR_TEST_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "kernels/weight_format.h"

namespace kvasir {

inline std::vector<std::byte> FromHex(const std::string& hex) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

// A name that there is not fails the test.
inline WeightFormat FormatNamed(const std::string& name) {
  for (int f = 0; f < kWeightFormatCount; ++f) {
    if (TraitsOf(static_cast<WeightFormat>(f)).name == name) return static_cast<WeightFormat>(f);
  }
  ADD_FAILURE() << "no format " << name;
  return WeightFormat::kF32;
}

}  // namespace kvasir

#endif  // KVASIR_KERNELS_WEIGHT_ROWS_FOR_TEST_H_
