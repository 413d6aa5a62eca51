// Included after matmul_avx512.inl by the same files: tiles of many rows against panels that have
// been unpacked into the first-level cache.

// acc += minimum * sum of codes, of row r and P panels.
template <int F, int R, int P>
KV_INLINE void AddMinimum(const unsigned char* chunk, const unsigned char* record, int r,
                          __m512* acc) {
  const __m512 s = BroadcastFloat<R>(record, kSlotScaleSum, r);
#pragma GCC unroll 16
  for (int p = 0; p < P; ++p) {
    const __m512 min =
        _mm512_load_ps(reinterpret_cast<const float*>(chunk + p * kExpandedBytes<F> + 576));
    acc[p] = _mm512_fmadd_ps(min, s, acc[p]);
  }
}

// Groups [begin, end) of a 32-block of P panels; scales at byte `scale` of each
// panel's piece. Minima are added between the dot products, which otherwise come so closely after
// one another that each waits for the one before it.
template <int F, int R, int N, int P>
KV_INLINE void AddGroups(const unsigned char* chunk, const unsigned char* record, int first,
                         int begin, int end, int zero_slot, int scale, __m512 acc[][P]) {
  // No sums are started before the last ones have been added: there are no registers for both, and
  // what g++ 12 then keeps in memory costs a twelfth.
  asm volatile("" ::: "memory");
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
    for (int p = 0; p < P; ++p)
      lines[p] = _mm512_load_si512(chunk + p * kExpandedBytes<F> + 64 * g);
#pragma GCC unroll 16
    for (int r = 0; r < N; ++r) {
      const __m512i codes = Codes(record, first + r, g);
#pragma GCC unroll 16
      for (int p = 0; p < P; ++p) sum[r][p] = _mm512_dpbusd_epi32(sum[r][p], lines[p], codes);
    }
    if constexpr (kHasMinimum<F>) {
      static_assert(N < 8);
      if (g < N) AddMinimum<F, R, P>(chunk, record, first + g, acc[g]);
    }
  }
  asm volatile("" ::: "memory");
#pragma GCC unroll 16
  for (int r = 0; r < N; ++r) {
    const __m512 d = BroadcastFloat<R>(record, kSlotScale, first + r);
    const __m512 minus_magic = BroadcastFloat<R>(record, kSlotMinusMagic, first + r);
#pragma GCC unroll 16
    for (int p = 0; p < P; ++p) {
      const __m512 weight_scale =
          _mm512_load_ps(reinterpret_cast<const float*>(chunk + p * kExpandedBytes<F> + scale));
      const __m512 product = _mm512_fmadd_ps(_mm512_castsi512_ps(sum[r][p]), d, minus_magic);
      acc[r][p] = _mm512_fmadd_ps(product, weight_scale, acc[r][p]);
    }
  }
}

template <int F, int R, int N, int P>
KV_INLINE void AccumulateExpanded(const unsigned char* chunk, const unsigned char* record,
                                  int first, __m512 acc[][P]) {
  if constexpr (kHasHalves<F>) {
    constexpr bool kShifted = F == kQ6_K;
    AddGroups<F, R, N, P>(chunk, record, first, 0, 4, kShifted ? kSlotZero32Low : -1, 512, acc);
    AddGroups<F, R, N, P>(chunk, record, first, 4, 8, kShifted ? kSlotZero32High : -1, 576, acc);
    if constexpr (F == kQ2_K) {
      AddGroups<F, R, N, P>(chunk, record, first, 0, 0, kSlotZero32Low, 640, acc);
      AddGroups<F, R, N, P>(chunk, record, first, 0, 0, kSlotZero32High, 704, acc);
    }
    return;
  }
  AddGroups<F, R, N, P>(chunk, record, first, 0, 8, kZeroSlot<F>, 512, acc);
}

// Sums of rows [first, first + N), where a tile begins.
template <int N, int P>
KV_INLINE void StartTile(const TileSums& sums, int first, __m512 acc[][P]) {
#pragma GCC unroll 16
  for (int r = 0; r < N; ++r) {
#pragma GCC unroll 16
    for (int p = 0; p < P; ++p) acc[r][p] = _mm512_setzero_ps();
  }
  if (sums.is_first) return;
#pragma GCC unroll 16
  for (int r = 0; r < N; ++r) {
#pragma GCC unroll 16
    for (int p = 0; p < P; ++p) acc[r][p] = _mm512_loadu_ps(sums.acc + 16 * ((first + r) * P + p));
  }
}

// And where it ends.
template <int N, int P>
KV_INLINE void EndTile(const TileSums& sums, int first, const __m512 acc[][P]) {
  if (!sums.is_last) {
#pragma GCC unroll 16
    for (int r = 0; r < N; ++r) {
#pragma GCC unroll 16
      for (int p = 0; p < P; ++p) {
        _mm512_storeu_ps(sums.acc + 16 * ((first + r) * P + p), acc[r][p]);
      }
    }
    return;
  }
  float* out = sums.out + first * sums.out_stride;
  // Only the last panel may have fewer than 16 outputs.
  const __mmask16 mask = static_cast<__mmask16>(0xFFFFu >> (16 * P - sums.lanes));
#pragma GCC unroll 16
  for (int r = 0; r < N; ++r, out += sums.out_stride) {
#pragma GCC unroll 16
    for (int p = 0; p < P; ++p) {
      const __mmask16 stored = p + 1 == P ? mask : static_cast<__mmask16>(0xFFFF);
      __m512 sum = acc[r][p];
      if (sums.add) sum = _mm512_add_ps(_mm512_maskz_loadu_ps(stored, out + 16 * p), sum);
      _mm512_mask_storeu_ps(out + 16 * p, stored, sum);
    }
  }
}

// Rows [first, first + N) of a tile of R, times P panels: every activation that
// is loaded serves P lines, and N * P chains of sums run side by side.
template <int F, int R, int N, int P>
KV_INLINE void SubTile(const unsigned char* chunk, const unsigned char* activations,
                       uint32_t block_count, int first, const Ahead& ahead, const TileSums& sums) {
  __m512 acc[N][P];
  StartTile<N, P>(sums, first, acc);
  const unsigned char* next = ahead.bytes;
  const unsigned char* const next_end = next + ahead.bytes_per_tile;
  const unsigned char* next_activations = ahead.activations;
  // One row's lines a block: all at once would hold every line buffer for as long as the last-level
  // cache takes to answer, and the activations behind them wait.
  const float* out = sums.out + first * sums.out_stride;
  const uint32_t stored_rows = sums.is_last ? N : 0;
  for (uint32_t b = 0; b < block_count; ++b) {
    if (first == 0 && next < next_end) {
      for (uint32_t i = 0; i < ahead.bytes_per_block; i += 64, next += 64) {
        for (int p = 0; p < P; ++p) {
          _mm_prefetch(reinterpret_cast<const char*>(next + p * ahead.panel_stride), _MM_HINT_T1);
        }
      }
    }
    if (first + N == R) {
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r, next_activations += kRecordBytes) {
        _mm_prefetch(reinterpret_cast<const char*>(next_activations), _MM_HINT_T0);
      }
    }
    for (int p = 0; p < P; ++p) __builtin_prefetch(out + 16 * p, 1);
    out += b + 1 < stored_rows ? sums.out_stride : 0;  // The last row again: no branch.
    AccumulateExpanded<F, R, N, P>(chunk, activations, first, acc);
    chunk += P * kExpandedBytes<F>;
    activations += R * kRecordBytes;
  }
  EndTile<N, P>(sums, first, acc);
}

template <int F, int R, int P>
void TilesExpanded(const unsigned char* chunk, const TileRun& run, Ahead ahead, TileSums sums) {
  // 7 rows of 2 panels fill the registers, 14 integer sums and 14 float sums, and as many chains
  // hide a dot product's latency; 12 do not quite.
  constexpr int kFirst = R <= 7 ? R : (R + 1) / 2;
  const unsigned char* activations = run.activations;
  for (uint32_t tile = 0; tile < run.tile_count; ++tile) {
    const unsigned char* const next = activations + run.tile_bytes;
    const unsigned char* const after = ahead.activations;
    if (tile + 1 < run.tile_count) ahead.activations = next;
    SubTile<F, R, kFirst, P>(chunk, activations, run.block_count, 0, ahead, sums);
    if constexpr (R > kFirst) {
      SubTile<F, R, R - kFirst, P>(chunk, activations, run.block_count, kFirst, ahead, sums);
    }
    ahead.activations = after;
    ahead.bytes += ahead.bytes_per_tile;
    activations = next;
    sums.acc += run.acc_step;
    sums.out += R * sums.out_stride;
  }
}
