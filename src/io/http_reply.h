// The bytes of a reply: status line and headers, and the JSON of the server's own errors.
//
// Pure functions. Nothing a caller passes can end a line early: control characters in values become
// spaces, and names that are not tokens abort (they are our own).
// Source: RFC 9112 (syntax), RFC 9110 (status codes, Date).
#ifndef KVASIR_IO_HTTP_REPLY_H_
#define KVASIR_IO_HTTP_REPLY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "io/http_message.h"

namespace kvasir {

// An answer the server gives without asking a handler.
struct HttpError {
  int status = 500;
  std::string code;     // A word for programs: "unknown_url".
  std::string message;  // A sentence for people.
};

// {"error": {"message", "type", "param": null, "code"}}; type is invalid_request_error below 500
// and server_error from there. Bytes of `message` outside printable ASCII become '?': it may quote
// what a client sent, which need not be UTF-8.
std::string HttpErrorJson(const HttpError& error);

// "Not Found" for 404; "Unknown" for a code that RFC 9110 does not have.
std::string_view HttpReason(int status);

struct HttpReplyHead {
  int status = 200;
  int version = 11;                // Of the request: 10 gets "Connection: keep-alive" spelled out.
  std::string_view content_type;   // Empty: no such field.
  std::optional<uint64_t> length;  // Content-Length; nullopt with chunked false: until it closes.
  bool chunked = false;            // Transfer-Encoding: chunked.
  bool keep_alive = true;          // false: Connection: close.
  std::string_view request_id;
  int64_t unix_seconds = 0;  // Date.
};

// Status line and fields up to and including the empty line. 1xx, 204 and 304 get no length.
// REQUIRES: every name in `extra` is a token and none that the head itself decides.
std::string FormatReplyHead(const HttpReplyHead& head, const HttpHeaders& extra);

// "Sun, 06 Nov 1994 08:49:37 GMT".
std::string FormatHttpDate(int64_t unix_seconds);

// The bytes as one chunk of the chunked coding, appended to `out`. REQUIRES: bytes is not empty
// (the empty chunk ends the message).
void AppendChunk(std::string_view bytes, std::string* out);

// True when `text` may be a request id: 1 to 128 visible ASCII characters.
bool IsSaneRequestId(std::string_view text);

// True when `text` is a token (RFC 9110, 5.6.2): a method or a field name.
bool IsHttpToken(std::string_view text);

}  // namespace kvasir

#endif  // KVASIR_IO_HTTP_REPLY_H_
