// HttpRequestParser and HttpResponseParser: one message from bytes that come in any pieces.
//
// Syntax, framing and limits, without sockets. Memory follows what has arrived, never what a
// client announces. Where a request's end would be in doubt (Content-Length beside
// Transfer-Encoding, differing lengths, a coding other than chunked) it is refused and the
// connection with it: what follows might be another request, smuggled in.
// Source: RFC 9112; RFC 9110, 10.1.1 (Expect).
#ifndef KVASIR_IO_HTTP_PARSER_H_
#define KVASIR_IO_HTTP_PARSER_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "io/http_message.h"
#include "io/http_reply.h"

namespace kvasir {

class HttpRequestParser {
 public:
  struct Limits {
    size_t header_bytes = 32 << 10;  // Request line and fields; also a chunk's line, the trailer.
    size_t body_bytes = 16 << 20;
  };
  enum class State : uint8_t {
    kEmpty,    // No byte of a request yet (empty lines before it do not count).
    kHeaders,  // Some.
    kBody,     // The headers are complete, the body is not.
    kDone,
    kFailed,  // See error(); the connection cannot go on.
  };

  explicit HttpRequestParser(const Limits& limits);
  ~HttpRequestParser();

  // Reads a prefix of `bytes` and returns its length. The caller keeps the rest and gives it again,
  // longer: at most header_bytes + 1 of them are left while the state is below kDone. Stops once
  // between headers and body, and at the end of the request. REQUIRES: not kDone, not kFailed.
  size_t Feed(std::string_view bytes);

  State state() const;

  // kFailed: why. kBody and kDone: what is wrong with a request whose end is known all the same (an
  // odd target, no Host, an unknown method, no length), so that the connection survives.
  const std::optional<HttpError>& error() const;

  // From kBody on: the client waits for "100 Continue" before it sends the body.
  bool expects_continue() const;

  // From kBody on: another request may follow, as far as the client is concerned.
  bool keep_alive() const;

  // The request so far; complete in kDone. Its method, version and headers are there from kBody on,
  // in kFailed possibly in part. peer, request_id, path_parameter and received_us stay empty.
  HttpRequest& request();

  // Forgets everything; the next request begins.
  void Reset();

 private:
  class Message;
  const Limits limits_;
  std::unique_ptr<Message> message_;
};

struct HttpResponse {
  int status = 0;
  int version = 11;
  HttpHeaders headers;
  std::string body;  // Empty when a sink took it.
};

class HttpResponseParser {
 public:
  // `sink` gets the body's pieces as they come. false from it ends the parsing (done()).
  using Sink = std::function<bool(std::string_view)>;

  HttpResponseParser(bool to_head_request, Sink sink);
  ~HttpResponseParser();

  // As above. Interim replies (1xx) are skipped. kInvalidArgument: not an HTTP response.
  StatusOr<size_t> Feed(std::string_view bytes);

  // The peer has closed. OK when that ends the message as it should.
  Status FeedEnd();

  bool headers_done() const;
  bool done() const;
  bool keep_alive() const;  // Once done: the connection may carry another request.
  HttpResponse& response();

 private:
  class Message;
  void Restart();
  const bool to_head_request_;
  const Sink sink_;
  std::unique_ptr<Message> message_;
};

}  // namespace kvasir

#endif  // KVASIR_IO_HTTP_PARSER_H_
