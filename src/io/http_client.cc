#include "io/http_client.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"

namespace kvasir {
namespace {

constexpr size_t kReadBytes = 64 << 10;

std::string RequestBytes(const HttpClientRequest& request, std::string_view host, uint16_t port) {
  const bool v6 = host.find(':') != std::string_view::npos;
  std::string out = fmt::format("{} {} HTTP/1.1\r\nHost: {}{}{}:{}\r\n", request.method,
                                request.target, v6 ? "[" : "", host, v6 ? "]" : "", port);
  for (const auto& [name, value] : request.headers) {
    KV_CHECK(IsHttpToken(name));
    KV_CHECK(value.find_first_of(std::string_view("\r\n\0", 3)) == std::string::npos);
    out += fmt::format("{}: {}\r\n", name, value);
  }
  const bool has_body = !request.body.empty() || request.method == "POST" ||
                        request.method == "PUT" || request.method == "PATCH";
  if (has_body) out += fmt::format("Content-Length: {}\r\n", request.body.size());
  return out + "\r\n" + request.body;
}

}  // namespace

StatusOr<HttpUrl> ParseHttpUrl(std::string_view url) {
  std::string_view rest = url;
  if (EqualsIgnoreCase(rest.substr(0, 7), "http://")) {
    rest.remove_prefix(7);
  } else if (rest.find("://") != std::string_view::npos) {
    return InvalidArgument("{}: only http:// is supported", url);
  }
  HttpUrl result;
  const size_t slash = std::min(rest.find('/'), rest.size());
  std::string_view authority = rest.substr(0, slash);
  result.path = rest.substr(slash);
  while (!result.path.empty() && result.path.back() == '/') result.path.pop_back();
  std::string_view port;
  if (!authority.empty() && authority[0] == '[') {
    const size_t end = authority.find(']');
    if (end == std::string_view::npos) return InvalidArgument("{}: no ] after the address", url);
    result.host = authority.substr(1, end - 1);
    authority.remove_prefix(end + 1);
    if (!authority.empty() && authority[0] != ':') {
      return InvalidArgument("{}: want a port after ]", url);
    }
    port = authority.substr(std::min<size_t>(1, authority.size()));
  } else {
    const size_t colon = std::min(authority.find(':'), authority.size());
    result.host = authority.substr(0, colon);
    port = authority.substr(std::min(colon + 1, authority.size()));
  }
  if (result.host.empty()) return InvalidArgument("{}: no host; want http://host:port", url);
  if (!port.empty()) {
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), result.port);
    if (error != std::errc() || end != port.data() + port.size() || result.port == 0) {
      return InvalidArgument("{}: {} is not a port (1 to 65535)", url, port);
    }
  }
  return result;
}

HttpClient::HttpClient(std::string host, uint16_t port, Options options)
    : host_(std::move(host)),
      port_(port),
      options_(options),
      cancel_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  KV_CHECK_GE(cancel_fd_, 0);
}

HttpClient::~HttpClient() {
  Close();
  close(cancel_fd_);
}

Status HttpClient::Trouble(std::string_view what, int error) const {
  return MakeStatus(StatusCode::kUnavailable,
                    fmt::format("{} port {}: {}: {}", host_, port_, what, std::strerror(error)));
}

Status HttpClient::Connect() {
  if (fd_ >= 0) {
    if (StillOpen()) return OkStatus();
    Close();
  }
  struct addrinfo hints {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  struct addrinfo* found = nullptr;
  const int error = getaddrinfo(host_.c_str(), fmt::format("{}", port_).c_str(), &hints, &found);
  if (error != 0) {
    return MakeStatus(StatusCode::kUnavailable,
                      fmt::format("{} port {}: {}", host_, port_, gai_strerror(error)));
  }
  const std::unique_ptr<struct addrinfo, decltype(&freeaddrinfo)> addresses(found, &freeaddrinfo);
  Status status = OkStatus();
  for (const struct addrinfo* a = found; a != nullptr; a = a->ai_next) {
    status = ConnectTo(*a);
    if (status.ok()) return status;
    Close();
  }
  return status;
}

Status HttpClient::ConnectTo(const struct addrinfo& address) {
  fd_ = socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd_ < 0) return Trouble("no socket", errno);
  const int one = 1;
  setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  if (connect(fd_, address.ai_addr, address.ai_addrlen) == 0) return OkStatus();
  if (errno != EINPROGRESS) return Trouble("cannot connect", errno);
  KV_RETURN_IF_ERROR(Wait(POLLOUT, options_.connect_timeout, "connecting"));
  int error = 0;
  socklen_t size = sizeof(error);
  if (getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  return error == 0 ? OkStatus() : Trouble("cannot connect", error);
}

// A kept connection that has something to read, its end above all, is of no use any more.
bool HttpClient::StillOpen() const {
  char byte;
  return recv(fd_, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
         (errno == EAGAIN || errno == EWOULDBLOCK);
}

Status HttpClient::Wait(short events, std::chrono::milliseconds timeout, std::string_view what) {
  struct pollfd waits[] = {{fd_, events, 0}, {cancel_fd_, POLLIN, 0}};
  int ready = 0;
  do {
    ready = poll(waits, 2, static_cast<int>(timeout.count()));
  } while (ready < 0 && errno == EINTR);
  if (ready < 0) return Trouble("poll", errno);
  if (ready == 0) {
    return MakeStatus(StatusCode::kDeadlineExceeded,
                      fmt::format("{} port {}: no progress for {} ms while {}", host_, port_,
                                  timeout.count(), what));
  }
  if (waits[1].revents != 0) {
    uint64_t count = 0;
    if (read(cancel_fd_, &count, sizeof(count)) < 0) return Trouble("eventfd", errno);
    return MakeStatus(StatusCode::kCancelled, fmt::format("{} port {}: cancelled", host_, port_));
  }
  return OkStatus();
}

Status HttpClient::SendAll(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      bytes.remove_prefix(static_cast<size_t>(sent));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      KV_RETURN_IF_ERROR(Wait(POLLOUT, options_.idle_timeout, "sending"));
    } else if (errno != EINTR) {
      return Trouble("cannot send", errno);
    }
  }
  return OkStatus();
}

StatusOr<HttpResponse> HttpClient::Send(const HttpClientRequest& request) {
  return Stream(request, nullptr);
}

StatusOr<HttpResponse> HttpClient::Stream(const HttpClientRequest& request,
                                          HttpResponseParser::Sink on_body) {
  const std::string bytes = RequestBytes(request, host_, port_);
  for (bool again = connected();; again = false) {
    KV_RETURN_IF_ERROR(Connect());
    bool answered = false;
    auto response = Exchange(request, bytes, on_body, &answered);
    if (response.ok()) return response;
    Close();
    if (!again || answered || response.status().code() != StatusCode::kUnavailable) {
      return response;
    }
  }
}

StatusOr<HttpResponse> HttpClient::Exchange(const HttpClientRequest& request,
                                            std::string_view bytes,
                                            const HttpResponseParser::Sink& on_body,
                                            bool* answered) {
  HttpResponseParser* parsing = nullptr;
  std::string error_body;
  HttpResponseParser::Sink sink;
  if (on_body) {
    sink = [&](std::string_view piece) {
      if (parsing->response().status / 100 == 2) return on_body(piece);
      error_body.append(piece);
      return true;
    };
  }
  HttpResponseParser parser(request.method == "HEAD", sink);
  parsing = &parser;
  // A server may refuse a body before it has read it all, and close: its answer counts.
  const Status sent = SendAll(bytes);
  if (!sent.ok() && sent.code() != StatusCode::kUnavailable) return sent;
  std::string input;
  std::vector<char> buffer(kReadBytes);
  while (!parser.done()) {
    const ssize_t got = recv(fd_, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got > 0) {
      *answered = true;
      input.append(buffer.data(), static_cast<size_t>(got));
      KV_ASSIGN_OR_RETURN(const size_t used, parser.Feed(input));
      input.erase(0, used);
    } else if (got == 0) {
      const Status end = parser.FeedEnd();
      if (!end.ok()) {
        return MakeStatus(StatusCode::kUnavailable,
                          fmt::format("{} port {}: {}", host_, port_, MessageOf(end)));
      }
      break;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      KV_RETURN_IF_ERROR(Wait(POLLIN, options_.idle_timeout, "waiting for the response"));
    } else if (errno != EINTR) {
      return sent.ok() ? Trouble("cannot receive", errno) : sent;
    }
  }
  if (!sent.ok() || !parser.keep_alive() || !input.empty()) Close();
  HttpResponse response = std::move(parser.response());
  if (on_body) response.body = std::move(error_body);
  return response;
}

void HttpClient::Cancel() {
  const uint64_t one = 1;
  // Fails only when it is cancelled 2^64 - 1 times over already.
  [[maybe_unused]] const ssize_t written = write(cancel_fd_, &one, sizeof(one));
}

void HttpClient::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

}  // namespace kvasir
