// HttpServer: HTTP/1.1 and 1.0 over TCP; hands complete requests to a table of handlers.
//
// Deals with sockets and the protocol only: framing, keep-alive, pipelining, limits, timeouts,
// routing by method and path, CORS. It knows no JSON beyond the body of its own errors:
//   {"error": {"message", "type", "param": null, "code"}}
// No TLS and no HTTP/2: a proxy in front does that.
//
// The handler table is the one upward call in the house (a server cannot know what it serves).
// Thread:  each connection has a strand: its handler, callbacks and posted functions never run at
//          the same time, on one of Options.threads workers. A handler may compute there
//          (tokenize, parse), but must not wait: that holds up other connections.
// Source:  RFC 9110 (semantics), RFC 9112 (HTTP/1.1), the WHATWG HTML standard, 9.2 (SSE).
#ifndef KVASIR_IO_HTTP_SERVER_H_
#define KVASIR_IO_HTTP_SERVER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "io/http_message.h"

namespace kvasir {

class HttpConnection;

// Why an exchange can no longer reach its client.
enum class HttpDisconnect : uint8_t {
  kNone,     // The client is there, as far as anybody knows.
  kHungUp,   // It closed its connection, or its half of it (which looks the same).
  kTooSlow,  // More than write_limit_bytes waited for it, or nothing moved for write_timeout.
  kStopped,  // HttpServer::Stop.
};

// HttpExchange: one request and its reply. Held by a handler for as long as it works on it.
//
// Exactly one reply: Reply, or StartStream, Write*, Finish; a second one is our bug and aborts.
// Once the client is gone the calls still are allowed, and do nothing. If the last reference goes
// away before a reply, the client gets a 500; amid a stream, its connection is closed without the
// final chunk, so that it can tell a cut reply from a whole one.
// Thread: Post and the destructor on any thread; everything else on the strand.
class HttpExchange {
 public:
  HttpExchange(HttpRequest request, std::shared_ptr<HttpConnection> connection);
  ~HttpExchange();
  HttpExchange(const HttpExchange&) = delete;
  HttpExchange& operator=(const HttpExchange&) = delete;

  const HttpRequest& request() const { return request_; }

  // Gives the body away, to be parsed without a copy; request().body is empty afterwards.
  std::string TakeBody() { return std::move(request_.body); }

  // The whole reply. `headers` are extra ones: names are tokens and none of Content-Length,
  // Transfer-Encoding, Connection, Date (KV_CHECK: they are our own); control characters in values
  // become spaces, so that nothing can smuggle a line in. To a HEAD request the body is not sent.
  void Reply(int status, std::string_view content_type, std::string body,
             const HttpHeaders& headers = {});

  // A reply whose length is not known: chunked to HTTP/1.1, ended by closing to HTTP/1.0. When
  // content_type is text/event-stream, ": keep-alive" comments go out while nothing else does.
  void StartStream(int status, std::string_view content_type, const HttpHeaders& headers = {});

  // Queues bytes (of server-sent events: whole ones, as comments may go between); never blocks.
  // Empty is nothing. Beyond write_limit_bytes, on top of the largest piece if that alone is more,
  // the client is dropped as too slow. REQUIRES: StartStream, not Finish.
  void Write(std::string bytes);

  // Ends the stream. REQUIRES: StartStream.
  void Finish();

  // Runs `function` on the strand, soon, in the order of the calls, never inside the call; also
  // when the client is gone. After HttpServer::Stop it is destroyed instead. Any thread.
  // Keeps the connection, not the exchange: capture what the function needs.
  void Post(std::function<void()> function);

  // `callback` is called once, soon after the client hangs up or is dropped while the reply is not
  // complete, streaming or not; also when that has happened already. Never inside a call of ours,
  // never after Reply or Finish. (A client that has sent over 64 KiB of further requests ahead is
  // read no further, and missed at the next write only.) It replaces an earlier one, and is
  // destroyed when the reply is complete. One that holds the exchange itself forfeits the 500 of a
  // dropped exchange.
  void OnDisconnect(std::function<void()> callback);
  // The same if the reply is not complete `after` from now; the two do not replace each other.
  void OnDeadline(std::chrono::milliseconds after, std::function<void()> callback);

  HttpDisconnect disconnect() const;
  bool connected() const { return disconnect() == HttpDisconnect::kNone; }
  int status() const { return status_; }                    // Of the reply; 0 before it.
  uint64_t body_bytes_sent() const { return body_bytes_; }  // Queued for sending, without framing.

 private:
  enum class State : uint8_t { kWaiting, kStreaming, kDone };

  HttpRequest request_;
  const std::shared_ptr<HttpConnection> connection_;
  State state_ = State::kWaiting;
  int status_ = 0;
  uint64_t body_bytes_ = 0;
};

using HttpHandler = std::function<void(std::shared_ptr<HttpExchange>)>;

// `path` is exact, or ends in "/{id}": then the rest of the path, not empty, slashes included
// (names of models have them), becomes request.path_parameter. Exact routes win.
// GET routes answer HEAD too.
struct HttpRoute {
  std::string method;
  std::string path;
  HttpHandler handler;
};

// A request that the server answered itself: no route, malformed, too large, too slow, or dropped
// by its handler (500). What was not understood is empty.
struct HttpRejection {
  std::string peer;
  std::string request_id;
  std::string method;
  std::string path;
  int status = 0;
  std::string message;
};

// Counts since Create; only connections_open goes down.
struct HttpServerCounters {
  uint64_t connections_accepted = 0;
  uint64_t connections_refused = 0;  // Above max_connections: answered 503.
  uint64_t connections_open = 0;     // Now.
  uint64_t requests = 0;             // Handed to a handler.
  uint64_t requests_rejected = 0;    // Answered by the server itself: 4xx, 5xx.
  uint64_t request_timeouts = 0;     // Of these, 408.
  uint64_t hang_ups = 0;             // While a request was pending.
  uint64_t too_slow = 0;             // Dropped for not reading.
};

class HttpServer {
 public:
  struct Options {
    std::string host = "127.0.0.1";  // A name or an address; "::" for all.
    uint16_t port = 0;               // 0: any free one, see port().
    int threads = 8;                 // More than cores: what one computes long holds up no stream.
    // Above it a connection is accepted, answered 503 and closed; when 64 more wait for that,
    // further ones wait in the kernel's queue.
    size_t max_connections = 1024;
    size_t max_header_bytes = 32 << 10;  // Request line and fields together: 414, 431.
    size_t max_body_bytes = 16 << 20;    // 413.
    // For the whole of the headers, and of the body, from their first byte: 408.
    std::chrono::milliseconds header_timeout{10'000};
    std::chrono::milliseconds body_timeout{60'000};
    std::chrono::milliseconds idle_timeout{75'000};                 // Between requests.
    std::chrono::milliseconds write_timeout{60'000};                // Without one byte of progress.
    std::chrono::milliseconds keep_alive_comment_interval{10'000};  // 0: none.
    size_t write_limit_bytes = 1 << 20;      // Queued bytes of a stream, per connection.
    std::optional<std::string> cors_origin;  // "*" or one origin; nullopt: no CORS headers.
    // The handler of what no other one sees, for a log; empty: none. On the connection's strand.
    std::function<void(const HttpRejection&)> on_rejection;
  };

  // Binds and listens; connections wait in the kernel's queue until Start. Errors name address,
  // port and reason. kInvalidArgument also for a malformed or doubled route, a malformed CORS
  // origin, no threads, or limits too small for any request.
  static StatusOr<std::unique_ptr<HttpServer>> Create(Options options,
                                                      std::vector<HttpRoute> routes);
  ~HttpServer();  // Stop.

  uint16_t port() const;
  std::string address() const;  // "127.0.0.1:8080", "[::1]:8080".

  // Starts the workers and begins to accept; returns at once. Once.
  void Start();

  // Stops accepting and closes idle connections; the others close after their current reply
  // (which says so: Connection: close). Any thread, also inside a handler.
  void BeginDrain();

  // Waits until no connection is open; false when `timeout` passes first. Not on a worker.
  [[nodiscard]] bool WaitDrained(std::chrono::milliseconds timeout);

  // Closes every connection (exchanges get OnDisconnect) and joins the workers. Idempotent.
  // Exchanges may outlive the server; their calls then do nothing. Not on a worker.
  void Stop();

  HttpServerCounters counters() const;

 private:
  class Core;
  explicit HttpServer(std::shared_ptr<Core> core);

  const std::shared_ptr<Core> core_;
};

}  // namespace kvasir

#endif  // KVASIR_IO_HTTP_SERVER_H_
