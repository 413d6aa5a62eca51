// Included by matmul_avx512.cc, matmul_avx2.cc and matmul_scalar.cc, inside the anonymous namespace
// of each: what the records of quantized activations hold beside the codes (matmul_layout.h).

// Where row r's arrays of a record lie.
unsigned char* SlotAt(unsigned char* record, uint32_t tile_rows, uint32_t r, int slot) {
  return record + tile_rows * (32 + 4 * slot) + r * 4;
}

// Everything of a record but the codes.
void WriteScales(unsigned char* record, uint32_t tile_rows, uint32_t r, float scale, int32_t low,
                 int32_t high) {
  const int32_t sum = low + high;
  const float floats[3] = {scale, -kMagic * scale, scale * static_cast<float>(sum)};
  const int32_t starts[5] = {kMagicBits - 8 * sum, kMagicBits - 16 * sum, kMagicBits - 128 * sum,
                             kMagicBits - 32 * low, kMagicBits - 32 * high};
  for (int i = 0; i < 3; ++i) {
    __builtin_memcpy(SlotAt(record, tile_rows, r, kSlotScale + i), &floats[i], 4);
  }
  for (int i = 0; i < 5; ++i) {
    __builtin_memcpy(SlotAt(record, tile_rows, r, kSlotZero8 + i), &starts[i], 4);
  }
}

// Scale and its reciprocal from the bits of the largest magnitude of a block. Blocks below 2^-100
// count as zero (their reciprocal could overflow); a NaN, an infinity or 2^111 and more makes the
// scale a NaN and the codes zero, so that it shows in every output of that row and in no other.
struct BlockScale {
  float scale;    // 22 bits, see matmul_layout.h.
  float inverse;  // 0: all codes are zero.
};

BlockScale ScaleFromMax(int32_t max_bits) {
  float max;
  __builtin_memcpy(&max, &max_bits, 4);
  if (max_bits >= (127 + 111) << 23) return {__builtin_nanf(""), 0.0f};
  if (max < 0x1p-100f) return {0.0f, 0.0f};
  float scale = max / 127.0f;
  int32_t scale_bits;
  __builtin_memcpy(&scale_bits, &scale, 4);
  scale_bits &= ~3;
  __builtin_memcpy(&scale, &scale_bits, 4);
  return {scale, 127.0f / max};
}
