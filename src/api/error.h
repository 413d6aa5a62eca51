// ApiError: why a request gets no answer, in the form that OpenAI clients expect:
//   {"error": {"message": ..., "type": ..., "param": ..., "code": ...}}
//
// Clients decide by status and code (a 429 is retried, context_length_exceeded is shown), people
// read the message, so it names the field, the value and what to do. A value.
#ifndef KVASIR_API_ERROR_H_
#define KVASIR_API_ERROR_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace kvasir {

struct ApiError {
  int status = 400;  // Of the HTTP reply.
  std::string message;
  std::string type = "invalid_request_error";
  std::optional<std::string> param;  // The field of the request, as a path: "messages[1].role".
  std::optional<std::string> code;
};

// 400 about one field (empty: about the request as a whole).
template <typename... Args>
ApiError BadField(std::string_view param, fmt::format_string<Args...> format, Args&&... args) {
  ApiError error;
  error.message = fmt::format(format, std::forward<Args>(args)...);
  if (!param.empty()) error.param = std::string(param);
  return error;
}

// 400: a field that means something elsewhere and is not done here.
ApiError UnsupportedField(std::string_view param, std::string_view what);

ApiError ModelNotFound(std::string_view model);   // 404
ApiError InvalidApiKey();                         // 401
ApiError Overloaded(std::string_view message);    // 429
ApiError NotAvailable(std::string_view message);  // 503: loading or shutting down.
ApiError TimedOut();                              // 504: the request's deadline passed.

// 400 with both counts. `where` says what the prompt is: "messages" or "prompt". With `at_least`
// the prompt's is a lower bound.
ApiError ContextLengthExceeded(uint32_t context_tokens, uint64_t prompt_tokens,
                               uint64_t completion_tokens, std::string_view where,
                               bool at_least = false);

// What the engine or a template said: kInvalidArgument is 400, kResourceExhausted 429, kUnavailable
// 503, kDeadlineExceeded 504, the rest 500.
ApiError ErrorFromStatus(const Status& status);

// The JSON text of the reply's body.
std::string FormatError(const ApiError& error);

}  // namespace kvasir

#endif  // KVASIR_API_ERROR_H_
