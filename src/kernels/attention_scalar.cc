#include "kernels/attention_table.h"

namespace kvasir {
namespace {
constexpr int kTileCols = 1;
constexpr int kExpVectors = 1;
constexpr int kDirectRows =
    0;  // Converting half precision is dear here: once a unit, not in place.
// The order of these matters.
// clang-format off
#include "kernels/half.inl"
#include "kernels/vec16_scalar.inl"
#include "kernels/vec16_math.inl"
#include "kernels/int_dot_scalar.inl"
#include "kernels/attention.inl"
// clang-format on
}  // namespace

const AttentionTable kAttentionScalar = kTable;

}  // namespace kvasir
