// The row operations of one instruction set, as plain pointers: what row_ops.cc dispatches to.
//
// Contracts are those of kernels/row_ops.h; sizes are already checked. The files that define the
// tables are compiled with their instruction set's flags and therefore contain no inline library
// code: the linker might choose such a copy for the whole program, and it would trap on older CPUs.
#ifndef KVASIR_KERNELS_ROW_OPS_TABLE_H_
#define KVASIR_KERNELS_ROW_OPS_TABLE_H_

#include <cstddef>
#include <cstdint>

namespace kvasir {

struct RowOpsTable {
  void (*rms_norm)(const float* x, const float* weight, float eps, float* out, size_t count);
  void (*rope_interleaved)(float* head, const float* cosine, const float* sine, size_t pairs);
  void (*rope_halves)(float* head, const float* cosine, const float* sine, size_t pairs);
  void (*silu_gate)(const float* gate, const float* up, float* out, size_t count);
  void (*gelu_gate)(const float* gate, const float* up, float* out, size_t count);
  void (*scale)(float* x, float factor, size_t count);
  void (*soft_cap)(float* x, float cap, size_t count);
  void (*add)(float* x, const float* y, size_t count);
  void (*exp)(const float* x, float* out, size_t count);
  void (*half_from_float)(const float* x, uint16_t* out, size_t count);
  void (*float_from_half)(const uint16_t* x, float* out, size_t count);

  size_t (*arg_max)(const float* x, size_t count);
  float (*maximum)(const float* x, size_t count);  // NaN counts as -infinity.
  // Sum of e^(x - shift).
  float (*sum_exp)(const float* x, size_t count, float shift);
  // out[i] = maximum of x[i * block .. (i + 1) * block) as an ordered key (OrderedKey in
  // row_ops.cc); count / block whole blocks, block a multiple of 16.
  void (*block_keys)(const float* x, size_t count, size_t block, uint32_t* out);
  // Indices, ascending, of values above (or equal to) `threshold`, NaN as -infinity; at most
  // `limit` of them. Returns how many.
  size_t (*collect_above)(const float* x, size_t count, float threshold, size_t limit,
                          uint32_t* out);
  size_t (*collect_equal)(const float* x, size_t count, float threshold, size_t limit,
                          uint32_t* out);
};

extern const RowOpsTable kRowOpsScalar;
extern const RowOpsTable kRowOpsAvx2;
extern const RowOpsTable kRowOpsAvx512;

// The table of ActiveIsa().
const RowOpsTable& ActiveRowOps();

}  // namespace kvasir

#endif  // KVASIR_KERNELS_ROW_OPS_TABLE_H_
