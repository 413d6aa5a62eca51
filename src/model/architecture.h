// Architecture: what is particular to one family of models, as data and two functions.
//
// Adding one is one file architecture_<name>.cc that defines a `const Architecture k<Name>`, and
// one line in the table of architecture.cc. An architecture reads metadata and names tensors; it
// computes nothing (the forward pass reads ModelConfig only).
#ifndef KVASIR_MODEL_ARCHITECTURE_H_
#define KVASIR_MODEL_ARCHITECTURE_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/gguf_file.h"
#include "model/model_config.h"

namespace kvasir {

// A tensor that the forward pass reads. Matrices are [rows, cols], row-major, any WeightFormat with
// cols a multiple of its block; vectors have rows == 0 and are float32.
struct ExpectedTensor {
  std::string name;
  uint32_t rows = 0;  // Output features; 0 marks a vector.
  uint32_t cols = 0;  // Input features, or the vector's length.
};

struct Architecture {
  std::string_view name;  // general.architecture; also the prefix of its metadata keys.

  // Reads the metadata into a ModelConfig. vocab_size and tied_head are set by the caller from the
  // tensors; plausibility and tensors are checked by the caller too.
  StatusOr<ModelConfig> (*read_config)(const GgufFile& file);

  // Every tensor that a model with this configuration needs.
  std::vector<ExpectedTensor> (*expected_tensors)(const ModelConfig& config);
};

extern const Architecture kLlama;
extern const Architecture kGemma3;

std::span<const Architecture* const> Architectures();
const Architecture* FindArchitecture(std::string_view name);  // nullptr when unknown.

// "blk.<layer>.<part>.weight", the naming of all GGUF files.
std::string LayerTensorName(uint32_t layer, std::string_view part);

// For architecture files: the keys and tensors that nearly all share. `architecture` prefixes keys.
StatusOr<ModelConfig> ReadCommonConfig(const GgufFile& file, std::string_view architecture);
std::vector<ExpectedTensor> CommonTensors(const ModelConfig& config);

// kUnimplemented naming the first metadata key that asks for something no ModelConfig field says
// (RoPE scaling, experts, soft caps), or the first tensor that the forward pass would have to
// apply (biases, per-dimension RoPE factors): such a model would run and answer wrongly.
Status RefuseUnsupportedFeatures(const GgufFile& file, std::string_view architecture);

}  // namespace kvasir

#endif  // KVASIR_MODEL_ARCHITECTURE_H_
