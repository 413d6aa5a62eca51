// Portable code: the definition the other sets are compared with, and what old CPUs run. The
// integer part is laid out so that a compiler vectorises it; fused multiply-adds may be library
// calls, so there is one or two per 512 products only. See matmul.inl and matmul_layout.h.
#include "kernels/matmul_layout.h"

namespace kvasir::matmul {
namespace {

// int16 values [32][16], then f32 [16] each: the scales, the minima.
template <int F>
constexpr uint32_t kExpandedBytes = 1024 + 64 * (kPanelLayouts[F].scales + kPanelLayouts[F].minima);
template <int F>
constexpr int kTile = kPanelLayouts[F].scales == 0   ? F
                      : kPanelLayouts[F].minima == 2 ? kQ2_K
                      : kPanelLayouts[F].minima == 1 ? kQ4_1
                      : kPanelLayouts[F].scales == 2 ? kQ6_K
                                                     : kQ4_0;
constexpr uint32_t kPanelsAtOnce = 1;
constexpr uint32_t kManyRowsTile = kMaxTileRows;

#include "kernels/half.inl"

inline float Half(const unsigned char* p) {
  return FloatOfHalf(static_cast<uint16_t>(p[0] | p[1] << 8));
}

float LoadFloat(const unsigned char* p) {
  float value;
  __builtin_memcpy(&value, p, 4);
  return value;
}

float Bf16(const unsigned char* p) {
  return FloatOfBits(static_cast<uint32_t>(p[0] | p[1] << 8) << 16);
}

// Table formats: their values, 128 more.
template <int F>
constexpr const signed char* kTable = F == kIQ4_NL || F == kIQ4_XS ? kIq4Values
                                      : F == kMXFP4                ? kFp4Values
                                                                   : nullptr;

template <int F>
constexpr int kZero = F == kQ3_K                           ? 4
                      : F == kQ4_0                         ? 8
                      : F == kQ5_0                         ? 16
                      : F == kQ6_K                         ? 32
                      : F == kQ8_0 || kTable<F> != nullptr ? 128
                                                           : 0;

// Bits [shift, shift + bits) of the codes, from planes that hold 8 / bits groups each.
inline void AddPlanes(const unsigned char* planes, int bits, int shift, unsigned char* lines) {
  for (int g = 0; g < 8; ++g) {
    const unsigned char* plane = planes + 64 * (g * bits / 8);
    const int from = g * bits % 8;
    for (int i = 0; i < 64; ++i) {
      const unsigned code = (static_cast<unsigned>(plane[i]) >> from) & ((1u << bits) - 1);
      lines[64 * g + i] = static_cast<unsigned char>(lines[64 * g + i] | code << shift);
    }
  }
}

// Lines of 8 k-groups, one code a byte.
template <int F>
inline void ExpandLines(const unsigned char* codes, const unsigned char* planes,
                        unsigned char* lines) {
  if constexpr (F == kQ8_0) {
    for (int i = 0; i < 512; ++i) lines[i] = codes[i];
    return;
  }
  if constexpr (F == kQ2_K || F == kQ3_K) {
    for (int i = 0; i < 512; ++i) lines[i] = 0;
    AddPlanes(planes, 2, 0, lines);
    if constexpr (F == kQ3_K) AddPlanes(planes + 128, 1, 2, lines);
    return;
  }
  for (int j = 0; j < 4; ++j) {
    for (int i = 0; i < 64; ++i) {
      const unsigned both = codes[64 * j + i];
      lines[128 * j + i] = static_cast<unsigned char>(both & 15u);
      lines[128 * j + 64 + i] = static_cast<unsigned char>(both >> 4);
    }
  }
  if constexpr (F == kQ5_0 || F == kQ5_1 || F == kQ5_K) AddPlanes(planes, 1, 4, lines);
  if constexpr (F == kQ6_K) AddPlanes(planes, 2, 4, lines);
  if constexpr (kTable<F> != nullptr) {
    for (int i = 0; i < 512; ++i) {
      lines[i] = static_cast<unsigned char>(kTable<F>[lines[i]] + 128);
    }
  }
}

// [8][16][4] codes to [8][4][16] less the zero point. Not inlined: with a zero point known to be 0
// GCC 12 finds a way to vectorise it several times slower.
__attribute__((noinline)) void Transpose(const unsigned char* lines, int zero, int16_t* out) {
  for (int g = 0; g < 8; ++g, lines += 64, out += 64) {
    for (int row = 0; row < 16; ++row) {
      out[row] = static_cast<int16_t>(lines[4 * row] - zero);
      out[16 + row] = static_cast<int16_t>(lines[4 * row + 1] - zero);
      out[32 + row] = static_cast<int16_t>(lines[4 * row + 2] - zero);
      out[48 + row] = static_cast<int16_t>(lines[4 * row + 3] - zero);
    }
  }
}

// out: f32 [16] each, the scales, then the minima.
template <int F>
void ExpandScales(const unsigned char* scales, const unsigned char* header, float* scale) {
  float* extra = scale + 16;
  for (int row = 0; row < 16; ++row) {
    if constexpr (F == kQ2_K) {
      const float d = Half(header + 2 * row);
      const float m = Half(header + 32 + 2 * row);
      scale[row] = d * static_cast<float>(scales[row] & 15);
      scale[16 + row] = d * static_cast<float>(scales[16 + row] & 15);
      scale[32 + row] = -(m * static_cast<float>(scales[row] >> 4));
      scale[48 + row] = -(m * static_cast<float>(scales[16 + row] >> 4));
    } else if constexpr (F == kQ4_K || F == kQ5_K) {
      scale[row] = Half(header + 2 * row) * static_cast<float>(scales[row]);
      extra[row] = -(Half(header + 32 + 2 * row) * static_cast<float>(scales[16 + row]));
    } else if constexpr (F == kQ3_K || F == kQ6_K) {
      const float d = Half(header + 2 * row);
      scale[row] = d * static_cast<float>(static_cast<signed char>(scales[row]));
      extra[row] = d * static_cast<float>(static_cast<signed char>(scales[16 + row]));
    } else if constexpr (F == kIQ4_XS) {
      scale[row] =
          Half(header + 2 * row) * static_cast<float>(static_cast<signed char>(scales[row]));
    } else if constexpr (F == kMXFP4) {
      scale[row] = Bf16(scales + 2 * row);
    } else {
      scale[row] = Half(scales + 2 * row);
      if constexpr (F == kQ4_1 || F == kQ5_1) extra[row] = Half(scales + 32 + 2 * row);
    }
  }
}

template <int F>
void ExpandChunk(const unsigned char* panel, uint32_t first_block, uint32_t block_count,
                 unsigned char* chunk, size_t chunk_stride) {
  constexpr PanelLayout kLayout = kPanelLayouts[F];
  for (uint32_t b = 0; b < block_count; ++b, chunk += chunk_stride) {
    const uint32_t pair_index = (first_block + b) / 2;
    const uint32_t half = (first_block + b) % 2;
    const uint32_t super = pair_index / kPairsPerHeader;
    const unsigned char* header =
        panel + super * (size_t{kPairsPerHeader} * kLayout.pair_bytes + kLayout.header_bytes);
    const unsigned char* pair =
        header + kLayout.header_bytes + size_t{pair_index % kPairsPerHeader} * kLayout.pair_bytes;
    const unsigned char* codes = pair + half * kLayout.line_bytes;
    const unsigned char* planes = pair + kLayout.plane_offset + half * kLayout.plane_bytes;
    unsigned char lines[512];
    ExpandLines<F>(codes, planes, lines);
    int16_t* out = reinterpret_cast<int16_t*>(chunk);
    Transpose(lines, kZero<F>, out);
    ExpandScales<F>(pair + kLayout.scale_offset + half * kLayout.scale_bytes, header,
                    reinterpret_cast<float*>(chunk + 1024));
  }
}

// acc[row] = fma(sum of products over k in [begin, end) * d, scale[row], acc[row])
inline void AddScaled(const int16_t* weights, const signed char* codes, int begin, int end,
                      const float* scale, float d, float* acc) {
  int32_t sum[16] = {};
  for (int k = begin; k < end; ++k) {
    const int16_t code = codes[k];
    for (int row = 0; row < 16; ++row) sum[row] += weights[k * 16 + row] * code;
  }
  for (int row = 0; row < 16; ++row) {
    acc[row] = __builtin_fmaf(static_cast<float>(sum[row]) * d, scale[row], acc[row]);
  }
}

// acc[row] = fma(min[row], sum of 16 codes * d, acc[row])
inline void AddMinima(const signed char* codes, const float* min, float d, float* acc) {
  int32_t sum = 0;
  for (int k = 0; k < 16; ++k) sum += codes[k];
  const float scaled = static_cast<float>(sum) * d;
  for (int row = 0; row < 16; ++row) acc[row] = __builtin_fmaf(min[row], scaled, acc[row]);
}

template <int F, int R, int P>
void TileExpanded(const unsigned char* chunk, const unsigned char* activations,
                  uint32_t block_count, float* acc) {
  for (uint32_t b = 0; b < block_count; ++b) {
    const int16_t* weights = reinterpret_cast<const int16_t*>(chunk);
    const float* scale = reinterpret_cast<const float*>(chunk + 1024);
    const float* extra = scale + 16;
    for (int r = 0; r < R; ++r) {
      const signed char* codes = reinterpret_cast<const signed char*>(activations + 32 * r);
      const float d = LoadFloat(activations + R * (32 + 4 * kSlotScale) + 4 * r);
      if constexpr (F == kQ4_1) {
        const float s = LoadFloat(activations + R * (32 + 4 * kSlotScaleSum) + 4 * r);
        for (int row = 0; row < 16; ++row) {
          acc[16 * r + row] = __builtin_fmaf(extra[row], s, acc[16 * r + row]);
        }
      }
      if constexpr (F == kQ6_K || F == kQ2_K) {
        AddScaled(weights, codes, 0, 16, scale, d, acc + 16 * r);
        AddScaled(weights, codes, 16, 32, extra, d, acc + 16 * r);
      } else {
        AddScaled(weights, codes, 0, 32, scale, d, acc + 16 * r);
      }
      if constexpr (F == kQ2_K) {
        AddMinima(codes, scale + 32, d, acc + 16 * r);
        AddMinima(codes + 16, scale + 48, d, acc + 16 * r);
      }
    }
    chunk += kExpandedBytes<F>;
    activations += R * kRecordBytes;
  }
}

template <int F, int R>
void TileFloat(const unsigned char* panel, const float* x, size_t x_stride, uint32_t cols,
               float* acc) {
  for (int r = 0; r < R; ++r) {
    float total[16] = {};
    for (uint32_t k = 0; k < cols; k += 32) {
      float sum[16] = {};
      for (uint32_t i = k; i < k + 32; ++i) {
        for (int row = 0; row < 16; ++row) {
          const float w = F == kF16    ? Half(panel + size_t{i} * 32 + 2 * row)
                          : F == kBF16 ? Bf16(panel + size_t{i} * 32 + 2 * row)
                                       : LoadFloat(panel + size_t{i} * 64 + 4 * row);
          sum[row] = __builtin_fmaf(w, x[r * x_stride + i], sum[row]);
        }
      }
      for (int row = 0; row < 16; ++row) total[row] += sum[row];
    }
    for (int row = 0; row < 16; ++row) acc[16 * r + row] = total[row];
  }
}

template <int F>
[[maybe_unused]] constexpr void (*kDirectTiles[kMaxTileRows])(const unsigned char*,
                                                              const unsigned char*, uint32_t,
                                                              const unsigned char*, float*) = {};
template <int F>
constexpr uint32_t kDirectUpTo = 0;

#include "kernels/matmul.inl"
#include "kernels/matmul_tiles.inl"
#include "kernels/quantize_row.inl"

void QuantizeRow(const float* x, uint32_t blocks, uint32_t tile_rows, uint32_t r,
                 unsigned char* tile) {
  for (uint32_t b = 0; b < blocks; ++b, x += 32, tile += size_t{tile_rows} * kRecordBytes) {
    int32_t bits[32];
    __builtin_memcpy(bits, x, sizeof(bits));
    int32_t max = 0;
    for (int i = 0; i < 32; ++i) {
      const int32_t magnitude = bits[i] & 0x7FFFFFFF;
      max = magnitude > max ? magnitude : max;
    }
    const BlockScale s = ScaleFromMax(max);
    signed char* codes = reinterpret_cast<signed char*>(tile + 32 * r);
    int32_t sum[2] = {0, 0};
    for (int i = 0; i < 32; ++i) {
      // Adding and taking away 1.5 * 2^23 rounds to the nearest integer, halves to even.
      const float scaled = s.inverse == 0.0f ? 0.0f : x[i] * s.inverse;
      const int32_t q = static_cast<int32_t>((scaled + 12582912.0f) - 12582912.0f);
      codes[i] = static_cast<signed char>(q);
      sum[i / 16] += q;
    }
    WriteScales(tile, tile_rows, r, s.scale, sum[0], sum[1]);
  }
}

}  // namespace

const Kernels kScalarKernels = {
    kManyRowsTile,
    {MatMulFloat<kF32>, MatMulFloat<kF16>, MatMulQuantized<kQ4_0>, MatMulQuantized<kQ4_1>,
     MatMulQuantized<kQ5_0>, MatMulQuantized<kQ8_0>, MatMulQuantized<kQ4_K>, MatMulQuantized<kQ6_K>,
     MatMulFloat<kBF16>, MatMulQuantized<kQ5_1>, MatMulQuantized<kQ2_K>, MatMulQuantized<kQ3_K>,
     MatMulQuantized<kQ5_K>, MatMulQuantized<kIQ4_NL>, MatMulQuantized<kIQ4_XS>,
     MatMulQuantized<kMXFP4>},
    QuantizeRow,
};

}  // namespace kvasir::matmul
