#include <immintrin.h>

#include "kernels/attention_table.h"

namespace kvasir {
namespace {
// 6 x 2 sums, 2 loads and 1 broadcast fill 15 of the 16 registers.
constexpr int kTileCols = 1;
constexpr int kExpVectors = 2;
constexpr int kDirectRows = 6;
// The order of these matters.
// clang-format off
#include "kernels/vec16_avx2.inl"
#include "kernels/vec16_math.inl"
#include "kernels/int_dot_avx2.inl"
#include "kernels/attention.inl"
// clang-format on
}  // namespace

const AttentionTable kAttentionAvx2 = kTable;

}  // namespace kvasir
