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
  // `context_tokens` as of ReadModelConfig.
  StatusOr<ModelConfig> (*read_config)(const GgufFile& file, uint32_t context_tokens);

  // Every tensor that a model with this configuration needs.
  std::vector<ExpectedTensor> (*expected_tensors)(const ModelConfig& config);
};

extern const Architecture kLlama;
extern const Architecture kQwen2;
extern const Architecture kQwen3;
extern const Architecture kGemma2;
extern const Architecture kGemma3;
extern const Architecture kPhi3;

std::span<const Architecture* const> Architectures();
const Architecture* FindArchitecture(std::string_view name);  // nullptr when unknown.

// "blk.<layer>.<part>.weight", the naming of all GGUF files.
std::string LayerTensorName(uint32_t layer, std::string_view part);

// Rows [first, first + rows) of a matrix of the file.
struct TensorRows {
  std::string name;
  uint32_t first = 0;
  uint32_t rows = 0;
};
// Where the products of a layer find those matrices that may be parts of a fused one.
struct LayerProjections {
  TensorRows q, k, v, gate, up;
};
LayerProjections ProjectionsOf(const ModelConfig& config, uint32_t layer);

// "blk.<layer>.<part>.bias".
std::string LayerBiasName(uint32_t layer, std::string_view part);

// For architecture files: the keys and tensors that nearly all share. `architecture` prefixes keys.
// RoPE scaling is apart, in model/rope_scaling.h.
// `partial_rope`: whether this architecture's heads may turn in part.
StatusOr<ModelConfig> ReadCommonConfig(const GgufFile& file, std::string_view architecture,
                                       bool partial_rope = false);
std::vector<ExpectedTensor> CommonTensors(const ModelConfig& config);
// And "rope_freqs.weight", if there are divisors.
std::vector<ExpectedTensor> TensorsWithDivisors(const ModelConfig& config);

// The value of `<architecture>.attention.sliding_window`; 0 when it is absent or not below the
// context, so that nothing is hidden.
StatusOr<uint32_t> ReadWindow(const GgufFile& file, const ModelConfig& config);
Status RefuseWindow(const GgufFile& file, const ModelConfig& config);  // Unless it is 0.
// The same of layers that alternate between a window and full attention: the window as the file
// has it, even where the context is shorter; `fallback` when it is absent, 0 for an error then.
StatusOr<uint32_t> ReadLayerWindow(const GgufFile& file, const ModelConfig& config,
                                   uint32_t fallback);
// Which layers have it: `attention.sliding_window_pattern` as a number (the period, its last layer
// sees everything) or as one bool a layer (true: a window); `fallback` is the period when absent.
StatusOr<std::vector<bool>> ReadWindowPattern(const GgufFile& file, const ModelConfig& config,
                                              uint32_t fallback);

// A float key that must be positive and finite; `fallback` when absent.
StatusOr<double> ReadPositiveOr(const GgufFile& file, const std::string& key, double fallback);

// kUnimplemented naming the first metadata key that asks for something no ModelConfig field says
// (experts, ALiBi, ...): such a model would run and answer wrongly. `soft_caps`: those of scores
// and logits are read by the architecture.
Status RefuseUnsupportedFeatures(const GgufFile& file, std::string_view architecture,
                                 bool soft_caps = false);

}  // namespace kvasir

#endif  // KVASIR_MODEL_ARCHITECTURE_H_
