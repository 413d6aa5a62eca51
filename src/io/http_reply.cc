#include "io/http_reply.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <utility>

#include "base/check.h"

namespace kvasir {
namespace {

constexpr std::pair<int, std::string_view> kReasons[] = {
    {100, "Continue"},
    {200, "OK"},
    {201, "Created"},
    {202, "Accepted"},
    {204, "No Content"},
    {206, "Partial Content"},
    {301, "Moved Permanently"},
    {302, "Found"},
    {304, "Not Modified"},
    {307, "Temporary Redirect"},
    {308, "Permanent Redirect"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {406, "Not Acceptable"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {411, "Length Required"},
    {413, "Content Too Large"},
    {414, "URI Too Long"},
    {415, "Unsupported Media Type"},
    {417, "Expectation Failed"},
    {422, "Unprocessable Content"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {502, "Bad Gateway"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
    {505, "HTTP Version Not Supported"},
};

bool IsTokenChar(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}

bool IsDecidedByHead(std::string_view name) {
  for (const std::string_view own : {"Content-Length", "Transfer-Encoding", "Connection", "Date",
                                     "Content-Type", "X-Request-Id"}) {
    if (EqualsIgnoreCase(name, own)) return true;
  }
  return false;
}

void AppendField(std::string_view name, std::string_view value, std::string* out) {
  out->append(name).append(": ");
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    out->push_back(byte < 0x20 || byte == 0x7f ? ' ' : c);
  }
  out->append("\r\n");
}

void AppendJsonText(std::string_view text, std::string* out) {
  for (const char c : text) {
    if (c == '"' || c == '\\') out->push_back('\\');
    out->push_back(c >= 0x20 && c < 0x7f ? c : '?');
  }
}

bool HasNoBody(int status) { return status < 200 || status == 204 || status == 304; }

}  // namespace

std::string HttpErrorJson(const HttpError& error) {
  std::string json = R"({"error": {"message": ")";
  AppendJsonText(error.message, &json);
  json += R"(", "type": ")";
  json += error.status >= 500 ? "server_error" : "invalid_request_error";
  json += R"(", "param": null, "code": ")";
  AppendJsonText(error.code, &json);
  return json + "\"}}";
}

std::string_view HttpReason(int status) {
  for (const auto& [code, reason] : kReasons) {
    if (code == status) return reason;
  }
  return "Unknown";
}

std::string FormatReplyHead(const HttpReplyHead& head, const HttpHeaders& extra) {
  KV_CHECK(head.status >= 200 && head.status <= 599);
  std::string out = fmt::format("HTTP/1.1 {} {}\r\n", head.status, HttpReason(head.status));
  AppendField("Date", FormatHttpDate(head.unix_seconds), &out);
  if (!head.content_type.empty()) AppendField("Content-Type", head.content_type, &out);
  if (!HasNoBody(head.status)) {
    if (head.chunked) {
      AppendField("Transfer-Encoding", "chunked", &out);
    } else if (head.length) {
      AppendField("Content-Length", fmt::format("{}", *head.length), &out);
    }
  }
  if (!head.keep_alive) {
    AppendField("Connection", "close", &out);
  } else if (head.version < 11) {
    AppendField("Connection", "keep-alive", &out);
  }
  if (!head.request_id.empty()) AppendField("X-Request-Id", head.request_id, &out);
  for (const auto& [name, value] : extra) {
    KV_CHECK(IsHttpToken(name));
    KV_CHECK(!IsDecidedByHead(name));
    AppendField(name, value, &out);
  }
  return out + "\r\n";
}

std::string FormatHttpDate(int64_t unix_seconds) {
  static constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                            "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const time_t seconds = unix_seconds;
  struct tm utc {};
  KV_CHECK(gmtime_r(&seconds, &utc) != nullptr);
  return fmt::format("{}, {:02} {} {:04} {:02}:{:02}:{:02} GMT", kDays[utc.tm_wday], utc.tm_mday,
                     kMonths[utc.tm_mon], utc.tm_year + 1900, utc.tm_hour, utc.tm_min, utc.tm_sec);
}

void AppendChunk(std::string_view bytes, std::string* out) {
  KV_CHECK(!bytes.empty());
  out->append(fmt::format("{:x}\r\n", bytes.size())).append(bytes).append("\r\n");
}

bool IsSaneRequestId(std::string_view text) {
  return !text.empty() && text.size() <= 128 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c > 0x20 && c < 0x7f; });
}

bool IsHttpToken(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), IsTokenChar);
}

}  // namespace kvasir
