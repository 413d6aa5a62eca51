// Gemma 3, text part: norms around attention and FFN, norms of q and k, GeGLU, scaled embedding,
// and a pattern of five layers with a sliding window to one with full attention. Source: Gemma 3
// technical report, arXiv:2503.19786. The converter stores norm weights as 1 + w. Linear scaling
// (4B and larger) is of the layers with full attention only.
#include <cmath>

#include "model/architecture.h"
#include "model/rope_scaling.h"

namespace kvasir {
namespace {

// Files name neither of these; where one does, its word counts.
constexpr uint32_t kDefaultPattern = 6;  // Every sixth layer sees everything.
constexpr double kDefaultLocalRopeBase = 10000.0;
// The 27B model divides scores by the root of d_model / heads instead of the head dimension; files
// say so by their number of layers only.
constexpr uint32_t kLayersOf27B = 62;

StatusOr<ModelConfig> ReadGemma3(const GgufFile& file, uint32_t) {
  KV_RETURN_IF_ERROR(RefuseUnsupportedFeatures(file, "gemma3", /*soft_caps=*/true));
  KV_ASSIGN_OR_RETURN(ModelConfig config, ReadCommonConfig(file, "gemma3"));
  config.rope_pairing = RopePairing::kHalves;
  config.activation = Activation::kGeluTanh;
  config.qk_norm = true;
  config.post_norms = true;
  config.embedding_scale = std::sqrt(static_cast<double>(config.d_model));
  KV_ASSIGN_OR_RETURN(config.attention_cap, file.GetFloatOr("gemma3.attn_logit_softcapping", 0.0));
  KV_ASSIGN_OR_RETURN(config.logit_cap, file.GetFloatOr("gemma3.final_logit_softcapping", 0.0));
  if (config.layer_count == kLayersOf27B) {
    config.attention_scale =
        1.0 / std::sqrt(static_cast<double>(config.d_model) / config.head_count);
  }
  KV_RETURN_IF_ERROR(ReadRopeScaling(file, config));
  if (config.yarn.original_context != 0 || config.rope_magnitude != 1.0) {
    return Unimplemented("architecture 'gemma3' with RoPE scaled other than linearly");
  }
  KV_ASSIGN_OR_RETURN(const uint32_t window, ReadLayerWindow(file, config, 0));
  KV_ASSIGN_OR_RETURN(const double local_base,
                      file.GetFloatOr("gemma3.rope.freq_base_swa", kDefaultLocalRopeBase));
  KV_ASSIGN_OR_RETURN(const std::vector<bool> windowed,
                      ReadWindowPattern(file, config, kDefaultPattern));
  for (uint32_t i = 0; i < config.layer_count; ++i) {
    if (windowed[i]) config.layers[i] = {window, local_base, 1.0};
  }
  return config;
}

}  // namespace

const Architecture kGemma3 = {
    .name = "gemma3", .read_config = ReadGemma3, .expected_tensors = CommonTensors};

}  // namespace kvasir
