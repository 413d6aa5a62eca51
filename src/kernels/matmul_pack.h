// Reading single blocks back from panels. Internal to kernels/: UnpackRow and the reference use it.
#ifndef KVASIR_KERNELS_MATMUL_PACK_H_
#define KVASIR_KERNELS_MATMUL_PACK_H_

#include <cstdint>

#include "kernels/matmul.h"
#include "kernels/weight_block.h"

namespace kvasir {

// Block `block` of row `row`: what PackPanels put there, byte for byte.
// REQUIRES: IsQuantized(matrix.format), row < matrix.rows, block < matrix.cols / kBlockValues.
WeightBlock ReadPackedBlock(const PackedMatrix& matrix, uint32_t row, uint32_t block);

}  // namespace kvasir

#endif  // KVASIR_KERNELS_MATMUL_PACK_H_
