// GCC 12 takes the undefined operands inside its own AVX-512 intrinsics for our mistake.
#pragma GCC diagnostic ignored "-Wuninitialized"
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include "kernels/row_ops_table.h"

namespace kvasir {
namespace {
// The order of these matters.
// clang-format off
#include "kernels/vec16_avx512.inl"
#include "kernels/vec16_math.inl"
#include "kernels/row_ops.inl"
// clang-format on
}  // namespace

const RowOpsTable kRowOpsAvx512 = kTable;

}  // namespace kvasir
