// RawClientForTest: a TCP connection to 127.0.0.1 that sends and expects exact bytes.
//
// Knows nothing of HTTP, so that a misunderstanding cannot hide in both ends of a test.
// Thread: one. Every wait ends after five seconds.
#ifndef KVASIR_IO_HTTP_RAW_CLIENT_FOR_TEST_H_
#define KVASIR_IO_HTTP_RAW_CLIENT_FOR_TEST_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace kvasir {

class RawClientForTest {
 public:
  // `receive_bytes` > 0 makes the kernel hold little for a client that does not read.
  explicit RawClientForTest(uint16_t port, int receive_bytes = 0) {
    fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (receive_bytes > 0) {
      setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof(receive_bytes));
    }
    struct sockaddr_in address {};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(fd_, reinterpret_cast<struct sockaddr*>(&address), sizeof(address)) == 0;
  }
  ~RawClientForTest() { Close(); }
  RawClientForTest(RawClientForTest&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)),
        connected_(other.connected_),
        buffer_(std::move(other.buffer_)) {}
  RawClientForTest(const RawClientForTest&) = delete;
  RawClientForTest& operator=(const RawClientForTest&) = delete;

  bool connected() const { return connected_; }

  // False when the peer takes no more.
  bool Send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }

  // Bytes up to and including `end`; what had come when it did not appear in time.
  std::string ReadUntil(std::string_view end) {
    const auto deadline = Deadline();
    while (true) {
      const size_t at = buffer_.find(end);
      if (at != std::string::npos) return Take(at + end.size());
      if (!More(deadline)) return Take(buffer_.size());
    }
  }

  std::string ReadBytes(size_t count) {
    const auto deadline = Deadline();
    while (buffer_.size() < count) {
      if (!More(deadline)) break;
    }
    return Take(std::min(count, buffer_.size()));
  }

  // One reply with a Content-Length, head and body.
  std::string ReadReply() {
    std::string reply = ReadUntil("\r\n\r\n");
    const size_t at = reply.find("\r\nContent-Length: ");
    if (at != std::string::npos) reply += ReadBytes(std::stoul(reply.substr(at + 18)));
    return reply;
  }

  // The rest, once the peer has closed; "<still open>" appended when it does not.
  std::string ReadToEnd() {
    const auto deadline = Deadline();
    while (More(deadline)) {
    }
    std::string rest = Take(buffer_.size());
    return ended_ ? rest : rest + "<still open>";
  }

  void ShutdownSending() { shutdown(fd_, SHUT_WR); }
  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }

 private:
  using Time = std::chrono::steady_clock::time_point;
  static Time Deadline() { return std::chrono::steady_clock::now() + std::chrono::seconds(5); }

  std::string Take(size_t count) {
    std::string taken = buffer_.substr(0, count);
    buffer_.erase(0, count);
    return taken;
  }

  bool More(Time deadline) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    struct pollfd wait = {fd_, POLLIN, 0};
    if (ended_ || left.count() <= 0 || poll(&wait, 1, static_cast<int>(left.count())) <= 0) {
      return false;
    }
    char bytes[16384];
    const ssize_t got = recv(fd_, bytes, sizeof(bytes), 0);
    if (got <= 0) {
      ended_ = true;
      return false;
    }
    buffer_.append(bytes, static_cast<size_t>(got));
    return true;
  }

  int fd_ = -1;
  bool connected_ = false;
  bool ended_ = false;  // End or reset.
  std::string buffer_;
};

}  // namespace kvasir

#endif  // KVASIR_IO_HTTP_RAW_CLIENT_FOR_TEST_H_
