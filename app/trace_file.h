// TraceFile: reading a trace of requests: one JSON object a line with "hash_ids", the ids of the
// prompt's blocks in order (equal ids: equal whole prefixes). Other members are ignored.
#ifndef KVASIR_APP_TRACE_FILE_H_
#define KVASIR_APP_TRACE_FILE_H_

#include <string>

#include "base/status.h"
#include "kv/cache_replay.h"

namespace kvasir {

// kInvalidArgument naming file and line when a line is no such object, when the file has no block
// at all, and when it is too large (256 MiB); as ReadText otherwise. Blank lines are skipped.
StatusOr<RequestTrace> ReadTraceFile(const std::string& path);

}  // namespace kvasir

#endif  // KVASIR_APP_TRACE_FILE_H_
