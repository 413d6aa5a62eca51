// V: 16 float lanes as two AVX registers, lanes 0..7 and 8..15. The operations of vec16_*.inl are
// the same in name and bits; vec16_scalar.inl is the definition. Included inside an anonymous
// namespace.

constexpr float kRoundShift = 0x1.8p+23f;  // Adding it rounds to an integer, kept in the low bits.

struct V {
  __m256 lo, hi;
};
struct Mask {
  __m256 lo, hi;
};

inline V Zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline V Set1(float value) {
  const __m256 all = _mm256_set1_ps(value);
  return {all, all};
}
inline V Load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void Store(float* p, V v) {
  _mm256_storeu_ps(p, v.lo);
  _mm256_storeu_ps(p + 8, v.hi);
}

inline __m256i LanesFrom(__m256i lane, int begin, int end) {
  return _mm256_and_si256(_mm256_cmpgt_epi32(lane, _mm256_set1_epi32(begin - 1)),
                          _mm256_cmpgt_epi32(_mm256_set1_epi32(end), lane));
}
inline Mask Lanes(int begin, int end) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return {_mm256_castsi256_ps(LanesFrom(lane, begin, end)),
          _mm256_castsi256_ps(LanesFrom(lane, begin - 8, end - 8))};
}
inline V LoadFirst(const float* p, int count) {
  const Mask mask = Lanes(0, count);
  // No address beyond the row is formed when the upper half is empty.
  return {
      _mm256_maskload_ps(p, _mm256_castps_si256(mask.lo)),
      count > 8 ? _mm256_maskload_ps(p + 8, _mm256_castps_si256(mask.hi)) : _mm256_setzero_ps()};
}
inline void StoreFirst(float* p, int count, V v) {
  const Mask mask = Lanes(0, count);
  _mm256_maskstore_ps(p, _mm256_castps_si256(mask.lo), v.lo);
  if (count > 8) _mm256_maskstore_ps(p + 8, _mm256_castps_si256(mask.hi), v.hi);
}

inline V LoadHalf(const uint16_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
}
inline void StoreHalf(uint16_t* p, V v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(v.lo, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8),
                   _mm256_cvtps_ph(v.hi, _MM_FROUND_TO_NEAREST_INT));
}

inline V Add(V a, V b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
inline V Sub(V a, V b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
inline V Mul(V a, V b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
inline V Div(V a, V b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
inline V Fma(V a, V b, V c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
inline V Max(V a, V b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
inline V Min(V a, V b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
inline V NegAbs(V a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_or_ps(a.lo, sign), _mm256_or_ps(a.hi, sign)};
}

inline Mask Less(V a, V b) {
  return {_mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ)};
}
inline Mask NotLess(V a, V b) {
  return {_mm256_cmp_ps(a.lo, b.lo, _CMP_NLT_UQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_NLT_UQ)};
}
inline Mask Equal(V a, V b) {
  return {_mm256_cmp_ps(a.lo, b.lo, _CMP_EQ_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_EQ_OQ)};
}
inline V Select(Mask mask, V a, V b) {
  return {_mm256_blendv_ps(b.lo, a.lo, mask.lo), _mm256_blendv_ps(b.hi, a.hi, mask.hi)};
}
inline uint32_t Bits(Mask mask) {
  return static_cast<uint32_t>(_mm256_movemask_ps(mask.lo)) |
         static_cast<uint32_t>(_mm256_movemask_ps(mask.hi)) << 8;
}

// Two exact steps, since 2^n alone may lie outside the normal range.
inline __m256 ScaleHalf(__m256 p, __m256 shifted) {
  const __m256i n = _mm256_sub_epi32(_mm256_castps_si256(shifted),
                                     _mm256_castps_si256(_mm256_set1_ps(kRoundShift)));
  const __m256i first = _mm256_srai_epi32(n, 1);
  const __m256i second = _mm256_sub_epi32(n, first);
  const __m256i bias = _mm256_set1_epi32(127);
  const __m256 by_first = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(first, bias), 23));
  const __m256 by_second =
      _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(second, bias), 23));
  return _mm256_mul_ps(_mm256_mul_ps(p, by_first), by_second);
}
inline V ScaleByPowerOf2(V p, V shifted, V n) {
  return {ScaleHalf(p.lo, shifted.lo), ScaleHalf(p.hi, shifted.hi)};
}

constexpr bool kScaleSkips = false;
inline V ScaleOrZero(Mask keep, V p, V shifted, V n) {
  const V scaled = ScaleByPowerOf2(p, shifted, n);
  return {_mm256_and_ps(scaled.lo, keep.lo), _mm256_and_ps(scaled.hi, keep.hi)};
}

inline V DuplicatePairs(const float* p) {
  const __m256 eight = _mm256_loadu_ps(p);
  const __m256 low = _mm256_unpacklo_ps(eight, eight);
  const __m256 high = _mm256_unpackhi_ps(eight, eight);
  return {_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31)};
}
inline V SwapPairs(V v) { return {_mm256_permute_ps(v.lo, 0xB1), _mm256_permute_ps(v.hi, 0xB1)}; }
inline V NegateEven(V v) {
  const __m256 sign = _mm256_castsi256_ps(_mm256_set1_epi64x(0x80000000ll));
  return {_mm256_xor_ps(v.lo, sign), _mm256_xor_ps(v.hi, sign)};
}

inline float SumLanes(V v) {
  const __m256 sum8 = _mm256_add_ps(v.lo, v.hi);
  const __m128 sum4 = _mm_add_ps(_mm256_castps256_ps128(sum8), _mm256_extractf128_ps(sum8, 1));
  const __m128 sum2 = _mm_add_ps(sum4, _mm_movehl_ps(sum4, sum4));
  return _mm_cvtss_f32(_mm_add_ss(sum2, _mm_movehdup_ps(sum2)));
}
inline float MaxLanes(V v) {
  const __m256 max8 = _mm256_max_ps(v.lo, v.hi);
  const __m128 max4 = _mm_max_ps(_mm256_castps256_ps128(max8), _mm256_extractf128_ps(max8, 1));
  const __m128 max2 = _mm_max_ps(max4, _mm_movehl_ps(max4, max4));
  return _mm_cvtss_f32(_mm_max_ss(max2, _mm_movehdup_ps(max2)));
}

inline V SumLanes16(const float* p) {  // Of 16 vectors, [16][16].
  float sum[16];
  for (int i = 0; i < 16; ++i) sum[i] = SumLanes(Load(p + i * 16));
  return Load(sum);
}
inline V MaxLanes16(const float* p) {
  float max[16];
  for (int i = 0; i < 16; ++i) max[i] = MaxLanes(Load(p + i * 16));
  return Load(max);
}
