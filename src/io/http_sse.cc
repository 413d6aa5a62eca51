#include "io/http_sse.h"

#include <utility>

namespace kvasir {

bool SseParser::Feed(std::string_view bytes, const OnEvent& on_event) {
  while (!bytes.empty()) {
    if (std::exchange(after_cr_, false) && bytes.front() == '\n') {
      bytes.remove_prefix(1);
      continue;
    }
    const size_t end = bytes.find_first_of("\r\n");
    line_.append(bytes.substr(0, end));
    if (line_.size() + event_.data.size() > kMaxEventBytes) return false;
    if (end == std::string_view::npos) return true;
    after_cr_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    if (!EndLine(on_event)) return false;
  }
  return true;
}

bool SseParser::EndLine(const OnEvent& on_event) {
  std::string_view line = line_;
  if (std::exchange(first_line_, false) && line.substr(0, 3) == "\xef\xbb\xbf") {
    line.remove_prefix(3);
  }
  bool wanted = true;
  if (line.empty()) {
    if (has_data_) {
      if (event_.event.empty()) event_.event = "message";
      wanted = on_event(event_);
    }
    event_ = SseEvent();
    has_data_ = false;
  } else {
    const size_t colon = line.find(':');
    const std::string_view field = line.substr(0, colon);
    std::string_view value;
    if (colon != std::string_view::npos) value = line.substr(colon + 1);
    if (!value.empty() && value.front() == ' ') value.remove_prefix(1);
    if (field == "data") {
      if (std::exchange(has_data_, true)) event_.data.push_back('\n');
      event_.data.append(value);
    } else if (field == "event") {
      event_.event = value;
    }
  }
  line_.clear();
  return wanted;
}

}  // namespace kvasir
