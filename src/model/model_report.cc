#include "model/model_report.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "model/architecture.h"
#include "model/tokenizer_fields.h"

namespace kvasir {
namespace {

// Token types of the file format (tokenizer_fields.h).
constexpr int64_t kControlToken = 3;
constexpr int64_t kUserDefinedToken = 4;
constexpr int64_t kByteToken = 6;

// KV quantization: f16 scales and minimums, groups of values, blocks of tokens.
constexpr uint64_t kHalfBytes = 2;
constexpr uint64_t kGroupValues = 64;
constexpr uint64_t kBlockTokens = 16;

uint64_t GroupsOf(uint64_t values) { return (values + kGroupValues - 1) / kGroupValues; }

// Bytes of one token's K and V in one layer.
uint64_t LayerKvBytes(const ModelConfig& config, KvStorage type) {
  const uint64_t dim = config.head_dim;
  uint64_t head_bytes = 0;  // K and V of one head.
  switch (type) {
    case KvStorage::kF16:
      head_bytes = 2 * dim * kHalfBytes;
      break;
    case KvStorage::kInt8:
      head_bytes = 2 * (dim + GroupsOf(dim) * kHalfBytes);
      break;
    case KvStorage::kInt4:
      // K: a scale and a minimum per channel, shared by a block's tokens. V: the same per group.
      head_bytes = dim / 2 + 2 * kHalfBytes * dim / kBlockTokens;
      head_bytes += dim / 2 + 2 * kHalfBytes * GroupsOf(dim);
      break;
  }
  return config.kv_head_count * head_bytes;
}

std::vector<FormatTotal> TotalByFormat(const GgufFile& file) {
  std::array<FormatTotal, kWeightFormatCount> totals;
  for (const GgufTensor& tensor : file.tensors()) {
    FormatTotal& total = totals[static_cast<size_t>(tensor.format)];
    total.format = tensor.format;
    total.tensor_count += 1;
    total.bytes += tensor.bytes.size();
    total.values += tensor.rows() * tensor.cols();
  }
  std::vector<FormatTotal> present;
  for (const FormatTotal& total : totals) {
    if (total.tensor_count > 0) present.push_back(total);
  }
  std::stable_sort(present.begin(), present.end(),
                   [](const FormatTotal& a, const FormatTotal& b) { return a.bytes > b.bytes; });
  return present;
}

TokenizerReport ReportTokenizer(const TokenizerFields& fields) {
  TokenizerReport report;
  report.model = fields.model;
  report.pre = fields.pre;
  report.token_count = fields.tokens.size();
  report.merge_count = fields.merges.size();
  for (uint64_t i = 0; i < fields.types.size(); ++i) {
    const int64_t type = fields.types.Int(i);
    report.control_count += type == kControlToken;
    report.user_defined_count += type == kUserDefinedToken;
    report.byte_count += type == kByteToken;
  }
  report.bos_id = fields.bos_id;
  report.eos_id = fields.eos_id;
  report.eot_id = fields.eot_id;
  report.unknown_id = fields.unknown_id;
  report.padding_id = fields.padding_id;
  report.add_bos = fields.add_bos;
  report.add_eos = fields.add_eos;
  return report;
}

}  // namespace

std::string_view NameOf(KvStorage type) {
  switch (type) {
    case KvStorage::kF16:
      return "f16";
    case KvStorage::kInt8:
      return "int8";
    case KvStorage::kInt4:
      return "int4";
  }
  return "?";
}

uint64_t KvBytesPerToken(const ModelConfig& config, KvStorage type) {
  return config.layer_count * LayerKvBytes(config, type);
}

uint64_t WindowKvBytesPerToken(const ModelConfig& config, KvStorage type) {
  const auto windowed = std::count_if(config.layers.begin(), config.layers.end(),
                                      [](const LayerConfig& layer) { return layer.window != 0; });
  return static_cast<uint64_t>(windowed) * LayerKvBytes(config, type);
}

StatusOr<ModelReport> BuildModelReport(const GgufFile& file) {
  ModelReport report;
  KV_ASSIGN_OR_RETURN(const std::string_view architecture, file.GetString("general.architecture"));
  KV_ASSIGN_OR_RETURN(const std::string_view name, file.GetStringOr("general.name", ""));
  report.architecture = architecture;
  report.name = name;
  report.version = file.version();
  report.file_bytes = file.file_bytes();
  report.tensor_bytes = file.tensor_bytes();
  report.tensor_count = file.tensors().size();
  report.alignment = file.alignment();
  report.formats = TotalByFormat(file);
  for (const FormatTotal& total : report.formats) report.parameter_count += total.values;
  if (!file.tensors().empty()) {
    StatusOr<ModelConfig> config = ReadModelConfig(file);
    if (config.ok()) {
      for (const std::string_view unused : UnusedTensors(file, *config)) {
        report.unused_tensors.emplace_back(unused);
      }
      report.config = *std::move(config);
    } else {
      report.model_problem = MessageOf(config.status());
    }
  }
  if (file.FindEntry("tokenizer.ggml.model") != nullptr) {
    const StatusOr<TokenizerFields> fields = ReadTokenizerFields(file);
    if (fields.ok()) {
      report.tokenizer = ReportTokenizer(*fields);
      if (fields->chat_template.has_value()) report.chat_template = *fields->chat_template;
    } else {
      report.tokenizer_problem = MessageOf(fields.status());
    }
  }
  return report;
}

}  // namespace kvasir
