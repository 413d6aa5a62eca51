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

constexpr std::chrono::milliseconds kStopPoll{50};
// A proxy's answer to CONNECT; more is not one.
constexpr size_t kMaxTunnelReply = 16 << 10;

std::string Authority(std::string_view host, uint16_t port, uint16_t usual_port) {
  const bool v6 = host.find(':') != std::string_view::npos;
  const std::string name = fmt::format("{}{}{}", v6 ? "[" : "", host, v6 ? "]" : "");
  return port == usual_port ? name : fmt::format("{}:{}", name, port);
}

std::string RequestBytes(const HttpClientRequest& request, std::string_view prefix,
                         std::string_view authority) {
  std::string out = fmt::format("{} {}{} HTTP/1.1\r\nHost: {}\r\n", request.method, prefix,
                                request.target, authority);
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
  const bool proxy = !options_.proxy_host.empty();
  const std::string& host = proxy ? options_.proxy_host : host_;
  const uint16_t port = proxy ? options_.proxy_port : port_;
  const int error = getaddrinfo(host.c_str(), fmt::format("{}", port).c_str(), &hints, &found);
  if (error != 0) {
    return MakeStatus(StatusCode::kUnavailable,
                      fmt::format("{} port {}: {}", host, port, gai_strerror(error)));
  }
  const std::unique_ptr<struct addrinfo, decltype(&freeaddrinfo)> addresses(found, &freeaddrinfo);
  Status status = OkStatus();
  for (const struct addrinfo* a = found; a != nullptr; a = a->ai_next) {
    status = ConnectTo(*a);
    if (status.ok() && options_.tls != nullptr && proxy) status = OpenTunnel();
    if (status.ok() && options_.tls != nullptr) status = Handshake();
    if (status.ok()) return status;
    Close();
    // Another address would not make the certificate better, nor anybody more patient.
    if (status.code() == StatusCode::kPermissionDenied || status.code() == StatusCode::kCancelled) {
      break;
    }
  }
  return status;
}

Status HttpClient::OpenTunnel() {
  const std::string authority = Authority(host_, port_, 0);
  KV_RETURN_IF_ERROR(
      SendAll(fmt::format("CONNECT {} HTTP/1.1\r\nHost: {}\r\n\r\n", authority, authority)));
  // Byte by byte: what follows the head belongs to TLS.
  std::string reply;
  while (reply.size() < 4 || reply.compare(reply.size() - 4, 4, "\r\n\r\n") != 0) {
    char byte;
    KV_ASSIGN_OR_RETURN(const size_t got, Receive(&byte, 1, "waiting for the proxy"));
    if (got == 0) return Trouble("the proxy has hung up", ECONNRESET);
    reply += byte;
    if (reply.size() > kMaxTunnelReply) return Trouble("the proxy does not speak HTTP", EPROTO);
  }
  if (reply.rfind("HTTP/1.", 0) == 0 && reply.substr(8, 2) == " 2") return OkStatus();
  return MakeStatus(
      StatusCode::kUnavailable,
      fmt::format("{} port {}: the proxy {} answers {}", host_, port_, options_.proxy_host,
                  reply.substr(0, std::min(reply.find('\r'), size_t{80}))));
}

Status HttpClient::Handshake() {
  KV_ASSIGN_OR_RETURN(tls_, TlsStream::Create(options_.tls, fd_, host_));
  while (true) {
    const TlsStream::Result result = tls_->Handshake();
    switch (result.kind) {
      case TlsStream::Result::Kind::kDone:
        return OkStatus();
      case TlsStream::Result::Kind::kWantRead:
        KV_RETURN_IF_ERROR(Wait(POLLIN, options_.connect_timeout, "agreeing on TLS"));
        break;
      case TlsStream::Result::Kind::kWantWrite:
        KV_RETURN_IF_ERROR(Wait(POLLOUT, options_.connect_timeout, "agreeing on TLS"));
        break;
      default:
        return MakeStatus(
            result.distrust ? StatusCode::kPermissionDenied : StatusCode::kUnavailable,
            fmt::format("{} port {}: no TLS connection: {}", host_, port_,
                        result.problem.empty() ? "the peer has hung up" : result.problem));
    }
  }
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
  if (tls_ != nullptr && tls_->HasPending()) return false;
  char byte;
  return recv(fd_, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
         (errno == EAGAIN || errno == EWOULDBLOCK);
}

Status HttpClient::Wait(short events, std::chrono::milliseconds timeout, std::string_view what) {
  struct pollfd waits[] = {{fd_, events, 0}, {cancel_fd_, POLLIN, 0}};
  int ready = 0;
  auto left = timeout;
  do {
    if (options_.stop != nullptr && options_.stop->load()) {
      return MakeStatus(StatusCode::kCancelled, fmt::format("{} port {}: stopped", host_, port_));
    }
    const auto slice = options_.stop == nullptr ? left : std::min(left, kStopPoll);
    ready = poll(waits, 2, static_cast<int>(slice.count()));
    if (ready == 0) left -= slice;
  } while ((ready < 0 && errno == EINTR) || (ready == 0 && left.count() > 0));
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
    if (tls_ != nullptr) {
      const TlsStream::Result result = tls_->Write(bytes);
      switch (result.kind) {
        case TlsStream::Result::Kind::kDone:
          bytes.remove_prefix(result.bytes);
          break;
        case TlsStream::Result::Kind::kWantRead:
          KV_RETURN_IF_ERROR(Wait(POLLIN, options_.idle_timeout, "sending"));
          break;
        case TlsStream::Result::Kind::kWantWrite:
          KV_RETURN_IF_ERROR(Wait(POLLOUT, options_.idle_timeout, "sending"));
          break;
        default:
          return Trouble("cannot send", ECONNRESET);
      }
      continue;
    }
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

StatusOr<size_t> HttpClient::Receive(char* bytes, size_t size, std::string_view what) {
  while (true) {
    short events = POLLIN;
    if (tls_ != nullptr) {
      const TlsStream::Result result = tls_->Read(bytes, size);
      if (result.kind == TlsStream::Result::Kind::kDone) return result.bytes;
      if (result.kind == TlsStream::Result::Kind::kEnd) return size_t{0};
      if (result.kind == TlsStream::Result::Kind::kFailed) {
        return MakeStatus(StatusCode::kUnavailable, fmt::format("{} port {}: cannot receive: {}",
                                                                host_, port_, result.problem));
      }
      if (result.kind == TlsStream::Result::Kind::kWantWrite) events = POLLOUT;
    } else {
      const ssize_t got = recv(fd_, bytes, size, MSG_DONTWAIT);
      if (got >= 0) return static_cast<size_t>(got);
      if (errno == EINTR) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) return Trouble("cannot receive", errno);
    }
    KV_RETURN_IF_ERROR(Wait(events, options_.idle_timeout, what));
  }
}

// Whether the peer sends on after the end of its response. Silence and a hang-up are both "no".
bool HttpClient::MoreComes() {
  if (options_.linger.count() == 0) return false;
  if (tls_ == nullptr || !tls_->HasPending()) {
    if (!Wait(POLLIN, options_.linger, "listening").ok()) return false;
  }
  char byte;
  if (tls_ != nullptr) return tls_->Read(&byte, 1).kind == TlsStream::Result::Kind::kDone;
  return recv(fd_, &byte, 1, MSG_DONTWAIT) > 0;
}

StatusOr<HttpResponse> HttpClient::Send(const HttpClientRequest& request) {
  return Stream(request, nullptr);
}

struct HttpClient::Sinks {
  const HttpResponseParser::Sink& on_body;
  const OnHead& on_head;
};

StatusOr<HttpResponse> HttpClient::Stream(const HttpClientRequest& request,
                                          HttpResponseParser::Sink on_body, OnHead on_head) {
  const std::string authority = Authority(host_, port_, options_.tls == nullptr ? 80 : 443);
  // A proxy is told the whole address, unless a tunnel leads past it.
  const bool absolute = !options_.proxy_host.empty() && options_.tls == nullptr;
  const std::string bytes =
      RequestBytes(request, absolute ? "http://" + authority : std::string(), authority);
  for (bool again = connected();; again = false) {
    KV_RETURN_IF_ERROR(Connect());
    bool answered = false;
    auto response = Exchange(request, bytes, {on_body, on_head}, &answered);
    if (response.ok()) return response;
    Close();
    if (!again || answered || response.status().code() != StatusCode::kUnavailable) {
      return response;
    }
  }
}

StatusOr<HttpResponse> HttpClient::Exchange(const HttpClientRequest& request,
                                            std::string_view bytes, const Sinks& sinks,
                                            bool* answered) {
  HttpResponseParser* parsing = nullptr;
  std::string error_body;
  bool head_told = false;
  bool wanted = true;
  const auto tell_head = [&] {
    if (!head_told && sinks.on_head) wanted = sinks.on_head(parsing->response());
    head_told = true;
    return wanted;
  };
  HttpResponseParser::Sink sink;
  if (sinks.on_body) {
    sink = [&](std::string_view piece) {
      if (!tell_head()) return false;
      if (parsing->response().status / 100 == 2) return sinks.on_body(piece);
      error_body.append(piece);
      return true;
    };
  }
  HttpResponseParser parser(request.method == "HEAD", sink);
  parsing = &parser;
  excess_ = false;
  // A server may refuse a body before it has read it all, and close: its answer counts.
  const Status sent = SendAll(bytes);
  if (!sent.ok() && sent.code() != StatusCode::kUnavailable) return sent;
  std::string input;
  std::vector<char> buffer(kReadBytes);
  while (!parser.done() && wanted) {
    const auto got = Receive(buffer.data(), buffer.size(), "waiting for the response");
    if (!got.ok()) return sent.ok() ? got.status() : sent;
    if (*got == 0) {
      const Status end = parser.FeedEnd();
      if (!end.ok()) {
        return MakeStatus(StatusCode::kUnavailable,
                          fmt::format("{} port {}: {}", host_, port_, MessageOf(end)));
      }
      break;
    }
    *answered = true;
    input.append(buffer.data(), *got);
    KV_ASSIGN_OR_RETURN(const size_t used, parser.Feed(input));
    input.erase(0, used);
    if (parser.headers_done()) tell_head();
  }
  if (wanted && parser.done()) excess_ = !input.empty() || MoreComes();
  if (!sent.ok() || !wanted || !parser.keep_alive() || !input.empty()) Close();
  HttpResponse response = std::move(parser.response());
  if (sinks.on_body) response.body = std::move(error_body);
  return response;
}

void HttpClient::Cancel() {
  const uint64_t one = 1;
  // Fails only when it is cancelled 2^64 - 1 times over already.
  [[maybe_unused]] const ssize_t written = write(cancel_fd_, &one, sizeof(one));
}

void HttpClient::Close() {
  tls_.reset();
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

}  // namespace kvasir
