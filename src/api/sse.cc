#include "api/sse.h"

namespace kvasir {

std::string SseEvent(std::string_view json) {
  std::string event;
  event.reserve(json.size() + 8);
  event.append("data: ");
  event.append(json);
  event.append("\n\n");
  return event;
}

}  // namespace kvasir
