// AVX2 with FMA and F16C. See matmul.inl for the loops and the numerics, matmul_layout.h for the
// bytes. Plain C headers and intrinsics only.
//
// The product of u8 and s8 pairs saturates at 16 bits, so codes of up to 6 bits are summed in int16
// as long as they fit and 8-bit ones go in by sign and magnitude (128 * 127 * 2 fits). The integers
// are exact either way.
#include <immintrin.h>

#include "kernels/matmul_layout.h"

namespace kvasir::matmul {
namespace {

#define KV_INLINE inline __attribute__((always_inline))

// 8 lines of codes (8-bit ones signed, others unsigned), f32 scale[16], f32 min or second
// scale[16]; Q2_K: two scales and two minima.
template <int F>
constexpr uint32_t kExpandedBytes = F == kQ2_K ? 768 : 640;
template <int F>
constexpr int kTile = F == kQ4_K                                    ? kQ4_1
                      : F == kQ5_K                                  ? kQ5_1
                      : F == kQ3_K                                  ? kQ6_K
                      : F == kIQ4_NL || F == kIQ4_XS || F == kMXFP4 ? kQ8_0
                                                                    : F;
constexpr uint32_t kPanelsAtOnce = 1;
constexpr uint32_t kManyRowsTile = 12;  // Four times three.

KV_INLINE __m256i LoadInt(const unsigned char* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}

KV_INLINE void StoreInt(unsigned char* p, __m256i v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v);
}

KV_INLINE __m256 LoadHalves(const unsigned char* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

KV_INLINE __m256 LoadU8(const unsigned char* p) {
  return _mm256_cvtepi32_ps(
      _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}

KV_INLINE __m256 LoadNibbles(const unsigned char* p, int shift) {
  const __m256i bytes = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  return _mm256_cvtepi32_ps(
      _mm256_and_si256(_mm256_srli_epi32(bytes, shift), _mm256_set1_epi32(15)));
}

KV_INLINE __m256 LoadBf16(const unsigned char* p) {
  const __m256i bits = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return _mm256_castsi256_ps(_mm256_slli_epi32(bits, 16));
}

KV_INLINE __m256 LoadI8(const unsigned char* p) {
  return _mm256_cvtepi32_ps(
      _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}

// Group g's bits of planes that hold 8 / bits groups each, moved to bit `to`; `at` is the byte
// within lines.
template <int bits, int to>
KV_INLINE __m256i PlaneBits(const unsigned char* planes, int g, int at) {
  constexpr int kGroups = 8 / bits;
  const __m256i plane = LoadInt(planes + 64 * (g / kGroups) + at);
  const int from = bits * (g % kGroups);
  const __m256i moved =
      from < to ? _mm256_slli_epi16(plane, to - from) : _mm256_srli_epi16(plane, from - to);
  return _mm256_and_si256(moved, _mm256_set1_epi8(static_cast<char>(((1 << bits) - 1) << to)));
}

// The bits of the plane(s) that belong on top of group g's nibbles.
template <int F>
KV_INLINE __m256i TopBits(const unsigned char* planes, int g, int at) {
  return F == kQ6_K ? PlaneBits<2, 4>(planes, g, at) : PlaneBits<1, 4>(planes, g, at);
}

// Lines of the formats whose codes lie in planes only. Q3_K: 8 * code, for the sake of Q6_K's zero
// point 32; the scales are an eighth.
template <int F>
KV_INLINE void ExpandPlanes(const unsigned char* planes, unsigned char* lines) {
  for (int g = 0; g < 8; ++g) {
    for (int at = 0; at < 64; at += 32) {
      if constexpr (F == kQ2_K) {
        StoreInt(lines + 64 * g + at, PlaneBits<2, 0>(planes, g, at));
      } else {
        StoreInt(lines + 64 * g + at, _mm256_or_si256(PlaneBits<2, 3>(planes, g, at),
                                                      PlaneBits<1, 5>(planes + 128, g, at)));
      }
    }
  }
}

template <int F>
KV_INLINE __m256i Table() {
  const signed char* values = F == kMXFP4 ? kFp4Values : kIq4Values;
  return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(values)));
}

template <int F>
KV_INLINE void ExpandLines(const unsigned char* codes, const unsigned char* planes,
                           unsigned char* lines) {
  if constexpr (F == kQ8_0) {
    const __m256i offset = _mm256_set1_epi8(static_cast<char>(0x80));
    for (int i = 0; i < 512; i += 32) {
      StoreInt(lines + i, _mm256_xor_si256(LoadInt(codes + i), offset));
    }
    return;
  }
  if constexpr (F == kQ2_K || F == kQ3_K) {
    ExpandPlanes<F>(planes, lines);
    return;
  }
  const __m256i low_mask = _mm256_set1_epi8(0x0F);
  for (int j = 0; j < 4; ++j) {
    for (int at = 0; at < 64; at += 32) {
      const __m256i both = LoadInt(codes + 64 * j + at);
      __m256i low = _mm256_and_si256(both, low_mask);
      __m256i high = _mm256_and_si256(_mm256_srli_epi16(both, 4), low_mask);
      if constexpr (kPanelLayouts[F].plane_bytes != 0) {
        low = _mm256_or_si256(low, TopBits<F>(planes, 2 * j, at));
        high = _mm256_or_si256(high, TopBits<F>(planes, 2 * j + 1, at));
      }
      if constexpr (kTile<F> == kQ8_0) {
        low = _mm256_shuffle_epi8(Table<F>(), low);
        high = _mm256_shuffle_epi8(Table<F>(), high);
      }
      StoreInt(lines + 128 * j + at, low);
      StoreInt(lines + 128 * j + 64 + at, high);
    }
  }
}

// Scale and minimum (or second scale) of rows [row, row + 8). Q2_K's minima are divided by -32:
// what they are multiplied with is made of slots that hold -32 times sums of codes.
template <int F>
KV_INLINE void ExpandScales(const unsigned char* scales, const unsigned char* header, int row,
                            float* out) {
  __m256 scale;
  __m256 extra = _mm256_setzero_ps();
  if constexpr (F == kQ2_K) {
    const __m256 d = LoadHalves(header + 2 * row);
    const __m256 m = _mm256_mul_ps(LoadHalves(header + 32 + 2 * row), _mm256_set1_ps(1.0f / 32));
    scale = _mm256_mul_ps(d, LoadNibbles(scales + row, 0));
    extra = _mm256_mul_ps(d, LoadNibbles(scales + 16 + row, 0));
    _mm256_storeu_ps(out + 32 + row, _mm256_mul_ps(m, LoadNibbles(scales + row, 4)));
    _mm256_storeu_ps(out + 48 + row, _mm256_mul_ps(m, LoadNibbles(scales + 16 + row, 4)));
  } else if constexpr (F == kQ4_K || F == kQ5_K) {
    scale = _mm256_mul_ps(LoadHalves(header + 2 * row), LoadU8(scales + row));
    extra = _mm256_mul_ps(LoadHalves(header + 32 + 2 * row), LoadU8(scales + 16 + row));
    extra = _mm256_xor_ps(extra, _mm256_set1_ps(-0.0f));
  } else if constexpr (F == kIQ4_XS) {
    scale = _mm256_mul_ps(LoadHalves(header + 2 * row), LoadI8(scales + row));
  } else if constexpr (F == kMXFP4) {
    scale = LoadBf16(scales + 2 * row);
  } else if constexpr (F == kQ6_K || F == kQ3_K) {
    __m256 d = LoadHalves(header + 2 * row);
    if constexpr (F == kQ3_K) d = _mm256_mul_ps(d, _mm256_set1_ps(0.125f));
    scale = _mm256_mul_ps(d, LoadI8(scales + row));
    extra = _mm256_mul_ps(d, LoadI8(scales + 16 + row));
  } else {
    scale = LoadHalves(scales + 2 * row);
    if constexpr (F == kQ4_1 || F == kQ5_1) extra = LoadHalves(scales + 32 + 2 * row);
  }
  _mm256_storeu_ps(out + row, scale);
  _mm256_storeu_ps(out + 16 + row, extra);
}

template <int F>
void ExpandChunk(const unsigned char* panel, uint32_t first_block, uint32_t block_count,
                 unsigned char* chunk, size_t chunk_stride) {
  constexpr PanelLayout kLayout = kPanelLayouts[F];
  const uint32_t first_pair = first_block / 2;
  const unsigned char* p = panel + size_t{first_pair} * kLayout.pair_bytes +
                           size_t{first_pair / kPairsPerHeader} * kLayout.header_bytes;
  const unsigned char* header = p;
  for (uint32_t b = 0; b < block_count; ++b, chunk += chunk_stride) {
    if (kLayout.header_bytes != 0 && b % (2 * kPairsPerHeader) == 0) {
      header = p;
      p += kLayout.header_bytes;
    }
    const uint32_t half = b % 2;
    ExpandLines<F>(p + half * kLayout.line_bytes,
                   p + kLayout.plane_offset + half * kLayout.plane_bytes, chunk);
    const unsigned char* scales = p + kLayout.scale_offset + half * kLayout.scale_bytes;
    ExpandScales<F>(scales, header, 0, reinterpret_cast<float*>(chunk + 512));
    ExpandScales<F>(scales, header, 8, reinterpret_cast<float*>(chunk + 512));
    if (half == 1) p += kLayout.pair_bytes;
  }
}

KV_INLINE int32_t ReadInt(const unsigned char* p) {
  int32_t value;
  __builtin_memcpy(&value, p, 4);
  return value;
}

template <int R>
KV_INLINE __m256 BroadcastFloat(const unsigned char* record, int slot, int r) {
  return _mm256_castsi256_ps(_mm256_set1_epi32(ReadInt(record + R * (32 + 4 * slot) + 4 * r)));
}

// Groups whose pair products fit in int16 together: 8 * 15, 4 * 31, 2 * 63 times 127 * 2.
template <int F>
constexpr int kGroupsInInt16 = F == kQ8_0   ? 1
                               : F == kQ6_K ? 2
                               : F == kQ5_0 ? 4
                               : F == kQ5_1 ? 4
                                            : 8;

// Sum over groups [begin, end) for rows [first, first + N) and the 8 output rows whose half lines
// start at `lines`.
template <int F, int N>
KV_INLINE void Dot(const unsigned char* lines, const unsigned char* codes, int begin, int end,
                   __m256i* sum) {
  const __m256i ones = _mm256_set1_epi16(1);
  for (int g = begin; g < end; g += kGroupsInInt16<F>) {
    __m256i part[N];
    for (int i = 0; i < kGroupsInInt16<F> && g + i < end; ++i) {
      const __m256i line = LoadInt(lines + 64 * (g + i));
      for (int r = 0; r < N; ++r) {
        const __m256i code = _mm256_set1_epi32(ReadInt(codes + 32 * r + 4 * (g + i)));
        __m256i product;
        if constexpr (F == kQ8_0) {
          product = _mm256_maddubs_epi16(_mm256_abs_epi8(line), _mm256_sign_epi8(code, line));
        } else {
          product = _mm256_maddubs_epi16(line, code);
        }
        part[r] = i == 0 ? product : _mm256_add_epi16(part[r], product);
      }
    }
    for (int r = 0; r < N; ++r) {
      sum[r] = _mm256_add_epi32(sum[r], _mm256_madd_epi16(part[r], ones));
    }
  }
}

template <int R, int N>
KV_INLINE void AddScaled(const __m256i* sum, __m256 scale, const unsigned char* record, int first,
                         __m256* acc) {
  for (int r = 0; r < N; ++r) {
    const __m256 product = _mm256_fmadd_ps(_mm256_castsi256_ps(sum[r]),
                                           BroadcastFloat<R>(record, kSlotScale, first + r),
                                           BroadcastFloat<R>(record, kSlotMinusMagic, first + r));
    acc[r] = _mm256_fmadd_ps(product, scale, acc[r]);
  }
}

// Q8_0's codes are signed again, so only the 4 to 6-bit formats start at minus the zero point.
template <int R, int N>
KV_INLINE void Start(const unsigned char* record, int slot, int first, __m256i* sum) {
  for (int r = 0; r < N; ++r) {
    sum[r] = slot < 0 ? _mm256_set1_epi32(kMagicBits)
                      : _mm256_set1_epi32(ReadInt(record + R * (32 + 4 * slot) + 4 * (first + r)));
  }
}

// Rows [first, first + N) of a tile of R times output rows [8 * half, 8 * half + 8).
template <int F, int R, int N>
KV_INLINE void SubTile(const unsigned char* chunk, const unsigned char* activations,
                       uint32_t block_count, int first, int half, float* acc_out) {
  constexpr int kZeroSlot = F == kQ4_0 ? kSlotZero8 : F == kQ5_0 ? kSlotZero16 : -1;
  __m256 acc[N];
  for (int r = 0; r < N; ++r) acc[r] = _mm256_loadu_ps(acc_out + 16 * (first + r) + 8 * half);
  for (uint32_t b = 0; b < block_count; ++b) {
    const unsigned char* lines = chunk + 32 * half;
    const unsigned char* codes = activations + 32 * first;
    const __m256 scale = _mm256_loadu_ps(reinterpret_cast<const float*>(chunk + 512) + 8 * half);
    const __m256 extra = _mm256_loadu_ps(reinterpret_cast<const float*>(chunk + 576) + 8 * half);
    if constexpr (F == kQ4_1 || F == kQ5_1) {
      for (int r = 0; r < N; ++r) {
        acc[r] = _mm256_fmadd_ps(extra, BroadcastFloat<R>(activations, kSlotScaleSum, first + r),
                                 acc[r]);
      }
    }
    __m256i sum[N];
    if constexpr (F == kQ6_K || F == kQ2_K) {
      Start<R, N>(activations, F == kQ6_K ? kSlotZero32Low : -1, first, sum);
      Dot<F, N>(lines, codes, 0, 4, sum);
      AddScaled<R, N>(sum, scale, activations, first, acc);
      Start<R, N>(activations, F == kQ6_K ? kSlotZero32High : -1, first, sum);
      Dot<F, N>(lines, codes, 4, 8, sum);
      AddScaled<R, N>(sum, extra, activations, first, acc);
    } else {
      Start<R, N>(activations, kZeroSlot, first, sum);
      Dot<F, N>(lines, codes, 0, 8, sum);
      AddScaled<R, N>(sum, scale, activations, first, acc);
    }
    if constexpr (F == kQ2_K) {
      const float* minima = reinterpret_cast<const float*>(chunk + 640) + 8 * half;
      Start<R, N>(activations, kSlotZero32Low, first, sum);
      AddScaled<R, N>(sum, _mm256_loadu_ps(minima), activations, first, acc);
      Start<R, N>(activations, kSlotZero32High, first, sum);
      AddScaled<R, N>(sum, _mm256_loadu_ps(minima + 16), activations, first, acc);
    }
    chunk += kExpandedBytes<F>;
    activations += R * kRecordBytes;
  }
  for (int r = 0; r < N; ++r) _mm256_storeu_ps(acc_out + 16 * (first + r) + 8 * half, acc[r]);
}

template <int F, int R, int P>
void TileExpanded(const unsigned char* chunk, const unsigned char* activations,
                  uint32_t block_count, float* acc) {
  // Four rows are what 16 registers hold.
  for (int half = 0; half < 2; ++half) {
    SubTile < F, R, R<4 ? R : 4>(chunk, activations, block_count, 0, half, acc);
    if constexpr (R > 4) {
      SubTile < F, R, R<8 ? R - 4 : 4>(chunk, activations, block_count, 4, half, acc);
    }
    if constexpr (R > 8) SubTile<F, R, R - 8>(chunk, activations, block_count, 8, half, acc);
  }
}

template <int F, int R>
void TileFloat(const unsigned char* panel, const float* x, size_t x_stride, uint32_t cols,
               float* acc_out) {
  for (int half = 0; half < 2; ++half) {
    __m256 acc[R];
    for (int r = 0; r < R; ++r) acc[r] = _mm256_setzero_ps();
    for (uint32_t k = 0; k < cols; k += 32) {
      __m256 sum[R];
      for (int r = 0; r < R; ++r) sum[r] = _mm256_setzero_ps();
      for (uint32_t i = k; i < k + 32; ++i) {
        __m256 w;
        if constexpr (F == kF16) {
          w = LoadHalves(panel + size_t{i} * 32 + 16 * half);
        } else if constexpr (F == kBF16) {
          w = LoadBf16(panel + size_t{i} * 32 + 16 * half);
        } else {
          w = _mm256_loadu_ps(reinterpret_cast<const float*>(panel + size_t{i} * 64 + 32 * half));
        }
        for (int r = 0; r < R; ++r) {
          sum[r] = _mm256_fmadd_ps(w, _mm256_set1_ps(x[r * x_stride + i]), sum[r]);
        }
      }
      for (int r = 0; r < R; ++r) acc[r] = _mm256_add_ps(acc[r], sum[r]);
    }
    for (int r = 0; r < R; ++r) _mm256_storeu_ps(acc_out + 16 * r + 8 * half, acc[r]);
  }
}

template <int F>
[[maybe_unused]] constexpr void (*kDirectTiles[kMaxTileRows])(const unsigned char*,
                                                              const unsigned char*, uint32_t,
                                                              const unsigned char*, float*) = {};
template <int F>
constexpr uint32_t kDirectUpTo = 0;

#include "kernels/matmul.inl"
#include "kernels/matmul_tiles.inl"
#include "kernels/quantize_row.inl"

KV_INLINE int32_t MaxLane(__m256i v) {
  __m128i m = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4E));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xB1));
  return _mm_cvtsi128_si32(m);
}

KV_INLINE int32_t SumLanes(__m256i v) {
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4E));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xB1));
  return _mm_cvtsi128_si32(s);
}

void QuantizeRow(const float* x, uint32_t blocks, uint32_t tile_rows, uint32_t r,
                 unsigned char* tile) {
  const __m256i magnitude = _mm256_set1_epi32(0x7FFFFFFF);
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  for (uint32_t b = 0; b < blocks; ++b, x += 32, tile += size_t{tile_rows} * kRecordBytes) {
    __m256 v[4];
    __m256i max = _mm256_setzero_si256();
    for (int i = 0; i < 4; ++i) {
      v[i] = _mm256_loadu_ps(x + 8 * i);
      max = _mm256_max_epi32(max, _mm256_and_si256(_mm256_castps_si256(v[i]), magnitude));
    }
    const BlockScale s = ScaleFromMax(MaxLane(max));
    __m256i q[4];
    for (int i = 0; i < 4; ++i) {
      q[i] = s.inverse == 0.0f ? _mm256_setzero_si256()
                               : _mm256_cvtps_epi32(_mm256_mul_ps(v[i], _mm256_set1_ps(s.inverse)));
    }
    const __m256i packed =
        _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    // The packs interleave 128-bit lanes.
    StoreInt(tile + 32 * r, _mm256_permutevar8x32_epi32(packed, order));
    WriteScales(tile, tile_rows, r, s.scale, SumLanes(_mm256_add_epi32(q[0], q[1])),
                SumLanes(_mm256_add_epi32(q[2], q[3])));
  }
}

}  // namespace

const Kernels kAvx2Kernels = {
    kManyRowsTile,
    {MatMulFloat<kF32>, MatMulFloat<kF16>, MatMulQuantized<kQ4_0>, MatMulQuantized<kQ4_1>,
     MatMulQuantized<kQ5_0>, MatMulQuantized<kQ8_0>, MatMulQuantized<kQ4_K>, MatMulQuantized<kQ6_K>,
     MatMulFloat<kBF16>, MatMulQuantized<kQ5_1>, MatMulQuantized<kQ2_K>, MatMulQuantized<kQ3_K>,
     MatMulQuantized<kQ5_K>, MatMulQuantized<kIQ4_NL>, MatMulQuantized<kIQ4_XS>,
     MatMulQuantized<kMXFP4>},
    QuantizeRow,
};

}  // namespace kvasir::matmul
