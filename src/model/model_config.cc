#include "model/model_config.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "model/architecture.h"
#include "model/quoted_text.h"
#include "model/rope.h"

namespace kvasir {
namespace {

// Kernels quantize activations in blocks of 32 (kernels/matmul.h).
constexpr uint32_t kWidthStep = 32;
constexpr uint32_t kHeadDimStep = 16;
constexpr double kMaxAngle = 16777216.0;  // RopeTable's.

constexpr std::string_view kEmbedding = "token_embd.weight";
constexpr std::string_view kHead = "output.weight";

std::string KnownArchitectures() {
  std::string names;
  for (const Architecture* architecture : Architectures()) {
    if (!names.empty()) names += ", ";
    names += architecture->name;
  }
  return names;
}

StatusOr<const Architecture*> ArchitectureOf(const GgufFile& file) {
  KV_ASSIGN_OR_RETURN(const std::string_view name, file.GetString("general.architecture"));
  const Architecture* architecture = FindArchitecture(name);
  if (architecture == nullptr) {
    return Unimplemented(
        "metadata key 'general.architecture': {} is not supported, only {} (at offset {})",
        Quoted(name), KnownArchitectures(), file.FindEntry("general.architecture")->offset);
  }
  return architecture;
}

bool StartsWith(std::string_view text, std::string_view begin) {
  return text.substr(0, begin.size()) == begin;
}

bool EndsWith(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

bool IsPositiveAndFinite(double value) { return std::isfinite(value) && value > 0.0; }

Status CheckGeometry(const ModelConfig& config) {
  if (config.head_count % config.kv_head_count != 0) {
    return InvalidArgument("{} heads are not a multiple of {} KV heads", config.head_count,
                           config.kv_head_count);
  }
  if (config.group() > kMaxAttentionRows) {
    return Unimplemented("{} query heads for each KV head are more than {}", config.group(),
                         kMaxAttentionRows);
  }
  if (config.head_dim == 0 || config.head_dim % kHeadDimStep != 0 ||
      config.head_dim > kMaxHeadDim) {
    return InvalidArgument("a head dimension of {} is not a multiple of {} up to {}",
                           config.head_dim, kHeadDimStep, kMaxHeadDim);
  }
  if (config.rope_dim % 2 != 0 || config.rope_dim > config.head_dim) {
    return InvalidArgument("RoPE on {} of {} dimensions of a head: not an even number of them",
                           config.rope_dim, config.head_dim);
  }
  if (config.head_count > kMaxWidth / config.head_dim) {
    return InvalidArgument("{} heads of {} are wider than {}", config.head_count, config.head_dim,
                           kMaxWidth);
  }
  const std::pair<std::string_view, uint32_t> widths[] = {{"embedding length", config.d_model},
                                                          {"feed-forward length", config.d_ffn},
                                                          {"width of all heads", config.q_width()}};
  for (const auto& [what, width] : widths) {
    if (width % kWidthStep != 0) {
      return InvalidArgument("the {} of {} is not a multiple of {}", what, width, kWidthStep);
    }
  }
  return OkStatus();
}

Status CheckNumbers(const ModelConfig& config) {
  if (!(config.norm_eps >= 0.0f && config.norm_eps < 1.0f)) {
    return InvalidArgument("a norm epsilon of {} is not within 0 to 1", config.norm_eps);
  }
  for (const LayerConfig& layer : config.layers) {
    if (!IsPositiveAndFinite(layer.rope_base) || layer.rope_base < 1.0) {
      return InvalidArgument("a RoPE base of {} is not at least 1", layer.rope_base);
    }
    if (&layer != config.layers.data() && layer.rope_base == (&layer)[-1].rope_base &&
        layer.rope_factor == (&layer)[-1].rope_factor) {
      continue;
    }
    std::vector<double> frequencies(config.rope_dim / 2);
    RopeFrequenciesOf(config, layer, frequencies);
    for (const double frequency : frequencies) {
      if (frequency >= 0.0 && frequency * config.context_length < kMaxAngle) continue;
      return InvalidArgument("RoPE turns by {} a token: too fast for a context of {}", frequency,
                             config.context_length);
    }
  }
  for (const double cap : {config.attention_cap, config.logit_cap}) {
    if (cap != 0.0 && !(cap >= 1e-3 && cap <= 1e6)) {
      return InvalidArgument("a soft cap of {} is not within 0.001 to 1000000", cap);
    }
  }
  return OkStatus();
}

std::string ShapeText(const GgufTensor& tensor) {
  std::string text;
  for (uint32_t d = 0; d < tensor.dim_count; ++d) {
    text += fmt::format("{}{}", d == 0 ? "" : ", ", tensor.dims[d]);
  }
  return text;
}

Status CheckTensor(const GgufFile& file, const ExpectedTensor& expected) {
  const bool is_vector = expected.rows == 0;
  const std::string wanted = is_vector ? fmt::format("{}", expected.cols)
                                       : fmt::format("{}, {}", expected.cols, expected.rows);
  const GgufTensor* tensor = file.FindTensor(expected.name);
  if (tensor == nullptr) {
    return InvalidArgument("tensor {} of shape [{}] is missing", Quoted(expected.name), wanted);
  }
  if (tensor->cols() != expected.cols || tensor->rows() != std::max(expected.rows, 1u)) {
    return InvalidArgument("tensor {}: expected shape [{}], found [{}] (at offset {})",
                           Quoted(tensor->name), wanted, ShapeText(*tensor), tensor->entry_offset);
  }
  if (is_vector && tensor->format != WeightFormat::kF32) {
    return Unimplemented("tensor {}: expected type F32, found {} (at offset {})",
                         Quoted(tensor->name), TraitsOf(tensor->format).name, tensor->entry_offset);
  }
  return OkStatus();
}

// A tensor of a layer that is not among the expected ones would have to be applied, and so would a
// bias or RoPE divisors anywhere. `expected` is sorted.
Status RefuseOtherTensors(const GgufFile& file, const ModelConfig& config,
                          const std::vector<std::string>& expected) {
  for (const GgufTensor& tensor : file.tensors()) {
    const std::string_view name = tensor.name;
    const bool is_bias = EndsWith(name, ".bias");
    const bool is_rope = StartsWith(name, "rope_f");
    const bool is_layer = StartsWith(name, "blk.") && !EndsWith(name, "attn_rot_embd.weight");
    if (!is_bias && !is_rope && !is_layer) continue;
    if (std::binary_search(expected.begin(), expected.end(), name)) continue;
    const std::string_view what = is_bias   ? "a bias"
                                  : is_rope ? "RoPE with a factor per dimension"
                                            : "this part of a layer";
    return Unimplemented("tensor {}: {} is not supported in architecture '{}' (at offset {})",
                         Quoted(name), what, config.architecture, tensor.entry_offset);
  }
  return OkStatus();
}

std::vector<std::string> SortedNames(const std::vector<ExpectedTensor>& expected) {
  std::vector<std::string> names;
  for (const ExpectedTensor& tensor : expected) names.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  return names;
}

// The vocabulary's size is the embedding's number of rows, whatever metadata says beside it.
Status ReadVocabulary(const GgufFile& file, ModelConfig& config) {
  const GgufTensor* embedding = file.FindTensor(kEmbedding);
  if (embedding == nullptr) {
    if (!file.tensors().empty()) return InvalidArgument("tensor {} is missing", Quoted(kEmbedding));
    return InvalidArgument(
        "the file holds a vocabulary but no tensors: it can tokenize, not generate");
  }
  if (embedding->rows() > kMaxVocab) {
    return InvalidArgument("tensor {}: a vocabulary of {} is larger than {} (at offset {})",
                           Quoted(kEmbedding), embedding->rows(), kMaxVocab,
                           embedding->entry_offset);
  }
  config.vocab_size = static_cast<uint32_t>(embedding->rows());
  config.tied_head = file.FindTensor(kHead) == nullptr;
  KV_ASSIGN_OR_RETURN(const GgufStrings tokens, file.GetStrings("tokenizer.ggml.tokens"));
  if (tokens.size() > config.vocab_size) {
    return InvalidArgument("tensor {}: {} rows for {} tokens of the tokenizer (at offset {})",
                           Quoted(kEmbedding), config.vocab_size, tokens.size(),
                           embedding->entry_offset);
  }
  return OkStatus();
}

}  // namespace

StatusOr<ModelConfig> ReadModelConfig(const GgufFile& file, uint32_t context_tokens) {
  KV_ASSIGN_OR_RETURN(const Architecture* architecture, ArchitectureOf(file));
  KV_ASSIGN_OR_RETURN(ModelConfig config, architecture->read_config(file, context_tokens));
  const std::string prefix = fmt::format("metadata of architecture '{}'", architecture->name);
  if (const Status status = CheckGeometry(config); !status.ok()) return WithPrefix(status, prefix);
  if (const Status status = CheckNumbers(config); !status.ok()) return WithPrefix(status, prefix);
  KV_RETURN_IF_ERROR(ReadVocabulary(file, config));
  const std::vector<ExpectedTensor> expected = architecture->expected_tensors(config);
  for (const ExpectedTensor& tensor : expected) KV_RETURN_IF_ERROR(CheckTensor(file, tensor));
  KV_RETURN_IF_ERROR(RefuseOtherTensors(file, config, SortedNames(expected)));
  return config;
}

std::vector<std::string_view> UnusedTensors(const GgufFile& file, const ModelConfig& config) {
  const Architecture* architecture = FindArchitecture(config.architecture);
  std::vector<std::string> used;
  if (architecture != nullptr) {
    used = SortedNames(architecture->expected_tensors(config));
  }
  std::vector<std::string_view> unused;
  for (const GgufTensor& tensor : file.tensors()) {
    if (!std::binary_search(used.begin(), used.end(), tensor.name)) unused.push_back(tensor.name);
  }
  return unused;
}

std::string CanonicalText(const ModelConfig& config) {
  // {:a} prints a number exactly; a decimal form could merge two configurations.
  std::string text = fmt::format(
      "model 2;{};layers {};d_model {};d_ffn {};heads {};kv_heads {};head_dim {};vocab {};"
      "eps {:a};pairing {};activation {};qk_norm {};post_norms {};tied {};embedding_scale {:a};"
      "attention_scale {:a};rope_dim {};rope_magnitude {:a};yarn {},{:a},{:a};attention_cap {:a};"
      "logit_cap {:a};qkv_bias {};fused_qkv {};fused_gate_up {}",
      config.architecture, config.layer_count, config.d_model, config.d_ffn, config.head_count,
      config.kv_head_count, config.head_dim, config.vocab_size, config.norm_eps,
      static_cast<int>(config.rope_pairing), static_cast<int>(config.activation), config.qk_norm,
      config.post_norms, config.tied_head, config.embedding_scale, config.attention_scale,
      config.rope_dim, config.rope_magnitude, config.yarn.original_context, config.yarn.beta_fast,
      config.yarn.beta_slow, config.attention_cap, config.logit_cap, config.qkv_bias,
      config.fused_qkv, config.fused_gate_up);
  for (const LayerConfig& layer : config.layers) {
    text += fmt::format(";{},{:a},{:a}", layer.window, layer.rope_base, layer.rope_factor);
  }
  text += ";divisors";
  for (const float divisor : config.rope_divisors) text += fmt::format(" {:a}", divisor);
  return text;
}

}  // namespace kvasir
