// Row operations: everything of a transformer layer that is neither a matrix product nor attention.
// One row a call, so a row's result cannot depend on its batch. Scans over logits: logits_row.h.
//
// Numerics: every sum in a fixed order of 16 lanes, own exponential (kernels/vec16_math.inl), true
// square root and division: all instruction sets give the same bits, except for the payload of a
// NaN. -ffp-contract=off; fused multiply-adds are explicit. Shapes: rows are contiguous float32
// spans, unaligned, of any length >= 1 unless said otherwise. Thread: pure functions.
#ifndef KVASIR_KERNELS_ROW_OPS_H_
#define KVASIR_KERNELS_ROW_OPS_H_

#include <cstddef>
#include <cstdint>
#include <span>

namespace kvasir {

// out[c] = x[c] * weight[c] / sqrt(mean(x^2) + eps). out may be x itself; no other overlap.
// Relative error <= kRmsNormMaxRelError. Source: Zhang and Sennrich 2019, arXiv:1910.07467.
inline constexpr double kRmsNormMaxRelError = 1e-5;
void RmsNorm(std::span<const float> x, std::span<const float> weight, float eps,
             std::span<float> out);
void RmsNormReference(std::span<const float> x, std::span<const float> weight, float eps,
                      std::span<double> out);

// Rotary position embedding, in place, of one head [head_dim] with the cosines and sines [head_dim
// / 2] of its position. kInterleaved rotates pairs (2i, 2i+1) (llama files), kHalves (i, i + d/2)
// (NEOX). Source: Su et al. 2021, arXiv:2104.09864.
enum class RopePairing : uint8_t { kInterleaved, kHalves };
void Rope(std::span<float> head, std::span<const float> cosine, std::span<const float> sine,
          RopePairing pairing);
void RopeReference(std::span<double> head, std::span<const double> cosine,
                   std::span<const double> sine, RopePairing pairing);

// base^(-2i / (2 * out.size())) for i in [0, out.size()): the angle that pair i turns by from one
// position to the next. Slow (extended precision); once for a model.
void RopeFrequencies(double base, std::span<double> out);

// Cosine and sine of angle_i = position * frequencies[i], correct to the last bit of a float but
// for near ties. Own reduction and polynomial in double, since the C library's differ between CPUs
// in the last bit and KV must not. REQUIRES: position < 2^24, 0 <= frequencies <= 1.
void RopeTable(uint32_t position, std::span<const double> frequencies, std::span<float> cosine,
               std::span<float> sine);

// out[c] = act(gate[c]) * up[c]; act is SiLU or the tanh form of GELU. out may be gate or up.
// Absolute error <= 1e-6 * (1 + |out|).
enum class Activation : uint8_t { kSilu, kGeluTanh };
void GatedActivation(Activation activation, std::span<const float> gate, std::span<const float> up,
                     std::span<float> out);
void GatedActivationReference(Activation activation, std::span<const float> gate,
                              std::span<const float> up, std::span<double> out);

// x[c] *= factor;  x[c] += y[c].
void Scale(std::span<float> x, float factor);
void Add(std::span<float> x, std::span<const float> y);

// IEEE half precision, round to nearest even.
uint16_t HalfFromFloat(float value);
float FloatFromHalf(uint16_t half);

}  // namespace kvasir

#endif  // KVASIR_KERNELS_ROW_OPS_H_
