// Small structs that the phases of CpuStep pass around; nobody else includes this.
#ifndef KVASIR_MODEL_CPU_STEP_PARTS_H_
#define KVASIR_MODEL_CPU_STEP_PARTS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/matmul.h"

namespace kvasir {

struct BatchRowPlace {
  uint32_t sequence;
  uint32_t position;
};
// Buffers of one worker.
struct WorkerBuffers {
  float* x = nullptr;       // [kRedundantRows, d_model] the residual stream, where it needs one
  float* row = nullptr;     // [d_model]
  float* branch = nullptr;  // [d_model]
  float* normed = nullptr;  // [kRedundantRows, d_model]
  std::byte* normed_q = nullptr;
  float* gate = nullptr;    // [ffn_floats_]
  float* up = nullptr;      // likewise
  float* q = nullptr;       // [kMaxAttentionRows, head_dim] queries after RoPE
  float* attend = nullptr;  // Attend's scratch.
};
struct MatrixProduct {
  const PackedMatrix* matrix;
  float* out;
  uint32_t out_stride;
  Store store;
};
struct LayerKvPlace {  // Where a layer's KV lies.
  uint32_t layer;
  uint32_t group;
  uint32_t slot;
};

}  // namespace kvasir

#endif  // KVASIR_MODEL_CPU_STEP_PARTS_H_
