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

// Rotary position embedding, in place, of one head [n] (or of the part of it that turns) with the
// cosines and sines [n / 2] of its position. kInterleaved rotates pairs (2i, 2i+1) (llama files),
// kHalves (i, i + n/2) (NEOX). Source: Su et al. 2021, arXiv:2104.09864.
// A whole word, since Rope takes it on the stack: a byte stored into a word that is then loaded
// would wait for every store before it.
enum class RopePairing : uint32_t { kInterleaved, kHalves };
void Rope(std::span<float> head, std::span<const float> cosine, std::span<const float> sine,
          RopePairing pairing);
void RopeReference(std::span<double> head, std::span<const double> cosine,
                   std::span<const double> sine, RopePairing pairing);

// base^(-2i / (2 * out.size())) for i in [0, out.size()): the angle that pair i turns by from one
// position to the next. Slow (extended precision); once for a model.
void RopeFrequencies(double base, std::span<double> out);

// Cosine and sine of angle_i = position * frequencies[i], times `magnitude`, correct to the last
// bit of a float but for near ties. Own reduction and polynomial in double, since the C library's
// differ between CPUs in the last bit and KV must not. REQUIRES: 0 <= angle_i < 2^24.
void RopeTable(uint32_t position, std::span<const double> frequencies, std::span<float> cosine,
               std::span<float> sine, double magnitude = 1.0);

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

// x[c] = cap * tanh(x[c] / cap): values within (-cap, cap), nearly themselves near 0. Not exactly
// monotone: a value may come out two units in the last place below that of a smaller one. REQUIRES:
// cap > 0. Absolute error <= 1e-6 * cap; NaN stays NaN. Source: Gemma 2, arXiv:2408.00118.
void SoftCap(std::span<float> x, float cap);
double SoftCapReference(double x, double cap);

// IEEE half precision, round to nearest even.
uint16_t HalfFromFloat(float value);
float FloatFromHalf(uint16_t half);

}  // namespace kvasir

#endif  // KVASIR_KERNELS_ROW_OPS_H_
