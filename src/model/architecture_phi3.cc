// Phi-3, Phi-3.5 and Phi-4 (dense): as Llama, with q, k and v in one matrix, gate and up in
// another, RoPE pairs of halves on all or the first dimensions of a head, and a sliding window in
// every layer where the file names one. Source: Phi-3 technical report, arXiv:2404.14219; LongRoPE,
// arXiv:2402.13753.
//
// Long-context files have two sets of RoPE divisors, one for contexts up to the original one and
// one for longer ones. KV must not depend on what comes later, so the set is chosen by the longest
// context that will be computed, not by each sequence's length.
#include "model/architecture.h"
#include "model/quoted_text.h"
#include "model/rope_scaling.h"

namespace kvasir {
namespace {

constexpr std::string_view kLong = "rope_factors_long.weight";
constexpr std::string_view kShort = "rope_factors_short.weight";

Status ReadLongRope(const GgufFile& file, uint32_t context_tokens, ModelConfig& config) {
  const GgufTensor* long_divisors = file.FindTensor(kLong);
  const GgufTensor* short_divisors = file.FindTensor(kShort);
  if (long_divisors == nullptr && short_divisors == nullptr) return OkStatus();
  if (long_divisors == nullptr || short_divisors == nullptr) {
    return InvalidArgument("tensor {} without {}",
                           Quoted(long_divisors == nullptr ? kShort : kLong),
                           Quoted(long_divisors == nullptr ? kLong : kShort));
  }
  constexpr std::string_view kOriginal = "phi3.rope.scaling.original_context_length";
  KV_ASSIGN_OR_RETURN(const uint64_t original, file.GetUint(kOriginal));
  if (original == 0 || original > config.context_length) {
    return InvalidArgument(
        "metadata key {}: {} is not within 1 to the context of {} (at offset {})",
        Quoted(kOriginal), original, config.context_length, file.FindEntry(kOriginal)->offset);
  }
  KV_RETURN_IF_ERROR(file.GetFloat("phi3.rope.scaling.attn_factor").status());
  KV_ASSIGN_OR_RETURN(const std::vector<float> when_long, ReadRopeDivisors(*long_divisors, config));
  KV_ASSIGN_OR_RETURN(const std::vector<float> when_short,
                      ReadRopeDivisors(*short_divisors, config));
  const uint64_t wanted = context_tokens == 0 ? config.context_length : context_tokens;
  config.rope_divisors = wanted > original ? when_long : when_short;
  if (wanted <= original) config.context_length = static_cast<uint32_t>(original);
  return OkStatus();
}

StatusOr<ModelConfig> ReadPhi3(const GgufFile& file, uint32_t context_tokens) {
  KV_RETURN_IF_ERROR(RefuseUnsupportedFeatures(file, "phi3"));
  KV_ASSIGN_OR_RETURN(ModelConfig config, ReadCommonConfig(file, "phi3", /*partial_rope=*/true));
  config.rope_pairing = RopePairing::kHalves;
  config.activation = Activation::kSilu;
  config.fused_qkv = true;
  config.fused_gate_up = true;
  KV_RETURN_IF_ERROR(ReadRopeScaling(file, config));
  KV_ASSIGN_OR_RETURN(const uint32_t window, ReadWindow(file, config));
  for (LayerConfig& layer : config.layers) layer.window = window;
  KV_RETURN_IF_ERROR(ReadLongRope(file, context_tokens, config));
  return config;
}

std::vector<ExpectedTensor> Phi3Tensors(const ModelConfig& config) {
  std::vector<ExpectedTensor> out = CommonTensors(config);
  if (config.rope_divisors.empty()) return out;
  out.push_back({std::string(kLong), 0, config.rope_dim / 2});
  out.push_back({std::string(kShort), 0, config.rope_dim / 2});
  return out;
}

}  // namespace

const Architecture kPhi3 = {
    .name = "phi3", .read_config = ReadPhi3, .expected_tensors = Phi3Tensors};

}  // namespace kvasir
