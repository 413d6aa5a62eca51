// What a client may get wrong in HTTP itself, over memory.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "io/http_connection_for_test.h"

namespace kvasir {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::string_view kGet = "GET /hello HTTP/1.1\r\nHost: h\r\n\r\n";

class HttpWrongRequestTest : public ::testing::Test {
 protected:
  void Open(HttpServer::Options options) {
    const HttpHandler hello = [](auto x) { x->Reply(200, "text/plain", "hello"); };
    service = ConnectionForTest::Service(
        std::move(options),
        {{"GET", "/hello", hello}, {"POST", "/echo", hello}, {"GET", "/models/{id}", hello}});
    connection = std::make_shared<ConnectionForTest>(service);
    connection->Open();
  }

  std::string Answer(std::string_view request) {
    connection->Receive(request);
    return connection->TakeSent();
  }

  std::shared_ptr<HttpService> service;
  std::shared_ptr<ConnectionForTest> connection;
};

// What a client may get wrong: status and code, and whether the connection survives.
struct Wrong {
  const char* name;
  std::string request;
  int status;
  const char* code;
  bool survives;
};

std::vector<Wrong> WrongRequests() {
  const std::string host = "Host: h\r\n";
  const std::string post = "POST /echo HTTP/1.1\r\n" + host;
  return {
      {"unknown path", "GET /nope HTTP/1.1\r\nHost: h\r\n\r\n", 404, "unknown_url", true},
      {"path not UTF-8", "GET /%ff\" HTTP/1.1\r\nHost: h\r\n\r\n", 404, "unknown_url", true},
      {"prefix of a path", "GET /hell HTTP/1.1\r\nHost: h\r\n\r\n", 404, "unknown_url", true},
      {"empty parameter", "GET /models/ HTTP/1.1\r\nHost: h\r\n\r\n", 404, "unknown_url", true},
      {"wrong method", "PUT /hello HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx", 405,
       "method_not_allowed", true},
      {"options without CORS", "OPTIONS /hello HTTP/1.1\r\nHost: h\r\n\r\n", 405,
       "method_not_allowed", true},
      {"unknown method", "BREW /hello HTTP/1.1\r\nHost: h\r\n\r\n", 501, "unknown_method", true},
      {"no length", post + "\r\n", 411, "length_required", true},
      {"no host", "GET /hello HTTP/1.1\r\n\r\n", 400, "bad_host", true},
      {"two hosts", "GET /hello HTTP/1.1\r\n" + host + host + "\r\n", 400, "bad_host", true},
      {"bad escape", "GET /a%2 HTTP/1.1\r\nHost: h\r\n\r\n", 400, "bad_target", true},
      {"escaped NUL", "GET /a%00b HTTP/1.1\r\nHost: h\r\n\r\n", 400, "bad_target", true},
      {"fragment", "GET /hello#x HTTP/1.1\r\nHost: h\r\n\r\n", 400, "bad_target", true},
      {"relative path", "GET hello HTTP/1.1\r\nHost: h\r\n\r\n", 400, "bad_target", true},
      {"expectation", post + "Content-Length: 1\r\nExpect: tea\r\n\r\nx", 417,
       "unknown_expectation", true},
      {"length and chunked", post + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400,
       "ambiguous_length", false},
      {"chunked and length",
       post + "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n0\r\n\r\n", 400,
       "ambiguous_length", false},
      {"two lengths", post + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nxy", 400,
       "ambiguous_length", false},
      {"lengths in a list", post + "Content-Length: 1, 2\r\n\r\nxy", 400, "ambiguous_length",
       false},
      {"negative length", post + "Content-Length: -1\r\n\r\n", 400, "ambiguous_length", false},
      {"length with sign", post + "Content-Length: +1\r\n\r\nx", 400, "ambiguous_length", false},
      {"hexadecimal length", post + "Content-Length: 0x1\r\n\r\nx", 400, "ambiguous_length", false},
      {"overflowing length", post + "Content-Length: 18446744073709551617\r\n\r\nx", 400,
       "ambiguous_length", false},
      {"other coding", post + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501,
       "unknown_transfer_encoding", false},
      {"coding after chunked", post + "Transfer-Encoding: chunked, gzip\r\n\r\n", 501,
       "unknown_transfer_encoding", false},
      {"chunked twice", post + "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", 501,
       "unknown_transfer_encoding", false},
      {"odd chunked", post + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 501,
       "unknown_transfer_encoding", false},
      {"chunked in 1.0", "POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400,
       "ambiguous_length", false},
      {"bad chunk size", post + "Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400, "malformed_http",
       false},
      {"chunk overruns", post + "Transfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n0\r\n\r\n", 400,
       "malformed_http", false},
      {"space before colon", post + "Content-Length : 1\r\n\r\nx", 400, "malformed_http", false},
      {"bare line feed", "GET /hello HTTP/1.1\nHost: h\n\n", 400, "malformed_http", false},
      {"NUL in a value",
       "GET /hello HTTP/1.1\r\nHost: h\r\nA: " + std::string(1, '\0') + "\r\n\r\n", 400,
       "malformed_http", false},
      {"no HTTP", "\x16\x03\x01\x02\r\n\r\n", 400, "malformed_http", false},
      {"HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "http_version_not_supported", false},
      {"HTTP/0.9", "GET /hello\r\n\r\n", 400, "malformed_http", false},
      {"long line", "GET /" + std::string(5000, 'a') + " HTTP/1.1\r\nHost: h\r\n\r\n", 414,
       "uri_too_long", false},
      {"large headers",
       "GET /hello HTTP/1.1\r\nHost: h\r\nA: " + std::string(5000, 'a') + "\r\n\r\n", 431,
       "headers_too_large", false},
      {"long chunk line", post + "Transfer-Encoding: chunked\r\n\r\n1;" + std::string(5000, 'a'),
       431, "headers_too_large", false},
      {"large body", post + "Content-Length: 10001\r\n\r\n", 413, "body_too_large", false},
      {"large chunk", post + "Transfer-Encoding: chunked\r\n\r\n2711\r\n", 413, "body_too_large",
       false},
      {"chunks too many",
       post + "Transfer-Encoding: chunked\r\n\r\n2710\r\n" + std::string(10000, 'x') + "\r\n1\r\n",
       413, "body_too_large", false},
  };
}

HttpServer::Options SmallLimits() {
  HttpServer::Options options;
  options.max_header_bytes = 4096;
  options.max_body_bytes = 10000;
  return options;
}

TEST_F(HttpWrongRequestTest, SaysWhatIsWrongAndSurvivesWhereItMay) {
  for (const Wrong& wrong : WrongRequests()) {
    SCOPED_TRACE(wrong.name);
    Open(SmallLimits());
    const std::string reply = Answer(wrong.request);
    EXPECT_THAT(reply, StartsWith(fmt::format("HTTP/1.1 {} ", wrong.status)));
    EXPECT_THAT(reply, HasSubstr("\r\nContent-Type: application/json\r\n"));
    EXPECT_THAT(reply, HasSubstr("{\"error\": {\"message\": \""));
    EXPECT_THAT(reply, HasSubstr(fmt::format("\"param\": null, \"code\": \"{}\"}}}}", wrong.code)));
    EXPECT_EQ(service->requests, 0u);
    EXPECT_EQ(service->requests_rejected, 1u);
    EXPECT_EQ(connection->wants_shutdown(), !wrong.survives);
    const std::string next = Answer(kGet);
    if (wrong.survives) {
      EXPECT_THAT(next, StartsWith("HTTP/1.1 200")) << reply;
    } else {
      EXPECT_THAT(reply, HasSubstr("\r\nConnection: close\r\n"));
      EXPECT_EQ(next, "") << "a request behind a broken one must not be run";
      connection->Pass(HttpConnection::kLingerUs);
      EXPECT_TRUE(connection->closed());
    }
  }
}

// The same in single bytes: nothing may depend on how the network cuts the stream. (What is wrong
// may show later, when the line or the headers are complete, so that the reason can differ.)
TEST_F(HttpWrongRequestTest, WrongRequestsByteByByte) {
  for (const Wrong& wrong : WrongRequests()) {
    SCOPED_TRACE(wrong.name);
    Open(SmallLimits());
    std::string request = wrong.request;
    if (!wrong.survives) request += "\r\n\r\n";
    for (const char c : request) connection->Receive({&c, 1});
    const std::string reply = connection->TakeSent();
    EXPECT_THAT(reply, StartsWith("HTTP/1.1 "));
    EXPECT_EQ(service->requests, 0u);
    if (wrong.survives) {
      EXPECT_THAT(reply, HasSubstr(wrong.code));
      EXPECT_THAT(Answer(kGet), StartsWith("HTTP/1.1 200"));
    } else {
      EXPECT_TRUE(connection->wants_shutdown());
    }
  }
}

TEST_F(HttpWrongRequestTest, HeaderLimitHoldsHoweverTheBytesCome) {
  for (const size_t piece : {1u, 7u, 1000u, 100000u}) {
    SCOPED_TRACE(piece);
    Open(SmallLimits());
    std::string request = "GET /hello HTTP/1.1\r\nHost: h\r\n";
    while (request.size() < 6000) request += "A: bcdefghij\r\n";
    for (size_t i = 0; i < request.size(); i += piece) {
      connection->Receive(std::string_view(request).substr(i, piece));
      if (i + piece < 4000) {
        ASSERT_EQ(connection->sent, "") << i;
      } else if (i + piece > 4096) {
        ASSERT_NE(connection->sent, "") << i;
      }
    }
    EXPECT_THAT(connection->sent, StartsWith("HTTP/1.1 431"));
  }
}

}  // namespace
}  // namespace kvasir
