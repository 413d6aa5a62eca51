#include "trace_file.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/counted.h"
#include "text_input.h"

namespace kvasir {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMostTokens = 10'000'000;  // Of one request.

// nullptr when a member that may be absent is.
StatusOr<const Json*> Member(const Json& object, const char* key, bool needed) {
  const auto found = object.find(key);
  if (found != object.end()) return &*found;
  if (needed) return InvalidArgument("has no \"{}\"", key);
  return nullptr;
}

// A whole number from `least` to kMostTokens; `least` for one that is absent and may be.
StatusOr<uint32_t> TokenCount(const Json& object, const char* key, uint64_t least, bool needed) {
  KV_ASSIGN_OR_RETURN(const Json* const member, Member(object, key, needed));
  if (member == nullptr) return static_cast<uint32_t>(least);
  const uint64_t count = member->is_number_unsigned() ? member->get<uint64_t>() : UINT64_MAX;
  if (count < least || count > kMostTokens) {
    return InvalidArgument("\"{}\" must be a count of tokens from {} to {}, is {}", key, least,
                           kMostTokens, member->is_number() ? member->dump() : member->type_name());
  }
  return static_cast<uint32_t>(count);
}

Status ReadBlocks(const Json& object, std::vector<uint64_t>* blocks) {
  KV_ASSIGN_OR_RETURN(const Json* const ids, Member(object, "hash_ids", /*needed=*/true));
  if (!ids->is_array()) {
    return InvalidArgument("\"hash_ids\" must be an array, is {}", ids->type_name());
  }
  blocks->reserve(ids->size());
  for (const Json& id : *ids) {
    if (!id.is_number_unsigned()) {
      return InvalidArgument("hash_ids[{}] must be a whole number from 0 to {}", blocks->size(),
                             UINT64_MAX);
    }
    blocks->push_back(id.get<uint64_t>());
  }
  return OkStatus();
}

StatusOr<TraceEntry> ParseLine(std::string_view line, uint32_t block_tokens, TraceNeeds needs) {
  const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return InvalidArgument("not JSON");
  if (!json.is_object()) return InvalidArgument("must be an object, is {}", json.type_name());
  const bool all = needs == TraceNeeds::kAll;
  TraceEntry entry;
  KV_ASSIGN_OR_RETURN(const Json* const timestamp, Member(json, "timestamp", all));
  if (timestamp != nullptr) {
    if (!timestamp->is_number()) {
      return InvalidArgument("\"timestamp\" must be a number, is {}", timestamp->type_name());
    }
    entry.start_s = timestamp->get<double>() / 1000.0;
    if (!std::isfinite(entry.start_s)) return InvalidArgument("\"timestamp\" must be finite");
  }
  KV_ASSIGN_OR_RETURN(entry.input_tokens, TokenCount(json, "input_length", 1, all));
  KV_ASSIGN_OR_RETURN(entry.output_tokens, TokenCount(json, "output_length", 0, all));
  KV_RETURN_IF_ERROR(ReadBlocks(json, &entry.blocks));
  if (!json.contains("input_length")) return entry;
  const uint64_t want = (uint64_t{entry.input_tokens} + block_tokens - 1) / block_tokens;
  if (entry.blocks.size() != want) {
    return InvalidArgument("{} for {} in blocks of {}, want {} (--trace-block)",
                           Counted(entry.blocks.size(), "hash_id"),
                           Counted(entry.input_tokens, "token"), block_tokens, want);
  }
  return entry;
}

void OrderByTime(std::vector<TraceEntry>* trace) {
  std::stable_sort(trace->begin(), trace->end(),
                   [](const TraceEntry& a, const TraceEntry& b) { return a.start_s < b.start_s; });
  const double first_s = trace->front().start_s;
  for (TraceEntry& entry : *trace) entry.start_s -= first_s;
}

}  // namespace

StatusOr<std::vector<TraceEntry>> ParseTrace(std::string_view text, const std::string& path,
                                             uint32_t block_tokens, TraceNeeds needs) {
  std::vector<TraceEntry> trace;
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    StatusOr<TraceEntry> entry = ParseLine(line, block_tokens, needs);
    if (!entry.ok()) return WithPrefix(entry.status(), fmt::format("{}:{}", path, number));
    trace.push_back(*std::move(entry));
  }
  if (trace.empty()) return InvalidArgument("{}: no request in it", path);
  if (needs == TraceNeeds::kAll) OrderByTime(&trace);
  return trace;
}

StatusOr<std::vector<TraceEntry>> ReadTraceFile(const std::string& path, uint32_t block_tokens,
                                                TraceNeeds needs) {
  KV_ASSIGN_OR_RETURN(const std::string text, ReadText(path));
  return ParseTrace(text, InputName(path), block_tokens, needs);
}

}  // namespace kvasir
