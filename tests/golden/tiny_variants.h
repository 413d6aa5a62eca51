// The small random models of tests/golden/architectures.json, every architecture in its variants.
//
// The file describes metadata and tensors and holds the oracle's logits (tools/make_tiny_models.py
// wrote it, together with model files by the public `gguf` package). Values come from a hash of
// names and indices, so the models are built here anew; a checksum over all tensors proves that
// they are those which the oracle has seen.
#ifndef KVASIR_TESTS_GOLDEN_TINY_VARIANTS_H_
#define KVASIR_TESTS_GOLDEN_TINY_VARIANTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"

namespace kvasir {

struct TinyVariant {
  std::string name;
  std::string file;          // The bytes of the model file.
  uint32_t run_context = 0;  // As ReadModelConfig's context_tokens.
  bool checksum_matches = false;
  bool is_quantized = false;
  std::vector<TokenId> tokens;
  std::vector<uint32_t> positions;
  std::vector<std::vector<double>> logits;  // [positions][vocab] of the oracle.
};

std::vector<TinyVariant> LoadTinyVariants();

}  // namespace kvasir

#endif  // KVASIR_TESTS_GOLDEN_TINY_VARIANTS_H_
