#include "api/error.h"

#include <nlohmann/json.hpp>

namespace kvasir {

ApiError UnsupportedField(std::string_view param, std::string_view what) {
  ApiError error =
      BadField(param, "'{}': {} is not supported by this server; leave it out", param, what);
  error.code = "unsupported_parameter";
  return error;
}

ApiError ModelNotFound(std::string_view model) {
  ApiError error = BadField(
      "model", "The model '{}' does not exist here; GET /v1/models lists what does", model);
  error.status = 404;
  error.code = "model_not_found";
  return error;
}

ApiError InvalidApiKey() {
  ApiError error;
  error.status = 401;
  error.message = "Missing or incorrect API key; send it as 'Authorization: Bearer KEY'";
  error.code = "invalid_api_key";
  return error;
}

ApiError Overloaded(std::string_view message) {
  ApiError error;
  error.status = 429;
  error.message = std::string(message);
  error.type = "rate_limit_error";
  error.code = "rate_limit_exceeded";
  return error;
}

ApiError NotAvailable(std::string_view message) {
  ApiError error;
  error.status = 503;
  error.message = std::string(message);
  error.type = "unavailable_error";
  error.code = "unavailable";
  return error;
}

ApiError TimedOut() {
  ApiError error;
  error.status = 504;
  error.message = "The request did not finish before its deadline";
  error.type = "timeout_error";
  error.code = "timeout";
  return error;
}

ApiError ContextLengthExceeded(uint32_t context_tokens, uint64_t prompt_tokens,
                               uint64_t completion_tokens, std::string_view where, bool at_least) {
  const char* bound = at_least ? "at least " : "";
  ApiError error = BadField(
      where,
      "This model's maximum context length is {} tokens. However, you requested {}{} tokens ({}{} "
      "in the {}, {} in the completion). Please reduce the length of the {} or completion.",
      context_tokens, bound, prompt_tokens + completion_tokens, bound, prompt_tokens, where,
      completion_tokens, where);
  error.code = "context_length_exceeded";
  return error;
}

ApiError ErrorFromStatus(const Status& status) {
  switch (status.code()) {
    case StatusCode::kInvalidArgument:
    case StatusCode::kOutOfRange:
      return BadField("", "{}", MessageOf(status));
    case StatusCode::kResourceExhausted:
      return Overloaded(MessageOf(status));
    case StatusCode::kUnavailable:
      return NotAvailable(MessageOf(status));
    case StatusCode::kDeadlineExceeded:
      return TimedOut();
    default:
      break;
  }
  ApiError error;
  error.status = 500;
  error.message = std::string(MessageOf(status));
  error.type = "server_error";
  return error;
}

std::string FormatError(const ApiError& error) {
  nlohmann::ordered_json body;
  body["message"] = error.message;
  body["type"] = error.type;
  body["param"] = nullptr;
  body["code"] = nullptr;
  if (error.param.has_value()) body["param"] = *error.param;
  if (error.code.has_value()) body["code"] = *error.code;
  nlohmann::ordered_json root;
  root["error"] = std::move(body);
  // Messages may quote the request.
  return root.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace kvasir
