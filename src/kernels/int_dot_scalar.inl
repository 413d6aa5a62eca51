// Dot products of bytes and 16-bit coefficients in portable code: the definition of what the other
// int_dot_*.inl do in registers. Included inside an anonymous namespace after vec16_scalar.inl. A
// row of coefficients is kCoefSpan int16.

constexpr int kCoefSpan = 256;  // Coefficients in a row.
constexpr int kCoefBytes = 2;   // From one to the next.
constexpr int kIntRows = 1;
constexpr int kIntCols = 1;
constexpr int kLoneRows = 1;

struct Ints {
  int32_t lane[16];
};
struct Bytes {  // [16][4]
  uint8_t byte[64];
};
struct Coef {
  int16_t value[4];
};
using Sums = Ints;

inline Ints LoadInts(const int32_t* p) {
  Ints v;
  __builtin_memcpy(v.lane, p, sizeof v.lane);
  return v;
}
inline void StoreInts(int32_t* p, Ints v) { __builtin_memcpy(p, v.lane, sizeof v.lane); }
inline Ints ZeroInts() { return {}; }
inline V ToFloat(Ints v) {
  V f;
  for (int i = 0; i < 16; ++i) f.lane[i] = static_cast<float>(v.lane[i]);
  return f;
}

constexpr float kCoefShift = kRoundShift;  // What StoreCoefs takes off again.

inline void StoreCoefs(V shifted, uint8_t* row, int at) {
  for (int i = 0; i < 16; ++i) {
    const uint32_t bits = BitsOfFloat(shifted.lane[i]) - BitsOfFloat(kCoefShift);
    const int16_t value = static_cast<int16_t>(static_cast<int32_t>(bits));
    __builtin_memcpy(row + 2 * (at + i), &value, sizeof value);
  }
}
inline void StoreCoefGroup(const V* shifted, int vectors, uint8_t* row, int at) {
  for (int i = 0; i < vectors; ++i) StoreCoefs(shifted[i], row, at + i * 16);
}
// Sum of the coefficients at .. at + count - 1.
inline int32_t SumCoefs(const uint8_t* row, int at, int count) {
  int32_t total = 0;
  for (int i = at; i < at + count; ++i) {
    int16_t value;
    __builtin_memcpy(&value, row + 2 * i, sizeof value);
    total += value;
  }
  return total;
}
inline Coef LoadCoef(const uint8_t* row, int quad) {
  Coef coef;
  __builtin_memcpy(coef.value, row + 8 * quad, sizeof coef.value);
  return coef;
}

// Lanes of which JoinTopHalves of 16 such makes the largest of `vectors` times 16 halves, none of
// them negative, for each.
inline void StoreTopHalves(const uint16_t* p, int vectors, float* lanes) {
  V largest = LoadHalf(p);
  for (int j = 1; j < vectors; ++j) largest = Max(LoadHalf(p + j * 16), largest);
  Store(lanes, largest);
}
inline V JoinTopHalves(const float* lanes) { return MaxLanes16(lanes); }

inline Bytes LoadBytes(const uint8_t* p) {
  Bytes b;
  __builtin_memcpy(b.byte, p, sizeof b.byte);
  return b;
}
inline Bytes LoadLowNibbles(const uint8_t* p) {
  Bytes b = LoadBytes(p);
  for (uint8_t& byte : b.byte) byte &= 15;
  return b;
}
inline Bytes LoadHighNibbles(const uint8_t* p) {
  Bytes b = LoadBytes(p);
  for (uint8_t& byte : b.byte) byte = static_cast<uint8_t>(byte >> 4);
  return b;
}

inline Sums ZeroSums() { return Sums{}; }
inline void Accumulate(Sums& sums, const Bytes& b, const Coef& a) {
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 4; ++j) sums.lane[i] += b.byte[i * 4 + j] * a.value[j];
  }
}
inline Ints Total(const Sums& sums, Ints start) {
  for (int i = 0; i < 16; ++i) start.lane[i] += sums.lane[i];
  return start;
}
