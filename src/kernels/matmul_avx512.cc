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
#include "kernels/matmul_tiles_avx512.inl"

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

// Of 16 non-negative integers.
KV_INLINE int32_t LargestLane(__m512i v) {
  __m256i half = _mm256_max_epi32(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1));
  __m128i quarter = _mm_max_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
  quarter = _mm_max_epi32(quarter, _mm_shuffle_epi32(quarter, 0x4E));
  return _mm_cvtsi128_si32(_mm_max_epi32(quarter, _mm_shuffle_epi32(quarter, 0xB1)));
}
void QuantizeRow(const float* x, uint32_t blocks, uint32_t tile_rows, uint32_t r,
                 unsigned char* tile) {
  const __m512i magnitude = _mm512_set1_epi32(0x7FFFFFFF);
  // Byte 0 of each of the 16 lanes of two registers.
  alignas(64) static constexpr unsigned char kLowBytes[64] = {
      0,  4,  8,  12, 16, 20, 24, 28, 32, 36,  40,  44,  48,  52,  56,  60,
      64, 68, 72, 76, 80, 84, 88, 92, 96, 100, 104, 108, 112, 116, 120, 124};
  const __m512i low_bytes = _mm512_load_si512(kLowBytes);
  const __m256i bias = _mm256_set1_epi8(static_cast<char>(0x80));
  const size_t step = size_t{tile_rows} * kRecordBytes;
  for (uint32_t b = 0; b < blocks; ++b, x += 32, tile += step) {
    const __m512 x0 = _mm512_loadu_ps(x);
    const __m512 x1 = _mm512_loadu_ps(x + 16);
    const __m512i max = _mm512_max_epi32(_mm512_and_si512(_mm512_castps_si512(x0), magnitude),
                                         _mm512_and_si512(_mm512_castps_si512(x1), magnitude));
    const BlockScale s = ScaleFromMax(LargestLane(max));
    __m256i codes = _mm256_setzero_si256();
    if (s.inverse != 0.0f) {
      const __m512 inverse = _mm512_set1_ps(s.inverse);
      codes = _mm512_castsi512_si256(
          _mm512_permutex2var_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(x0, inverse)), low_bytes,
                                   _mm512_cvtps_epi32(_mm512_mul_ps(x1, inverse))));
    }
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(tile + 32 * r), codes);
    // Differences from -128 in groups of 8, then of each 16.
    __m256i sums = _mm256_sad_epu8(_mm256_xor_si256(codes, bias), _mm256_setzero_si256());
    sums = _mm256_add_epi32(sums, _mm256_shuffle_epi32(sums, 0x4E));
    WriteScales(tile, tile_rows, r, s.scale,
                _mm_cvtsi128_si32(_mm256_castsi256_si128(sums)) - 16 * 128,
                _mm_cvtsi128_si32(_mm256_extracti128_si256(sums, 1)) - 16 * 128);
  }
}

}  // namespace

const Kernels kAvx512Kernels = {
    kManyRowsTile,
    {MatMulFloat<kF32>, MatMulFloat<kF16>, MatMulQuantized<kQ4_0>, MatMulQuantized<kQ4_1>,
     MatMulQuantized<kQ5_0>, MatMulQuantized<kQ8_0>, MatMulQuantized<kQ4_K>, MatMulQuantized<kQ6_K>,
     MatMulBf16Avx512, MatMulQ51Avx512, MatMulQ2KAvx512, MatMulQ3KAvx512, MatMulQ5KAvx512,
     MatMulIq4NlAvx512, MatMulIq4XsAvx512, MatMulMxfp4Avx512},
    QuantizeRow,
};

}  // namespace kvasir::matmul
