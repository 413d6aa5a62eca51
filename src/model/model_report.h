// ModelReport: what is in a model file, for people (`kvasir inspect`) and, as JSON, for programs.
//
// A value built from the parsed file; rendering it does no I/O. Works for whole models and for
// vocabulary-only files, which have no `config`.
#ifndef KVASIR_MODEL_MODEL_REPORT_H_
#define KVASIR_MODEL_MODEL_REPORT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/gguf_file.h"
#include "model/model_config.h"

namespace kvasir {

// How K and V are stored (docs/MODEL_FILES.md has the arithmetic).
//   int8: one f16 scale per 64 values of a head's vector.
//   int4: K per channel over blocks of 16 tokens (f16 scale and minimum), V in groups of 64 values.
enum class KvStorage : uint8_t { kF16, kInt8, kInt4 };
std::string_view NameOf(KvStorage type);  // "f16", "int8", "int4".

// Bytes of K and V that one token takes, all layers, headers and block ends left out.
uint64_t KvBytesPerToken(const ModelConfig& config, KvStorage type);

// The share of that in layers with a sliding window, which need it for `window` tokens only.
uint64_t WindowKvBytesPerToken(const ModelConfig& config, KvStorage type);

struct FormatTotal {
  WeightFormat format = WeightFormat::kF32;
  uint64_t tensor_count = 0;
  uint64_t bytes = 0;
  uint64_t values = 0;
};

struct TokenizerReport {
  std::string model;
  std::string pre;
  uint64_t token_count = 0;
  uint64_t merge_count = 0;
  uint64_t control_count = 0;       // Tokens of type 3.
  uint64_t user_defined_count = 0;  // Type 4.
  uint64_t byte_count = 0;          // Type 6.
  std::optional<uint32_t> bos_id;
  std::optional<uint32_t> eos_id;
  std::optional<uint32_t> eot_id;
  std::optional<uint32_t> unknown_id;
  std::optional<uint32_t> padding_id;
  std::optional<bool> add_bos;
  std::optional<bool> add_eos;
};

struct ModelReport {
  std::string architecture;
  std::string name;
  uint32_t version = 0;
  uint64_t file_bytes = 0;
  uint64_t tensor_bytes = 0;
  uint64_t tensor_count = 0;
  uint64_t parameter_count = 0;
  uint64_t alignment = 0;
  std::vector<FormatTotal> formats;   // By bytes, largest first; formats that occur.
  std::optional<ModelConfig> config;  // nullopt: a vocabulary-only file, or `model_problem`.
  std::optional<TokenizerReport> tokenizer;
  std::optional<std::string> chat_template;
  // How the template wants tool calls' arguments, in a word or two; empty: nobody has looked, or it
  // cannot be rendered. For the caller to complete, as the problems below.
  std::string tool_arguments;
  std::vector<std::string> unused_tensors;

  // Why this build cannot compute the model, read the tokenizer or render the chat template; empty
  // where it can, or where the file has none. The last two are for the caller to complete: what
  // text means is not this module's business.
  std::string model_problem;
  std::string tokenizer_problem;
  std::string template_problem;

  // Everything that `kvasir run` and `serve` need is there and known. (A template is no need.)
  bool is_runnable() const {
    return config.has_value() && tokenizer.has_value() && tokenizer_problem.empty();
  }
};

// What is in the file, also where this build cannot use it: then one of the problems says why.
// Fails only where the architecture or name is not even a string.
StatusOr<ModelReport> BuildModelReport(const GgufFile& file);

std::string RenderText(const ModelReport& report);  // Lines ending in '\n'; control codes escaped.
std::string RenderJson(const ModelReport& report);  // One object, indented by two.

}  // namespace kvasir

#endif  // KVASIR_MODEL_MODEL_REPORT_H_
