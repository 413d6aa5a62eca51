// GCC 12 takes the undefined operands inside its own AVX-512 intrinsics for our mistake.
#pragma GCC diagnostic ignored "-Wuninitialized"
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include "kernels/attention_table.h"

namespace kvasir {
namespace {
// 24 sums, 4 loads and 1 broadcast fill 29 of the 32 registers.
constexpr int kTileCols = 4;
constexpr int kExpVectors = 4;
constexpr int kDirectRows = 6;
// The order of these matters.
// clang-format off
#include "kernels/vec16_avx512.inl"
#include "kernels/vec16_math.inl"
#include "kernels/int_dot_avx512.inl"
#include "kernels/attention.inl"
// clang-format on
}  // namespace

const AttentionTable kAttentionAvx512 = kTable;

}  // namespace kvasir
