// RowHistogram: how many steps had how many rows of a kind. A plain value, copied into snapshots.
#ifndef KVASIR_ENGINE_ROW_HISTOGRAM_H_
#define KVASIR_ENGINE_ROW_HISTOGRAM_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace kvasir {

struct RowHistogram {
  // Upper bounds, inclusive; the last count is of steps above all of them.
  static constexpr std::array<uint32_t, 13> kBounds = {0,  1,   2,   4,   8,    16,  32,
                                                       64, 128, 256, 512, 1024, 2048};
  std::array<uint64_t, kBounds.size() + 1> counts{};
  uint64_t steps = 0;
  uint64_t rows = 0;
  uint32_t most = 0;

  void Add(uint32_t step_rows) {
    size_t bucket = 0;
    while (bucket < kBounds.size() && step_rows > kBounds[bucket]) ++bucket;
    ++counts[bucket];
    ++steps;
    rows += step_rows;
    if (step_rows > most) most = step_rows;
  }
};

}  // namespace kvasir

#endif  // KVASIR_ENGINE_ROW_HISTOGRAM_H_
