// IEEE half precision in integer arithmetic, bit for bit what F16C does: round to nearest even,
// overflow to infinity, subnormals exact, a NaN keeps the top of its payload and becomes quiet.
// Included inside an anonymous namespace by every file that needs it.

inline uint32_t BitsOfFloat(float value) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline float FloatOfBits(uint32_t bits) {
  float value;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}

inline uint16_t HalfOfFloat(float value) {
  const uint32_t bits = BitsOfFloat(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) {
    return static_cast<uint16_t>(sign | 0x7E00u | ((magnitude >> 13) & 0x3FFu));
  }
  if (magnitude >= 0x477FF000u) return static_cast<uint16_t>(sign | 0x7C00u);  // >= 65520
  uint32_t kept;     // The half's magnitude before rounding,
  uint32_t dropped;  // and what is cut off below it, in units where 1 << (width - 1) is a tie.
  uint32_t width;
  if (magnitude >= 0x38800000u) {  // Normal: rebias the exponent from 127 to 15.
    kept = (magnitude - 0x38000000u) >> 13;
    width = 13;
    dropped = magnitude & 0x1FFFu;
  } else if (magnitude >= 0x33000000u) {  // Subnormal: multiples of 2^-24; 2^-25 is the tie with 0.
    const uint32_t mantissa = (magnitude & 0x7FFFFFu) | 0x800000u;
    width = 126u - (magnitude >> 23);  // 14..24
    kept = width < 32 ? mantissa >> width : 0;
    dropped = mantissa & ((1u << width) - 1u);
  } else {
    return static_cast<uint16_t>(sign);
  }
  const uint32_t tie = 1u << (width - 1u);
  if (dropped > tie || (dropped == tie && (kept & 1u) != 0)) ++kept;
  return static_cast<uint16_t>(sign | kept);
}

inline float FloatOfHalf(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 0x1Fu;
  const uint32_t mantissa = half & 0x3FFu;
  if (exponent == 0x1Fu) {
    const uint32_t quiet = mantissa != 0 ? 0x400000u : 0u;
    return FloatOfBits(sign | 0x7F800000u | quiet | (mantissa << 13));
  }
  if (exponent == 0) {  // Zero and subnormals: mantissa * 2^-24, exact in float.
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return FloatOfBits(sign | BitsOfFloat(magnitude));
  }
  return FloatOfBits(sign | ((exponent + 112u) << 23) | (mantissa << 13));
}
