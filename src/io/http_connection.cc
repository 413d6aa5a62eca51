#include "io/http_connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <utility>

#include "base/check.h"

namespace kvasir {
namespace {

TimeUs Us(std::chrono::milliseconds duration) { return duration.count() * 1000; }

std::string Excerpt(std::string_view text) {
  return text.size() <= 200 ? std::string(text) : std::string(text.substr(0, 200)) + "...";
}

// A bijection of 64 bits (splitmix64's finalizer): ids look random and never repeat.
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

HttpConnection::HttpConnection(std::shared_ptr<HttpService> service, std::string peer)
    : service_(std::move(service)),
      peer_(std::move(peer)),
      parser_({.header_bytes = service_->options.max_header_bytes,
               .body_bytes = service_->options.max_body_bytes}) {}

// --- what happened ---

void HttpConnection::OnOpen() { phase_deadline_ = Now() + Us(service_->options.idle_timeout); }

void HttpConnection::OnOpenRefused() {
  BeginReply();
  ReplyError({503, "too_many_connections", "The server has as many connections as it may."},
             {{"Retry-After", "1"}}, /*close=*/true);
}

void HttpConnection::OnBytes(std::string_view bytes) {
  if (phase_ == Phase::kLingering || phase_ == Phase::kClosed) return;
  input_.append(bytes);
  if (phase_ == Phase::kReceiving) Receive();
}

void HttpConnection::OnReadEnd() {
  read_ended_ = true;
  if (phase_ == Phase::kHandling) {
    Disconnect(HttpDisconnect::kHungUp);
  } else if (phase_ != Phase::kFlushing) {  // A half-closed client still gets a reply under way.
    Close();
  }
}

void HttpConnection::OnWritten(size_t count) {
  KV_CHECK_LE(count, in_flight_);
  in_flight_ -= count;
  write_deadline_ = queued_bytes() > 0 ? Now() + Us(service_->options.write_timeout) : kNever;
  if (phase_ == Phase::kFlushing && queued_bytes() == 0) AfterFlush();
}

void HttpConnection::OnWriteFailed() {
  in_flight_ = 0;
  if (phase_ == Phase::kHandling) {
    Disconnect(HttpDisconnect::kHungUp);
  } else {
    Close();
  }
}

void HttpConnection::OnTime() {
  if (phase_ == Phase::kClosed) return;
  const TimeUs now = Now();
  if (now >= write_deadline_) {
    if (phase_ == Phase::kHandling) {
      Disconnect(HttpDisconnect::kTooSlow);
    } else {
      ++service_->too_slow;
      Close();
    }
    return;
  }
  if (now >= phase_deadline_) {
    phase_deadline_ = kNever;
    if (phase_ != Phase::kReceiving || parser_.state() == HttpRequestParser::State::kEmpty) {
      Close();
      return;
    }
    ++service_->request_timeouts;
    const HttpError error = {
        408, "request_timeout",
        fmt::format("The {} did not arrive in time.", in_body_ ? "body" : "headers")};
    BeginReply();
    ReplyError(error, {}, /*close=*/true);
  }
  if (now >= comment_at_) {
    if (queued_bytes() == 0) OutputPiece(": keep-alive\n\n");
    comment_at_ = now + Us(service_->options.keep_alive_comment_interval);
  }
  if (now >= reply_deadline_) {
    reply_deadline_ = kNever;
    Post(std::exchange(on_deadline_, nullptr));
  }
}

void HttpConnection::Drain() {
  draining_ = true;
  keep_alive_ = false;
  const bool idle =
      phase_ == Phase::kReceiving && parser_.state() == HttpRequestParser::State::kEmpty;
  if (idle) Close();
}

void HttpConnection::Stop() {
  if (phase_ == Phase::kHandling) {
    Disconnect(HttpDisconnect::kStopped);
  } else {
    Close();
  }
}

// --- what is to be done ---

bool HttpConnection::wants_read() const {
  if (read_ended_ || phase_ == Phase::kClosed) return false;
  return phase_ == Phase::kReceiving || phase_ == Phase::kLingering ||
         input_.size() < kPipelineBytes;
}

std::string HttpConnection::TakeOutput() {
  KV_CHECK_EQ(in_flight_, 0u);
  in_flight_ = output_.size();
  return std::exchange(output_, std::string());
}

TimeUs HttpConnection::deadline() const {
  return std::min({phase_deadline_, write_deadline_, comment_at_, reply_deadline_});
}

// --- receiving ---

void HttpConnection::Receive() {
  using State = HttpRequestParser::State;
  while (phase_ == Phase::kReceiving && !input_.empty()) {
    const State before = parser_.state();
    const size_t used = parser_.Feed(input_);
    input_.erase(0, used);
    switch (parser_.state()) {
      case State::kEmpty:
        return;
      case State::kHeaders:
        if (before == State::kEmpty) {
          phase_deadline_ = Now() + Us(service_->options.header_timeout);
        }
        return;
      case State::kBody:
        if (!in_body_) {
          in_body_ = true;
          BodyBegins();
        } else if (used == 0) {
          return;
        }
        break;
      case State::kDone:
        Dispatch();
        break;
      case State::kFailed: {
        const HttpError error = *parser_.error();
        BeginReply();
        ReplyError(error, {}, /*close=*/true);
        break;
      }
    }
  }
}

// A client that asks before it sends a body is told at once when nobody wants it.
void HttpConnection::BodyBegins() {
  phase_deadline_ = Now() + Us(service_->options.body_timeout);
  if (!parser_.expects_continue()) return;
  HttpRouter::Match match;
  if (const auto error = Objection(&match)) {
    BeginReply();
    ReplyError(*error, AllowOf(match), /*close=*/true);
  } else if (input_.empty()) {
    Output("HTTP/1.1 100 Continue\r\n\r\n");
  }
}

std::optional<HttpError> HttpConnection::Objection(HttpRouter::Match* match) {
  if (parser_.error()) return parser_.error();
  const HttpRequest& request = parser_.request();
  *match = service_->router.Find(request.method, request.path);
  if (match->route != nullptr) return std::nullopt;
  if (match->allow.empty()) {
    return HttpError{
        404, "unknown_url",
        fmt::format("Unknown request URL: {} {}.", request.method, Excerpt(request.path))};
  }
  if (IsPreflight(*match)) return std::nullopt;
  return HttpError{405, "method_not_allowed",
                   fmt::format("{} is not a method of {}; it has {}.", request.method,
                               Excerpt(request.path), match->allow)};
}

bool HttpConnection::IsPreflight(const HttpRouter::Match& match) {
  return match.route == nullptr && service_->options.cors_origin &&
         parser_.request().method == "OPTIONS";
}

HttpHeaders HttpConnection::AllowOf(const HttpRouter::Match& match) {
  HttpHeaders headers;
  if (match.route == nullptr && !match.allow.empty()) headers.Add("Allow", match.allow);
  return headers;
}

// The request is complete, and its end known: whatever is wrong with it, the next may follow.
void HttpConnection::Dispatch() {
  HttpRouter::Match match;
  const auto error = Objection(&match);
  const bool preflight = !error && IsPreflight(match);
  const bool keep_alive = parser_.keep_alive();
  HttpRequest request = BeginReply();
  keep_alive_ = keep_alive && !draining_;
  if (error) {
    ReplyError(*error, AllowOf(match), /*close=*/false);
  } else if (preflight) {
    Preflight(request, match.allow);
  } else {
    ++service_->requests;
    request.peer = peer_;
    request.request_id = request_id_;
    request.received_us = Now();
    request.path_parameter = std::move(match.parameter);
    match.route->handler(std::make_shared<HttpExchange>(std::move(request), shared_from_this()));
  }
}

HttpRequest HttpConnection::BeginReply() {
  HttpRequest request = std::move(parser_.request());
  parser_.Reset();
  in_body_ = false;
  const std::string* id = request.headers.Find("X-Request-Id");
  if (id != nullptr && IsSaneRequestId(*id)) {
    request_id_ = *id;
  } else {
    request_id_ =
        fmt::format("req-{:016x}", Mix(service_->request_id_seed + service_->next_request++));
  }
  method_ = request.method;
  path_ = request.path;
  version_ = request.version;
  head_only_ = request.method == "HEAD";
  keep_alive_ = streaming_ = chunked_ = false;
  large_piece_ = 0;
  phase_ = Phase::kHandling;
  phase_deadline_ = kNever;
  return request;
}

// --- replying ---

void HttpConnection::Reply(int status, std::string_view content_type, std::string_view body,
                           const HttpHeaders& headers) {
  // Destroyed last: it may hold the exchange.
  const std::function<void()> callback = std::exchange(on_disconnect_, nullptr);
  if (phase_ != Phase::kHandling) return;
  Head(status, content_type, body.size(), headers);
  if (!head_only_ && status != 204 && status != 304) Output(body);
  Complete();
  Pump();
}

void HttpConnection::StartStream(int status, std::string_view content_type,
                                 const HttpHeaders& headers) {
  if (phase_ != Phase::kHandling) return;
  streaming_ = true;
  chunked_ = version_ >= 11;
  if (!chunked_) keep_alive_ = false;  // The end of the connection ends the body.
  Head(status, content_type, std::nullopt, headers);
  const TimeUs interval = Us(service_->options.keep_alive_comment_interval);
  if (content_type.substr(0, 17) == "text/event-stream" && interval > 0 && !head_only_) {
    comment_at_ = Now() + interval;
  }
  Pump();
}

void HttpConnection::Write(std::string_view bytes) {
  if (phase_ != Phase::kHandling || bytes.empty() || head_only_) return;
  // A piece above the limit (the log-probabilities of a long prompt) is not the client's fault: it
  // gets the time to read it, and the limit is for what comes on top.
  const size_t limit = service_->options.write_limit_bytes;
  const size_t queued = queued_bytes();
  if (queued == 0) large_piece_ = 0;
  if (bytes.size() > limit) large_piece_ = std::max(large_piece_, bytes.size());
  if (queued > 0 && queued + bytes.size() > limit + large_piece_) {
    Disconnect(HttpDisconnect::kTooSlow);
  } else {
    OutputPiece(bytes);
    if (comment_at_ != kNever) {
      comment_at_ = Now() + Us(service_->options.keep_alive_comment_interval);
    }
  }
  Pump();
}

void HttpConnection::Finish() {
  const std::function<void()> callback = std::exchange(on_disconnect_, nullptr);
  if (phase_ != Phase::kHandling) return;
  if (chunked_ && !head_only_) Output("0\r\n\r\n");
  Complete();
  Pump();
}

void HttpConnection::SetOnDisconnect(std::function<void()> callback) {
  if (phase_ == Phase::kHandling) {
    // The earlier one is destroyed once the new one stands: it may hold the exchange.
    std::swap(on_disconnect_, callback);
  } else if (disconnect_ != HttpDisconnect::kNone && callback) {
    Post(std::move(callback));
  }
}

void HttpConnection::SetOnDeadline(TimeUs after, std::function<void()> callback) {
  if (phase_ != Phase::kHandling) return;
  std::swap(on_deadline_, callback);
  reply_deadline_ = Now() + after;
  Pump();
}

void HttpConnection::Abandon() {
  const std::function<void()> callback = std::exchange(on_disconnect_, nullptr);
  if (phase_ != Phase::kHandling) return;
  if (streaming_) {
    Close();
  } else {
    ReplyError({500, "no_reply", "The server dropped the request without an answer."}, {},
               /*close=*/false);
  }
  Pump();
}

void HttpConnection::Preflight(const HttpRequest& request, const std::string& allow) {
  const std::string* wanted = request.headers.Find("Access-Control-Request-Headers");
  HttpHeaders headers;
  headers.Add("Access-Control-Allow-Methods", allow);
  headers.Add("Access-Control-Allow-Headers",
              wanted != nullptr ? *wanted : "Authorization, Content-Type, X-Request-Id");
  headers.Add("Access-Control-Max-Age", "600");
  Head(204, "", std::nullopt, headers);
  Complete();
}

void HttpConnection::ReplyError(const HttpError& error, const HttpHeaders& headers, bool close) {
  ++service_->requests_rejected;
  if (service_->options.on_rejection) {
    service_->options.on_rejection(
        {peer_, request_id_, method_, path_, error.status, error.message});
  }
  if (close) keep_alive_ = false;
  const std::string body = HttpErrorJson(error);
  Head(error.status, "application/json", body.size(), headers);
  if (!head_only_) Output(body);
  Complete();
}

void HttpConnection::Head(int status, std::string_view content_type, std::optional<uint64_t> length,
                          const HttpHeaders& headers) {
  HttpReplyHead head;
  head.status = status;
  head.version = version_;
  head.content_type = content_type;
  head.length = length;
  head.chunked = chunked_;
  head.keep_alive = keep_alive_;
  head.request_id = request_id_;
  head.unix_seconds = std::time(nullptr);
  const auto& origin = service_->options.cors_origin;
  if (!origin) {
    Output(FormatReplyHead(head, headers));
    return;
  }
  HttpHeaders extra = headers;
  extra.Add("Access-Control-Allow-Origin", *origin);
  extra.Add("Access-Control-Expose-Headers", "X-Request-Id");
  if (*origin != "*") extra.Add("Vary", "Origin");
  Output(FormatReplyHead(head, extra));
}

void HttpConnection::Output(std::string_view bytes) {
  if (bytes.empty()) return;
  if (queued_bytes() == 0) write_deadline_ = Now() + Us(service_->options.write_timeout);
  output_.append(bytes);
}

void HttpConnection::OutputPiece(std::string_view bytes) {
  if (!chunked_) {
    Output(bytes);
    return;
  }
  std::string chunk;
  AppendChunk(bytes, &chunk);
  Output(chunk);
}

// --- between requests, and the end ---

void HttpConnection::Complete() {
  phase_ = Phase::kFlushing;
  comment_at_ = reply_deadline_ = kNever;
  // Destroyed later: it may hold the exchange that is replying.
  if (on_deadline_) Post([callback = std::exchange(on_deadline_, nullptr)] {});
  if (queued_bytes() == 0) AfterFlush();
}

void HttpConnection::AfterFlush() {
  if (read_ended_) {
    Close();
  } else if (!keep_alive_) {
    phase_ = Phase::kLingering;
    phase_deadline_ = Now() + kLingerUs;
    input_ = std::string();
  } else {
    phase_ = Phase::kReceiving;
    phase_deadline_ = Now() + Us(service_->options.idle_timeout);
    Receive();
  }
}

void HttpConnection::Disconnect(HttpDisconnect reason) {
  KV_CHECK(phase_ == Phase::kHandling);
  disconnect_ = reason;
  if (reason == HttpDisconnect::kHungUp) ++service_->hang_ups;
  if (reason == HttpDisconnect::kTooSlow) ++service_->too_slow;
  Close();
  if (on_disconnect_) Post(std::exchange(on_disconnect_, nullptr));
}

void HttpConnection::Close() {
  phase_ = Phase::kClosed;
  phase_deadline_ = write_deadline_ = comment_at_ = reply_deadline_ = kNever;
  if (on_deadline_) Post([callback = std::exchange(on_deadline_, nullptr)] {});
  input_ = std::string();
  output_ = std::string();
}

}  // namespace kvasir
