// Dot products of bytes and 16-bit coefficients, AVX-512 VNNI. Included inside an anonymous
// namespace after vec16_*.inl; int_dot_scalar.inl is the definition. Everything is exact, so how it
// is summed does not matter.
//
// A row of coefficients is kCoefSpan low bytes, then kCoefSpan high ones, both signed:
// coefficient = 256 * high + low.

constexpr int kCoefSpan = 256;  // Coefficients in a row.
constexpr int kCoefBytes = 1;   // From one to the next.
constexpr int kIntRows = 3;     // 3 x 4 x 2 sums, 4 loads and 2 broadcasts of 32 registers.
constexpr int kIntCols = 4;
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

// Coefficients at .. at + 15 of a row, from integers in [-32512, 32512] plus kRoundShift.
inline void StoreCoefs(V shifted, uint8_t* row, int at) {
  const __m512i x = _mm512_sub_epi32(_mm512_castps_si512(shifted),
                                     _mm512_castps_si512(_mm512_set1_ps(kRoundShift)));
  const __m512i high = _mm512_srai_epi32(_mm512_add_epi32(x, _mm512_set1_epi32(128)), 8);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(row + at), _mm512_cvtepi32_epi8(x));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(row + kCoefSpan + at), _mm512_cvtepi32_epi8(high));
}

// The same for 64: narrowing goes by lanes of 128 bits, and one permutation puts them in order.
inline void StoreCoefGroup(const V* shifted, int vectors, uint8_t* row, int at) {
  if (vectors != 4) {
    for (int i = 0; i < vectors; ++i) StoreCoefs(shifted[i], row, at + i * 16);
    return;
  }
  const __m512i shift = _mm512_castps_si512(_mm512_set1_ps(kRoundShift));
  __m512i x[4];
  for (int i = 0; i < 4; ++i) x[i] = _mm512_sub_epi32(_mm512_castps_si512(shifted[i]), shift);
  const __m512i a = _mm512_packs_epi32(x[0], x[1]);
  const __m512i b = _mm512_packs_epi32(x[2], x[3]);
  const __m512i round = _mm512_set1_epi16(128);
  const __m512i byte = _mm512_set1_epi16(255);
  const __m512i high = _mm512_packs_epi16(_mm512_srai_epi16(_mm512_add_epi16(a, round), 8),
                                          _mm512_srai_epi16(_mm512_add_epi16(b, round), 8));
  const __m512i low = _mm512_packus_epi16(_mm512_and_si512(a, byte), _mm512_and_si512(b, byte));
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  _mm512_storeu_si512(row + at, _mm512_permutexvar_epi32(order, low));
  _mm512_storeu_si512(row + kCoefSpan + at, _mm512_permutexvar_epi32(order, high));
}

// Coefficients 4 * quad .. + 3 of a row, for all columns.
inline Coef LoadCoef(const uint8_t* row, int quad) {
  int32_t low, high;
  __builtin_memcpy(&low, row + 4 * quad, sizeof low);
  __builtin_memcpy(&high, row + kCoefSpan + 4 * quad, sizeof high);
  return {_mm512_set1_epi32(low), _mm512_set1_epi32(high)};
}

inline Bytes LoadBytes(const uint8_t* p) { return _mm512_loadu_si512(p); }
inline Bytes LoadLowNibbles(const uint8_t* p) {
  return _mm512_and_si512(_mm512_loadu_si512(p), _mm512_set1_epi8(15));
}
inline Bytes LoadHighNibbles(const uint8_t* p) {
  return _mm512_and_si512(_mm512_srli_epi16(_mm512_loadu_si512(p), 4), _mm512_set1_epi8(15));
}

inline Sums ZeroSums() { return {_mm512_setzero_si512(), _mm512_setzero_si512()}; }
inline void Accumulate(Sums& sums, Bytes b, Coef a) {
  sums.low = _mm512_dpbusd_epi32(sums.low, b, a.low);
  sums.high = _mm512_dpbusd_epi32(sums.high, b, a.high);
}
inline Ints Total(Sums sums, Ints start) {
  return _mm512_add_epi32(_mm512_add_epi32(start, sums.low), _mm512_slli_epi32(sums.high, 8));
}
