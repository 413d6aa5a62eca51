// Llama and what shares its shape (SmolLM2, Mistral): pre-norm, grouped-query attention, SwiGLU.
// Source: Touvron et al. 2023, arXiv:2302.13971; Q and K rows are permuted by the converter, hence
// interleaved RoPE pairs. Llama 3's frequency scaling is a tensor of divisors that the converter
// computes. A sliding window, where a (Mistral) file names one, holds for every layer.
#include "model/architecture.h"
#include "model/rope_scaling.h"

namespace kvasir {
namespace {

StatusOr<ModelConfig> ReadLlama(const GgufFile& file, uint32_t) {
  KV_RETURN_IF_ERROR(RefuseUnsupportedFeatures(file, "llama"));
  KV_ASSIGN_OR_RETURN(ModelConfig config, ReadCommonConfig(file, "llama"));
  config.rope_pairing = RopePairing::kInterleaved;
  config.activation = Activation::kSilu;
  config.qkv_bias = file.FindTensor(LayerBiasName(0, "attn_q")) != nullptr;
  KV_RETURN_IF_ERROR(ReadRopeScaling(file, config));
  KV_ASSIGN_OR_RETURN(const uint32_t window, ReadWindow(file, config));
  for (LayerConfig& layer : config.layers) layer.window = window;
  return config;
}

}  // namespace

const Architecture kLlama = {
    .name = "llama", .read_config = ReadLlama, .expected_tensors = TensorsWithDivisors};

}  // namespace kvasir
