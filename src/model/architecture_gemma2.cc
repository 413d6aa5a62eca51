// Gemma 2: norms around attention and FFN, GeGLU, scaled embedding, soft caps of scores and logits,
// and windows in every second layer, the first one among them. Source: Gemma 2 technical report,
// arXiv:2408.00118. The converter stores norm weights as 1 + w.
#include <cmath>

#include "model/architecture.h"
#include "model/rope_scaling.h"

namespace kvasir {
namespace {

// What files that say nothing mean: the released models' values.
constexpr uint32_t kDefaultWindow = 4096;
constexpr uint32_t kDefaultPattern = 2;
constexpr double kDefaultAttentionCap = 50.0;
constexpr double kDefaultLogitCap = 30.0;
// The 27B model divides scores by the root of d_model / heads instead of the head dimension; files
// say so by their number of layers only.
constexpr uint32_t kLayersOf27B = 46;

StatusOr<ModelConfig> ReadGemma2(const GgufFile& file, uint32_t) {
  KV_RETURN_IF_ERROR(RefuseUnsupportedFeatures(file, "gemma2", /*soft_caps=*/true));
  KV_ASSIGN_OR_RETURN(ModelConfig config, ReadCommonConfig(file, "gemma2"));
  config.rope_pairing = RopePairing::kHalves;
  config.activation = Activation::kGeluTanh;
  config.post_norms = true;
  config.embedding_scale = std::sqrt(static_cast<double>(config.d_model));
  KV_ASSIGN_OR_RETURN(config.attention_cap,
                      ReadPositiveOr(file, "gemma2.attn_logit_softcapping", kDefaultAttentionCap));
  KV_ASSIGN_OR_RETURN(config.logit_cap,
                      ReadPositiveOr(file, "gemma2.final_logit_softcapping", kDefaultLogitCap));
  if (config.layer_count == kLayersOf27B) {
    config.attention_scale =
        1.0 / std::sqrt(static_cast<double>(config.d_model) / config.head_count);
  }
  KV_RETURN_IF_ERROR(ReadRopeScaling(file, config));
  KV_ASSIGN_OR_RETURN(const uint32_t window, ReadLayerWindow(file, config, kDefaultWindow));
  KV_ASSIGN_OR_RETURN(const std::vector<bool> windowed,
                      ReadWindowPattern(file, config, kDefaultPattern));
  for (uint32_t i = 0; i < config.layer_count; ++i) {
    if (windowed[i]) config.layers[i].window = window;
  }
  return config;
}

}  // namespace

const Architecture kGemma2 = {
    .name = "gemma2", .read_config = ReadGemma2, .expected_tensors = CommonTensors};

}  // namespace kvasir
