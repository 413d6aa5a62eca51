// ReferenceModel: the forward pass written for being right, against which the fast one is judged.
//
// Weights are dequantized to float32 row by row as the file defines them, every product and sum is
// taken in double in index order, and K and V are held as float32. The results do not depend on the
// number of threads, and hardly on anything else: every logit agrees with a float64 computation to
// 5e-4. No KV cache, no batching: each call computes its whole token list, layer by layer, all
// positions at once. Costs about 12 ms a token and 100 million weights on one core, and attention
// grows with the square of the tokens.
// Thread: const methods may run concurrently; each starts its own threads.
// Source: docs/MODEL_FILES.md; the same definition as the golden data in tests/golden.
#ifndef KVASIR_MODEL_REFERENCE_FORWARD_H_
#define KVASIR_MODEL_REFERENCE_FORWARD_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "model/gguf_file.h"
#include "model/model_config.h"

namespace kvasir {

class ReferenceModel {
 public:
  // `file` must outlive the model. REQUIRES: config came from ReadModelConfig(file),
  // thread_count >= 1.
  ReferenceModel(const GgufFile& file, ModelConfig config, int thread_count);

  // Logits that predict the token after each of `positions` (any order, repeats allowed), as
  // [positions.size()][vocab_size] doubles. kInvalidArgument when tokens is empty, longer than the
  // context or holds an id outside the vocabulary, or a position is outside tokens.
  StatusOr<std::vector<std::vector<double>>> Logits(std::span<const TokenId> tokens,
                                                    std::span<const uint32_t> positions) const;

  const ModelConfig& config() const { return config_; }

 private:
  class Pass;

  const GgufFile* file_;
  ModelConfig config_;
  int thread_count_;
};

}  // namespace kvasir

#endif  // KVASIR_MODEL_REFERENCE_FORWARD_H_
