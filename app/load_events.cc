#include "load_events.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace kvasir {
namespace {

using Json = nlohmann::json;

constexpr size_t kMessageBytes = 200;
constexpr size_t kHeadBytes = 200;
constexpr size_t kLineBytes = 16 << 20;  // A longer line is no event.

// The member `key` of an object, or null for whatever else `json` is.
const Json& Member(const Json& json, const char* key) {
  static const Json null;
  if (!json.is_object()) return null;
  const auto found = json.find(key);
  return found == json.end() ? null : *found;
}

// True, and *out set, when it is a count.
bool ReadCount(const Json& json, uint64_t* out) {
  if (!json.is_number_unsigned()) return false;
  *out = json.get<uint64_t>();
  return true;
}

// Appends a text member; true when it holds anything.
bool AppendText(const Json& json, std::string* out) {
  if (!json.is_string()) return false;
  const std::string& text = json.get_ref<const std::string&>();
  out->append(text);
  return !text.empty();
}

// Reads the text of one choice, chat or completion; true when there was any.
bool ReadChoice(const Json& choice, std::string* answer) {
  if (AppendText(Member(choice, "text"), answer)) return true;
  const Json& delta = Member(choice, "delta");
  if (AppendText(Member(delta, "content"), answer)) return true;
  // Thoughts and calls arrive like text, but are not the answer that the next turn repeats.
  for (const char* key : {"reasoning_content", "reasoning", "refusal"}) {
    std::string thought;
    if (AppendText(Member(delta, key), &thought)) return true;
  }
  const Json& calls = Member(delta, "tool_calls");
  return calls.is_array() && !calls.empty();
}

void ReadUsage(const Json& json, LoadRecord* record) {
  const Json& usage = Member(json, "usage");
  if (ReadCount(Member(usage, "prompt_tokens"), &record->prompt_tokens) &&
      ReadCount(Member(usage, "completion_tokens"), &record->output_tokens)) {
    record->has_usage = true;
  }
  const Json& details = Member(usage, "prompt_tokens_details");
  if (ReadCount(Member(details, "cached_tokens"), &record->cached_tokens) ||
      ReadCount(Member(Member(json, "timings"), "cache_n"), &record->cached_tokens)) {
    record->has_cached = true;
  }
}

}  // namespace

void SetError(std::string_view kind, std::string_view message, LoadRecord* record) {
  if (!record->error.empty()) return;
  record->error = kind;
  record->message = message.substr(0, kMessageBytes);
  for (char& c : record->message) {
    if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') c = ' ';
  }
}

std::string ErrorText(std::string_view body) {
  const Json json = Json::parse(body, nullptr, /*allow_exceptions=*/false);
  const Json& error = Member(json, "error");
  std::string text;
  if (AppendText(Member(error, "message"), &text) || AppendText(error, &text) ||
      AppendText(Member(json, "message"), &text)) {
    return text;
  }
  return std::string(body.substr(0, kMessageBytes));
}

bool LoadEvents::Feed(std::string_view bytes, double now_s) {
  head_.append(bytes.substr(0, kHeadBytes - std::min(kHeadBytes, head_.size())));
  buffer_.append(bytes);
  size_t begin = 0;
  for (size_t end; (end = buffer_.find('\n', begin)) != std::string::npos; begin = end + 1) {
    std::string_view line = std::string_view(buffer_).substr(begin, end - begin);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (!OnLine(line, now_s)) return false;
  }
  buffer_.erase(0, begin);
  return buffer_.size() <= kLineBytes;
}

bool LoadEvents::OnLine(std::string_view line, double now_s) {
  constexpr std::string_view kField = "data:";
  if (line.substr(0, kField.size()) == kField) {
    line.remove_prefix(kField.size());
    if (!line.empty() && line.front() == ' ') line.remove_prefix(1);
    return OnEvent(line, now_s);
  }
  // Other fields, comments and the empty line after each event carry nothing for us.
  return true;
}

bool LoadEvents::OnEvent(std::string_view text, double now_s) {
  ++event_count_;
  if (text == "[DONE]") {
    finished_ = true;
    return true;
  }
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    SetError("malformed event", text, &record_);
    return false;
  }
  if (!Member(json, "error").is_null()) {
    SetError("error in the stream", ErrorText(text), &record_);
    return false;
  }
  ReadUsage(json, &record_);
  const Json& choices = Member(json, "choices");
  if (!choices.is_array()) return true;
  for (const Json& choice : choices) {
    if (ReadChoice(choice, &answer_)) record_.piece_s.push_back(now_s);
    if (Member(choice, "finish_reason").is_string()) finished_ = true;
  }
  return true;
}

}  // namespace kvasir
