#include "model/architecture.h"

#include <array>
#include <cmath>
#include <limits>

#include "model/quoted_text.h"

namespace kvasir {
namespace {

constexpr std::array<const Architecture*, 6> kArchitectures = {&kLlama,  &kQwen2,  &kQwen3,
                                                               &kGemma2, &kGemma3, &kPhi3};

// The value of an integer key, at most `limit`.
StatusOr<uint32_t> ReadSize(const GgufFile& file, const std::string& key, uint64_t limit) {
  KV_ASSIGN_OR_RETURN(const uint64_t value, file.GetUint(key));
  if (value == 0 || value > limit) {
    return InvalidArgument("metadata key {}: {} is not within 1 to {} (at offset {})", Quoted(key),
                           value, limit, file.FindEntry(key)->offset);
  }
  return static_cast<uint32_t>(value);
}

StatusOr<uint32_t> ReadSizeOr(const GgufFile& file, const std::string& key, uint64_t limit,
                              uint32_t fallback) {
  if (file.FindEntry(key) == nullptr) return fallback;
  return ReadSize(file, key, limit);
}

Status Unsupported(const GgufEntry& entry, std::string_view what) {
  return Unimplemented("metadata key {}: {} is not supported (at offset {})", Quoted(entry.key),
                       what, entry.offset);
}

// The period of a pattern of which the last layer sees everything.
StatusOr<uint32_t> ReadPeriod(const GgufFile& file, const std::string& key, uint32_t fallback) {
  KV_ASSIGN_OR_RETURN(const uint64_t period, file.GetUintOr(key, fallback));
  if (period == 0 || period > kMaxLayers) {
    return InvalidArgument("metadata key {}: {} is not within 1 to {} (at offset {})", Quoted(key),
                           period, kMaxLayers, file.FindEntry(key)->offset);
  }
  return static_cast<uint32_t>(period);
}

}  // namespace

std::span<const Architecture* const> Architectures() { return kArchitectures; }

const Architecture* FindArchitecture(std::string_view name) {
  for (const Architecture* architecture : kArchitectures) {
    if (architecture->name == name) return architecture;
  }
  return nullptr;
}

std::string LayerTensorName(uint32_t layer, std::string_view part) {
  return fmt::format("blk.{}.{}.weight", layer, part);
}

std::string LayerBiasName(uint32_t layer, std::string_view part) {
  return fmt::format("blk.{}.{}.bias", layer, part);
}

LayerProjections ProjectionsOf(const ModelConfig& config, uint32_t layer) {
  const auto name = [&](std::string_view part) { return LayerTensorName(layer, part); };
  const uint32_t q = config.q_width();
  const uint32_t kv = config.kv_width();
  const uint32_t ffn = config.d_ffn;
  LayerProjections at = {{name("attn_q"), 0, q},
                         {name("attn_k"), 0, kv},
                         {name("attn_v"), 0, kv},
                         {name("ffn_gate"), 0, ffn},
                         {name("ffn_up"), 0, ffn}};
  if (config.fused_qkv) {
    at.q = {name("attn_qkv"), 0, q};
    at.k = {name("attn_qkv"), q, kv};
    at.v = {name("attn_qkv"), q + kv, kv};
  }
  if (config.fused_gate_up) {
    at.gate = {name("ffn_up"), 0, ffn};
    at.up = {name("ffn_up"), ffn, ffn};
  }
  return at;
}

StatusOr<ModelConfig> ReadCommonConfig(const GgufFile& file, std::string_view architecture,
                                       bool partial_rope) {
  const auto key = [&](std::string_view name) { return fmt::format("{}.{}", architecture, name); };
  ModelConfig config;
  config.architecture = architecture;
  KV_ASSIGN_OR_RETURN(const std::string_view name, file.GetStringOr("general.name", ""));
  config.name = name;
  KV_ASSIGN_OR_RETURN(config.layer_count, ReadSize(file, key("block_count"), kMaxLayers));
  KV_ASSIGN_OR_RETURN(config.d_model, ReadSize(file, key("embedding_length"), kMaxWidth));
  KV_ASSIGN_OR_RETURN(config.d_ffn, ReadSize(file, key("feed_forward_length"), kMaxWidth));
  KV_ASSIGN_OR_RETURN(config.context_length, ReadSize(file, key("context_length"), kMaxContext));
  KV_ASSIGN_OR_RETURN(config.head_count, ReadSize(file, key("attention.head_count"), kMaxWidth));
  KV_ASSIGN_OR_RETURN(config.kv_head_count, ReadSizeOr(file, key("attention.head_count_kv"),
                                                       kMaxWidth, config.head_count));
  KV_ASSIGN_OR_RETURN(config.head_dim, ReadSizeOr(file, key("attention.key_length"), kMaxWidth,
                                                  config.d_model / config.head_count));
  KV_ASSIGN_OR_RETURN(const uint32_t value_dim,
                      ReadSizeOr(file, key("attention.value_length"), kMaxWidth, config.head_dim));
  if (value_dim != config.head_dim) {
    return Unsupported(
        *file.FindEntry(key("attention.value_length")),
        fmt::format("a value length of {} beside a key length of {}", value_dim, config.head_dim));
  }
  KV_ASSIGN_OR_RETURN(config.rope_dim,
                      ReadSizeOr(file, key("rope.dimension_count"), kMaxWidth, config.head_dim));
  if (!partial_rope && config.rope_dim != config.head_dim) {
    return Unsupported(
        *file.FindEntry(key("rope.dimension_count")),
        fmt::format("RoPE on {} of {} dimensions of a head", config.rope_dim, config.head_dim));
  }
  KV_ASSIGN_OR_RETURN(const double eps, file.GetFloat(key("attention.layer_norm_rms_epsilon")));
  config.norm_eps = static_cast<float>(eps);
  KV_ASSIGN_OR_RETURN(const double rope_base, file.GetFloatOr(key("rope.freq_base"), 10000.0));
  config.layers.assign(config.layer_count, LayerConfig{0, rope_base, 1.0});
  config.attention_scale = 1.0 / std::sqrt(static_cast<double>(config.head_dim));
  return config;
}

std::vector<ExpectedTensor> CommonTensors(const ModelConfig& config) {
  std::vector<ExpectedTensor> out;
  out.push_back({"token_embd.weight", config.vocab_size, config.d_model});
  for (uint32_t i = 0; i < config.layer_count; ++i) {
    const auto add = [&](std::string_view part, uint32_t rows, uint32_t cols) {
      out.push_back({LayerTensorName(i, part), rows, cols});
    };
    add("attn_norm", 0, config.d_model);
    if (config.fused_qkv) {
      add("attn_qkv", config.q_width() + 2 * config.kv_width(), config.d_model);
    } else {
      add("attn_q", config.q_width(), config.d_model);
      add("attn_k", config.kv_width(), config.d_model);
      add("attn_v", config.kv_width(), config.d_model);
    }
    if (config.qkv_bias) {
      out.push_back({LayerBiasName(i, "attn_q"), 0, config.q_width()});
      out.push_back({LayerBiasName(i, "attn_k"), 0, config.kv_width()});
      out.push_back({LayerBiasName(i, "attn_v"), 0, config.kv_width()});
    }
    if (config.qk_norm) {
      add("attn_q_norm", 0, config.head_dim);
      add("attn_k_norm", 0, config.head_dim);
    }
    add("attn_output", config.d_model, config.q_width());
    if (config.post_norms) add("post_attention_norm", 0, config.d_model);
    add("ffn_norm", 0, config.d_model);
    if (!config.fused_gate_up) add("ffn_gate", config.d_ffn, config.d_model);
    add("ffn_up", config.fused_gate_up ? 2 * config.d_ffn : config.d_ffn, config.d_model);
    add("ffn_down", config.d_model, config.d_ffn);
    if (config.post_norms) add("post_ffw_norm", 0, config.d_model);
  }
  out.push_back({"output_norm.weight", 0, config.d_model});
  if (!config.tied_head) out.push_back({"output.weight", config.vocab_size, config.d_model});
  return out;
}

std::vector<ExpectedTensor> TensorsWithDivisors(const ModelConfig& config) {
  std::vector<ExpectedTensor> out = CommonTensors(config);
  if (!config.rope_divisors.empty()) {
    out.push_back({"rope_freqs.weight", 0, config.rope_dim / 2});
  }
  return out;
}

Status RefuseWindow(const GgufFile& file, const ModelConfig& config) {
  KV_ASSIGN_OR_RETURN(const uint32_t window, ReadWindow(file, config));
  if (window == 0) return OkStatus();
  const std::string key = fmt::format("{}.attention.sliding_window", config.architecture);
  return Unsupported(*file.FindEntry(key),
                     fmt::format("a window of {} in this architecture", window));
}

StatusOr<uint32_t> ReadWindow(const GgufFile& file, const ModelConfig& config) {
  const GgufEntry* pattern =
      file.FindEntry(fmt::format("{}.attention.sliding_window_pattern", config.architecture));
  if (pattern != nullptr) return Unsupported(*pattern, "a window in some layers only");
  const std::string key = fmt::format("{}.attention.sliding_window", config.architecture);
  KV_ASSIGN_OR_RETURN(const uint64_t window, file.GetUintOr(key, 0));
  return window < config.context_length ? static_cast<uint32_t>(window) : 0;
}

StatusOr<uint32_t> ReadLayerWindow(const GgufFile& file, const ModelConfig& config,
                                   uint32_t fallback) {
  const std::string key = fmt::format("{}.attention.sliding_window", config.architecture);
  if (file.FindEntry(key) == nullptr && fallback != 0) return fallback;
  KV_RETURN_IF_ERROR(file.GetUint(key).status());
  return ReadSize(file, key, kMaxContext);
}

StatusOr<std::vector<bool>> ReadWindowPattern(const GgufFile& file, const ModelConfig& config,
                                              uint32_t fallback) {
  const std::string key = fmt::format("{}.attention.sliding_window_pattern", config.architecture);
  std::vector<bool> windowed(config.layer_count);
  const GgufEntry* entry = file.FindEntry(key);
  if (entry != nullptr && entry->type == GgufType::kArray) {
    KV_ASSIGN_OR_RETURN(const GgufNumbers flags, file.GetNumbers(key));
    if (flags.type() != GgufType::kBool || flags.size() != config.layer_count) {
      return InvalidArgument(
          "metadata key {}: expected a number or one bool for each of {} layers (at offset {})",
          Quoted(key), config.layer_count, entry->offset);
    }
    for (uint32_t i = 0; i < config.layer_count; ++i) windowed[i] = flags.Int(i) != 0;
    return windowed;
  }
  KV_ASSIGN_OR_RETURN(const uint32_t period, ReadPeriod(file, key, fallback));
  for (uint32_t i = 0; i < config.layer_count; ++i) windowed[i] = i % period != period - 1;
  return windowed;
}

StatusOr<double> ReadPositiveOr(const GgufFile& file, const std::string& key, double fallback) {
  KV_ASSIGN_OR_RETURN(const double value, file.GetFloatOr(key, fallback));
  if (std::isfinite(value) && value > 0.0) return value;
  return InvalidArgument("metadata key {}: {} is not a positive number (at offset {})", Quoted(key),
                         value, file.FindEntry(key)->offset);
}

Status RefuseUnsupportedFeatures(const GgufFile& file, std::string_view architecture,
                                 bool soft_caps) {
  const auto find = [&](std::string_view name) {
    return file.FindEntry(fmt::format("{}.{}", architecture, name));
  };
  const GgufEntry* experts = find("expert_count");
  if (experts != nullptr && experts->AsUint() != 0u)
    return Unsupported(*experts, "a mixture of experts");
  for (const std::string_view name : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    const GgufEntry* entry = find(name);
    if (!soft_caps && entry != nullptr && entry->AsFloat() != 0.0) {
      return Unsupported(*entry, "a soft cap in this architecture");
    }
  }
  for (const std::string_view name :
       {"attention.clamp_kqv", "attention.max_alibi_bias", "logit_scale", "residual_scale",
        "embedding_scale", "attention.scale", "attention.output_scale",
        "attention.temperature_scale", "rope.scaling.alpha", "activation_sparsity_scale"}) {
    const GgufEntry* entry = find(name);
    if (entry != nullptr && entry->AsFloat() != 0.0) return Unsupported(*entry, "this variant");
  }
  for (const std::string_view name :
       {"attention.key_length_swa", "attention.value_length_swa", "rope.dimension_count_swa",
        "rope.dimension_sections", "attention.shared_kv_layers", "attention.temperature_length",
        "attention.layer_norm_epsilon", "attention.kv_lora_rank",
        "embedding_length_per_layer_input", "n_deepstack_layers", "nextn_predict_layers",
        "full_attention_interval"}) {
    const GgufEntry* entry = find(name);
    if (entry != nullptr && entry->AsUint() != 0u) return Unsupported(*entry, "this variant");
  }
  for (const std::string_view name : {"use_parallel_residual", "swin_norm"}) {
    const GgufEntry* entry = find(name);
    if (entry != nullptr && entry->AsBool() != false) return Unsupported(*entry, "this variant");
  }
  const GgufEntry* causal = find("attention.causal");
  if (causal != nullptr && causal->AsBool() != true) {
    return Unsupported(*causal, "attention to later tokens");
  }
  return OkStatus();
}

}  // namespace kvasir
