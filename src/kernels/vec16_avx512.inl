// V: 16 float lanes as one AVX-512 register. The operations of vec16_*.inl are the same in name and
// bits; vec16_scalar.inl is the definition. Included inside an anonymous namespace.

constexpr float kRoundShift = 0x1.8p+23f;  // Adding it rounds to an integer, kept in the low bits.

using V = __m512;
using Mask = __mmask16;

inline V Zero() { return _mm512_setzero_ps(); }
inline V Set1(float value) { return _mm512_set1_ps(value); }
inline V Load(const float* p) { return _mm512_loadu_ps(p); }
inline void Store(float* p, V v) { _mm512_storeu_ps(p, v); }

inline Mask Lanes(int begin, int end) {
  return static_cast<Mask>(((1u << end) - 1u) & ~((1u << begin) - 1u));
}
inline V LoadFirst(const float* p, int count) { return _mm512_maskz_loadu_ps(Lanes(0, count), p); }
inline void StoreFirst(float* p, int count, V v) { _mm512_mask_storeu_ps(p, Lanes(0, count), v); }

inline V LoadHalf(const uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline void StoreHalf(uint16_t* p, V v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

inline V Add(V a, V b) { return _mm512_add_ps(a, b); }
inline V Sub(V a, V b) { return _mm512_sub_ps(a, b); }
inline V Mul(V a, V b) { return _mm512_mul_ps(a, b); }
inline V Div(V a, V b) { return _mm512_div_ps(a, b); }
inline V Fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
inline V Max(V a, V b) { return _mm512_max_ps(a, b); }
inline V Min(V a, V b) { return _mm512_min_ps(a, b); }
inline V NegAbs(V a) {
  return _mm512_castsi512_ps(_mm512_or_si512(_mm512_castps_si512(a), _mm512_set1_epi32(INT32_MIN)));
}

inline Mask Less(V a, V b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
inline Mask NotLess(V a, V b) { return _mm512_cmp_ps_mask(a, b, _CMP_NLT_UQ); }
inline Mask Equal(V a, V b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
inline V Select(Mask mask, V a, V b) { return _mm512_mask_blend_ps(mask, b, a); }
inline uint32_t Bits(Mask mask) { return mask; }

inline V ScaleByPowerOf2(V p, V shifted, V n) { return _mm512_scalef_ps(p, n); }

constexpr bool kScaleSkips = true;
inline V ScaleOrZero(Mask keep, V p, V shifted, V n) { return _mm512_maskz_scalef_ps(keep, p, n); }

inline V DuplicatePairs(const float* p) {
  const __m512i index = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
  return _mm512_permutexvar_ps(index, _mm512_castps256_ps512(_mm256_loadu_ps(p)));
}
inline V SwapPairs(V v) { return _mm512_permute_ps(v, 0xB1); }
inline V NegateEven(V v) {
  return _mm512_castsi512_ps(
      _mm512_xor_si512(_mm512_castps_si512(v), _mm512_set1_epi64(0x80000000ll)));
}

inline float SumLanes(V v) {
  const __m256 high8 = _mm512_extractf32x8_ps(v, 1);
  const __m256 sum8 = _mm256_add_ps(_mm512_castps512_ps256(v), high8);
  const __m128 sum4 = _mm_add_ps(_mm256_castps256_ps128(sum8), _mm256_extractf128_ps(sum8, 1));
  const __m128 sum2 = _mm_add_ps(sum4, _mm_movehl_ps(sum4, sum4));
  return _mm_cvtss_f32(_mm_add_ss(sum2, _mm_movehdup_ps(sum2)));
}
inline float MaxLanes(V v) {
  const __m256 high8 = _mm512_extractf32x8_ps(v, 1);
  const __m256 max8 = _mm256_max_ps(_mm512_castps512_ps256(v), high8);
  const __m128 max4 = _mm_max_ps(_mm256_castps256_ps128(max8), _mm256_extractf128_ps(max8, 1));
  const __m128 max2 = _mm_max_ps(max4, _mm_movehl_ps(max4, max4));
  return _mm_cvtss_f32(_mm_max_ss(max2, _mm_movehdup_ps(max2)));
}

// Vectors p[16][16]: lane i of the result is vector i's lanes joined in the order of SumLanes.
template <typename Join>
inline V JoinLanes16(const float* p, Join join) {
  constexpr int kSlot[16] = {0, 2, 1, 3, 8, 10, 9, 11, 4, 6, 5, 7, 12, 14, 13, 15};
  V x[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) x[i] = Load(p + kSlot[i] * 16);
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    x[i] = join(_mm512_shuffle_f32x4(x[i], x[i + 8], 0x44),
                _mm512_shuffle_f32x4(x[i], x[i + 8], 0xEE));
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    x[i] = join(_mm512_shuffle_f32x4(x[i], x[i + 4], 0x88),
                _mm512_shuffle_f32x4(x[i], x[i + 4], 0xDD));
  }
  const auto pairs = [&](V a, V b) {
    const __m512d c = _mm512_castps_pd(a), d = _mm512_castps_pd(b);
    return join(_mm512_castpd_ps(_mm512_unpacklo_pd(c, d)),
                _mm512_castpd_ps(_mm512_unpackhi_pd(c, d)));
  };
  const V a = pairs(x[0], x[2]);
  const V b = pairs(x[1], x[3]);
  return join(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xDD));
}
inline V SumLanes16(const float* p) {
  return JoinLanes16(p, [](V a, V b) { return Add(a, b); });
}
inline V MaxLanes16(const float* p) {
  return JoinLanes16(p, [](V a, V b) { return Max(a, b); });
}
