// AVX-512 with VNNI. See matmul.inl for the loops and the numerics,
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

template <int F>
constexpr void (*kDirectTiles[kMaxTileRows])(const unsigned char*, const unsigned char*, uint32_t,
                                             const unsigned char*, float*) = {
    TileDirect<F, 1>, TileDirect<F, 2>,  TileDirect<F, 3>,  TileDirect<F, 4>,
    TileDirect<F, 5>, TileDirect<F, 6>,  TileDirect<F, 7>,  TileDirect<F, 8>,
    TileDirect<F, 9>, TileDirect<F, 10>, TileDirect<F, 11>, TileDirect<F, 12>};

template <int F>
constexpr uint32_t kDirectUpTo = 24;

#include "kernels/matmul.inl"
#include "kernels/quantize_row.inl"

void QuantizeRow(const float* x, uint32_t blocks, uint32_t tile_rows, uint32_t r,
                 unsigned char* tile) {
  const __m512i magnitude = _mm512_set1_epi32(0x7FFFFFFF);
  for (uint32_t b = 0; b < blocks; ++b, x += 32, tile += size_t{tile_rows} * kRecordBytes) {
    const __m512 x0 = _mm512_loadu_ps(x);
    const __m512 x1 = _mm512_loadu_ps(x + 16);
    const __m512i max = _mm512_max_epi32(_mm512_and_si512(_mm512_castps_si512(x0), magnitude),
                                         _mm512_and_si512(_mm512_castps_si512(x1), magnitude));
    const BlockScale s = ScaleFromMax(_mm512_reduce_max_epi32(max));
    __m512i q0 = _mm512_setzero_si512();
    __m512i q1 = _mm512_setzero_si512();
    if (s.inverse != 0.0f) {
      const __m512 inverse = _mm512_set1_ps(s.inverse);
      q0 = _mm512_cvtps_epi32(_mm512_mul_ps(x0, inverse));
      q1 = _mm512_cvtps_epi32(_mm512_mul_ps(x1, inverse));
    }
    __m128i* codes = reinterpret_cast<__m128i*>(tile + 32 * r);
    _mm_storeu_si128(codes, _mm512_cvtepi32_epi8(q0));
    _mm_storeu_si128(codes + 1, _mm512_cvtepi32_epi8(q1));
    WriteScales(tile, tile_rows, r, s.scale, _mm512_reduce_add_epi32(q0),
                _mm512_reduce_add_epi32(q1));
  }
}

}  // namespace

const Kernels kAvx512Kernels = {
    {MatMulFloat<kF32>, MatMulFloat<kF16>, MatMulQuantized<kQ4_0>, MatMulQuantized<kQ4_1>,
     MatMulQuantized<kQ5_0>, MatMulQuantized<kQ8_0>, MatMulQuantized<kQ4_K>, MatMulQuantized<kQ6_K>,
     MatMulBf16Avx512, MatMulQ51Avx512, MatMulQ2KAvx512, MatMulQ3KAvx512, MatMulQ5KAvx512,
     MatMulIq4NlAvx512, MatMulIq4XsAvx512, MatMulMxfp4Avx512},
    QuantizeRow,
};

}  // namespace kvasir::matmul
