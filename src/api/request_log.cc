#include "api/request_log.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace kvasir {
namespace {

using Json = nlohmann::ordered_json;

// Messages may quote what the client sent.
constexpr size_t kMaxErrorBytes = 300;
constexpr size_t kMaxPathBytes = 300;

double Rounded(double ms) { return std::round(ms * 10.0) / 10.0; }

double Milliseconds(TimeUs us) { return Rounded(static_cast<double>(us) / 1000.0); }

const char* NameOf(RequestEnd end) {
  switch (end) {
    case RequestEnd::kFinished:
      return "finished";
    case RequestEnd::kCancelled:
      return "cancelled";
    case RequestEnd::kTimedOut:
      return "timed_out";
    case RequestEnd::kShutDown:
      return "shut_down";
  }
  return "?";
}

Json ToJson(const RequestRecord& record) {
  Json json;
  json["event"] = "request";
  json["id"] = record.request_id;
  json["peer"] = record.peer;
  json["method"] = record.method;
  json["path"] = record.path.substr(0, kMaxPathBytes);
  json["status"] = record.status;
  json["total_ms"] = Rounded(record.total_ms);
  if (record.generation.has_value()) {
    const GenerationRecord& g = *record.generation;
    json["model"] = g.model;
    if (!g.user.empty()) json["user"] = g.user;
    json["tenant"] = g.tenant;
    json["stream"] = g.stream;
    json["choices"] = g.choices;
    json["priority"] = g.priority;
    json["end"] = NameOf(g.summary.end);
    json["finish"] = g.finish;
    json["prompt_tokens"] = g.summary.prompt_tokens;
    json["cached_tokens"] = g.summary.cached_tokens;
    json["generated_tokens"] = g.summary.generated_tokens;
    json["draft_tokens"] = g.summary.draft_tokens;
    json["accepted_draft_tokens"] = g.summary.accepted_draft_tokens;
    json["preemptions"] = g.summary.preemptions;
    json["queue_ms"] = Milliseconds(g.summary.queue_us);
    json["prefill_ms"] = Milliseconds(g.summary.prefill_us);
    json["decode_ms"] = Milliseconds(g.summary.decode_us);
    if (!g.prompt.empty()) json["prompt"] = g.prompt;
  }
  if (!record.error.empty()) json["error"] = record.error.substr(0, kMaxErrorBytes);
  return json;
}

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

bool NeedsQuotes(const std::string& value) {
  if (value.empty()) return true;
  for (const char c : value) {
    // Beyond ASCII: bytes that are no UTF-8 are replaced where values are quoted.
    const auto byte = static_cast<unsigned char>(c);
    if (byte <= ' ' || byte >= 0x7F || c == '"' || c == '=' || c == '\\') return true;
  }
  return false;
}

}  // namespace

std::string FormatRecord(const RequestRecord& record, bool json) {
  const Json fields = ToJson(record);
  if (json) return Dump(fields);
  std::string line;
  for (const auto& [key, value] : fields.items()) {
    if (!line.empty()) line.push_back(' ');
    line += key;
    line.push_back('=');
    if (value.is_string() && !NeedsQuotes(value.get_ref<const std::string&>())) {
      line += value.get_ref<const std::string&>();
    } else {
      line += Dump(value);  // A JSON string is quoted and escaped as we need it.
    }
  }
  return line;
}

}  // namespace kvasir
