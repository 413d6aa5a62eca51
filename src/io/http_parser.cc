// The one file that includes Beast: its basic_parser splits messages, what they mean is ours.
#include "io/http_parser.h"

// Beast 1.81 asserts that at least five bytes of a chunked message's last chunk have come, which a
// client that sends byte by byte violates: a remote abort. Without the assertion the code is right.
#define BOOST_DISABLE_ASSERTS 1
#if defined(__GNUC__) && !defined(__clang__)
// Under the address sanitizer g++ 12 takes an empty boost::optional for one that is read.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <fmt/format.h>

#include <algorithm>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>
#include <utility>

namespace kvasir {
namespace {

namespace http = boost::beast::http;
using ErrorCode = boost::beast::error_code;
using BeastView = boost::beast::string_view;

constexpr uint32_t kMaxResponseHeaderBytes = 256 << 10;

std::string_view View(BeastView text) { return {text.data(), text.size()}; }

std::string Excerpt(std::string_view text) {
  return text.size() <= 200 ? std::string(text) : std::string(text.substr(0, 200)) + "...";
}

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// nullopt: a '%' without two hexadecimal digits, or a control character in the result.
std::optional<std::string> PercentDecode(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%') {
      if (i + 2 >= text.size()) return std::nullopt;
      const int high = HexValue(text[i + 1]), low = HexValue(text[i + 2]);
      if (high < 0 || low < 0) return std::nullopt;
      c = static_cast<char>(high * 16 + low);
      i += 2;
    }
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) return std::nullopt;
    out.push_back(c);
  }
  return out;
}

// Fills path and query from the request target: origin form, absolute form, or "*" of OPTIONS.
// False when it is none of these.
bool ParseTarget(std::string_view target, HttpRequest* request) {
  if (target == "*" && request->method == "OPTIONS") {
    request->path = "*";
    return true;
  }
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!EqualsIgnoreCase(target.substr(0, scheme.size()), scheme)) continue;
    const size_t slash = target.find_first_of("/?", scheme.size());
    if (slash == scheme.size()) return false;  // No host.
    target = slash == std::string_view::npos ? "/" : target.substr(slash);
    break;
  }
  const size_t mark = std::min(target.find('?'), target.size());
  const std::string_view raw = target.substr(0, mark);
  if (target.find('#') != std::string_view::npos) return false;
  std::optional<std::string> path = PercentDecode(raw.empty() && mark < target.size() ? "/" : raw);
  if (!path || path->empty() || path->front() != '/') return false;
  request->path = *std::move(path);
  if (mark < target.size()) request->query = target.substr(mark + 1);
  return true;
}

bool IsKnownMethod(std::string_view method) {
  for (const std::string_view known :
       {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}) {
    if (method == known) return true;
  }
  return false;
}

bool MethodNeedsLength(std::string_view method) {
  return method == "POST" || method == "PUT" || method == "PATCH";
}

// True when `request` begins with a line that is well-formed up to its end, "HTTP/" and two digits.
bool NamesOtherVersion(std::string_view request) {
  const std::string_view line = request.substr(0, request.find("\r\n"));
  if (line.size() < 8) return false;
  const std::string_view version = line.substr(line.size() - 8);
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  return version.substr(0, 5) == "HTTP/" && digit(version[5]) && version[6] == '.' &&
         digit(version[7]);
}

HttpError BadRequest(std::string code, std::string message) {
  return {400, std::move(code), std::move(message)};
}

}  // namespace

// What Beast calls back while it splits a request.
class HttpRequestParser::Message final : public http::basic_parser<true> {
 public:
  explicit Message(const Limits& limits) {
    header_limit(static_cast<uint32_t>(std::min<size_t>(limits.header_bytes, UINT32_MAX)));
    body_limit(uint64_t{limits.body_bytes});
  }

  // What `error` of Beast means to the client; `rest` is what it was met in.
  HttpError Explain(const ErrorCode& error, const Limits& limits, std::string_view rest) const {
    if (refusal_) return *refusal_;
    if (error == http::error::header_limit) return TooLong(limits, rest);
    if (error == http::error::body_limit) {
      return {413, "body_too_large",
              fmt::format("The body is larger than {} bytes.", limits.body_bytes)};
    }
    if (error == http::error::bad_version && NamesOtherVersion(rest)) {
      return {505, "http_version_not_supported", "This server speaks HTTP/1.0 and HTTP/1.1."};
    }
    if (error == http::error::bad_content_length || error == http::error::bad_transfer_encoding ||
        error == http::error::multiple_content_length) {
      return BadRequest(
          "ambiguous_length",
          "Content-Length and Transfer-Encoding contradict each other or themselves.");
    }
    return BadRequest("malformed_http", fmt::format("Malformed HTTP: {}.", error.message()));
  }

  HttpError TooLong(const Limits& limits, std::string_view rest) const {
    if (request_.method.empty() && rest.find("\r\n") >= limits.header_bytes) {
      return {414, "uri_too_long",
              fmt::format("The request line is longer than {} bytes.", limits.header_bytes)};
    }
    return {431, "headers_too_large",
            fmt::format("The headers are larger than {} bytes.", limits.header_bytes)};
  }

  HttpRequest request_;
  std::optional<HttpError> error_;  // An objection, or the failure when failed_.
  bool failed_ = false;
  bool headers_done_ = false;
  bool headers_reported_ = false;  // Feed has stopped at the end of the headers.
  bool expects_continue_ = false;
  size_t header_bytes_ = 0;  // Consumed so far.

 private:
  void Object(HttpError error) {
    if (!error_) error_ = std::move(error);
  }

  void on_request_impl(http::verb, BeastView method, BeastView target, int version,
                       ErrorCode& error) override {
    request_.method = View(method);
    request_.version = version;
    if (!IsKnownMethod(request_.method)) {
      Object({501, "unknown_method",
              fmt::format("The method {} is not implemented.", Excerpt(request_.method))});
    }
    if (!ParseTarget(View(target), &request_)) {
      request_.path = "/";
      Object(BadRequest("bad_target",
                        fmt::format("Malformed request target {}.", Excerpt(View(target)))));
    }
  }

  void on_response_impl(int, BeastView, int, ErrorCode&) override {}  // Not in a request.

  void on_field_impl(http::field field, BeastView name, BeastView value,
                     ErrorCode& error) override {
    if (headers_done_) return;  // Trailer: nothing here has a use for it.
    if (field == http::field::transfer_encoding) {
      if (request_.version < 11) {
        refusal_ = BadRequest("ambiguous_length", "HTTP/1.0 has no Transfer-Encoding.");
        error = http::error::bad_transfer_encoding;
      } else if (!EqualsIgnoreCase(View(value), "chunked")) {
        refusal_ = HttpError{501, "unknown_transfer_encoding",
                             "The only Transfer-Encoding understood is chunked."};
        error = http::error::bad_transfer_encoding;
      }
    }
    request_.headers.Add(std::string(View(name)), std::string(View(value)));
  }

  void on_header_impl(ErrorCode&) override {
    headers_done_ = true;
    const size_t hosts = request_.headers.Count("Host");
    if (hosts > 1 || (hosts == 0 && request_.version >= 11)) {
      Object(BadRequest("bad_host", "HTTP/1.1 wants exactly one Host header."));
    }
    if (MethodNeedsLength(request_.method) && !content_length() && !chunked()) {
      Object({411, "length_required",
              fmt::format("{} wants a Content-Length or chunked coding.", request_.method)});
    }
    const std::string* expect = request_.headers.Find("Expect");
    if (expect != nullptr && request_.version >= 11) {
      expects_continue_ = EqualsIgnoreCase(*expect, "100-continue");
      if (!expects_continue_) {
        Object({417, "unknown_expectation", "The only Expect understood is 100-continue."});
      }
    }
  }

  void on_body_init_impl(const boost::optional<std::uint64_t>&, ErrorCode&) override {}
  std::size_t on_body_impl(BeastView body, ErrorCode&) override {
    request_.body.append(body.data(), body.size());
    return body.size();
  }
  void on_chunk_header_impl(std::uint64_t, BeastView, ErrorCode&) override {}
  std::size_t on_chunk_body_impl(std::uint64_t, BeastView body, ErrorCode&) override {
    request_.body.append(body.data(), body.size());
    return body.size();
  }
  void on_finish_impl(ErrorCode&) override {}

  std::optional<HttpError> refusal_;  // The reason behind an error of our own.
};

HttpRequestParser::HttpRequestParser(const Limits& limits)
    : limits_(limits), message_(std::make_unique<Message>(limits)) {}

HttpRequestParser::~HttpRequestParser() = default;

void HttpRequestParser::Reset() { message_ = std::make_unique<Message>(limits_); }

size_t HttpRequestParser::Feed(std::string_view bytes) {
  Message& message = *message_;
  size_t used = 0;
  // RFC 9112, 2.2: empty lines before a request are ignored.
  while (!message.got_some() && bytes.substr(used, 2) == "\r\n") used += 2;
  if (!message.got_some() && bytes.substr(used) == "\r") return used;
  while (!message.is_done() && used < bytes.size()) {
    const bool in_headers = !message.is_header_done();
    ErrorCode error;
    const size_t step =
        message.put(boost::asio::const_buffer(bytes.data() + used, bytes.size() - used), error);
    used += step;
    if (in_headers) message.header_bytes_ += step;
    const bool need_more = error == http::error::need_more;
    // Beast's own limit starts anew with each call, and knows no chunk lines.
    const size_t pending = need_more ? bytes.size() - used : 0;
    const size_t held = (in_headers ? message.header_bytes_ : 0) + pending;
    if ((!error || need_more) && held > limits_.header_bytes) error = http::error::header_limit;
    if (error && error != http::error::need_more) {
      message.error_ = message.Explain(error, limits_, bytes.substr(used));
      message.failed_ = true;
      return used;
    }
    if (need_more) return used;
    if (message.is_header_done() && !message.headers_reported_) {
      message.headers_reported_ = true;
      return used;
    }
  }
  return used;
}

HttpRequestParser::State HttpRequestParser::state() const {
  if (message_->failed_) return State::kFailed;
  if (message_->is_done()) return State::kDone;
  if (message_->is_header_done()) return State::kBody;
  return message_->got_some() ? State::kHeaders : State::kEmpty;
}

const std::optional<HttpError>& HttpRequestParser::error() const { return message_->error_; }
bool HttpRequestParser::expects_continue() const { return message_->expects_continue_; }
bool HttpRequestParser::keep_alive() const { return message_->keep_alive(); }
HttpRequest& HttpRequestParser::request() { return message_->request_; }

// What Beast calls back while it splits a response.
class HttpResponseParser::Message final : public http::basic_parser<false> {
 public:
  Message(bool to_head_request, const Sink* sink) : sink_(*sink) {
    header_limit(kMaxResponseHeaderBytes);
    body_limit(boost::none);
    skip(to_head_request);
  }

  HttpResponse response_;
  bool headers_done_ = false;
  bool stopped_ = false;  // The sink has had enough.

 private:
  void on_request_impl(http::verb, BeastView, BeastView, int, ErrorCode&) override {}
  void on_response_impl(int code, BeastView, int version, ErrorCode&) override {
    response_.status = code;
    response_.version = version;
  }
  void on_field_impl(http::field, BeastView name, BeastView value, ErrorCode&) override {
    if (headers_done_) return;
    response_.headers.Add(std::string(View(name)), std::string(View(value)));
  }
  void on_header_impl(ErrorCode&) override { headers_done_ = true; }
  void on_body_init_impl(const boost::optional<std::uint64_t>&, ErrorCode&) override {}
  std::size_t on_body_impl(BeastView body, ErrorCode&) override { return Take(body); }
  void on_chunk_header_impl(std::uint64_t, BeastView, ErrorCode&) override {}
  std::size_t on_chunk_body_impl(std::uint64_t, BeastView body, ErrorCode&) override {
    return Take(body);
  }
  void on_finish_impl(ErrorCode&) override {}

  size_t Take(BeastView body) {
    if (!sink_) {
      response_.body.append(body.data(), body.size());
    } else if (!stopped_ && !body.empty()) {
      stopped_ = !sink_(View(body));
    }
    return body.size();
  }

  const Sink& sink_;
};

HttpResponseParser::HttpResponseParser(bool to_head_request, Sink sink)
    : to_head_request_(to_head_request), sink_(std::move(sink)) {
  Restart();
}

HttpResponseParser::~HttpResponseParser() = default;

void HttpResponseParser::Restart() {
  message_ = std::make_unique<Message>(to_head_request_, &sink_);
}

StatusOr<size_t> HttpResponseParser::Feed(std::string_view bytes) {
  size_t used = 0;
  while (!done() && used < bytes.size()) {
    ErrorCode error;
    used +=
        message_->put(boost::asio::const_buffer(bytes.data() + used, bytes.size() - used), error);
    if (error == http::error::need_more) {
      if (bytes.size() - used > kMaxResponseHeaderBytes) {
        return InvalidArgument("malformed HTTP response: a line without end");
      }
      return used;
    }
    if (error) return InvalidArgument("malformed HTTP response: {}", error.message());
    const int status = message_->response_.status;
    if (message_->is_done() && status / 100 == 1 && status != 101) Restart();
  }
  return used;
}

Status HttpResponseParser::FeedEnd() {
  if (done()) return OkStatus();
  ErrorCode error = http::error::partial_message;
  if (message_->got_some()) message_->put_eof(error);
  if (error) return InvalidArgument("the connection was closed amid the response");
  return OkStatus();
}

bool HttpResponseParser::headers_done() const { return message_->is_header_done(); }
bool HttpResponseParser::done() const { return message_->is_done() || message_->stopped_; }
bool HttpResponseParser::keep_alive() const {
  return message_->is_done() && !message_->stopped_ && message_->keep_alive();
}
HttpResponse& HttpResponseParser::response() { return message_->response_; }

}  // namespace kvasir
