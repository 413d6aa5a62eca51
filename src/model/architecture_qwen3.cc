// Qwen3, dense: as Llama, with RMS norms of the heads of q and k, a head dimension of its own and
// RoPE pairs of halves; no biases. Source: Qwen3 technical report, arXiv:2505.09388.
#include "model/architecture.h"
#include "model/rope_scaling.h"

namespace kvasir {
namespace {

StatusOr<ModelConfig> ReadQwen3(const GgufFile& file, uint32_t) {
  KV_RETURN_IF_ERROR(RefuseUnsupportedFeatures(file, "qwen3"));
  KV_ASSIGN_OR_RETURN(ModelConfig config, ReadCommonConfig(file, "qwen3"));
  config.rope_pairing = RopePairing::kHalves;
  config.activation = Activation::kSilu;
  config.qk_norm = true;
  KV_RETURN_IF_ERROR(ReadRopeScaling(file, config));
  KV_RETURN_IF_ERROR(RefuseWindow(file, config));
  return config;
}

}  // namespace

const Architecture kQwen3 = {
    .name = "qwen3", .read_config = ReadQwen3, .expected_tensors = TensorsWithDivisors};

}  // namespace kvasir
