// Qwen2 and Qwen2.5: as Llama, with biases of q, k and v and RoPE pairs of halves. Source: Qwen2
// technical report, arXiv:2407.10671. Sliding windows of some layers (use_sliding_window), which no
// released model turns on and files cannot name layer by layer, are refused.
#include "model/architecture.h"
#include "model/rope_scaling.h"

namespace kvasir {
namespace {

StatusOr<ModelConfig> ReadQwen2(const GgufFile& file, uint32_t) {
  KV_RETURN_IF_ERROR(RefuseUnsupportedFeatures(file, "qwen2"));
  KV_ASSIGN_OR_RETURN(ModelConfig config, ReadCommonConfig(file, "qwen2"));
  config.rope_pairing = RopePairing::kHalves;
  config.activation = Activation::kSilu;
  config.qkv_bias = true;
  KV_RETURN_IF_ERROR(ReadRopeScaling(file, config));
  KV_RETURN_IF_ERROR(RefuseWindow(file, config));
  return config;
}

}  // namespace

const Architecture kQwen2 = {
    .name = "qwen2", .read_config = ReadQwen2, .expected_tensors = TensorsWithDivisors};

}  // namespace kvasir
