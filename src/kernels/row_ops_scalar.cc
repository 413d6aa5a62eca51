#include "kernels/row_ops_table.h"

namespace kvasir {
namespace {
// The order of these matters.
// clang-format off
#include "kernels/half.inl"
#include "kernels/vec16_scalar.inl"
#include "kernels/vec16_math.inl"
#include "kernels/row_ops.inl"
// clang-format on
}  // namespace

const RowOpsTable kRowOpsScalar = kTable;

}  // namespace kvasir
