// AVX-512 with VNNI, the formats of the second half. See matmul.inl for the loops and the numerics,
// matmul_layout.h for the bytes. Plain C headers and intrinsics only.

// GCC 12 takes the deliberately undefined registers inside its own AVX-512
// headers for a mistake.
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include "kernels/matmul_layout.h"

namespace kvasir::matmul {
namespace {

#include "kernels/matmul_avx512.inl"
#include "kernels/matmul_tiles_avx512.inl"

// Fewer than for the formats of matmul_avx512.cc: each is a program of its own to compile, and with
// more rows unpacking a panel once for all is nearly as good.
template <int F>
constexpr uint32_t kDirectUpTo = 8;

template <int F>
constexpr void (*kDirectTiles[kDirectUpTo<F>])(const unsigned char*, const unsigned char*, uint32_t,
                                               const unsigned char*, float*) = {
    TileDirect<F, 1>, TileDirect<F, 2>, TileDirect<F, 3>, TileDirect<F, 4>,
    TileDirect<F, 5>, TileDirect<F, 6>, TileDirect<F, 7>, TileDirect<F, 8>};

#include "kernels/matmul.inl"

}  // namespace

void MatMulBf16Avx512(const MatMulArgs& args) { MatMulFloat<kBF16>(args); }
void MatMulQ51Avx512(const MatMulArgs& args) { MatMulQuantized<kQ5_1>(args); }
void MatMulQ2KAvx512(const MatMulArgs& args) { MatMulQuantized<kQ2_K>(args); }
void MatMulQ3KAvx512(const MatMulArgs& args) { MatMulQuantized<kQ3_K>(args); }
void MatMulQ5KAvx512(const MatMulArgs& args) { MatMulQuantized<kQ5_K>(args); }
void MatMulIq4NlAvx512(const MatMulArgs& args) { MatMulQuantized<kIQ4_NL>(args); }
void MatMulIq4XsAvx512(const MatMulArgs& args) { MatMulQuantized<kIQ4_XS>(args); }
void MatMulMxfp4Avx512(const MatMulArgs& args) { MatMulQuantized<kMXFP4>(args); }

}  // namespace kvasir::matmul
