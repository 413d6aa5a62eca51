// PlanQuantization: which tensor of a model is written in which format.
//
// A type is a format for all matrices, or a mix: Q4_K_M keeps what hurts most in Q6_K, the head
// and, in half of the layers, V and the second matrix of the feed-forward part. What is no matrix
// (norms, biases, RoPE factors) stays as it is. A matrix whose rows are no whole blocks of the
// format gets one that is near: Q5_0 for Q4_K, Q8_0 for Q6_K; rows that are no multiple of 32 get
// F16. Thread: pure functions.
#ifndef KVASIR_MODEL_QUANTIZE_PLAN_H_
#define KVASIR_MODEL_QUANTIZE_PLAN_H_

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/gguf_file.h"
#include "model/gguf_output.h"

namespace kvasir {

struct QuantizeType {
  std::string_view name;  // As people write it: "Q8_0", "Q4_K_M".
  WeightFormat format = WeightFormat::kF16;
  bool is_mix = false;
  uint32_t file_type = 0;  // general.file_type's number.
};

// Larger ones first.
std::span<const QuantizeType> QuantizeTypes();
const QuantizeType* FindQuantizeType(std::string_view name);  // Case does not matter; or nullptr.

// Every tensor of `file`, in its order. kInvalidArgument when a matrix that would change is not
// F32, F16 or BF16 and `allow_requantize` is not set: what it has lost already does not come back.
StatusOr<std::vector<PlannedTensor>> PlanQuantization(const GgufFile& file,
                                                      const QuantizeType& type,
                                                      bool allow_requantize);

}  // namespace kvasir

#endif  // KVASIR_MODEL_QUANTIZE_PLAN_H_
