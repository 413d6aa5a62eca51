// Dot products of bytes and 16-bit coefficients, AVX2. Included inside an anonymous namespace after
// vec16_*.inl; int_dot_scalar.inl is the definition. A row of coefficients is kCoefSpan int16.

constexpr int kCoefSpan = 256;  // Coefficients in a row.
constexpr int kCoefBytes = 2;   // From one to the next.
constexpr int kIntRows = 2;     // 2 x 4 sums, 4 loads and 2 broadcasts of 16 registers.
constexpr int kIntCols = 1;
constexpr int kLoneRows = 2;

struct Ints {
  __m256i lo, hi;
};
struct Bytes {  // [16][4], widened: four columns a part.
  __m256i part[4];
};
using Coef = __m256i;  // Four coefficients, four times.
struct Sums {          // Two halves of four columns a part.
  __m256i part[4];
};

inline Ints LoadInts(const int32_t* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 8))};
}
inline void StoreInts(int32_t* p, Ints v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v.lo);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 8), v.hi);
}
inline Ints ZeroInts() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
inline V ToFloat(Ints v) { return {_mm256_cvtepi32_ps(v.lo), _mm256_cvtepi32_ps(v.hi)}; }

constexpr float kCoefShift = kRoundShift;

inline void StoreCoefs(V shifted, uint8_t* row, int at) {
  const __m256i shift = _mm256_castps_si256(_mm256_set1_ps(kCoefShift));
  const __m256i lo = _mm256_sub_epi32(_mm256_castps_si256(shifted.lo), shift);
  const __m256i hi = _mm256_sub_epi32(_mm256_castps_si256(shifted.hi), shift);
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packs_epi32(lo, hi), 0xD8);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(row + 2 * at), packed);
}
inline void StoreCoefGroup(const V* shifted, int vectors, uint8_t* row, int at) {
  for (int i = 0; i < vectors; ++i) StoreCoefs(shifted[i], row, at + i * 16);
}
inline int32_t SumCoefs(const uint8_t* row, int at, int count) {
  const __m256i one = _mm256_set1_epi16(1);
  __m256i sum = _mm256_setzero_si256();
  for (int i = at; i < at + count; i += 16) {
    const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row + 2 * i));
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(x, one));
  }
  int32_t lane[8];
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(lane), sum);
  int32_t total = 0;
  for (const int32_t x : lane) total += x;
  return total;
}
inline Coef LoadCoef(const uint8_t* row, int quad) {
  long long four;
  __builtin_memcpy(&four, row + 8 * quad, sizeof four);
  return _mm256_set1_epi64x(four);
}

// As in int_dot_scalar.inl.
inline void StoreTopHalves(const uint16_t* p, int vectors, float* lanes) {
  V largest = LoadHalf(p);
  for (int j = 1; j < vectors; ++j) largest = Max(LoadHalf(p + j * 16), largest);
  Store(lanes, largest);
}
inline V JoinTopHalves(const float* lanes) { return MaxLanes16(lanes); }

inline Bytes Widen(__m128i a, __m128i b, __m128i c, __m128i d) {
  return {{_mm256_cvtepu8_epi16(a), _mm256_cvtepu8_epi16(b), _mm256_cvtepu8_epi16(c),
           _mm256_cvtepu8_epi16(d)}};
}
inline __m128i Load16(const uint8_t* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}
inline __m128i Low4(__m128i x) { return _mm_and_si128(x, _mm_set1_epi8(15)); }
inline __m128i High4(__m128i x) { return Low4(_mm_srli_epi16(x, 4)); }
inline Bytes LoadBytes(const uint8_t* p) {
  return Widen(Load16(p), Load16(p + 16), Load16(p + 32), Load16(p + 48));
}
inline Bytes LoadLowNibbles(const uint8_t* p) {
  return Widen(Low4(Load16(p)), Low4(Load16(p + 16)), Low4(Load16(p + 32)), Low4(Load16(p + 48)));
}
inline Bytes LoadHighNibbles(const uint8_t* p) {
  return Widen(High4(Load16(p)), High4(Load16(p + 16)), High4(Load16(p + 32)),
               High4(Load16(p + 48)));
}

inline Sums ZeroSums() {
  const __m256i zero = _mm256_setzero_si256();
  return {{zero, zero, zero, zero}};
}
inline void Accumulate(Sums& sums, const Bytes& b, Coef a) {
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    sums.part[i] = _mm256_add_epi32(sums.part[i], _mm256_madd_epi16(b.part[i], a));
  }
}
inline Ints Total(const Sums& sums, Ints start) {
  const __m256i lo = _mm256_permute4x64_epi64(_mm256_hadd_epi32(sums.part[0], sums.part[1]), 0xD8);
  const __m256i hi = _mm256_permute4x64_epi64(_mm256_hadd_epi32(sums.part[2], sums.part[3]), 0xD8);
  return {_mm256_add_epi32(start.lo, lo), _mm256_add_epi32(start.hi, hi)};
}
