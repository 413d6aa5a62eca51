#include "model/architecture.h"

#include <array>
#include <cmath>
#include <limits>

#include "model/quoted_text.h"

namespace kvasir {
namespace {

constexpr std::array<const Architecture*, 2> kArchitectures = {&kLlama, &kGemma3};

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

bool EndsWith(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

Status RefuseUnsupportedTensors(const GgufFile& file) {
  for (const GgufTensor& tensor : file.tensors()) {
    std::string_view what;
    if (EndsWith(tensor.name, ".bias")) what = "a bias";
    if (tensor.name.substr(0, 10) == "rope_freqs") what = "RoPE with a factor per dimension";
    if (what.empty()) continue;
    return Unimplemented("tensor {}: {} is not supported (at offset {})", Quoted(tensor.name), what,
                         tensor.entry_offset);
  }
  return OkStatus();
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

StatusOr<ModelConfig> ReadCommonConfig(const GgufFile& file, std::string_view architecture) {
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
  KV_ASSIGN_OR_RETURN(const uint32_t rope_dim,
                      ReadSizeOr(file, key("rope.dimension_count"), kMaxWidth, config.head_dim));
  if (rope_dim != config.head_dim) {
    return Unsupported(
        *file.FindEntry(key("rope.dimension_count")),
        fmt::format("RoPE on {} of {} dimensions of a head", rope_dim, config.head_dim));
  }
  KV_ASSIGN_OR_RETURN(const double eps, file.GetFloat(key("attention.layer_norm_rms_epsilon")));
  config.norm_eps = static_cast<float>(eps);
  KV_ASSIGN_OR_RETURN(const double rope_base, file.GetFloatOr(key("rope.freq_base"), 10000.0));
  config.layers.assign(config.layer_count, LayerConfig{.window = 0, .rope_base = rope_base});
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
    add("attn_q", config.q_width(), config.d_model);
    add("attn_k", config.kv_width(), config.d_model);
    add("attn_v", config.kv_width(), config.d_model);
    if (config.qk_norm) {
      add("attn_q_norm", 0, config.head_dim);
      add("attn_k_norm", 0, config.head_dim);
    }
    add("attn_output", config.d_model, config.q_width());
    if (config.post_norms) add("post_attention_norm", 0, config.d_model);
    add("ffn_norm", 0, config.d_model);
    add("ffn_gate", config.d_ffn, config.d_model);
    add("ffn_up", config.d_ffn, config.d_model);
    add("ffn_down", config.d_model, config.d_ffn);
    if (config.post_norms) add("post_ffw_norm", 0, config.d_model);
  }
  out.push_back({"output_norm.weight", 0, config.d_model});
  if (!config.tied_head) out.push_back({"output.weight", config.vocab_size, config.d_model});
  return out;
}

Status RefuseUnsupportedFeatures(const GgufFile& file, std::string_view architecture) {
  const auto find = [&](std::string_view name) {
    return file.FindEntry(fmt::format("{}.{}", architecture, name));
  };
  const GgufEntry* scaling = find("rope.scaling.type");
  if (scaling != nullptr && scaling->AsString() != "none") {
    return Unsupported(
        *scaling, fmt::format("RoPE scaling {}", Quoted(scaling->AsString().value_or("?"), 32)));
  }
  for (const std::string_view name : {"rope.scaling.factor", "rope.scale_linear"}) {
    const GgufEntry* factor = find(name);
    if (factor != nullptr && factor->AsFloat() != 1.0 && factor->AsFloat() != 0.0) {
      return Unsupported(*factor, "scaled RoPE");
    }
  }
  const GgufEntry* experts = find("expert_count");
  if (experts != nullptr && experts->AsUint() != 0u)
    return Unsupported(*experts, "a mixture of experts");
  for (const std::string_view name :
       {"attn_logit_softcapping", "final_logit_softcapping", "attention.clamp_kqv",
        "attention.max_alibi_bias", "logit_scale", "residual_scale", "embedding_scale",
        "attention.scale"}) {
    const GgufEntry* entry = find(name);
    if (entry != nullptr && entry->AsFloat() != 0.0) return Unsupported(*entry, "this variant");
  }
  return RefuseUnsupportedTensors(file);
}

}  // namespace kvasir
