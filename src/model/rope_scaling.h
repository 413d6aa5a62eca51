// What a file says about scaled RoPE, for architecture files.
#ifndef KVASIR_MODEL_ROPE_SCALING_H_
#define KVASIR_MODEL_ROPE_SCALING_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/gguf_file.h"
#include "model/model_config.h"

namespace kvasir {

// Reads the keys `<architecture>.rope.scaling.*` (and the old `rope.scale_linear`) and the tensor
// `rope_freqs.weight` into `config`: factor of every layer, YaRN, magnitude, divisors.
// kInvalidArgument for keys that contradict each other, numbers that are none or not positive and a
// tensor of another shape; kUnimplemented for scalings that rope.h does not know.
//
// Meaning: type none, linear or yarn, linear when only a factor is there. The magnitude is
// attn_factor, for yarn times yarn_attn_factor or, where that is absent, YarnMagnitude(factor).
// REQUIRES: config.layers and rope_dim are set.
Status ReadRopeScaling(const GgufFile& file, ModelConfig& config);

// The values of a tensor of RoPE divisors: [rope_dim / 2] float32, each positive and finite.
StatusOr<std::vector<float>> ReadRopeDivisors(const GgufTensor& tensor, const ModelConfig& config);

}  // namespace kvasir

#endif  // KVASIR_MODEL_ROPE_SCALING_H_
