// The attention kernel of one instruction set, as plain pointers: what attention.cc dispatches to.
//
// Contracts are those of kernels/attention.h; shapes are already checked and positions resolved to
// pointers. As with kernels/row_ops_table.h, no inline library code in the files that define these.
#ifndef KVASIR_KERNELS_ATTENTION_TABLE_H_
#define KVASIR_KERNELS_ATTENTION_TABLE_H_

#include <cstddef>
#include <cstdint>

#include "kernels/stored_kv.h"

namespace kvasir {

// One chunk of 256 tokens for up to 64 rows. Tokens and units are counted from the chunk's first.
struct AttentionJob {
  static constexpr int kRows = 64;
  static constexpr int kUnits = 16;
  static constexpr int kTokens = 256;

  // Rows that go through the same units. Segments of one row ascend in tokens and cover all that it
  // sees.
  struct Segment {
    int first_row, rows;
    int first_unit, units;
    const uint16_t* const* k;  // [units] K units: of k_type, but f16 where `own`.
    const uint16_t* const* v;  // [units] V units of v_type
    bool own;                  // The rows' own unit, not quantized yet.
  };

  StoredType k_type, v_type;
  int rows;
  int segments;
  int head_dim;
  float scale;
  float cap;              // 0: none.
  const float* q[kRows];  // [head_dim] of each row
  int begin[kRows];       // Row r sees tokens begin[r] .. end[r] - 1; none when they are equal.
  int end[kRows];         //
  const uint16_t* after[kUnits];  // K units needed after this job, to prefetch; may be null.
  float* o;                       // [rows][head_dim]
  float* max;                     // [rows]
  float* sum;                     // [rows]
  Segment segment[kRows * kUnits];
  const uint16_t* k[kRows * kUnits];  // What the segments point into.
  const uint16_t* v[kRows * kUnits];
};

struct AttentionTable {
  void (*chunk)(const AttentionJob& job);
  // (o, max, sum) of one row, joined with those of the chunk to its right.
  void (*merge)(size_t head_dim, const float* next_o, float next_max, float next_sum, float* o,
                float* max, float* sum);
  void (*divide)(size_t head_dim, const float* o, float sum, float* out);
};

extern const AttentionTable kAttentionScalar;
extern const AttentionTable kAttentionAvx2;
extern const AttentionTable kAttentionAvx512;

}  // namespace kvasir

#endif  // KVASIR_KERNELS_ATTENTION_TABLE_H_
