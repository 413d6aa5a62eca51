// Dot products of bytes and 16-bit coefficients, AVX-512 VNNI. Included inside an anonymous
// namespace after vec16_*.inl; int_dot_scalar.inl is the definition. Everything is exact, so how it
// is summed does not matter.
//
// A row of coefficients is kCoefSpan low bytes, then kCoefSpan high ones, both signed:
// coefficient = 256 * high + low.

constexpr int kCoefSpan = 256;  // Coefficients in a row.
constexpr int kCoefBytes = 1;   // From one to the next.
constexpr int kIntRows = 3;     // 3 x 2 x 2 sums: enough to be under way.
constexpr int kIntCols = 2;
constexpr int kLoneRows = 6;  // With one column.

using Ints = __m512i;   // 16 int32.
using Bytes = __m512i;  // [16][4] bytes, unsigned.
struct Coef {
  __m512i low, high;
};
struct Sums {
  __m512i low, high;
};

inline Ints LoadInts(const int32_t* p) { return _mm512_loadu_si512(p); }
inline void StoreInts(int32_t* p, Ints v) { _mm512_storeu_si512(p, v); }
inline Ints ZeroInts() { return _mm512_setzero_si512(); }
inline V ToFloat(Ints v) { return _mm512_cvtepi32_ps(v); }

// What is added to a number so that its coefficient stands in the low bits: here plus 128, so that
// the high byte is rounded.
constexpr float kCoefShift = kRoundShift + 128.0f;

// Coefficients at .. at + 15 of a row, from integers in [-32512, 32512] plus kCoefShift.
inline void StoreCoefs(V shifted, uint8_t* row, int at) {
  const __m512i y = _mm512_castps_si512(shifted);
  const __m512i low = _mm512_xor_si512(y, _mm512_set1_epi32(128));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(row + at), _mm512_cvtepi32_epi8(low));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(row + kCoefSpan + at),
                   _mm512_cvtepi32_epi8(_mm512_srli_epi32(y, 8)));
}

// The same for 64. Byte i of four vectors' elements is put side by side, four bytes an element; one
// permutation puts them in order.
inline void StoreCoefGroup(const V* shifted, int vectors, uint8_t* row, int at) {
  if (vectors != 4) {
    for (int i = 0; i < vectors; ++i) StoreCoefs(shifted[i], row, at + i * 16);
    return;
  }
  const auto spread = [](int b0, int b1, int b2, int b3) {
    return _mm512_broadcast_i32x4(_mm_setr_epi8(b0, b1, b2, b3, b0 + 4, b1 + 4, b2 + 4, b3 + 4,
                                                b0 + 8, b1 + 8, b2 + 8, b3 + 8, b0 + 12, b1 + 12,
                                                b2 + 12, b3 + 12));
  };
  constexpr __mmask64 kUpper = 0xCCCCCCCCCCCCCCCCull;  // Bytes 2 and 3 of each element.
  constexpr __mmask64 kOdd = 0xAAAAAAAAAAAAAAAAull;
  const __m512i up = spread(0, 0, 0, 1);
  const __m512i even = _mm512_mask_shuffle_epi8(_mm512_castps_si512(shifted[0]), kUpper,
                                                _mm512_castps_si512(shifted[2]), up);
  const __m512i odd = _mm512_mask_shuffle_epi8(_mm512_castps_si512(shifted[1]), kUpper,
                                               _mm512_castps_si512(shifted[3]), up);
  const __m512i low = _mm512_mask_shuffle_epi8(even, kOdd, odd, spread(0, 0, 2, 2));
  const __m512i high = _mm512_mask_shuffle_epi8(odd, ~kOdd, even, spread(1, 1, 3, 3));
  alignas(64) static constexpr uint8_t kOrder[64] = {
      0,  4,  8,  12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60, 1,  5,  9,  13, 17, 21,
      25, 29, 33, 37, 41, 45, 49, 53, 57, 61, 2,  6,  10, 14, 18, 22, 26, 30, 34, 38, 42, 46,
      50, 54, 58, 62, 3,  7,  11, 15, 19, 23, 27, 31, 35, 39, 43, 47, 51, 55, 59, 63};
  const __m512i order = _mm512_load_si512(kOrder);
  _mm512_storeu_si512(
      row + at, _mm512_permutexvar_epi8(order, _mm512_xor_si512(low, _mm512_set1_epi8(-128))));
  _mm512_storeu_si512(row + kCoefSpan + at, _mm512_permutexvar_epi8(order, high));
}

// Sum of the coefficients at .. at + count - 1, a multiple of 16.
inline int32_t SumCoefs(const uint8_t* row, int at, int count) {
  const __m512i one = _mm512_set1_epi8(1);
  __m512i low = _mm512_setzero_si512();
  __m512i high = low;
  for (int i = 0; i < count; i += 64) {
    const __mmask64 some = count - i >= 64 ? ~uint64_t{0} : (uint64_t{1} << (count - i)) - 1;
    const uint8_t* const from = row + at + i;
    low = _mm512_dpbusd_epi32(low, one, _mm512_maskz_loadu_epi8(some, from));
    high = _mm512_dpbusd_epi32(high, one, _mm512_maskz_loadu_epi8(some, from + kCoefSpan));
  }
  return _mm512_reduce_add_epi32(_mm512_add_epi32(low, _mm512_slli_epi32(high, 8)));
}

// Coefficients 4 * quad .. + 3 of a row, for all columns.
inline Coef LoadCoef(const uint8_t* row, int quad) {
  int32_t low, high;
  __builtin_memcpy(&low, row + 4 * quad, sizeof low);
  __builtin_memcpy(&high, row + kCoefSpan + 4 * quad, sizeof high);
  return {_mm512_set1_epi32(low), _mm512_set1_epi32(high)};
}

// As in int_dot_scalar.inl. Halves that are not negative are in order as integers too.
inline void StoreTopHalves(const uint16_t* p, int vectors, float* lanes) {
  if (vectors != 4) {
    V largest = LoadHalf(p);
    for (int j = 1; j < vectors; ++j) largest = Max(LoadHalf(p + j * 16), largest);
    _mm512_storeu_si512(lanes, _mm512_cvtepu16_epi32(_mm512_cvtps_ph(largest, 8)));
    return;
  }
  const __m512i pairs = _mm512_max_epu16(_mm512_loadu_si512(p), _mm512_loadu_si512(p + 32));
  _mm512_storeu_si512(lanes, _mm512_max_epu16(pairs, _mm512_srli_epi32(pairs, 16)));
}
inline V JoinTopHalves(const float* lanes) {
  const V joined = JoinLanes16(lanes, [](V a, V b) {
    return _mm512_castsi512_ps(_mm512_max_epu16(_mm512_castps_si512(a), _mm512_castps_si512(b)));
  });
  return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_castps_si512(joined)));
}

inline Bytes LoadBytes(const uint8_t* p) { return _mm512_loadu_si512(p); }
inline Bytes LoadLowNibbles(const uint8_t* p) {
  return _mm512_and_si512(_mm512_loadu_si512(p), _mm512_set1_epi8(15));
}
inline Bytes LoadHighNibbles(const uint8_t* p) {
  // Bits 4 to 7 of each byte to 0 to 3, by a product of bit matrices.
  return _mm512_gf2p8affine_epi64_epi8(_mm512_loadu_si512(p),
                                       _mm512_set1_epi64(0x1020408000000000ll), 0);
}

inline Sums ZeroSums() { return {_mm512_setzero_si512(), _mm512_setzero_si512()}; }
inline void Accumulate(Sums& sums, Bytes b, Coef a) {
  sums.low = _mm512_dpbusd_epi32(sums.low, b, a.low);
  sums.high = _mm512_dpbusd_epi32(sums.high, b, a.high);
}
inline Ints Total(Sums sums, Ints start) {
  return _mm512_add_epi32(_mm512_add_epi32(start, sums.low), _mm512_slli_epi32(sums.high, 8));
}
