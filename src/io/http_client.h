// HttpClient: one connection to one HTTP/1.1 server, blocking; kept open between requests.
//
// For the load generator, downloads, tests and the router, which use a thread for each request
// under way. TLS and a proxy where Options say so. No redirects, no pool: a caller that wants n
// requests at once has n clients. Thread: one at a time; Cancel alone may be called beside another
// call. Source: RFC 9112.
#ifndef KVASIR_IO_HTTP_CLIENT_H_
#define KVASIR_IO_HTTP_CLIENT_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "io/http_parser.h"
#include "io/tls_stream.h"

struct addrinfo;  // <netdb.h>

namespace kvasir {

struct HttpUrl {
  std::string host;
  uint16_t port = 80;
  std::string path;  // What is to stand before every target: "" or "/prefix".
};

// "http://host[:port][/prefix]", "host:port", "[::1]:8080". kInvalidArgument otherwise, https
// included.
StatusOr<HttpUrl> ParseHttpUrl(std::string_view url);

struct HttpClientRequest {
  std::string method = "GET";
  std::string target = "/";  // Path and query, encoded.
  HttpHeaders headers;       // Beside Host and Content-Length. Must not hold line ends.
  std::string body;          // Sent when not empty, or when the method is POST, PUT or PATCH.
};

class HttpClient {
 public:
  struct Options {
    std::chrono::milliseconds connect_timeout{5'000};
    std::chrono::milliseconds idle_timeout{300'000};  // Without one byte in either direction.
    std::shared_ptr<const TlsContext> tls;            // Given: https.
    const std::atomic<bool>* stop = nullptr;          // Looked at often while waiting: kCancelled.
    // Given: connections go to this HTTP proxy, with TLS through a tunnel (CONNECT).
    std::string proxy_host;
    uint16_t proxy_port = 0;
    // How long to listen after a response for bytes that do not belong to it; see excess().
    std::chrono::milliseconds linger{0};
  };
  // Gets the head of a response, its body still empty, before any of the body. false: enough.
  using OnHead = std::function<bool(const HttpResponse&)>;

  HttpClient(std::string host, uint16_t port, Options options);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // Connects unless a kept connection is open. Send does so by itself; alone it takes the time of
  // connecting out of a measurement. kUnavailable, naming host, port and reason; kDeadlineExceeded;
  // kPermissionDenied: a certificate that is not trusted.
  Status Connect();

  // The whole response, whatever its status. Errors are of transport: kUnavailable,
  // kDeadlineExceeded, kCancelled, kInvalidArgument (the peer does not speak HTTP). A kept
  // connection that turns out to be closed before anything came back is replaced once.
  StatusOr<HttpResponse> Send(const HttpClientRequest& request);

  // As Send, but the body of a 2xx response goes to `on_body` piece by piece as it arrives. When
  // that returns false the connection is closed and the response is returned as it stands.
  // The same after `on_head` has returned false, which then is the last thing that happens.
  StatusOr<HttpResponse> Stream(const HttpClientRequest& request, HttpResponseParser::Sink on_body,
                                OnHead on_head = nullptr);

  // True when the last whole response was followed by bytes that nobody had asked for.
  bool excess() const { return excess_; }

  // Makes a call under way on another thread, or the next one, fail with kCancelled. Any thread.
  void Cancel();

  void Close();
  bool connected() const { return fd_ >= 0; }

 private:
  struct Sinks;
  Status ConnectTo(const struct addrinfo& address);
  Status OpenTunnel();
  Status Handshake();
  bool StillOpen() const;
  // Bytes read, 0 at the end; waits.
  StatusOr<size_t> Receive(char* bytes, size_t size, std::string_view what);
  bool MoreComes();
  Status SendAll(std::string_view bytes);
  Status Wait(short events, std::chrono::milliseconds timeout, std::string_view what);
  StatusOr<HttpResponse> Exchange(const HttpClientRequest& request, std::string_view bytes,
                                  const Sinks& sinks, bool* answered);
  Status Trouble(std::string_view what, int error) const;

  const std::string host_;
  const uint16_t port_;
  const Options options_;
  int fd_ = -1;
  std::unique_ptr<TlsStream> tls_;  // With Options.tls, while connected.
  bool excess_ = false;
  const int cancel_fd_;  // An eventfd, readable once cancelled.
};

}  // namespace kvasir

#endif  // KVASIR_IO_HTTP_CLIENT_H_
