// HttpConnection: the protocol of one client connection, without its socket.
//
// Bytes go in, bytes come out, deadlines are named, time is asked of the deriving class: that one
// moves the bytes (TcpConnection in http_server.cc; tests and the fuzz target use memory).
//
// Phases: kReceiving -> kHandling -> kFlushing -> kReceiving ..., or -> kLingering -> kClosed.
//   kReceiving  idle, or a request comes in; no exchange.
//   kHandling   an exchange has the request. Reading goes on, so that a hang-up is noticed at once;
//               what arrives early is kept for later, up to kPipelineBytes.
//   kFlushing   the reply is complete and on its way out.
//   kLingering  our side is shut; input is dropped until the client closes too, or a short while,
//               since closing with input unread would destroy the reply on its way.
// Invariant: kReceiving and kFlushing hold no callback; a deadline is kNever or in the future once
//            OnTime has returned.
// Thread:    one strand; Post alone may be called from any thread.
// Source:    RFC 9112, 9.3 (persistence), 9.6 (lingering close).
#ifndef KVASIR_IO_HTTP_CONNECTION_H_
#define KVASIR_IO_HTTP_CONNECTION_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "io/http_parser.h"
#include "io/http_router.h"
#include "io/http_server.h"

namespace kvasir {

// What all connections of a server share. Immutable but for the counts.
struct HttpService {
  HttpServer::Options options;
  HttpRouter router;
  uint64_t request_id_seed = 0;

  std::atomic<uint64_t> next_request{0};  // Names requests whose client did not.
  std::atomic<uint64_t> requests{0};      // These and the following: see HttpServerCounters.
  std::atomic<uint64_t> requests_rejected{0};
  std::atomic<uint64_t> request_timeouts{0};
  std::atomic<uint64_t> hang_ups{0};
  std::atomic<uint64_t> too_slow{0};
};

class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  // Bytes that a client may send ahead of the reply; then reading pauses.
  static constexpr size_t kPipelineBytes = 64 << 10;
  static constexpr TimeUs kLingerUs = 2'000'000;

  HttpConnection(std::shared_ptr<HttpService> service, std::string peer);
  virtual ~HttpConnection() = default;
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;

  // --- what happened, told by the one who moves the bytes ---

  void OnOpen();
  void OnOpenRefused();  // Above the limit: answers 503 to whatever comes, and closes.
  void OnBytes(std::string_view bytes);
  void OnReadEnd();  // The client closed, or reading failed.
  void OnWritten(
      size_t count);  // So many bytes of the outputs taken are gone. REQUIRES: they were.
  void OnWriteFailed();
  void OnTime();  // deadline() may have passed.
  void Drain();
  void Stop();

  // --- what is to be done: looked at after each of the above, and in Pump ---

  bool wants_read() const;
  bool wants_shutdown() const { return phase_ == Phase::kLingering; }  // Of the sending side.
  bool closed() const { return phase_ == Phase::kClosed; }
  bool has_output() const { return !output_.empty(); }
  std::string TakeOutput();  // At most one is under way: the next after OnWritten of all of it.
  TimeUs deadline() const;

  // --- the exchange's side ---

  // Each does what its namesake in HttpExchange says, and nothing outside kHandling.

  void Reply(int status, std::string_view content_type, std::string_view body,
             const HttpHeaders& headers);
  void StartStream(int status, std::string_view content_type, const HttpHeaders& headers);
  void Write(std::string_view bytes);
  void Finish();
  void SetOnDisconnect(std::function<void()> callback);
  void SetOnDeadline(TimeUs after, std::function<void()> callback);
  void Abandon();  // The exchange is gone and has not completed its reply.
  HttpDisconnect disconnect() const { return disconnect_; }

  // Runs `function` on the strand, later; destroys it when there is no strand any more. Any thread.
  virtual void Post(std::function<void()> function) = 0;

 protected:
  virtual TimeUs Now() const = 0;
  // Something below wants_read()..deadline() may have changed. Must not call back into OnX.
  virtual void Pump() = 0;

 private:
  enum class Phase : uint8_t { kReceiving, kHandling, kFlushing, kLingering, kClosed };

  void Receive();
  void BodyBegins();
  void Dispatch();
  std::optional<HttpError> Objection(HttpRouter::Match* match);  // To the request in parser_.
  bool IsPreflight(const HttpRouter::Match& match);
  static HttpHeaders AllowOf(const HttpRouter::Match& match);
  HttpRequest BeginReply();  // Takes the request, whole or not, out of parser_.
  void Preflight(const HttpRequest& request, const std::string& allow);
  void ReplyError(const HttpError& error, const HttpHeaders& headers, bool close);
  void Head(int status, std::string_view content_type, std::optional<uint64_t> length,
            const HttpHeaders& headers);
  void Output(std::string_view bytes);
  void OutputPiece(std::string_view bytes);  // Of a stream.
  void Complete();
  void AfterFlush();
  void Disconnect(HttpDisconnect reason);
  void Close();
  size_t queued_bytes() const { return output_.size() + in_flight_; }

  const std::shared_ptr<HttpService> service_;
  const std::string peer_;
  Phase phase_ = Phase::kReceiving;
  bool draining_ = false;
  bool read_ended_ = false;

  std::string input_;  // Received, not yet parsed.
  HttpRequestParser parser_;
  bool in_body_ = false;  // parser_ has reported the end of the headers.

  std::string output_;    // To be sent.
  size_t in_flight_ = 0;  // Taken, and not yet reported as written.

  // The request under way, from its headers on.
  std::string request_id_;
  std::string method_, path_;
  int version_ = 11;
  bool head_only_ = false;  // HEAD.
  bool keep_alive_ = true;  // false: close after the reply.
  bool streaming_ = false;  // The head of a stream is out.
  bool chunked_ = false;
  size_t large_piece_ = 0;  // The largest queued one that alone exceeds the write limit; or 0.
  std::function<void()> on_disconnect_;
  std::function<void()> on_deadline_;
  HttpDisconnect disconnect_ = HttpDisconnect::kNone;

  TimeUs phase_deadline_ = kNever;  // Of receiving or lingering.
  TimeUs write_deadline_ = kNever;  // For progress while queued_bytes() > 0.
  TimeUs comment_at_ = kNever;      // Of the next keep-alive comment.
  TimeUs reply_deadline_ = kNever;  // That the exchange asked for.
};

}  // namespace kvasir

#endif  // KVASIR_IO_HTTP_CONNECTION_H_
