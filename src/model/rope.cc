#include "model/rope.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "kernels/row_ops.h"

namespace kvasir {
namespace {

// The (fractional) pair that turns `turns` times within `context` tokens. long double: x87
// arithmetic, the same on every x86 CPU.
double PairOf(double turns, uint32_t context, uint32_t rope_dim, double base) {
  const long double wanted = static_cast<long double>(context) /
                             (static_cast<long double>(turns) * 2.0L * 3.14159265358979323846L);
  return static_cast<double>(static_cast<long double>(rope_dim) * std::log(wanted) /
                             (2.0L * std::log(static_cast<long double>(base))));
}

// The share of pair i's angle that stays as it is.
class YarnRamp {
 public:
  YarnRamp(const YarnScaling& yarn, uint32_t rope_dim, double base) {
    const double last = rope_dim - 1.0;
    const double fast = std::floor(PairOf(yarn.beta_fast, yarn.original_context, rope_dim, base));
    const double slow = std::ceil(PairOf(yarn.beta_slow, yarn.original_context, rope_dim, base));
    begin_ = std::max(fast, 0.0);
    const double end = std::min(slow, last);
    width_ = std::max(end - begin_, 0.001);
  }
  double Kept(size_t pair) const {
    return 1.0 - std::clamp((static_cast<double>(pair) - begin_) / width_, 0.0, 1.0);
  }

 private:
  double begin_;
  double width_;
};

}  // namespace

void RopeFrequenciesOf(const ModelConfig& config, const LayerConfig& layer, std::span<double> out) {
  KV_CHECK_EQ(out.size(), config.rope_dim / 2);
  RopeFrequencies(layer.rope_base, out);
  if (!config.rope_divisors.empty()) {
    KV_CHECK_EQ(config.rope_divisors.size(), out.size());
    for (size_t i = 0; i < out.size(); ++i) out[i] /= double{config.rope_divisors[i]};
  }
  if (layer.rope_factor == 1.0) return;
  if (config.yarn.original_context == 0) {
    for (double& frequency : out) frequency /= layer.rope_factor;
    return;
  }
  const YarnRamp ramp(config.yarn, config.rope_dim, layer.rope_base);
  for (size_t i = 0; i < out.size(); ++i) {
    const double kept = ramp.Kept(i);
    out[i] = out[i] / layer.rope_factor * (1.0 - kept) + out[i] * kept;
  }
}

double YarnMagnitude(double factor) {
  return static_cast<double>(1.0L + 0.1L * std::log(static_cast<long double>(factor)));
}

}  // namespace kvasir
