// TraceFile: reading a trace of requests, one JSON object a line, the same for every command:
//   {"timestamp": ms, "input_length": tokens, "output_length": tokens, "hash_ids": [id, ...]}
// An id stands for a block of the prompt and all before it; the last one possibly for a part.
// Other members are ignored.
// Source: the format is that of kvcache-ai/Mooncake (Qin et al., FAST'25).
#ifndef KVASIR_APP_TRACE_FILE_H_
#define KVASIR_APP_TRACE_FILE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace kvasir {

struct TraceEntry {
  double start_s = 0.0;
  uint32_t input_tokens = 0;
  uint32_t output_tokens = 0;
  std::vector<uint64_t> blocks;  // Equal ids: equal text up to the block's end.
};

// What a reader cannot do without. A member that is there must be right in either case, so that a
// trace which one command takes is not refused by the other for what it says.
enum class TraceNeeds : uint8_t {
  kBlocks,  // hash_ids; entries keep the file's order.
  kAll,     // Entries are in order of time, the first one at 0; equal times keep the file's order.
};

// kInvalidArgument naming `path` and line when a line is no such object, or has not one id for each
// `block_tokens` of its input, and when there is no line. Blank lines are skipped.
StatusOr<std::vector<TraceEntry>> ParseTrace(std::string_view text, const std::string& path,
                                             uint32_t block_tokens, TraceNeeds needs);

// The same of a file ("-": standard input), at most 256 MiB.
StatusOr<std::vector<TraceEntry>> ReadTraceFile(const std::string& path, uint32_t block_tokens,
                                                TraceNeeds needs);

}  // namespace kvasir

#endif  // KVASIR_APP_TRACE_FILE_H_
