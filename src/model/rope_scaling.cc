#include "model/rope_scaling.h"

#include <cmath>
#include <cstring>
#include <string>

#include "model/architecture.h"
#include "model/quoted_text.h"
#include "model/rope.h"

namespace kvasir {
namespace {

// The keys of one file under one architecture's name.
class ScalingKeys {
 public:
  ScalingKeys(const GgufFile& file, std::string_view architecture)
      : file_(file), prefix_(fmt::format("{}.rope.", architecture)) {}

  std::string Name(std::string_view part) const { return prefix_ + std::string(part); }
  const GgufEntry* Find(std::string_view part) const { return file_.FindEntry(Name(part)); }
  StatusOr<double> PositiveOr(std::string_view part, double fallback) const {
    return ReadPositiveOr(file_, Name(part), fallback);
  }
  Status Contradiction(std::string_view part, std::string_view what) const {
    return InvalidArgument("metadata key {}: {} (at offset {})", Quoted(Name(part)), what,
                           Find(part)->offset);
  }
  Status Unsupported(std::string_view part, std::string_view what) const {
    return Unimplemented("metadata key {}: {} is not supported (at offset {})", Quoted(Name(part)),
                         what, Find(part)->offset);
  }

 private:
  const GgufFile& file_;
  std::string prefix_;
};

// "none", "linear", "yarn" or, of files with divisors for it, "longrope"; what the factor alone
// means where no type is given.
StatusOr<std::string_view> ReadType(const GgufFile& file, const ScalingKeys& keys) {
  KV_ASSIGN_OR_RETURN(const std::string_view type,
                      file.GetStringOr(keys.Name("scaling.type"), "linear"));
  if (type == "none" || type == "linear" || type == "yarn") return type;
  if (type == "longrope" && file.FindTensor("rope_factors_long.weight") != nullptr) return type;
  return keys.Unsupported("scaling.type", fmt::format("RoPE scaling {}", Quoted(type, 32)));
}

StatusOr<double> ReadFactor(const ScalingKeys& keys, std::string_view type) {
  KV_ASSIGN_OR_RETURN(const double factor, keys.PositiveOr("scaling.factor", 1.0));
  KV_ASSIGN_OR_RETURN(const double old_factor, keys.PositiveOr("scale_linear", 1.0));
  const bool has_new = keys.Find("scaling.factor") != nullptr;
  const bool has_old = keys.Find("scale_linear") != nullptr;
  if (has_new && has_old && factor != old_factor) {
    return keys.Contradiction("scale_linear",
                              fmt::format("{} beside a scaling factor of {}", old_factor, factor));
  }
  const double value = has_new ? factor : old_factor;
  const std::string_view name = has_new ? "scaling.factor" : "scale_linear";
  if (value < 1.0) {
    return keys.Contradiction(name, fmt::format("a factor of {} is below 1", value));
  }
  const bool has_factor = type == "linear" || type == "yarn";
  if (!has_factor && value != 1.0) {
    return keys.Contradiction(name, fmt::format("{} beside a scaling of type '{}'", value, type));
  }
  if (!has_new && !has_old && keys.Find("scaling.type") != nullptr && has_factor) {
    return keys.Contradiction("scaling.type", fmt::format("{} without a factor", Quoted(type)));
  }
  return value;
}

Status ReadYarn(const GgufFile& file, const ScalingKeys& keys, ModelConfig& config) {
  const std::string original = keys.Name("scaling.original_context_length");
  KV_ASSIGN_OR_RETURN(const uint64_t context, file.GetUint(original));
  if (context == 0 || context > kMaxContext) {
    return keys.Contradiction("scaling.original_context_length",
                              fmt::format("{} is not within 1 to {}", context, kMaxContext));
  }
  config.yarn.original_context = static_cast<uint32_t>(context);
  KV_ASSIGN_OR_RETURN(config.yarn.beta_fast, keys.PositiveOr("scaling.yarn_beta_fast", 32.0));
  KV_ASSIGN_OR_RETURN(config.yarn.beta_slow, keys.PositiveOr("scaling.yarn_beta_slow", 1.0));
  if (config.yarn.beta_fast < config.yarn.beta_slow) {
    const std::string_view there = keys.Find("scaling.yarn_beta_fast") != nullptr
                                       ? "scaling.yarn_beta_fast"
                                       : "scaling.yarn_beta_slow";
    return keys.Contradiction(there, fmt::format("beta_fast {} is below beta_slow {}",
                                                 config.yarn.beta_fast, config.yarn.beta_slow));
  }
  if (config.layers.front().rope_base <= 1.0) {
    return InvalidArgument("YaRN with a RoPE base of {}", config.layers.front().rope_base);
  }
  const GgufEntry* extrapolation = keys.Find("scaling.yarn_ext_factor");
  if (extrapolation != nullptr && extrapolation->AsFloat() != 1.0) {
    return keys.Unsupported("scaling.yarn_ext_factor", "an extrapolation factor other than 1");
  }
  const GgufEntry* log_multiplier = keys.Find("scaling.yarn_log_multiplier");
  if (log_multiplier != nullptr && log_multiplier->AsFloat() != 0.0) {
    return keys.Unsupported("scaling.yarn_log_multiplier", "a multiplier of the logarithm");
  }
  return OkStatus();
}

// Keys that only YaRN gives a meaning to.
Status RefuseYarnKeys(const ScalingKeys& keys, std::string_view type) {
  for (const std::string_view part :
       {"scaling.yarn_ext_factor", "scaling.yarn_attn_factor", "scaling.yarn_beta_fast",
        "scaling.yarn_beta_slow", "scaling.yarn_log_multiplier"}) {
    if (keys.Find(part) == nullptr) continue;
    return keys.Contradiction(part, fmt::format("of YaRN, beside a scaling of type '{}'", type));
  }
  return OkStatus();
}

}  // namespace

Status ReadRopeScaling(const GgufFile& file, ModelConfig& config) {
  const ScalingKeys keys(file, config.architecture);
  KV_ASSIGN_OR_RETURN(const std::string_view type, ReadType(file, keys));
  KV_ASSIGN_OR_RETURN(const double factor, ReadFactor(keys, type));
  KV_ASSIGN_OR_RETURN(config.rope_magnitude, keys.PositiveOr("scaling.attn_factor", 1.0));
  if (type == "yarn") {
    KV_RETURN_IF_ERROR(ReadYarn(file, keys, config));
    KV_ASSIGN_OR_RETURN(const double magnitude,
                        keys.PositiveOr("scaling.yarn_attn_factor", YarnMagnitude(factor)));
    config.rope_magnitude *= magnitude;
  } else {
    KV_RETURN_IF_ERROR(RefuseYarnKeys(keys, type));
  }
  for (LayerConfig& layer : config.layers) layer.rope_factor = factor;
  const GgufTensor* divisors = file.FindTensor("rope_freqs.weight");
  if (divisors != nullptr) {
    KV_ASSIGN_OR_RETURN(config.rope_divisors, ReadRopeDivisors(*divisors, config));
  }
  return OkStatus();
}

StatusOr<std::vector<float>> ReadRopeDivisors(const GgufTensor& tensor, const ModelConfig& config) {
  const uint32_t count = config.rope_dim / 2;
  if (tensor.format != WeightFormat::kF32 || tensor.cols() != count || tensor.rows() != 1) {
    return InvalidArgument(
        "tensor {}: expected {} float32 values, half of the {} dimensions that turn (at offset {})",
        Quoted(tensor.name), count, config.rope_dim, tensor.entry_offset);
  }
  std::vector<float> values(count);
  std::memcpy(values.data(), tensor.bytes.data(), count * sizeof(float));
  for (uint32_t i = 0; i < count; ++i) {
    if (std::isfinite(values[i]) && values[i] > 0.0f) continue;
    return InvalidArgument("tensor {}: value {} of pair {} is not a positive number (at offset {})",
                           Quoted(tensor.name), values[i], i, tensor.data_offset);
  }
  return values;
}

}  // namespace kvasir
