// Gemma 3, text part: norms around attention and FFN, norms of q and k, GeGLU, scaled embedding,
// and a pattern of five layers with a sliding window to one with full attention. Source: Gemma 3
// technical report, arXiv:2503.19786. The converter stores norm weights as 1 + w.
#include <algorithm>
#include <cmath>
#include <optional>

#include "model/architecture.h"

namespace kvasir {
namespace {

// Files name neither of these; where one does, its word counts.
constexpr uint32_t kDefaultPattern = 6;  // Every sixth layer sees everything.
constexpr double kDefaultLocalRopeBase = 10000.0;

// How many layers make one period, the last of them global.
StatusOr<uint32_t> ReadPattern(const GgufFile& file) {
  constexpr std::string_view kKey = "gemma3.attention.sliding_window_pattern";
  KV_ASSIGN_OR_RETURN(const uint64_t pattern, file.GetUintOr(kKey, kDefaultPattern));
  if (pattern == 0 || pattern > kMaxLayers) {
    return InvalidArgument("metadata key '{}': {} is not within 1 to {} (at offset {})", kKey,
                           pattern, kMaxLayers, file.FindEntry(kKey)->offset);
  }
  return static_cast<uint32_t>(pattern);
}

StatusOr<ModelConfig> ReadGemma3(const GgufFile& file) {
  KV_RETURN_IF_ERROR(RefuseUnsupportedFeatures(file, "gemma3"));
  KV_ASSIGN_OR_RETURN(ModelConfig config, ReadCommonConfig(file, "gemma3"));
  config.rope_pairing = RopePairing::kHalves;
  config.activation = Activation::kGeluTanh;
  config.qk_norm = true;
  config.post_norms = true;
  config.embedding_scale = std::sqrt(static_cast<double>(config.d_model));
  KV_ASSIGN_OR_RETURN(const uint64_t window, file.GetUint("gemma3.attention.sliding_window"));
  if (window == 0 || window > kMaxContext) {
    return InvalidArgument(
        "metadata key 'gemma3.attention.sliding_window': {} is not within 1 to {} (at offset {})",
        window, kMaxContext, file.FindEntry("gemma3.attention.sliding_window")->offset);
  }
  KV_ASSIGN_OR_RETURN(const double local_base,
                      file.GetFloatOr("gemma3.rope.freq_base_swa", kDefaultLocalRopeBase));
  KV_ASSIGN_OR_RETURN(const uint32_t pattern, ReadPattern(file));
  for (uint32_t i = 0; i < config.layer_count; ++i) {
    if (i % pattern == pattern - 1) continue;
    config.layers[i] = {.window = static_cast<uint32_t>(window), .rope_base = local_base};
  }
  return config;
}

}  // namespace

const Architecture kGemma3 = {
    .name = "gemma3", .read_config = ReadGemma3, .expected_tensors = CommonTensors};

}  // namespace kvasir
