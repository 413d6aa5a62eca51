// Included by matmul_avx512.cc and matmul_more_avx512.cc, inside the anonymous namespace of each:
// the arithmetic that matmul.inl asks for. The formats are shared out to two files because one
// takes minutes to compile.

#define KV_INLINE inline __attribute__((always_inline))

constexpr uint32_t kPanelsAtOnce = 2;
constexpr uint32_t kManyRowsTile = 7;  // One pass of SubTile.
// 8 lines of codes, f32 scale[16], f32 min or second scale[16]; Q2_K: two scales, two minima.
template <int F>
constexpr uint32_t kExpandedBytes = F == kQ2_K ? 768 : 640;
template <int F>
constexpr int kTile = F == kQ4_K || F == kQ5_1 || F == kQ5_K        ? kQ4_1
                      : F == kQ3_K                                  ? kQ6_K
                      : F == kIQ4_NL || F == kIQ4_XS || F == kMXFP4 ? kQ8_0
                                                                    : F;
template <int F>
constexpr bool kHasHalves = kPanelLayouts[F].scales == 2;
template <int F>
constexpr bool kHasMinimum = kPanelLayouts[F].minima == 1;

// d (and dmin) of the current 256 values of a K-quant.
struct SuperScale {
  __m512 d;
  __m512 dmin;
};

// One 32-block of a panel: u8 codes of 8 k-groups, and per output row the scale
// and either the minimum or the second half's scale; Q2_K's minima beside.
struct Block {
  __m512i lines[8];
  __m512 scale;
  __m512 extra;
  __m512 minima[2];
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

KV_INLINE __m512 LoadNibbles(const unsigned char* p, int shift) {
  const __m512i bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return _mm512_cvtepi32_ps(
      _mm512_and_si512(_mm512_srli_epi32(bytes, shift), _mm512_set1_epi32(15)));
}

KV_INLINE __m512 LoadBf16(const unsigned char* p) {
  const __m512i bits =
      _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
}

KV_INLINE __m512 LoadI8(const unsigned char* p) {
  return _mm512_cvtepi32_ps(
      _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}

// (a & mask) | b
KV_INLINE __m512i MaskedOr(__m512i a, __m512i mask, __m512i b) {
  return _mm512_ternarylogic_epi32(a, mask, b, 0xEA);
}

// Bits [from, from + count) of every byte to bits [to, to + count), the rest
// zero: a bit matrix, its row for result bit i in byte 7 - i.
template <int from, int to, int count>
KV_INLINE __m512i MoveBits(__m512i v) {
  uint64_t matrix = 0;
  for (int i = 0; i < count; ++i) matrix |= uint64_t{1} << (8 * (7 - to - i) + from + i);
  return _mm512_gf2p8affine_epi64_epi8(v, _mm512_set1_epi64(static_cast<long long>(matrix)), 0);
}

// A table format's values, 128 more, by their codes.
template <int F>
KV_INLINE __m512i LookUp(__m512i codes) {
  const signed char* values = F == kMXFP4 ? kFp4Values : kIq4Values;
  const __m128i table = _mm_xor_si128(_mm_loadu_si128(reinterpret_cast<const __m128i*>(values)),
                                      _mm_set1_epi8(static_cast<char>(0x80)));
  return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), codes);
}

// Lines 2j and 2j + 1 of a block: nibbles and what planes add on top, or planes
// only. Q3_K: 8 * code, for the sake of Q6_K's zero point 32; the scales are an
// eighth.
template <int F, int j>
KV_INLINE void UnpackLines(const unsigned char* codes, const unsigned char* planes, __m512i* low,
                           __m512i* high) {
  if constexpr (F == kQ8_0) {
    *low = _mm512_loadu_si512(codes + 128 * j);
    *high = _mm512_loadu_si512(codes + 128 * j + 64);
    return;
  }
  if constexpr (F == kQ2_K || F == kQ3_K) {
    constexpr int kTo = F == kQ2_K ? 0 : 3;
    const __m512i pairs = _mm512_loadu_si512(planes + 64 * (j / 2));
    *low = MoveBits<4 * j % 8, kTo, 2>(pairs);
    *high = MoveBits<(4 * j + 2) % 8, kTo, 2>(pairs);
    if constexpr (F == kQ3_K) {
      const __m512i plane = _mm512_loadu_si512(planes + 128);
      *low = _mm512_or_si512(*low, MoveBits<2 * j, 5, 1>(plane));
      *high = _mm512_or_si512(*high, MoveBits<2 * j + 1, 5, 1>(plane));
    }
    return;
  }
  const __m512i nibble = _mm512_set1_epi8(0x0F);
  const __m512i both = _mm512_loadu_si512(codes + 64 * j);
  *high = MoveBits<4, 0, 4>(both);
  if constexpr (F == kQ5_0 || F == kQ5_1 || F == kQ5_K) {
    const __m512i plane = _mm512_loadu_si512(planes);
    *low = MaskedOr(both, nibble, MoveBits<2 * j, 4, 1>(plane));
    *high = _mm512_or_si512(*high, MoveBits<2 * j + 1, 4, 1>(plane));
  } else if constexpr (F == kQ6_K) {
    const __m512i plane = _mm512_loadu_si512(planes + 64 * (j / 2));
    *low = MaskedOr(both, nibble, MoveBits<4 * j % 8, 4, 2>(plane));
    *high = _mm512_or_si512(*high, MoveBits<(4 * j + 2) % 8, 4, 2>(plane));
  } else {
    *low = _mm512_and_si512(both, nibble);
    if constexpr (kTile<F> == kQ8_0) {
      *low = LookUp<F>(*low);
      *high = LookUp<F>(*high);
    }
  }
}

// Scale and minimum, or second scale, of block `half` (0, 1) of the pair at
// `pair`.
template <int F>
KV_INLINE void UnpackScales(const unsigned char* scales, const SuperScale& super, __m512* scale,
                            __m512* extra) {
  *extra = _mm512_setzero_ps();
  if constexpr (F == kQ2_K) {
    *scale = _mm512_mul_ps(super.d, LoadNibbles(scales, 0));
    *extra = _mm512_mul_ps(super.d, LoadNibbles(scales + 16, 0));
  } else if constexpr (F == kQ4_K || F == kQ5_K) {
    *scale = _mm512_mul_ps(super.d, LoadU8(scales));
    *extra = _mm512_xor_ps(_mm512_set1_ps(-0.0f), _mm512_mul_ps(super.dmin, LoadU8(scales + 16)));
  } else if constexpr (F == kQ6_K || F == kQ3_K) {
    __m512 d = super.d;
    if constexpr (F == kQ3_K) d = _mm512_mul_ps(d, _mm512_set1_ps(0.125f));
    *scale = _mm512_mul_ps(d, LoadI8(scales));
    *extra = _mm512_mul_ps(d, LoadI8(scales + 16));
  } else if constexpr (F == kIQ4_XS) {
    *scale = _mm512_mul_ps(super.d, LoadI8(scales));
  } else if constexpr (F == kMXFP4) {
    *scale = LoadBf16(scales);
  } else {
    *scale = LoadHalves(scales);
    if constexpr (F == kQ4_1 || F == kQ5_1) *extra = LoadHalves(scales + 32);
  }
}

// Q2_K's minima of both halves, divided by -32: what they are multiplied with is
// made of slots that hold -32 times sums of codes.
KV_INLINE void UnpackMinima(const unsigned char* scales, const SuperScale& super, __m512* minima) {
  const __m512 m = _mm512_mul_ps(super.dmin, _mm512_set1_ps(1.0f / 32));
  minima[0] = _mm512_mul_ps(m, LoadNibbles(scales, 4));
  minima[1] = _mm512_mul_ps(m, LoadNibbles(scales + 16, 4));
}

// Block `half` (0, 1) of the pair at `pair`.
template <int F>
KV_INLINE void Unpack(const unsigned char* pair, uint32_t half, const SuperScale& super,
                      Block* block) {
  constexpr PanelLayout kLayout = kPanelLayouts[F];
  const unsigned char* codes = pair + half * kLayout.line_bytes;
  const unsigned char* planes = pair + kLayout.plane_offset + half * kLayout.plane_bytes;
  UnpackLines<F, 0>(codes, planes, &block->lines[0], &block->lines[1]);
  UnpackLines<F, 1>(codes, planes, &block->lines[2], &block->lines[3]);
  UnpackLines<F, 2>(codes, planes, &block->lines[4], &block->lines[5]);
  UnpackLines<F, 3>(codes, planes, &block->lines[6], &block->lines[7]);
  const unsigned char* scales = pair + kLayout.scale_offset + half * kLayout.scale_bytes;
  UnpackScales<F>(scales, super, &block->scale, &block->extra);
  if constexpr (F == kQ2_K) UnpackMinima(scales, super, block->minima);
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
constexpr int kZeroSlot = F == kQ4_0          ? kSlotZero8
                          : F == kQ5_0        ? kSlotZero16
                          : kTile<F> == kQ8_0 ? kSlotZero128
                                              : -1;

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
    if constexpr (F == kQ2_K) {
      _mm512_store_ps(reinterpret_cast<float*>(chunk + 640), block.minima[0]);
      _mm512_store_ps(reinterpret_cast<float*>(chunk + 704), block.minima[1]);
    }
    chunk += chunk_stride;
    if (b % 2 == 1) p += kLayout.pair_bytes;
  }
}

// sum + the dot products of a line with four codes of an activation. Written
// out because g++ 12 loads the codes into a register first: an operation more
// of a window that has to hold enough of them to hide both the multipliers'
// latency and memory's.
KV_INLINE __m512i DotCodes(__m512i sum, __m512i line, const unsigned char* codes) {
  asm("vpdpbusd %2%{1to16%}, %1, %0"
      : "+v"(sum)
      : "v"(line), "m"(*reinterpret_cast<const unsigned char(*)[4]>(codes)));
  return sum;
}

// Integer sums of R rows with B 32-blocks side by side, C chains each: the
// multipliers take ten operations to be full.
template <int R, int B, int C>
struct Sums {
  __m512i at[R][B][C];
};

template <int R, int B, int C>
KV_INLINE void StartSums(const unsigned char* record, int zero_slot, Sums<R, B, C>* sums) {
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
    for (int b = 0; b < B; ++b) {
      sums->at[r][b][0] = zero_slot < 0
                              ? _mm512_set1_epi32(kMagicBits)
                              : BroadcastInt<R>(record + b * R * kRecordBytes, zero_slot, r);
      if constexpr (C == 2) sums->at[r][b][1] = _mm512_setzero_si512();
    }
  }
}

// Adds lines 2j and 2j + 1 of B blocks of a pair, the first of which begins at
// `codes`.
template <int F, int j, int R, int B, int C>
KV_INLINE void DotLines(const unsigned char* codes, const unsigned char* planes,
                        const unsigned char* record, Sums<R, B, C>* sums) {
  constexpr PanelLayout kLayout = kPanelLayouts[F];
  __m512i lines[2][B];
#pragma GCC unroll 16
  for (int b = 0; b < B; ++b) {
    UnpackLines<F, j>(codes + b * kLayout.line_bytes, planes + b * kLayout.plane_bytes,
                      &lines[0][b], &lines[1][b]);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 2; ++i) {
#pragma GCC unroll 16
    for (int b = 0; b < B; ++b) {
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        __m512i& sum = sums->at[r][b][i % C];
        sum = DotCodes(sum, lines[i][b], record + (b * R * kRecordBytes + 32 * r + 8 * j + 4 * i));
      }
    }
  }
}

// Adds `min`, if the format has one, to acc, then block b's sums times `scale`.
template <int R, int B, int C>
KV_INLINE void AddSums(const Sums<R, B, C>& sums, int b, __m512 scale, const __m512* min,
                       const unsigned char* record, __m512* acc) {
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
    __m512i sum = sums.at[r][b][0];
    if constexpr (C == 2) sum = _mm512_add_epi32(sum, sums.at[r][b][1]);
    if (min != nullptr) {
      acc[r] = _mm512_fmadd_ps(*min, BroadcastFloat<R>(record, kSlotScaleSum, r), acc[r]);
    }
    const __m512 product =
        _mm512_fmadd_ps(_mm512_castsi512_ps(sum), BroadcastFloat<R>(record, kSlotScale, r),
                        BroadcastFloat<R>(record, kSlotMinusMagic, r));
    acc[r] = _mm512_fmadd_ps(product, scale, acc[r]);
  }
}

// Blocks [half, half + B) of the pair at `pair`: their dot products side by
// side, then their scales in order. `record` is the first one's.
template <int F, int R, int B>
KV_INLINE void AddBlocks(const unsigned char* pair, uint32_t half, const unsigned char* header,
                         const unsigned char* record, __m512* acc) {
  constexpr PanelLayout kLayout = kPanelLayouts[F];
  constexpr int kSumsOfOutput = kHasHalves<F> ? 2 : 1;
  constexpr int kChains = R * B * kSumsOfOutput < 8 ? 2 : 1;
  constexpr bool kShiftedHalves = kTile<F> == kQ6_K;
  constexpr int kFirstSlot = kShiftedHalves ? kSlotZero32Low : kZeroSlot<F>;
  const unsigned char* codes = pair + half * kLayout.line_bytes;
  const unsigned char* planes = pair + kLayout.plane_offset + half * kLayout.plane_bytes;
  const unsigned char* scales = pair + kLayout.scale_offset + half * kLayout.scale_bytes;
  Sums<R, B, kChains> sums;
  Sums<R, B, kChains> second;  // Of the other half of each block, if it has a scale of its own.
  Sums<R, B, kChains>* const upper = kHasHalves<F> ? &second : &sums;
  StartSums(record, kFirstSlot, &sums);
  DotLines<F, 0>(codes, planes, record, &sums);
  DotLines<F, 1>(codes, planes, record, &sums);
  if constexpr (kHasHalves<F>) StartSums(record, kShiftedHalves ? kSlotZero32High : -1, &second);
  DotLines<F, 2>(codes, planes, record, upper);
  DotLines<F, 3>(codes, planes, record, upper);
  SuperScale super = {_mm512_setzero_ps(), _mm512_setzero_ps()};
  if constexpr (kLayout.header_bytes != 0) super = LoadSuper(header);
#pragma GCC unroll 16
  for (int b = 0; b < B; ++b) {
    __m512 scale;
    __m512 extra;
    UnpackScales<F>(scales + b * kLayout.scale_bytes, super, &scale, &extra);
    const unsigned char* const of_block = record + b * R * kRecordBytes;
    AddSums(sums, b, scale, kHasMinimum<F> ? &extra : nullptr, of_block, acc);
    if constexpr (kHasHalves<F>) AddSums(second, b, extra, nullptr, of_block, acc);
    if constexpr (F == kQ2_K) {
      __m512 minima[2];
      UnpackMinima(scales + b * kLayout.scale_bytes, super, minima);
#pragma GCC unroll 2
      for (int half_block = 0; half_block < 2; ++half_block) {
        Sums<R, 1, 1> starts;
        StartSums(of_block, kSlotZero32Low + half_block, &starts);
        AddSums(starts, 0, minima[half_block], nullptr, of_block, acc);
      }
    }
  }
}

// How far a panel is read ahead: about what arrives while memory answers.
constexpr size_t kPrefetchBytes = 3072;

template <int F, int R>
void TileDirect(const unsigned char* panel, const unsigned char* activations, uint32_t block_count,
                const unsigned char* prefetch_end, float* acc_out) {
  constexpr PanelLayout kLayout = kPanelLayouts[F];
  // Both blocks of a pair side by side as far as the registers hold the sums.
  constexpr int kBlocks = R <= (kHasHalves<F> ? 4 : 8) ? 2 : 1;
  __m512 acc[R];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) acc[r] = _mm512_setzero_ps();
  const unsigned char* header = panel;
  const unsigned char* p = panel;
  for (uint32_t b = 0; b < block_count; b += 2) {
    if (kLayout.header_bytes != 0 && b % (2 * kPairsPerHeader) == 0) {
      header = p;
      p += kLayout.header_bytes;
    }
    if (p + kPrefetchBytes < prefetch_end) {
#pragma GCC unroll 32
      for (uint32_t i = 0; i < kLayout.pair_bytes; i += 64) {
        _mm_prefetch(reinterpret_cast<const char*>(p + kPrefetchBytes + i), _MM_HINT_T0);
      }
    }
    if (kBlocks == 2 && b + 2 <= block_count) {
      AddBlocks<F, R, 2>(p, 0, header, activations, acc);
    } else {
      for (uint32_t half = 0; half < 2 && b + half < block_count; ++half) {
        AddBlocks<F, R, 1>(p, half, header, activations + half * R * kRecordBytes, acc);
      }
    }
    activations += 2 * R * kRecordBytes;
    p += kLayout.pair_bytes;
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
      } else if constexpr (F == kBF16) {
        w = LoadBf16(panel + size_t{i} * 32);
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
