// Llama and what shares its shape (SmolLM2, Mistral): pre-norm, grouped-query attention, SwiGLU.
// Source: Touvron et al. 2023, arXiv:2302.13971; Q and K rows are permuted by the converter, hence
// interleaved RoPE pairs.
#include "model/architecture.h"

namespace kvasir {
namespace {

StatusOr<ModelConfig> ReadLlama(const GgufFile& file) {
  KV_RETURN_IF_ERROR(RefuseUnsupportedFeatures(file, "llama"));
  KV_ASSIGN_OR_RETURN(ModelConfig config, ReadCommonConfig(file, "llama"));
  config.rope_pairing = RopePairing::kInterleaved;
  config.activation = Activation::kSilu;
  KV_ASSIGN_OR_RETURN(const uint64_t window, file.GetUintOr("llama.attention.sliding_window", 0));
  if (window != 0 && window < config.context_length) {
    return Unimplemented(
        "metadata key 'llama.attention.sliding_window': a window of {} is not supported for this "
        "architecture (at offset {})",
        window, file.FindEntry("llama.attention.sliding_window")->offset);
  }
  return config;
}

}  // namespace

const Architecture kLlama = {
    .name = "llama", .read_config = ReadLlama, .expected_tensors = CommonTensors};

}  // namespace kvasir
