// Server-sent events as OpenAI's streams use them: one "data:" line of JSON each, [DONE] at the
// end. Source: the WHATWG HTML standard, 9.2.
#ifndef KVASIR_API_SSE_H_
#define KVASIR_API_SSE_H_

#include <string>
#include <string_view>

namespace kvasir {

inline constexpr std::string_view kSseContentType = "text/event-stream";
inline constexpr std::string_view kSseDone = "data: [DONE]\n\n";

// `json` holds no line break: JSON text from a serializer without indentation never does.
std::string SseEvent(std::string_view json);

}  // namespace kvasir

#endif  // KVASIR_API_SSE_H_
