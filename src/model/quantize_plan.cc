#include "model/quantize_plan.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string>

#include "model/quoted_text.h"

namespace kvasir {
namespace {

constexpr uint32_t kSmallBlock = 32;

constexpr std::array<QuantizeType, 8> kTypes = {{
    {"F16", WeightFormat::kF16, false, 1},
    {"Q8_0", WeightFormat::kQ8_0, false, 7},
    {"Q6_K", WeightFormat::kQ6_K, false, 18},
    {"Q5_0", WeightFormat::kQ5_0, false, 8},
    {"Q4_K_M", WeightFormat::kQ4_K, true, 15},
    {"Q4_K", WeightFormat::kQ4_K, false, 14},
    {"Q4_1", WeightFormat::kQ4_1, false, 3},
    {"Q4_0", WeightFormat::kQ4_0, false, 2},
}};

char Upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }

bool IsMatrix(const GgufTensor& tensor) {
  const std::string_view name = tensor.name;
  constexpr std::string_view kWeight = ".weight";
  const bool is_weight =
      name.size() > kWeight.size() && name.substr(name.size() - kWeight.size()) == kWeight;
  return is_weight && tensor.rows() > 1 && name.find("norm") == std::string_view::npos &&
         name.find("rope_") == std::string_view::npos;
}

// N of "blk.N.part.weight"; nullopt for tensors of no layer.
std::optional<uint32_t> LayerOf(std::string_view name) {
  if (name.substr(0, 4) != "blk.") return std::nullopt;
  uint32_t layer = 0;
  const auto [end, error] = std::from_chars(name.data() + 4, name.data() + name.size(), layer);
  if (error != std::errc() || end == name.data() + name.size() || *end != '.') return std::nullopt;
  return layer;
}

bool EndsWith(std::string_view name, std::string_view end) {
  return name.size() >= end.size() && name.substr(name.size() - end.size()) == end;
}

// Half of the layers: the first and the last eighth, whose errors cost most, and every third
// between.
bool IsSensitiveLayer(uint32_t layer, uint32_t layer_count) {
  const uint32_t eighth = layer_count / 8;
  if (layer < eighth || layer >= layer_count - eighth) return true;
  return (layer - eighth) % 3 == 2;
}

WeightFormat MixedFormat(const GgufFile& file, const GgufTensor& tensor, uint32_t layer_count) {
  const std::string_view name = tensor.name;
  const bool is_tied = file.FindTensor("output.weight") == nullptr;
  if (name == (is_tied ? "token_embd.weight" : "output.weight")) return WeightFormat::kQ6_K;
  const bool is_sensitive = EndsWith(name, ".attn_v.weight") ||
                            EndsWith(name, ".attn_qkv.weight") ||
                            EndsWith(name, ".ffn_down.weight");
  const std::optional<uint32_t> layer = LayerOf(name);
  if (is_sensitive && layer.has_value() && IsSensitiveLayer(*layer, layer_count)) {
    return WeightFormat::kQ6_K;
  }
  return WeightFormat::kQ4_K;
}

// `wanted`, or what is near to it and has blocks that the rows are a multiple of.
WeightFormat FittingFormat(WeightFormat wanted, uint64_t cols) {
  if (cols % TraitsOf(wanted).block_values == 0) return wanted;
  if (cols % kSmallBlock != 0) return WeightFormat::kF16;
  return wanted == WeightFormat::kQ4_K ? WeightFormat::kQ5_0 : WeightFormat::kQ8_0;
}

bool IsFloat(WeightFormat format) {
  return format == WeightFormat::kF32 || format == WeightFormat::kF16 ||
         format == WeightFormat::kBF16;
}

}  // namespace

std::span<const QuantizeType> QuantizeTypes() { return kTypes; }

const QuantizeType* FindQuantizeType(std::string_view name) {
  std::string upper;
  for (const char c : name) upper += Upper(c);
  const auto at = std::find_if(kTypes.begin(), kTypes.end(),
                               [&](const QuantizeType& type) { return type.name == upper; });
  return at == kTypes.end() ? nullptr : &*at;
}

StatusOr<std::vector<PlannedTensor>> PlanQuantization(const GgufFile& file,
                                                      const QuantizeType& type,
                                                      bool allow_requantize) {
  uint32_t layer_count = 0;
  for (const GgufTensor& tensor : file.tensors()) {
    const std::optional<uint32_t> layer = LayerOf(tensor.name);
    if (layer.has_value()) layer_count = std::max(layer_count, *layer + 1);
  }
  std::vector<PlannedTensor> planned;
  for (const GgufTensor& tensor : file.tensors()) {
    WeightFormat wanted = tensor.format;
    WeightFormat format = tensor.format;
    if (IsMatrix(tensor)) {
      wanted = type.is_mix ? MixedFormat(file, tensor, layer_count) : type.format;
      format = FittingFormat(wanted, tensor.cols());
    }
    if (format != tensor.format && !IsFloat(tensor.format) && !allow_requantize) {
      return InvalidArgument(
          "tensor {}: it is {} already, and what it has lost does not come back; start from F32, "
          "F16 "
          "or BF16, or pass --allow-requantize",
          Quoted(tensor.name), TraitsOf(tensor.format).name);
    }
    PlannedTensor& plan = planned.emplace_back();
    plan.tensor = &tensor;
    plan.format = format;
    if (format != wanted) plan.instead_of = wanted;
  }
  return planned;
}

}  // namespace kvasir
