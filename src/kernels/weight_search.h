// Scales of K-quant super-blocks of 256 values, chosen for a small sum of squared errors. Internal
// to kernels/: EncodeRow packs what they return.
#ifndef KVASIR_KERNELS_WEIGHT_SEARCH_H_
#define KVASIR_KERNELS_WEIGHT_SEARCH_H_

#include <cstdint>

namespace kvasir {

// Values are d * scale * q - m * min: codes of one 32-block on a grid that need not hold zero.
struct RangeGrid {
  uint8_t scale = 0;  // 6 bits.
  uint8_t min = 0;
};
struct RangeSuper {
  uint16_t d = 0;  // f16 bits, as m.
  uint16_t m = 0;
};

// Codes and grids of blocks whose error is no finite number are left as they are.
//
// Eight blocks of 32: x [256] to codes q [256] in [0, max_code].
RangeSuper SearchRanges(const float* x, int max_code, RangeGrid* grid, uint8_t* q);

// Sixteen blocks of 16, values d * scale * (q - zero): x [256] to codes q [256] in [0, 2 * zero).
// Returns d's f16 bits.
uint16_t SearchScales(const float* x, int zero, int8_t* scales, uint8_t* q);

}  // namespace kvasir

#endif  // KVASIR_KERNELS_WEIGHT_SEARCH_H_
