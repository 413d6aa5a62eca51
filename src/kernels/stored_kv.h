// StoredType: how K and V lie in memory, in units of 16 tokens at absolute positions of one KV
// head, and the writers of those units. attention.h reads them as they are.
//
//   f16   K [head_dim][16] (transposed: 16 tokens of a channel are one vector), V [16][head_dim].
//   int8  A symmetric scale per token and group of 64 channels: value = scale * (byte - 128).
//         K bytes [head_dim/4][16][4]: four channels of a token stand together, as the dot products
//         of four bytes want them. V bytes [4][head_dim][4]: four tokens of a channel. Then, both,
//         f16 scales [groups][16].
//   int4  value = scale * nibble + minimum. K: a scale and a minimum per channel over the whole
//         unit; bytes [head_dim/8][16][4], channels 8j..8j+3 in the low nibbles, 8j+4..8j+7 in the
//         high ones; f16 scales [head_dim], minimums [head_dim]. V: per token and group of 64;
//         bytes [2][head_dim][4], tokens likewise; f16 scales [groups][16], minimums [groups][16].
//
// A K unit of int4 is made from 16 tokens at once, so it is staged: its tokens are kept as an f16
// unit until all are there (docs/KV.md). Everything else is written token by token.
// Units are a multiple of 32 bytes; groups = head_dim / 64 rounded up, the last one may be
// narrower. Numerics: portable code; a unit's bytes depend on its values only. NaN and infinity
// make a NaN scale (minimum), so that they are seen when read. Thread: pure functions, but tokens
// of one int4 V unit share bytes: one thread at a time.
#ifndef KVASIR_KERNELS_STORED_KV_H_
#define KVASIR_KERNELS_STORED_KV_H_

#include <cstddef>
#include <cstdint>
#include <span>

namespace kvasir {

enum class StoredType : uint8_t { kF16, kInt8, kInt4 };

inline constexpr uint32_t kUnitTokens = 16;
inline constexpr uint32_t kMaxHeadDim = 256;
inline constexpr uint32_t kScaleGroup = 64;  // Channels that share a token's scale.

inline constexpr uint32_t ScaleGroups(uint32_t head_dim) {
  return (head_dim + kScaleGroup - 1) / kScaleGroup;
}
// A K unit of this type is quantized when its 16 tokens are there.
inline constexpr bool IsStaged(StoredType k_type) { return k_type == StoredType::kInt4; }

// K (and the queries that meet it) or V of this type is spread (head_spread.h) by whoever writes
// and reads it: the units below hold what they are given. int4 K has scales of its own for the
// channels that are large, and spreading would only take that away.
inline constexpr bool SpreadsK(StoredType k_type) { return k_type == StoredType::kInt8; }
inline constexpr bool SpreadsV(StoredType v_type) { return v_type != StoredType::kF16; }

// Bytes of values alone, then of whole units. REQUIRES: head_dim a multiple of 16.
size_t ValueBytes(StoredType type, uint32_t head_dim);
size_t KUnitBytes(StoredType type, uint32_t head_dim);
size_t VUnitBytes(StoredType type, uint32_t head_dim);

// Writes a token's K [head_dim] to place 0..15 of a unit; f16 rounds to nearest even and, beyond
// its range, to infinity. REQUIRES: !IsStaged(type); head_dim a multiple of 16, at most
// kMaxHeadDim.
void WriteK(StoredType type, std::span<const float> k, std::byte* unit, uint32_t place);
void WriteV(StoredType type, std::span<const float> v, std::byte* unit, uint32_t place);

// A whole K unit of a staged type from an f16 unit, all 16 tokens of which are there.
void QuantizeKUnit(StoredType type, uint32_t head_dim, const std::byte* f16_unit, std::byte* unit);

// The value that is stored: what attention means by K and V. Slow.
float StoredK(StoredType type, uint32_t head_dim, const std::byte* unit, uint32_t place,
              uint32_t channel);
float StoredV(StoredType type, uint32_t head_dim, const std::byte* unit, uint32_t place,
              uint32_t channel);

}  // namespace kvasir

#endif  // KVASIR_KERNELS_STORED_KV_H_
