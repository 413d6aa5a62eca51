// V: 16 float lanes in portable code. This file is the definition of what the other vec16_*.inl do
// in registers, bit for bit. Included inside an anonymous namespace, after half.inl.

constexpr float kRoundShift = 0x1.8p+23f;  // Adding it rounds to an integer, kept in the low bits.

struct V {
  float lane[16];
};
using Mask = uint32_t;

inline V Set1(float value) {
  V v;
  for (float& lane : v.lane) lane = value;
  return v;
}
inline V Zero() { return Set1(0.0f); }
inline V Load(const float* p) {
  V v;
  __builtin_memcpy(v.lane, p, sizeof v.lane);
  return v;
}
inline void Store(float* p, V v) { __builtin_memcpy(p, v.lane, sizeof v.lane); }

// Lanes begin..end-1. REQUIRES: 0 <= begin <= end <= 16.
inline Mask Lanes(int begin, int end) { return ((1u << end) - 1u) & ~((1u << begin) - 1u); }
// The first `count` (1..16) lanes; the others are zero, and their memory is not touched.
inline V LoadFirst(const float* p, int count) {
  V v = Zero();
  for (int i = 0; i < count; ++i) v.lane[i] = p[i];
  return v;
}
inline void StoreFirst(float* p, int count, V v) {
  for (int i = 0; i < count; ++i) p[i] = v.lane[i];
}

inline V LoadHalf(const uint16_t* p) {
  V v;
  for (int i = 0; i < 16; ++i) v.lane[i] = FloatOfHalf(p[i]);
  return v;
}
inline void StoreHalf(uint16_t* p, V v) {
  for (int i = 0; i < 16; ++i) p[i] = HalfOfFloat(v.lane[i]);
}

template <typename Op>
inline V PerLane(V a, V b, Op op) {
  for (int i = 0; i < 16; ++i) a.lane[i] = op(a.lane[i], b.lane[i]);
  return a;
}
inline V Add(V a, V b) {
  return PerLane(a, b, [](float x, float y) { return x + y; });
}
inline V Sub(V a, V b) {
  return PerLane(a, b, [](float x, float y) { return x - y; });
}
inline V Mul(V a, V b) {
  return PerLane(a, b, [](float x, float y) { return x * y; });
}
inline V Div(V a, V b) {
  return PerLane(a, b, [](float x, float y) { return x / y; });
}
inline V Fma(V a, V b, V c) {
  for (int i = 0; i < 16; ++i) c.lane[i] = __builtin_fmaf(a.lane[i], b.lane[i], c.lane[i]);
  return c;
}
// The second operand when either is NaN or both are zero, as maxps and minps do.
inline V Max(V a, V b) {
  return PerLane(a, b, [](float x, float y) { return x > y ? x : y; });
}
inline V Min(V a, V b) {
  return PerLane(a, b, [](float x, float y) { return x < y ? x : y; });
}
inline V NegAbs(V a) {
  for (float& lane : a.lane) lane = FloatOfBits(BitsOfFloat(lane) | 0x80000000u);
  return a;
}

// False where either is NaN.
inline Mask Less(V a, V b) {
  Mask mask = 0;
  for (int i = 0; i < 16; ++i) mask |= static_cast<Mask>(a.lane[i] < b.lane[i]) << i;
  return mask;
}
// True where either is NaN.
inline Mask NotLess(V a, V b) { return ~Less(a, b) & 0xFFFFu; }
inline Mask Equal(V a, V b) {
  Mask mask = 0;
  for (int i = 0; i < 16; ++i) mask |= static_cast<Mask>(a.lane[i] == b.lane[i]) << i;
  return mask;
}
inline V Select(Mask mask, V a, V b) {
  for (int i = 0; i < 16; ++i) {
    if ((mask >> i & 1u) == 0) a.lane[i] = b.lane[i];
  }
  return a;
}
inline uint32_t Bits(Mask mask) { return mask; }  // Bit i is lane i.

// p * 2^n, rounded once; shifted = n + kRoundShift holds n in its low bits. n in [-126, 128].
inline V ScaleByPowerOf2(V p, V shifted, V n) {
  for (int i = 0; i < 16; ++i) {
    const int32_t exponent =
        static_cast<int32_t>(BitsOfFloat(shifted.lane[i]) - BitsOfFloat(kRoundShift));
    const int32_t first = exponent >> 1;
    const uint32_t by_first = static_cast<uint32_t>(first + 127) << 23;
    const uint32_t by_second = static_cast<uint32_t>(exponent - first + 127) << 23;
    p.lane[i] = p.lane[i] * FloatOfBits(by_first) * FloatOfBits(by_second);
  }
  return p;
}

// ScaleByPowerOf2 where `keep`, else 0. kScaleSkips: n may be anything in the other lanes;
// otherwise it would cost the slow path of subnormal numbers.
constexpr bool kScaleSkips = false;
inline V ScaleOrZero(Mask keep, V p, V shifted, V n) {
  return Select(keep, ScaleByPowerOf2(p, shifted, n), Zero());
}

// p[0], p[0], p[1], p[1] .. p[7], p[7].
inline V DuplicatePairs(const float* p) {
  V v;
  for (int i = 0; i < 16; ++i) v.lane[i] = p[i / 2];
  return v;
}
inline V SwapPairs(V v) {
  V swapped;
  for (int i = 0; i < 16; ++i) swapped.lane[i] = v.lane[i ^ 1];
  return swapped;
}
inline V NegateEven(V v) {
  for (int i = 0; i < 16; i += 2) v.lane[i] = -v.lane[i];
  return v;
}

// Lane i takes lane i + 8, then i + 4, i + 2, i + 1: the order is part of the result.
inline float SumLanes(V v) {
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) v.lane[i] = v.lane[i] + v.lane[i + width];
  }
  return v.lane[0];
}
inline float MaxLanes(V v) {
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) {
      v.lane[i] = v.lane[i] > v.lane[i + width] ? v.lane[i] : v.lane[i + width];
    }
  }
  return v.lane[0];
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
