// The slow twins of kernels/row_ops.h: the definitions in double precision.
#include <cmath>

#include "base/check.h"
#include "kernels/row_ops.h"

namespace kvasir {

void RmsNormReference(std::span<const float> x, std::span<const float> weight, float eps,
                      std::span<double> out) {
  KV_CHECK_EQ(weight.size(), x.size());
  KV_CHECK_EQ(out.size(), x.size());
  double squares = 0;
  for (const float v : x) squares += static_cast<double>(v) * v;
  const double root = std::sqrt(squares / static_cast<double>(x.size()) + eps);
  for (size_t c = 0; c < x.size(); ++c) out[c] = static_cast<double>(x[c]) / root * weight[c];
}

void RopeReference(std::span<double> head, std::span<const double> cosine,
                   std::span<const double> sine, RopePairing pairing) {
  const size_t pairs = head.size() / 2;
  for (size_t i = 0; i < pairs; ++i) {
    const bool interleaved = pairing == RopePairing::kInterleaved;
    double& a = head[interleaved ? 2 * i : i];
    double& b = head[interleaved ? 2 * i + 1 : i + pairs];
    const double x = a;
    a = x * cosine[i] - b * sine[i];
    b = x * sine[i] + b * cosine[i];
  }
}

void GatedActivationReference(Activation activation, std::span<const float> gate,
                              std::span<const float> up, std::span<double> out) {
  const double root_2_over_pi = 0.79788456080286535588;
  for (size_t c = 0; c < out.size(); ++c) {
    const double g = gate[c];
    const double act = activation == Activation::kSilu
                           ? g / (1 + std::exp(-g))
                           : 0.5 * g * (1 + std::tanh(root_2_over_pi * (g + 0.044715 * g * g * g)));
    out[c] = act * up[c];
  }
}

double SoftCapReference(double x, double cap) { return cap * std::tanh(x / cap); }

}  // namespace kvasir
