// The protocol over memory, where time and the client's reading are in the test's hands.
#include "io/http_connection.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "io/http_connection_for_test.h"

namespace kvasir {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr std::string_view kGet = "GET /hello HTTP/1.1\r\nHost: h\r\n\r\n";

class HttpConnectionTest : public ::testing::Test {
 protected:
  void Open(HttpServer::Options options = {}) {
    std::vector<HttpRoute> routes = {
        {"GET", "/hello", [](auto exchange) { exchange->Reply(200, "text/plain", "hello"); }},
        {"POST", "/echo",
         [](auto exchange) { exchange->Reply(200, "text/plain", exchange->TakeBody()); }},
        {"GET", "/models/{id}",
         [](auto x) { x->Reply(200, "text/plain", x->request().path_parameter); }},
        {"GET", "/wait", [this](auto exchange) { pending = std::move(exchange); }},
    };
    service = ConnectionForTest::Service(std::move(options), std::move(routes));
    connection = std::make_shared<ConnectionForTest>(service);
    connection->Open();
  }

  std::string Answer(std::string_view request) {
    connection->Receive(request);
    return connection->TakeSent();
  }

  void TearDown() override {
    pending.reset();
    if (connection) connection->Settle();
  }

  std::shared_ptr<HttpService> service;
  std::shared_ptr<ConnectionForTest> connection;
  std::shared_ptr<HttpExchange> pending;
};

TEST_F(HttpConnectionTest, TellsWhatItAnsweredItself) {
  std::vector<std::string> told;
  HttpServer::Options options;
  options.on_rejection = [&](const HttpRejection& r) {
    told.push_back(fmt::format("{} {} {} {} {}", r.peer, r.request_id, r.method, r.path, r.status));
  };
  Open(std::move(options));
  Answer(kGet);
  Answer("GET /nope%22 HTTP/1.1\r\nHost: h\r\nX-Request-Id: a\r\n\r\n");
  Answer("PUT /hello HTTP/1.1\r\nHost: h\r\nX-Request-Id: b\r\nContent-Length: 0\r\n\r\n");
  Answer("GET /wait HTTP/1.1\r\nHost: h\r\nX-Request-Id: c\r\n\r\n");
  pending.reset();  // Dropped by its handler.
  connection->Settle();
  Answer("nonsense\r\n\r\n");
  ASSERT_EQ(told.size(), 4u);
  EXPECT_EQ(told[0], "test:1 a GET /nope\" 404");
  EXPECT_EQ(told[1], "test:1 b PUT /hello 405");
  EXPECT_EQ(told[2], "test:1 c GET /wait 500");
  EXPECT_THAT(told[3], ::testing::EndsWith("   400"));
}

TEST_F(HttpConnectionTest, AnswersAndStaysOpen) {
  Open();
  const std::string first = Answer(kGet);
  EXPECT_THAT(first, StartsWith("HTTP/1.1 200 OK\r\nDate: "));
  EXPECT_THAT(first, HasSubstr("\r\nContent-Length: 5\r\n"));
  EXPECT_THAT(first, Not(HasSubstr("Connection:")));
  EXPECT_THAT(first, ::testing::EndsWith("\r\n\r\nhello"));
  const std::string second = Answer(kGet);
  EXPECT_THAT(second, StartsWith("HTTP/1.1 200"));
  const auto id_of = [](const std::string& reply) {
    return reply.substr(reply.find("X-Request-Id: "), 34);
  };
  EXPECT_THAT(id_of(first), StartsWith("X-Request-Id: req-"));
  EXPECT_NE(id_of(first), id_of(second));
  EXPECT_FALSE(connection->closed());
  EXPECT_EQ(service->requests, 2u);
}

TEST_F(HttpConnectionTest, RequestIdIsTheClientsWhenSane) {
  Open();
  const auto with = [](const std::string& id) {
    return "GET /nowhere HTTP/1.1\r\nHost: h\r\nX-Request-ID: " + id + "\r\n\r\n";
  };
  EXPECT_THAT(Answer(with("abc-1")), HasSubstr("\r\nX-Request-Id: abc-1\r\n"));
  EXPECT_THAT(Answer(with(std::string(128, 'x'))), HasSubstr(std::string(128, 'x')));
  EXPECT_THAT(Answer(with(std::string(129, 'x'))), HasSubstr("X-Request-Id: req-"));
  EXPECT_THAT(Answer(with("two words")), HasSubstr("X-Request-Id: req-"));
  EXPECT_THAT(Answer(with("\xc3\xa9")), HasSubstr("X-Request-Id: req-"));
}

TEST_F(HttpConnectionTest, GoodRequestsByteByByte) {
  Open();
  const std::vector<std::pair<std::string, std::string>> cases = {
      {std::string(kGet), "hello"},
      {"\r\n\r\n" + std::string(kGet), "hello"},
      {"POST /echo HTTP/1.1\r\nhost:h\r\nCONTENT-LENGTH:3\r\n\r\nabc", "abc"},
      {"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n", ""},
      {"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nab", "ab"},
      {"POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", ""},
      {"POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: Chunked\r\n\r\n"
       "1\r\na\r\n00A;ext=\"q\"\r\nbcdefghijk\r\n0\r\nTrailer: x\r\n\r\n",
       "abcdefghijk"},
      {"GET /models/a%2Fb/c%20d?x=%zz HTTP/1.1\r\nHost: h\r\n\r\n", "a/b/c d"},
      {"GET http://h:1/models/x HTTP/1.1\r\nHost: h\r\n\r\n", "x"},
  };
  for (const auto& [request, body] : cases) {
    SCOPED_TRACE(request);
    for (const char c : request) connection->Receive({&c, 1});
    const std::string bytewise = connection->TakeSent();
    EXPECT_THAT(bytewise, StartsWith("HTTP/1.1 200"));
    EXPECT_EQ(bytewise.substr(bytewise.find("\r\n\r\n") + 4), body);
    const std::string whole = Answer(request);
    EXPECT_EQ(whole.substr(whole.find("\r\n\r\n") + 4), body);
  }
}

TEST_F(HttpConnectionTest, MemoryFollowsWhatArrives) {
  HttpRequestParser parser({.header_bytes = 4096, .body_bytes = 1u << 30});
  const std::string head = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000000\r\n\r\n";
  EXPECT_EQ(parser.Feed(head), head.size());
  ASSERT_EQ(parser.state(), HttpRequestParser::State::kBody);
  EXPECT_EQ(parser.Feed("abc"), 3u);
  EXPECT_LT(parser.request().body.capacity(), 100u);
}

TEST_F(HttpConnectionTest, ExpectContinue) {
  HttpServer::Options options;
  options.max_body_bytes = 10000;
  Open(options);
  const std::string head = "POST /echo HTTP/1.1\r\nHost: h\r\nExpect: 100-Continue\r\n";
  EXPECT_EQ(Answer(head + "Content-Length: 2\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  EXPECT_THAT(Answer("ab"), ::testing::EndsWith("\r\n\r\nab"));
  EXPECT_THAT(Answer(head + "Content-Length: 2\r\n\r\nab"), StartsWith("HTTP/1.1 200"))
      << "the body was there already: nothing to ask for";
  EXPECT_THAT(Answer(head + "Content-Length: 20000\r\n\r\n"), StartsWith("HTTP/1.1 413"));
  Open();
  EXPECT_THAT(Answer("POST /nope HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n"
                     "Content-Length: 2\r\n\r\n"),
              StartsWith("HTTP/1.1 404"));
  EXPECT_TRUE(connection->wants_shutdown()) << "whether the body comes is not known";
}

TEST_F(HttpConnectionTest, Http10) {
  Open();
  const std::string closing = Answer("GET /hello HTTP/1.0\r\n\r\n");
  EXPECT_THAT(closing, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(closing, HasSubstr("\r\nConnection: close\r\n"));
  EXPECT_TRUE(connection->wants_shutdown());
  Open();
  const std::string kept = Answer("GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_THAT(kept, HasSubstr("\r\nConnection: keep-alive\r\n"));
  EXPECT_FALSE(connection->wants_shutdown());
  connection->Receive("GET /wait HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  pending->StartStream(200, "text/plain");
  pending->Write("ab");
  pending->Write("cd");
  pending->Finish();
  connection->Settle();
  EXPECT_THAT(connection->sent, Not(HasSubstr("chunked")));
  EXPECT_THAT(connection->sent, ::testing::EndsWith("\r\n\r\nabcd"));
  EXPECT_TRUE(connection->wants_shutdown());
}

TEST_F(HttpConnectionTest, HeadHasTheHeadersOfGetAndNoBody) {
  Open();
  const std::string reply = Answer("HEAD /hello HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_THAT(reply, HasSubstr("\r\nContent-Length: 5\r\n"));
  EXPECT_THAT(reply, ::testing::EndsWith("\r\n\r\n"));
  const std::string missing = Answer("HEAD /nope HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_THAT(missing, StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(missing, ::testing::EndsWith("\r\n\r\n"));
  connection->Receive("HEAD /wait HTTP/1.1\r\nHost: h\r\n\r\n");
  pending->StartStream(200, "text/event-stream");
  connection->Settle();
  connection->Pass(60'000'000);
  pending->Write("data: x\n\n");
  pending->Finish();
  connection->Settle();
  EXPECT_THAT(connection->TakeSent(), ::testing::EndsWith("\r\n\r\n"));
  EXPECT_THAT(Answer(kGet), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpConnectionTest, CorsOnlyWhenAsked) {
  Open();
  EXPECT_THAT(Answer(kGet), Not(HasSubstr("Access-Control")));
  HttpServer::Options options;
  options.cors_origin = "https://a.example";
  Open(options);
  const std::string reply = Answer(kGet);
  EXPECT_THAT(reply, HasSubstr("\r\nAccess-Control-Allow-Origin: https://a.example\r\n"));
  EXPECT_THAT(reply, HasSubstr("\r\nVary: Origin\r\n"));
  const std::string preflight = Answer(
      "OPTIONS /echo HTTP/1.1\r\nHost: h\r\nOrigin: https://a.example\r\n"
      "Access-Control-Request-Method: POST\r\n"
      "Access-Control-Request-Headers: content-type\r\n\r\n");
  EXPECT_THAT(preflight, StartsWith("HTTP/1.1 204"));
  EXPECT_THAT(preflight, HasSubstr("\r\nAccess-Control-Allow-Methods: POST\r\n"));
  EXPECT_THAT(preflight, HasSubstr("\r\nAccess-Control-Allow-Headers: content-type\r\n"));
  EXPECT_THAT(preflight, Not(HasSubstr("Content-Length")));
  EXPECT_THAT(Answer("OPTIONS /nope HTTP/1.1\r\nHost: h\r\n\r\n"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(Answer(kGet), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpConnectionTest, PipelinedRequestsAreAnsweredInOrder) {
  Open();
  std::string requests = "GET /wait HTTP/1.1\r\nHost: h\r\n\r\n";
  for (int i = 0; i < 50; ++i) {
    requests += fmt::format("GET /models/{} HTTP/1.1\r\nHost: h\r\n\r\n", i);
  }
  EXPECT_EQ(Answer(requests), "") << "nothing overtakes the request under way";
  ASSERT_NE(pending, nullptr);
  pending->Reply(200, "text/plain", "first");
  connection->Settle();
  size_t at = connection->sent.find("\r\n\r\nfirst");
  for (int i = 0; i < 50; ++i) {
    at = connection->sent.find(fmt::format("\r\n\r\n{}", i), at);
    ASSERT_NE(at, std::string::npos) << i;
  }
  EXPECT_EQ(service->requests, 51u);
}

TEST_F(HttpConnectionTest, EarlyBytesAreBounded) {
  Open();
  connection->Receive("GET /wait HTTP/1.1\r\nHost: h\r\n\r\n");
  ASSERT_TRUE(connection->wants_read()) << "a hang-up must be seen while the handler works";
  connection->Receive(std::string(HttpConnection::kPipelineBytes, 'x'));
  EXPECT_FALSE(connection->wants_read());
}

TEST_F(HttpConnectionTest, Timeouts) {
  Open();
  connection->Pass(74'000'000);
  EXPECT_FALSE(connection->closed());
  connection->Pass(2'000'000);
  EXPECT_TRUE(connection->closed()) << "idle";
  EXPECT_EQ(connection->sent, "");

  Open();  // One byte a second does not buy more time.
  for (const char c : std::string_view("GET /hello HTTP/1.1")) {
    connection->Receive({&c, 1});
    connection->Pass(1'000'000);
  }
  EXPECT_THAT(connection->sent, StartsWith("HTTP/1.1 408"));
  EXPECT_THAT(connection->sent, HasSubstr("headers did not arrive"));
  EXPECT_TRUE(connection->closed()) << "the lingering ends too";
  EXPECT_EQ(service->request_timeouts, 1u);

  Open();
  connection->Receive("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\n");
  for (int i = 0; i < 61; ++i) {
    connection->Receive("x");
    connection->Pass(1'000'000);
  }
  EXPECT_THAT(connection->sent, StartsWith("HTTP/1.1 408"));
  EXPECT_THAT(connection->sent, HasSubstr("body did not arrive"));

  Open();  // A handler may take as long as it likes.
  connection->Receive("GET /wait HTTP/1.1\r\nHost: h\r\n\r\n");
  connection->Pass(3600'000'000);
  EXPECT_FALSE(connection->closed());
}

TEST_F(HttpConnectionTest, KeepAliveComments) {
  Open();
  connection->Receive("GET /wait HTTP/1.1\r\nHost: h\r\n\r\n");
  connection->Pass(30'000'000);
  EXPECT_EQ(connection->sent, "") << "not before the stream has begun";
  pending->StartStream(200, "text/event-stream; charset=utf-8", {{"Cache-Control", "no-cache"}});
  pending->Write("data: 1\n\n");
  connection->Settle();
  EXPECT_THAT(connection->TakeSent(), ::testing::EndsWith("\r\n\r\n9\r\ndata: 1\n\n\r\n"));
  connection->Pass(9'000'000);
  pending->Write("data: 2\n\n");
  connection->Settle();
  EXPECT_EQ(connection->TakeSent(), "9\r\ndata: 2\n\n\r\n");
  connection->Pass(9'000'000);
  EXPECT_EQ(connection->TakeSent(), "") << "a write puts the comment off";
  connection->Pass(11'000'000);
  EXPECT_EQ(connection->TakeSent(), "e\r\n: keep-alive\n\n\r\ne\r\n: keep-alive\n\n\r\n");
  connection->reading = false;
  connection->Pass(30'000'000);
  connection->reading = true;
  connection->Settle();
  EXPECT_EQ(connection->TakeSent(), "e\r\n: keep-alive\n\n\r\n") << "they do not pile up";
  pending->Write("");
  pending->Finish();
  connection->Settle();
  EXPECT_EQ(connection->TakeSent(), "0\r\n\r\n");
  connection->Pass(60'000'000);
  EXPECT_EQ(connection->TakeSent(), "");
}

TEST_F(HttpConnectionTest, ClientThatDoesNotReadIsDropped) {
  HttpServer::Options options;
  options.write_limit_bytes = 1000;
  Open(options);
  connection->Receive("GET /wait HTTP/1.1\r\nHost: h\r\n\r\n");
  int told = 0;
  pending->OnDisconnect([&] { ++told; });
  pending->StartStream(200, "text/plain");
  connection->Settle();
  pending->Write(std::string(5000, 'x'));  // Nothing is queued before it: not the client's fault.
  connection->Settle();
  EXPECT_TRUE(pending->connected());
  connection->reading = false;
  pending->Write(std::string(900, 'x'));
  EXPECT_TRUE(pending->connected());
  pending->Write(std::string(100, 'x'));
  EXPECT_EQ(pending->disconnect(), HttpDisconnect::kTooSlow);
  EXPECT_EQ(told, 0) << "never inside the call";
  connection->Settle();
  EXPECT_EQ(told, 1);
  EXPECT_TRUE(connection->closed());
  pending->Write("more");
  pending->Finish();
  EXPECT_EQ(service->too_slow, 1u);
}

// One event may be larger than the limit; that the next one comes before it is read is no slowness.
TEST_F(HttpConnectionTest, ALargePieceIsNotTheClientsFault) {
  HttpServer::Options options;
  options.write_limit_bytes = 1000;
  Open(std::move(options));
  Answer("GET /wait HTTP/1.1\r\nHost: h\r\n\r\n");
  connection->reading = false;
  pending->StartStream(200, "text/plain");
  connection->sent.clear();
  connection->reading = true;
  connection->Settle();
  connection->reading = false;
  pending->Write(std::string(5000, 'x'));
  pending->Write(std::string(400, 'x'));
  EXPECT_TRUE(pending->connected());
  pending->Write(std::string(5000, 'x'));
  EXPECT_EQ(pending->disconnect(), HttpDisconnect::kTooSlow);
}

TEST_F(HttpConnectionTest, WriteWithoutProgressIsDropped) {
  Open();
  connection->reading = false;
  connection->Receive(kGet);
  connection->Pass(59'000'000);
  EXPECT_FALSE(connection->closed());
  connection->Pass(2'000'000);
  EXPECT_TRUE(connection->closed());
  EXPECT_EQ(service->too_slow, 1u);
}

TEST_F(HttpConnectionTest, ProgressBuysTime) {
  Open();
  connection->reading = false;
  connection->Receive(kGet);
  const size_t size = connection->TakeOutput().size();
  for (int i = 0; i < 5; ++i) {
    connection->Pass(59'000'000);
    ASSERT_FALSE(connection->closed());
    connection->OnWritten(1);
  }
  connection->Pass(61'000'000);
  EXPECT_TRUE(connection->closed());
  Open();
  connection->reading = false;
  connection->Receive(kGet);
  ASSERT_EQ(connection->TakeOutput().size(), size);
  connection->OnWritten(size);
  connection->Pass(61'000'000);
  EXPECT_FALSE(connection->closed()) << "nothing is left to write: idle, which may take longer";
}

TEST_F(HttpConnectionTest, HangUp) {
  for (const bool streaming : {false, true}) {
    Open();
    connection->Receive("GET /wait HTTP/1.1\r\nHost: h\r\n\r\nGET /hello");  // And early bytes.
    int told = 0;
    pending->OnDisconnect([&] { ADD_FAILURE() << "it was replaced"; });
    pending->OnDisconnect([&] { ++told; });
    if (streaming) pending->StartStream(200, "text/plain");
    connection->Settle();
    connection->OnReadEnd();
    connection->Settle();
    EXPECT_EQ(told, 1);
    EXPECT_EQ(pending->disconnect(), HttpDisconnect::kHungUp);
    EXPECT_TRUE(connection->closed());
    int late = 0;
    pending->OnDisconnect([&] { ++late; });
    connection->Settle();
    EXPECT_EQ(late, 1) << "also when it has happened already";
    if (!streaming) pending->Reply(200, "text/plain", "nobody hears");
    EXPECT_EQ(service->hang_ups, 1u);
    pending.reset();
    connection->Settle();
    EXPECT_EQ(service->requests_rejected, 0u);
  }
}

TEST_F(HttpConnectionTest, NoDisconnectAfterTheReply) {
  Open();
  connection->reading = false;
  connection->Receive("GET /wait HTTP/1.1\r\nHost: h\r\n\r\n");
  auto watched = std::make_shared<int>(0);
  pending->OnDisconnect([watched] { ++*watched; });
  pending->Reply(200, "text/plain", "x");
  EXPECT_EQ(watched.use_count(), 1) << "the callback is destroyed";
  connection->OnReadEnd();  // The client has shut its half, but reads on.
  connection->reading = true;
  connection->Settle();
  EXPECT_THAT(connection->sent, ::testing::EndsWith("\r\n\r\nx"));
  EXPECT_EQ(*watched, 0);
  EXPECT_TRUE(connection->closed());
}

TEST_F(HttpConnectionTest, DeadlineOfAReply) {
  Open();
  int called = 0;
  connection->Receive("GET /wait HTTP/1.1\r\nHost: h\r\n\r\n");
  pending->OnDeadline(std::chrono::milliseconds(1), [&] { ADD_FAILURE() << "it was replaced"; });
  pending->OnDeadline(std::chrono::milliseconds(300), [&] {
    ++called;
    pending->Reply(504, "text/plain", "late");
  });
  connection->Pass(299'000);
  EXPECT_EQ(called, 0);
  connection->Pass(1'000);
  EXPECT_EQ(called, 1);
  EXPECT_THAT(connection->TakeSent(), StartsWith("HTTP/1.1 504"));
  // A reply in time ends it, and the next request has none.
  connection->Receive("GET /wait HTTP/1.1\r\nHost: h\r\n\r\n");
  auto watched = std::make_shared<int>(0);
  pending->OnDeadline(std::chrono::milliseconds(300), [watched] { ++*watched; });
  pending->Reply(200, "text/plain", "x");
  connection->Settle();
  EXPECT_EQ(watched.use_count(), 1);
  connection->Receive("GET /wait HTTP/1.1\r\nHost: h\r\n\r\n");
  connection->Pass(1'000'000);
  EXPECT_EQ(*watched, 0);
  // So does the client's leaving.
  pending->OnDeadline(std::chrono::milliseconds(300), [watched] { ++*watched; });
  connection->OnReadEnd();
  connection->Settle();
  EXPECT_EQ(watched.use_count(), 1);
  connection->Pass(1'000'000);
  EXPECT_EQ(*watched, 0);
}

TEST_F(HttpConnectionTest, CallbackMayHoldTheExchange) {
  Open();
  connection->Receive("GET /wait HTTP/1.1\r\nHost: h\r\n\r\n");
  HttpExchange* exchange = pending.get();
  exchange->OnDisconnect([held = std::move(pending)] {});
  exchange->Reply(200, "text/plain", "x");  // Destroys the callback, and itself.
  connection->Settle();
  EXPECT_THAT(connection->sent, StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpConnectionTest, DroppedExchange) {
  Open();
  connection->Receive("GET /wait HTTP/1.1\r\nHost: h\r\n\r\n");
  pending.reset();
  connection->Settle();
  EXPECT_THAT(connection->TakeSent(), HasSubstr("\"type\": \"server_error\""));
  EXPECT_THAT(Answer(kGet), StartsWith("HTTP/1.1 200"));
  connection->Receive("GET /wait HTTP/1.1\r\nHost: h\r\n\r\n");
  pending->StartStream(200, "text/plain");
  pending->Write("half");
  connection->Settle();
  pending.reset();
  connection->Settle();
  EXPECT_TRUE(connection->closed());
  EXPECT_THAT(connection->sent, ::testing::EndsWith("4\r\nhalf\r\n")) << "no final chunk";
}

TEST_F(HttpConnectionTest, Drain) {
  Open();
  connection->Drain();
  EXPECT_TRUE(connection->closed()) << "idle";
  Open();
  connection->Receive("GET /hello HTTP/1.1\r\n");
  connection->Drain();
  EXPECT_FALSE(connection->closed()) << "amid a request";
  EXPECT_THAT(Answer("Host: h\r\n\r\n"), HasSubstr("\r\nConnection: close\r\n"));
  EXPECT_TRUE(connection->wants_shutdown());
  Open();
  connection->Receive("GET /wait HTTP/1.1\r\nHost: h\r\n\r\n" + std::string(kGet));
  pending->StartStream(200, "text/plain");
  connection->Settle();
  connection->Drain();
  pending->Write("whole");
  pending->Finish();
  connection->Settle();
  EXPECT_THAT(connection->sent, ::testing::EndsWith("whole\r\n0\r\n\r\n"));
  EXPECT_TRUE(connection->wants_shutdown());
}

TEST_F(HttpConnectionTest, NothingCanSmuggleALineIntoTheHead) {
  Open();
  connection->Receive("GET /wait HTTP/1.1\r\nHost: h\r\n\r\n");
  pending->Reply(200, "text/plain\r\nA: 1", "", {{"X-Note", std::string("b\r\nC: 2\0\n", 9)}});
  connection->Settle();
  EXPECT_THAT(connection->sent, HasSubstr("\r\nContent-Type: text/plain  A: 1\r\n"));
  EXPECT_THAT(connection->sent, HasSubstr("\r\nX-Note: b  C: 2  \r\n"));
}

using HttpConnectionDeathTest = HttpConnectionTest;

TEST_F(HttpConnectionDeathTest, OurOwnBugsStop) {
  Open();
  connection->Receive("GET /wait HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_DEATH(pending->Write("no head"), "http_exchange.cc");
  EXPECT_DEATH(pending->Reply(200, "", "", {{"Content-Length", "1"}}), "http_reply.cc");
  EXPECT_DEATH(pending->Reply(200, "", "", {{"A b", "1"}}), "http_reply.cc");
  pending->Reply(200, "text/plain", "x");
  EXPECT_DEATH(pending->Reply(200, "text/plain", "again"), "http_exchange.cc");
}

}  // namespace
}  // namespace kvasir
