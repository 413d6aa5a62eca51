#include "io/http_client.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "io/http_server.h"
#include "io/http_sse.h"

namespace kvasir {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class HttpClientTest : public ::testing::Test {
 protected:
  void SetUp() override { Start(0); }

  void Start(uint16_t port) {
    HttpServer::Options options;
    options.port = port;
    auto created = HttpServer::Create(
        options, {
                     {"GET", "/hello", [](auto x) { x->Reply(200, "text/plain", "hello"); }},
                     {"POST", "/echo", [](auto x) { x->Reply(200, "text/plain", x->TakeBody()); }},
                     {"GET", "/header",
                      [](auto x) {
                        const std::string* value = x->request().headers.Find("x-a");
                        x->Reply(200, "text/plain", value == nullptr ? "none" : *value);
                      }},
                     {"GET", "/events",
                      [](auto x) {
                        x->StartStream(200, "text/event-stream");
                        for (int i = 0; i < 3; ++i) x->Write(fmt::format("data: {}\n\n", i));
                        x->Write("data: [DONE]\n\n");
                        x->Finish();
                      }},
                     {"GET", "/cut",
                      [](auto x) {
                        x->StartStream(200, "text/plain");
                        x->Write("half");
                      }},
                     {"GET", "/never", [this](auto x) { kept.push_back(std::move(x)); }},
                 });
    ASSERT_TRUE(created.ok()) << MessageOf(created.status());
    server = *std::move(created);
    server->Start();
  }

  void TearDown() override { server->Stop(); }

  std::vector<std::shared_ptr<HttpExchange>> kept;
  std::unique_ptr<HttpServer> server;
};

TEST_F(HttpClientTest, RequestsOverOneConnection) {
  HttpClient client("127.0.0.1", server->port(), {});
  for (int i = 0; i < 3; ++i) {
    const auto response = client.Send({"GET", "/hello", {}, ""});
    ASSERT_TRUE(response.ok()) << MessageOf(response.status());
    EXPECT_EQ(response->status, 200);
    EXPECT_EQ(response->body, "hello");
  }
  const std::string large(2'000'000, 'x');
  const auto echo = client.Send({"POST", "/echo", {}, large});
  ASSERT_TRUE(echo.ok());
  EXPECT_EQ(echo->body, large);
  EXPECT_EQ(client.Send({"GET", "/header", {{"X-A", "b c"}}, ""})->body, "b c");
  EXPECT_EQ(client.Send({"HEAD", "/hello", {}, ""})->body, "");
  EXPECT_EQ(client.Send({"GET", "/nope", {}, ""})->status, 404);
  EXPECT_EQ(server->counters().connections_accepted, 1u);
}

TEST_F(HttpClientTest, StreamsEvents) {
  HttpClient client("localhost", server->port(), {});
  SseParser parser;
  std::vector<std::string> events;
  const auto response = client.Stream({"GET", "/events", {}, ""}, [&](std::string_view piece) {
    return parser.Feed(piece, [&](const SseEvent& event) {
      events.push_back(event.data);
      return true;
    });
  });
  ASSERT_TRUE(response.ok()) << MessageOf(response.status());
  EXPECT_EQ(response->status, 200);
  EXPECT_THAT(events, ElementsAre("0", "1", "2", "[DONE]"));
  EXPECT_TRUE(client.connected());
  // An error's body is in the response, not in the stream.
  const auto error = client.Stream({"GET", "/nope", {}, ""}, [](std::string_view) {
    ADD_FAILURE();
    return true;
  });
  ASSERT_TRUE(error.ok());
  EXPECT_THAT(error->body, HasSubstr("unknown_url"));
  // Enough after the first piece.
  const auto stopped =
      client.Stream({"GET", "/events", {}, ""}, [](std::string_view) { return false; });
  EXPECT_TRUE(stopped.ok());
  EXPECT_FALSE(client.connected());
}

TEST_F(HttpClientTest, TroubleIsNamed) {
  HttpClient::Options options;
  options.idle_timeout = milliseconds(50);
  HttpClient client("127.0.0.1", server->port(), options);
  const auto late = client.Send({"GET", "/never", {}, ""});
  EXPECT_EQ(late.status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(MessageOf(late.status())), HasSubstr("no progress for 50 ms"));
  const auto cut = client.Send({"GET", "/cut", {}, ""});
  EXPECT_EQ(cut.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(std::string(MessageOf(cut.status())), HasSubstr("closed amid the response"));
  const uint16_t port = server->port();
  server->Stop();
  HttpClient refused("127.0.0.1", port, {});
  EXPECT_EQ(std::string(MessageOf(refused.Connect())),
            fmt::format("127.0.0.1 port {}: cannot connect: Connection refused", port));
}

TEST_F(HttpClientTest, KeptConnectionThatWasClosedIsReplaced) {
  HttpClient client("127.0.0.1", server->port(), {});
  ASSERT_TRUE(client.Send({"GET", "/hello", {}, ""}).ok());
  const uint16_t port = server->port();
  server->Stop();
  Start(port);
  const auto response = client.Send({"GET", "/hello", {}, ""});
  ASSERT_TRUE(response.ok()) << MessageOf(response.status());
  EXPECT_EQ(response->body, "hello");
}

TEST_F(HttpClientTest, CancelFromAnotherThread) {
  HttpClient client("127.0.0.1", server->port(), {});
  std::thread canceller([&] {
    std::this_thread::sleep_for(milliseconds(50));
    client.Cancel();
  });
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(client.Send({"GET", "/never", {}, ""}).status().code(), StatusCode::kCancelled);
  EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(5));
  canceller.join();
  EXPECT_EQ(client.Send({"GET", "/hello", {}, ""})->body, "hello");
}

TEST(ParseHttpUrl, Forms) {
  const auto text_of = [](std::string_view url) {
    const auto parsed = ParseHttpUrl(url);
    return parsed.ok() ? fmt::format("{}|{}|{}", parsed->host, parsed->port, parsed->path)
                       : std::string(MessageOf(parsed.status()));
  };
  EXPECT_EQ(text_of("http://a.b:8080"), "a.b|8080|");
  EXPECT_EQ(text_of("HTTP://a"), "a|80|");
  EXPECT_EQ(text_of("localhost:1/v1/"), "localhost|1|/v1");
  EXPECT_EQ(text_of("http://[::1]:9/x"), "::1|9|/x");
  EXPECT_EQ(text_of("[::1]"), "::1|80|");
  EXPECT_EQ(text_of("https://a"), "https://a: only http:// is supported");
  EXPECT_EQ(text_of("http://a:0"), "http://a:0: 0 is not a port (1 to 65535)");
  EXPECT_EQ(text_of("http://a:65536"), "http://a:65536: 65536 is not a port (1 to 65535)");
  EXPECT_EQ(text_of("http://a:8x"), "http://a:8x: 8x is not a port (1 to 65535)");
  EXPECT_EQ(text_of("http://:80"), "http://:80: no host; want http://host:port");
  EXPECT_EQ(text_of("http://[::1"), "http://[::1: no ] after the address");
}

TEST(HttpResponseParser, BodiesByLengthChunksAndEnd) {
  const auto parse = [](std::string_view bytes, bool end) -> std::string {
    HttpResponseParser parser(/*to_head_request=*/false, nullptr);
    std::string held;
    for (const char c : bytes) {  // One by one: the hardest cut.
      held.push_back(c);
      const auto used = parser.Feed(held);
      if (!used.ok()) return "error";
      held.erase(0, *used);
    }
    if (end && !parser.FeedEnd().ok()) return "cut";
    return fmt::format("{} {} {}", parser.response().status, parser.response().body,
                       parser.done() ? (parser.keep_alive() ? "kept" : "closed") : "more");
  };
  EXPECT_EQ(parse("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab", false), "200 ab kept");
  EXPECT_EQ(parse("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", true), "cut");
  EXPECT_EQ(
      parse("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", false),
      "200 a kept");
  EXPECT_EQ(parse("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n", true), "cut");
  EXPECT_EQ(parse("HTTP/1.1 200 OK\r\n\r\nab", false), "200 ab more");
  EXPECT_EQ(parse("HTTP/1.1 200 OK\r\n\r\nab", true), "200 ab closed");
  EXPECT_EQ(parse("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n", false),
            "204  kept");
  EXPECT_EQ(parse("HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\na", false), "200 a closed");
  EXPECT_EQ(parse("SSH-2.0-x\r\n\r\n", false), "error");
}

TEST(SseParser, EventsFromAnyPieces) {
  const std::string stream =
      "\xef\xbb\xbf: comment\n\ndata: a\ndata:b\r\n\revent: x\rdata:  c\nid: 1\n\nevent: y\n\n"
      "data\n\nnodata: z\n\ndata: unfinished\n";
  for (size_t piece = 1; piece <= stream.size(); ++piece) {
    SCOPED_TRACE(piece);
    SseParser parser;
    std::vector<std::string> events;
    for (size_t i = 0; i < stream.size(); i += piece) {
      ASSERT_TRUE(parser.Feed(std::string_view(stream).substr(i, piece), [&](const SseEvent& e) {
        events.push_back(e.event + "|" + e.data);
        return true;
      }));
    }
    EXPECT_THAT(events, ElementsAre("message|a\nb", "x| c", "message|"));
  }
}

TEST(SseParser, StopsWhenToldAndWhenItGrowsTooLarge) {
  SseParser parser;
  EXPECT_FALSE(parser.Feed("data: 1\n\ndata: 2\n\n", [](const SseEvent& event) {
    EXPECT_EQ(event.data, "1");
    return false;
  }));
  SseParser endless;
  const std::string line = "data: " + std::string(1 << 20, 'x') + "\n";
  int fed = 0;
  while (fed < 100 && endless.Feed(line, [](const SseEvent&) { return true; })) ++fed;
  EXPECT_EQ(fed, 15);
}

}  // namespace
}  // namespace kvasir
