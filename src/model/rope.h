// How fast RoPE turns the pairs of a model's heads, from its ModelConfig.
#ifndef KVASIR_MODEL_ROPE_H_
#define KVASIR_MODEL_ROPE_H_

#include <span>

#include "model/model_config.h"

namespace kvasir {

// out[i]: the angle that pair i of `layer` turns by from one position to the next. Slow, in
// extended precision and without functions whose last bit differs between CPUs; once for a model.
// REQUIRES: out.size() == rope_dim / 2; as many divisors, or none.
//
// The plain angle base^(-2i / rope_dim), divided by the pair's divisor, then by rope_factor: that
// is linear scaling. With YaRN, only the share 1 - e_i of it is divided, where e_i falls from 1 at
// the pair that turns beta_fast times in the original context to 0 at the one that turns beta_slow
// times, linearly in i. Source: arXiv:2306.15595 (linear), arXiv:2309.00071 (YaRN); Llama 3 and
// Phi-3 files hold divisors per pair.
void RopeFrequenciesOf(const ModelConfig& config, const LayerConfig& layer, std::span<double> out);

// 1 + 0.1 ln(factor): what YaRN multiplies cosines and sines by, so that scores keep their spread.
double YarnMagnitude(double factor);

}  // namespace kvasir

#endif  // KVASIR_MODEL_ROPE_H_
