// Decoding with several KV types on the same weights and threads, by turns: what a type gains.
#ifndef KVASIR_APP_BENCH_KV_TYPES_H_
#define KVASIR_APP_BENCH_KV_TYPES_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/loaded_model.h"
#include "timing.h"

namespace kvasir {

struct KvTypeSpeed {
  KvTypes types;
  size_t bytes_per_token = 0;  // Of KV.
  double kv_read_bytes = 0.0;  // A step, on average.
  Timing step;
  Timing gain;  // The first type's time by this one's, of each round; no seconds.
};

struct KvTypeLoad {
  uint32_t context = 0;  // Tokens before decoding; all but the first 256 are copies of them, each
                         // block in memory of its own (BenchLoad::RepeatFirst).
  uint32_t steps = 0;    // Decoded by each type in a round, one sequence, with logits.
  int rounds = 0;        // Types take turns within each; one more before them warms up.
};

// "f16,int8,int4", and types that differ for K and V apart by semicolons: "f16;k=int8,v=int4".
StatusOr<std::vector<KvTypes>> ParseKvTypeList(const std::string& text);
std::string KvTypeListProblem(const std::string& text);

// In the order of `types`. kResourceExhausted when the memory for all of them cannot be had.
StatusOr<std::vector<KvTypeSpeed>> CompareKvTypes(LoadedModel& model,
                                                  std::span<const KvTypes> types,
                                                  const KvTypeLoad& load);

void PrintKvTypeSpeeds(std::span<const KvTypeSpeed> speeds, const KvTypeLoad& load);
std::string KvTypeSpeedsJson(std::span<const KvTypeSpeed> speeds, const KvTypeLoad& load);

}  // namespace kvasir

#endif  // KVASIR_APP_BENCH_KV_TYPES_H_
