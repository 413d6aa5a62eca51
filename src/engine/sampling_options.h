// SamplingOptions: how a token is chosen from logits. Plain values from a request or a command
// line; Validate() is the one place that judges them.
//
// The order in which they act (engine/sampler.h carries it out) is vLLM's and, where they overlap,
// Hugging Face's, because those are the engines whose requests people bring along:
//   1. logit_bias           added to the raw logits
//   2. repetition_penalty   over prompt and generated tokens
//   3. presence_penalty, frequency_penalty   over generated tokens only
//   4. temperature          0 ends here: the largest logit, ties to the lowest id
//   5. min_p                relative to the most probable token
//   6. top_k
//   7. top_p                of the mass that 5 and 6 left
// Steps 5 to 7 each keep the best-ranked tokens, so what survives is a prefix of the ranking.
#ifndef KVASIR_ENGINE_SAMPLING_OPTIONS_H_
#define KVASIR_ENGINE_SAMPLING_OPTIONS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/status.h"

namespace kvasir {

// Below this a temperature counts as 0: dividing logits by less only overflows.
inline constexpr float kGreedyTemperature = 1e-5f;

struct SamplingOptions {
  float temperature = 0.0f;         // >= 0; 0 is greedy.
  uint32_t top_k = 0;               // Keep this many best tokens; 0 keeps all.
  float top_p = 1.0f;               // In (0, 1]; keep the smallest best set with this mass.
  float min_p = 0.0f;               // In [0, 1]; keep tokens with p >= min_p * p(best).
  float repetition_penalty = 1.0f;  // > 0; seen tokens: logit / r if positive, else logit * r.
  float presence_penalty = 0.0f;    // In [-2, 2]; subtracted once from each generated token.
  float frequency_penalty = 0.0f;   // In [-2, 2]; subtracted once per time it was generated.
  std::vector<std::pair<TokenId, float>> logit_bias;  // Finite, or -infinity: never this token.
  uint64_t seed = 0;
  uint32_t choice = 0;  // Of several answers to one prompt: answer i draws as seed + i alone would.

  bool greedy() const { return temperature < kGreedyTemperature; }
  bool has_penalties() const {
    return repetition_penalty != 1.0f || presence_penalty != 0.0f || frequency_penalty != 0.0f;
  }

  // kInvalidArgument naming the first value that is not a number or outside its range, or a bias
  // for an id outside [0, vocab_size) or given twice.
  Status Validate(uint32_t vocab_size) const;
};

}  // namespace kvasir

#endif  // KVASIR_ENGINE_SAMPLING_OPTIONS_H_
