#include <immintrin.h>

#include "kernels/row_ops_table.h"

namespace kvasir {
namespace {
// The order of these matters.
// clang-format off
#include "kernels/vec16_avx2.inl"
#include "kernels/vec16_math.inl"
#include "kernels/row_ops.inl"
// clang-format on
}  // namespace

const RowOpsTable kRowOpsAvx2 = kTable;

}  // namespace kvasir
