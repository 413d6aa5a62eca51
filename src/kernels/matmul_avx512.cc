// AVX-512 with VNNI. See matmul.inl for the loops and the numerics, matmul_layout.h for the bytes.
// Plain C headers and intrinsics only.

// GCC 12 takes the deliberately undefined registers inside its own AVX-512 headers for a mistake.
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include "kernels/matmul_layout.h"

namespace kvasir::matmul {
namespace {

#define KV_INLINE inline __attribute__((always_inline))

constexpr uint32_t kPanelsAtOnce = 2;
constexpr uint32_t kExpandedBytes = 640;  // 8 lines of codes, f32 scale[16], f32 min or scale[16].

// d (and dmin) of the current 256 values of a K-quant.
struct SuperScale {
  __m512 d;
  __m512 dmin;
};

// One 32-block of a panel: u8 codes of 8 k-groups, and per output row the scale and either the
// minimum or (Q6_K) the second half's scale.
struct Block {
  __m512i lines[8];
  __m512 scale;
  __m512 extra;
};

KV_INLINE __m512 LoadHalves(const unsigned char* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

KV_INLINE SuperScale LoadSuper(const unsigned char* header) {
  return {LoadHalves(header), LoadHalves(header + 32)};
}

KV_INLINE __m512 LoadU8(const unsigned char* p) {
  return _mm512_cvtepi32_ps(
      _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}

KV_INLINE __m512 LoadI8(const unsigned char* p) {
  return _mm512_cvtepi32_ps(
      _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}

// (a & mask) | b
KV_INLINE __m512i MaskedOr(__m512i a, __m512i mask, __m512i b) {
  return _mm512_ternarylogic_epi32(a, mask, b, 0xEA);
}

// Bits [from, from + count) of every byte to bits [to, to + count), the rest zero: a bit matrix,
// its row for result bit i in byte 7 - i.
template <int from, int to, int count>
KV_INLINE __m512i MoveBits(__m512i v) {
  uint64_t matrix = 0;
  for (int i = 0; i < count; ++i) matrix |= uint64_t{1} << (8 * (7 - to - i) + from + i);
  return _mm512_gf2p8affine_epi64_epi8(v, _mm512_set1_epi64(static_cast<long long>(matrix)), 0);
}

// Lines 2j and 2j + 1 of a block: nibbles, and for Q5_0 and Q6_K what the planes add on top.
template <int F, int j>
KV_INLINE void UnpackLines(const unsigned char* codes, const unsigned char* planes, __m512i* low,
                           __m512i* high) {
  if constexpr (F == kQ8_0) {
    *low = _mm512_loadu_si512(codes + 128 * j);
    *high = _mm512_loadu_si512(codes + 128 * j + 64);
    return;
  }
  const __m512i nibble = _mm512_set1_epi8(0x0F);
  const __m512i both = _mm512_loadu_si512(codes + 64 * j);
  *high = MoveBits<4, 0, 4>(both);
  if constexpr (F == kQ5_0) {
    const __m512i plane = _mm512_loadu_si512(planes);
    *low = MaskedOr(both, nibble, MoveBits<2 * j, 4, 1>(plane));
    *high = _mm512_or_si512(*high, MoveBits<2 * j + 1, 4, 1>(plane));
  } else if constexpr (F == kQ6_K) {
    const __m512i plane = _mm512_loadu_si512(planes + 64 * (j / 2));
    *low = MaskedOr(both, nibble, MoveBits<4 * j % 8, 4, 2>(plane));
    *high = _mm512_or_si512(*high, MoveBits<(4 * j + 2) % 8, 4, 2>(plane));
  } else {
    *low = _mm512_and_si512(both, nibble);
  }
}

// Block `half` (0, 1) of the pair at `pair`.
template <int F>
KV_INLINE void Unpack(const unsigned char* pair, uint32_t half, const SuperScale& super,
                      Block* block) {
  constexpr PanelLayout kLayout = kPanelLayouts[F];
  const unsigned char* codes = pair + half * kLayout.line_bytes;
  const unsigned char* planes = pair + kLayout.plane_offset + half * kLayout.plane_bytes;
  const unsigned char* scales = pair + kLayout.scale_offset + half * kLayout.scale_bytes;
  UnpackLines<F, 0>(codes, planes, &block->lines[0], &block->lines[1]);
  UnpackLines<F, 1>(codes, planes, &block->lines[2], &block->lines[3]);
  UnpackLines<F, 2>(codes, planes, &block->lines[4], &block->lines[5]);
  UnpackLines<F, 3>(codes, planes, &block->lines[6], &block->lines[7]);
  block->extra = _mm512_setzero_ps();
  if constexpr (F == kQ4_K) {
    block->scale = _mm512_mul_ps(super.d, LoadU8(scales));
    block->extra =
        _mm512_xor_ps(_mm512_set1_ps(-0.0f), _mm512_mul_ps(super.dmin, LoadU8(scales + 16)));
  } else if constexpr (F == kQ6_K) {
    block->scale = _mm512_mul_ps(super.d, LoadI8(scales));
    block->extra = _mm512_mul_ps(super.d, LoadI8(scales + 16));
  } else {
    block->scale = LoadHalves(scales);
    if constexpr (F == kQ4_1) block->extra = LoadHalves(scales + 32);
  }
}

template <int R>
KV_INLINE __m512i BroadcastInt(const unsigned char* record, int slot, int r) {
  int32_t value;
  __builtin_memcpy(&value, record + R * (32 + 4 * slot) + 4 * r, 4);
  return _mm512_set1_epi32(value);
}

template <int R>
KV_INLINE __m512 BroadcastFloat(const unsigned char* record, int slot, int r) {
  float value;
  __builtin_memcpy(&value, record + R * (32 + 4 * slot) + 4 * r, 4);
  return _mm512_set1_ps(value);
}

KV_INLINE __m512i Codes(const unsigned char* record, int r, int group) {
  int32_t value;
  __builtin_memcpy(&value, record + 32 * r + 4 * group, 4);
  return _mm512_set1_epi32(value);
}

template <int F>
constexpr int kZeroSlot = F == kQ4_0   ? kSlotZero8
                          : F == kQ5_0 ? kSlotZero16
                          : F == kQ8_0 ? kSlotZero128
                                       : -1;

// Integer dot products of groups [begin, end) into sum[R]. One row alone has too short a chain of
// its own to fill the multipliers, so it gets two.
template <int R>
KV_INLINE void Dot(const Block& block, const unsigned char* record, int begin, int end,
                   __m512i* sum) {
  if constexpr (R == 1) {
    __m512i second = _mm512_setzero_si512();
#pragma GCC unroll 16
    for (int g = begin; g < end; g += 2) {
      sum[0] = _mm512_dpbusd_epi32(sum[0], block.lines[g], Codes(record, 0, g));
      second = _mm512_dpbusd_epi32(second, block.lines[g + 1], Codes(record, 0, g + 1));
    }
    sum[0] = _mm512_add_epi32(sum[0], second);
  } else {
#pragma GCC unroll 16
    for (int g = begin; g < end; ++g) {
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        sum[r] = _mm512_dpbusd_epi32(sum[r], block.lines[g], Codes(record, r, g));
      }
    }
  }
}

template <int R>
KV_INLINE void AddScaled(const __m512i* sum, __m512 scale, const unsigned char* record,
                         __m512* acc) {
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
    const __m512 product =
        _mm512_fmadd_ps(_mm512_castsi512_ps(sum[r]), BroadcastFloat<R>(record, kSlotScale, r),
                        BroadcastFloat<R>(record, kSlotMinusMagic, r));
    acc[r] = _mm512_fmadd_ps(product, scale, acc[r]);
  }
}

// Groups [begin, end) of a 32-block of P panels; scales at byte `scale` of each panel's piece.
template <int F, int R, int N, int P>
KV_INLINE void AddGroups(const unsigned char* chunk, const unsigned char* record, int first,
                         int begin, int end, int zero_slot, int scale, __m512 acc[][P]) {
  __m512i sum[N][P];
#pragma GCC unroll 16
  for (int r = 0; r < N; ++r) {
#pragma GCC unroll 16
    for (int p = 0; p < P; ++p) {
      sum[r][p] = zero_slot < 0 ? _mm512_set1_epi32(kMagicBits)
                                : BroadcastInt<R>(record, zero_slot, first + r);
    }
  }
#pragma GCC unroll 16
  for (int g = begin; g < end; ++g) {
    __m512i lines[P];
#pragma GCC unroll 16
    for (int p = 0; p < P; ++p) lines[p] = _mm512_load_si512(chunk + p * kExpandedBytes + 64 * g);
#pragma GCC unroll 16
    for (int r = 0; r < N; ++r) {
      const __m512i codes = Codes(record, first + r, g);
#pragma GCC unroll 16
      for (int p = 0; p < P; ++p) sum[r][p] = _mm512_dpbusd_epi32(sum[r][p], lines[p], codes);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < N; ++r) {
    const __m512 d = BroadcastFloat<R>(record, kSlotScale, first + r);
    const __m512 minus_magic = BroadcastFloat<R>(record, kSlotMinusMagic, first + r);
#pragma GCC unroll 16
    for (int p = 0; p < P; ++p) {
      const __m512 weight_scale =
          _mm512_load_ps(reinterpret_cast<const float*>(chunk + p * kExpandedBytes + scale));
      const __m512 product = _mm512_fmadd_ps(_mm512_castsi512_ps(sum[r][p]), d, minus_magic);
      acc[r][p] = _mm512_fmadd_ps(product, weight_scale, acc[r][p]);
    }
  }
}

template <int F, int R, int N, int P>
KV_INLINE void AccumulateExpanded(const unsigned char* chunk, const unsigned char* record,
                                  int first, __m512 acc[][P]) {
  if constexpr (F == kQ6_K) {
    AddGroups<F, R, N, P>(chunk, record, first, 0, 4, kSlotZero32Low, 512, acc);
    AddGroups<F, R, N, P>(chunk, record, first, 4, 8, kSlotZero32High, 576, acc);
    return;
  }
  AddGroups<F, R, N, P>(chunk, record, first, 0, 8, kZeroSlot<F>, 512, acc);
  if constexpr (F == kQ4_1 || F == kQ4_K) {
#pragma GCC unroll 16
    for (int r = 0; r < N; ++r) {
      const __m512 s = BroadcastFloat<R>(record, kSlotScaleSum, first + r);
#pragma GCC unroll 16
      for (int p = 0; p < P; ++p) {
        const __m512 min =
            _mm512_load_ps(reinterpret_cast<const float*>(chunk + p * kExpandedBytes + 576));
        acc[r][p] = _mm512_fmadd_ps(min, s, acc[r][p]);
      }
    }
  }
}

template <int F, int R>
KV_INLINE void Accumulate(const Block& block, const unsigned char* record, __m512* acc) {
  __m512i sum[R];
  if constexpr (F == kQ6_K) {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) sum[r] = BroadcastInt<R>(record, kSlotZero32Low, r);
    Dot<R>(block, record, 0, 4, sum);
    AddScaled<R>(sum, block.scale, record, acc);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) sum[r] = BroadcastInt<R>(record, kSlotZero32High, r);
    Dot<R>(block, record, 4, 8, sum);
    AddScaled<R>(sum, block.extra, record, acc);
    return;
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
    if constexpr (kZeroSlot<F> >= 0) {
      sum[r] = BroadcastInt<R>(record, kZeroSlot<F>, r);
    } else {
      sum[r] = _mm512_set1_epi32(kMagicBits);
    }
  }
  Dot<R>(block, record, 0, 8, sum);
  AddScaled<R>(sum, block.scale, record, acc);
  if constexpr (F == kQ4_1 || F == kQ4_K) {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      acc[r] = _mm512_fmadd_ps(block.extra, BroadcastFloat<R>(record, kSlotScaleSum, r), acc[r]);
    }
  }
}

// Rows [first, first + N) of a tile of R, times P panels: every activation that is loaded serves P
// lines, and N * P chains of sums run side by side.
template <int F, int R, int N, int P>
KV_INLINE void SubTile(const unsigned char* chunk, const unsigned char* activations,
                       uint32_t block_count, int first, const Ahead& ahead, float* acc_out) {
  __m512 acc[N][P];
#pragma GCC unroll 16
  for (int r = 0; r < N; ++r) {
#pragma GCC unroll 16
    for (int p = 0; p < P; ++p) acc[r][p] = _mm512_loadu_ps(acc_out + 16 * ((first + r) * P + p));
  }
  const unsigned char* next = ahead.bytes;
  for (uint32_t b = 0; b < block_count; ++b) {
    if (first == 0) {
      for (uint32_t i = 0; i < ahead.bytes_per_block; i += 64, next += 64) {
        for (int p = 0; p < P; ++p) {
          _mm_prefetch(reinterpret_cast<const char*>(next + p * ahead.panel_stride), _MM_HINT_T1);
        }
      }
    }
    AccumulateExpanded<F, R, N, P>(chunk, activations, first, acc);
    chunk += P * kExpandedBytes;
    activations += R * kRecordBytes;
  }
#pragma GCC unroll 16
  for (int r = 0; r < N; ++r) {
#pragma GCC unroll 16
    for (int p = 0; p < P; ++p) _mm512_storeu_ps(acc_out + 16 * ((first + r) * P + p), acc[r][p]);
  }
}

template <int F, int R, int P>
void TileExpanded(const unsigned char* chunk, const unsigned char* activations,
                  uint32_t block_count, const Ahead& ahead, float* acc) {
  // 6 rows of 2 panels fill the registers: 12 integer sums, 12 float sums.
  constexpr int kFirst = R <= 6 ? R : (R + 1) / 2;
  SubTile<F, R, kFirst, P>(chunk, activations, block_count, 0, ahead, acc);
  if constexpr (R > kFirst)
    SubTile<F, R, R - kFirst, P>(chunk, activations, block_count, kFirst, ahead, acc);
}

template <int F>
void ExpandChunk(const unsigned char* panel, uint32_t first_block, uint32_t block_count,
                 unsigned char* chunk, size_t chunk_stride) {
  constexpr PanelLayout kLayout = kPanelLayouts[F];
  const uint32_t first_pair = first_block / 2;
  const unsigned char* p = panel + size_t{first_pair} * kLayout.pair_bytes +
                           size_t{first_pair / kPairsPerHeader} * kLayout.header_bytes;
  SuperScale super = {_mm512_setzero_ps(), _mm512_setzero_ps()};
  for (uint32_t b = 0; b < block_count; ++b) {
    if constexpr (kLayout.header_bytes != 0) {
      if (b % (2 * kPairsPerHeader) == 0) {
        super = LoadSuper(p);
        p += kLayout.header_bytes;
      }
    }
    Block block;
    Unpack<F>(p, b % 2, super, &block);
#pragma GCC unroll 16
    for (int g = 0; g < 8; ++g) _mm512_store_si512(chunk + 64 * g, block.lines[g]);
    _mm512_store_ps(reinterpret_cast<float*>(chunk + 512), block.scale);
    _mm512_store_ps(reinterpret_cast<float*>(chunk + 576), block.extra);
    chunk += chunk_stride;
    if (b % 2 == 1) p += kLayout.pair_bytes;
  }
}

// How far a panel is read ahead: about what arrives while memory answers.
constexpr size_t kPrefetchBytes = 3072;

template <int F, int R>
void TileDirect(const unsigned char* panel, const unsigned char* activations, uint32_t block_count,
                const unsigned char* prefetch_end, float* acc_out) {
  constexpr PanelLayout kLayout = kPanelLayouts[F];
  __m512 acc[R];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) acc[r] = _mm512_setzero_ps();
  SuperScale super = {_mm512_setzero_ps(), _mm512_setzero_ps()};
  const unsigned char* p = panel;
  for (uint32_t b = 0; b < block_count; ++b) {
    if constexpr (kLayout.header_bytes != 0) {
      if (b % (2 * kPairsPerHeader) == 0) {
        super = LoadSuper(p);
        p += kLayout.header_bytes;
      }
    }
    if (b % 2 == 0 && p + kPrefetchBytes < prefetch_end) {
#pragma GCC unroll 32
      for (uint32_t i = 0; i < kLayout.pair_bytes; i += 64) {
        _mm_prefetch(reinterpret_cast<const char*>(p + kPrefetchBytes + i), _MM_HINT_T0);
      }
    }
    Block block;
    Unpack<F>(p, b % 2, super, &block);
    Accumulate<F, R>(block, activations, acc);
    activations += R * kRecordBytes;
    if (b % 2 == 1) p += kLayout.pair_bytes;
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) _mm512_storeu_ps(acc_out + 16 * r, acc[r]);
}

template <int F, int R>
void TileFloat(const unsigned char* panel, const float* x, size_t x_stride, uint32_t cols,
               float* acc_out) {
  __m512 acc[R];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) acc[r] = _mm512_setzero_ps();
  for (uint32_t k = 0; k < cols; k += 32) {
    __m512 sum[R];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) sum[r] = _mm512_setzero_ps();
    for (uint32_t i = k; i < k + 32; ++i) {
      __m512 w;
      if constexpr (F == kF16) {
        w = LoadHalves(panel + size_t{i} * 32);
      } else {
        w = _mm512_loadu_ps(reinterpret_cast<const float*>(panel + size_t{i} * 64));
      }
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        sum[r] = _mm512_fmadd_ps(w, _mm512_set1_ps(x[r * x_stride + i]), sum[r]);
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) acc[r] = _mm512_add_ps(acc[r], sum[r]);
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) _mm512_storeu_ps(acc_out + 16 * r, acc[r]);
}

template <int F>
constexpr void (*kDirectTiles[kMaxTileRows])(const unsigned char*, const unsigned char*, uint32_t,
                                             const unsigned char*, float*) = {
    TileDirect<F, 1>, TileDirect<F, 2>,  TileDirect<F, 3>,  TileDirect<F, 4>,
    TileDirect<F, 5>, TileDirect<F, 6>,  TileDirect<F, 7>,  TileDirect<F, 8>,
    TileDirect<F, 9>, TileDirect<F, 10>, TileDirect<F, 11>, TileDirect<F, 12>};

template <int F>
constexpr uint32_t kDirectUpTo = 24;

#include "kernels/matmul.inl"

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
     MatMulQuantized<kQ5_0>, MatMulQuantized<kQ8_0>, MatMulQuantized<kQ4_K>,
     MatMulQuantized<kQ6_K>},
    QuantizeRow,
};

}  // namespace kvasir::matmul
