// SseParser: server-sent events out of a body that comes in any pieces.
//
// Fields other than event and data (id, retry) are ignored, comments too. An event that the body
// ends amid is dropped, as the standard wants it.
// Source: WHATWG HTML, 9.2.6 (interpreting an event stream).
#ifndef KVASIR_IO_HTTP_SSE_H_
#define KVASIR_IO_HTTP_SSE_H_

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace kvasir {

struct SseEvent {
  std::string event;  // "message" when the stream names none.
  std::string data;   // Lines joined by '\n'.
};

class SseParser {
 public:
  static constexpr size_t kMaxEventBytes = 16
                                           << 20;  // Of one event or line: the peer may be hostile.

  using OnEvent = std::function<bool(const SseEvent&)>;

  // Calls `on_event` for each event that `bytes` completes. False when it returned false or an
  // event is larger than kMaxEventBytes; feeding ends then.
  [[nodiscard]] bool Feed(std::string_view bytes, const OnEvent& on_event);

 private:
  bool EndLine(const OnEvent& on_event);

  std::string line_;
  SseEvent event_;
  bool has_data_ = false;
  bool after_cr_ = false;   // A '\n' right after it belongs to the same line end.
  bool first_line_ = true;  // It may begin with a byte order mark.
};

}  // namespace kvasir

#endif  // KVASIR_IO_HTTP_SSE_H_
