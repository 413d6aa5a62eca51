// The server over loopback sockets, with threads: what http_connection_test cannot see.
#include "io/http_server.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <deque>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "io/http_raw_client_for_test.h"

namespace kvasir {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::string_view kGet = "GET /hello HTTP/1.1\r\nHost: h\r\n\r\n";
constexpr std::string_view kWait = "GET /wait HTTP/1.1\r\nHost: h\r\n\r\n";

// Exchanges that wait for the test to answer them.
class Waiting {
 public:
  void Put(std::shared_ptr<HttpExchange> exchange) {
    MutexLock lock(mutex_);
    exchanges_.push_back(std::move(exchange));
    changed_.NotifyAll();
  }

  // nullptr when none comes within five seconds.
  std::shared_ptr<HttpExchange> Take() {
    const auto deadline = std::chrono::steady_clock::now() + seconds(5);
    MutexLock lock(mutex_);
    while (exchanges_.empty()) {
      if (!changed_.WaitUntil(mutex_, deadline) && exchanges_.empty()) return nullptr;
    }
    auto exchange = std::move(exchanges_.front());
    exchanges_.pop_front();
    return exchange;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::deque<std::shared_ptr<HttpExchange>> exchanges_ KV_GUARDED_BY(mutex_);
};

// Set from the strand, waited for by the test.
class Signal {
 public:
  void Set() { promise_.set_value(); }
  bool Wait(milliseconds timeout = seconds(5)) {
    return future_.wait_for(timeout) == std::future_status::ready;
  }

 private:
  std::promise<void> promise_;
  std::future<void> future_ = promise_.get_future();
};

// Runs `function` on the exchange's strand and waits for it.
template <typename Function>
void On(const std::shared_ptr<HttpExchange>& exchange, Function function) {
  std::promise<void> done;
  exchange->Post([&] {
    function();
    done.set_value();
  });
  ASSERT_EQ(done.get_future().wait_for(seconds(5)), std::future_status::ready);
}

class HttpServerTest : public ::testing::Test {
 protected:
  std::vector<HttpRoute> Routes() {
    return {
        {"GET", "/hello", [](auto exchange) { exchange->Reply(200, "text/plain", "hello"); }},
        {"POST", "/echo",
         [](auto exchange) { exchange->Reply(200, "text/plain", exchange->TakeBody()); }},
        {"GET", "/wait", [this](auto exchange) { waiting.Put(std::move(exchange)); }},
        {"GET", "/peer", [](auto x) { x->Reply(200, "text/plain", x->request().peer); }},
    };
  }

  void Start(HttpServer::Options options = {}) {
    auto created = HttpServer::Create(std::move(options), Routes());
    ASSERT_TRUE(created.ok()) << MessageOf(created.status());
    server = *std::move(created);
    server->Start();
  }

  RawClientForTest Connect() { return RawClientForTest(server->port()); }

  // Until `predicate` holds, at most five seconds.
  template <typename Predicate>
  static bool Eventually(Predicate predicate) {
    for (int i = 0; i < 1000; ++i) {
      if (predicate()) return true;
      std::this_thread::sleep_for(milliseconds(5));
    }
    return false;
  }

  Waiting waiting;
  std::unique_ptr<HttpServer> server;
};

TEST_F(HttpServerTest, AnswersOverOneConnection) {
  Start();
  RawClientForTest client = Connect();
  for (int i = 0; i < 3; ++i) {
    client.Send(kGet);
    EXPECT_THAT(client.ReadReply(), EndsWith("\r\n\r\nhello"));
  }
  client.Send("GET /peer HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
  const std::string last = client.ReadToEnd();
  EXPECT_THAT(last, HasSubstr("\r\n\r\n127.0.0.1:"));
  EXPECT_THAT(last, HasSubstr("\r\nConnection: close\r\n"));
  EXPECT_EQ(server->counters().requests, 4u);
  EXPECT_EQ(server->counters().connections_accepted, 1u);
}

TEST_F(HttpServerTest, LargeBodiesBothWays) {
  Start();
  std::string body;
  for (int i = 0; body.size() < 3'000'000; ++i) body += fmt::format("{} ", i);
  RawClientForTest client = Connect();
  // Sending and receiving at once: the reply may begin to fill the pipe.
  std::thread sender([&] {
    client.Send(
        fmt::format("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n", body.size()));
    client.Send(body);
  });
  sender.join();
  const std::string reply = client.ReadReply();
  EXPECT_EQ(reply.substr(reply.find("\r\n\r\n") + 4), body);
}

TEST_F(HttpServerTest, ByteByByteAndPipelined) {
  Start();
  RawClientForTest client = Connect();
  const std::string request = "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc";
  for (const char c : request) client.Send({&c, 1});
  EXPECT_THAT(client.ReadReply(), EndsWith("\r\n\r\nabc"));
  client.Send(std::string(kWait) + request + std::string(kGet));
  const auto exchange = waiting.Take();
  ASSERT_NE(exchange, nullptr);
  exchange->Post([exchange] { exchange->Reply(200, "text/plain", "first"); });
  EXPECT_THAT(client.ReadReply(), EndsWith("\r\n\r\nfirst"));
  EXPECT_THAT(client.ReadReply(), EndsWith("\r\n\r\nabc"));
  EXPECT_THAT(client.ReadReply(), EndsWith("\r\n\r\nhello"));
}

TEST_F(HttpServerTest, StreamsAsItIsWritten) {
  HttpServer::Options options;
  options.keep_alive_comment_interval = milliseconds(50);
  Start(options);
  RawClientForTest client = Connect();
  client.Send(kWait);
  const auto exchange = waiting.Take();
  ASSERT_NE(exchange, nullptr);
  On(exchange, [&] { exchange->StartStream(200, "text/event-stream"); });
  EXPECT_THAT(client.ReadUntil("\r\n\r\n"), HasSubstr("\r\nTransfer-Encoding: chunked\r\n"));
  On(exchange, [&] { exchange->Write("data: 1\n\n"); });
  EXPECT_EQ(client.ReadUntil("\n\n\r\n"), "9\r\ndata: 1\n\n\r\n");
  EXPECT_EQ(client.ReadUntil("\n\n\r\n"), "e\r\n: keep-alive\n\n\r\n");
  On(exchange, [&] { exchange->Finish(); });
  EXPECT_THAT(client.ReadUntil("0\r\n\r\n"), EndsWith("0\r\n\r\n"));
  client.Send(kGet);
  EXPECT_THAT(client.ReadReply(), EndsWith("hello"));
}

TEST_F(HttpServerTest, PostKeepsItsOrderAndNeverOverlaps) {
  HttpServer::Options options;
  options.threads = 4;
  Start(options);
  RawClientForTest client = Connect();
  client.Send(kWait);
  const auto exchange = waiting.Take();
  ASSERT_NE(exchange, nullptr);
  constexpr int kThreads = 4, kPosts = 200;
  int seen[kThreads] =
      {};  // Plain: the strand alone protects them (and the thread sanitizer looks).
  int total = 0;
  bool in_order = true;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kPosts; ++i) {
        exchange->Post([&, t, i] {
          in_order = in_order && seen[t] == i;
          seen[t] = i + 1;
          if (++total == kThreads * kPosts) exchange->Reply(200, "text/plain", "all");
        });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(client.ReadReply(), EndsWith("\r\n\r\nall"));
  On(exchange, [&] { EXPECT_TRUE(in_order); });
}

TEST_F(HttpServerTest, HangUpIsNoticedWhileTheHandlerWorks) {
  Start();
  for (const bool streaming : {false, true}) {
    SCOPED_TRACE(streaming);
    RawClientForTest client = Connect();
    client.Send(kWait);
    client.Send(kGet);  // An early request must not hide the end.
    const auto exchange = waiting.Take();
    ASSERT_NE(exchange, nullptr);
    Signal gone;
    On(exchange, [&] {
      exchange->OnDisconnect([&] { gone.Set(); });
      if (streaming) exchange->StartStream(200, "text/plain");
    });
    EXPECT_FALSE(gone.Wait(milliseconds(50)));
    const auto start = std::chrono::steady_clock::now();
    client.Close();
    ASSERT_TRUE(gone.Wait());
    EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(2));
    On(exchange, [&] { EXPECT_EQ(exchange->disconnect(), HttpDisconnect::kHungUp); });
  }
  EXPECT_EQ(server->counters().hang_ups, 2u);
  EXPECT_TRUE(Eventually([&] { return server->counters().connections_open == 0; }));
}

TEST_F(HttpServerTest, ClientThatNeverReadsStallsNobody) {
  HttpServer::Options options;
  options.threads = 1;
  options.write_limit_bytes = 64 << 10;
  Start(options);
  RawClientForTest deaf(server->port(), /*receive_bytes=*/4096);
  deaf.Send(kWait);
  const auto exchange = waiting.Take();
  ASSERT_NE(exchange, nullptr);
  Signal dropped;
  On(exchange, [&] {
    exchange->OnDisconnect([&] { dropped.Set(); });
    exchange->StartStream(200, "text/plain");
  });
  RawClientForTest other = Connect();
  size_t written = 0;
  bool gone = false;
  while (!gone && written < (64u << 20)) {  // The kernel itself holds a few megabytes.
    On(exchange, [&] {
      exchange->Write(std::string(32 << 10, 'x'));
      gone = !exchange->connected();
    });
    written += 32 << 10;
    if (written % (1 << 20) == 0) {
      other.Send(kGet);
      ASSERT_THAT(other.ReadReply(), EndsWith("hello"));
    }
  }
  EXPECT_TRUE(dropped.Wait());
  On(exchange, [&] { EXPECT_EQ(exchange->disconnect(), HttpDisconnect::kTooSlow); });
  EXPECT_EQ(server->counters().too_slow, 1u);
}

TEST_F(HttpServerTest, SlowHeadersAndSilence) {
  HttpServer::Options options;
  options.header_timeout = milliseconds(100);
  options.body_timeout = milliseconds(100);
  options.idle_timeout = milliseconds(100);
  Start(options);
  RawClientForTest slow = Connect(), slow_body = Connect(), silent = Connect();
  slow.Send("GET /hello HTTP/1.1\r\nHo");
  slow_body.Send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nabc");
  EXPECT_THAT(slow.ReadToEnd(), StartsWith("HTTP/1.1 408 "));
  EXPECT_THAT(slow_body.ReadToEnd(), StartsWith("HTTP/1.1 408 "));
  EXPECT_EQ(silent.ReadToEnd(), "");
  EXPECT_EQ(server->counters().request_timeouts, 2u);
}

TEST_F(HttpServerTest, TooLargeBodyGetsItsAnswerBeforeTheConnectionCloses) {
  HttpServer::Options options;
  options.max_body_bytes = 1000;
  Start(options);
  for (int i = 0; i < 20; ++i) {
    RawClientForTest client = Connect();
    client.Send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n");
    client.Send(std::string(1000000, 'x'));  // Unread input must not destroy the reply.
    EXPECT_THAT(client.ReadToEnd(), StartsWith("HTTP/1.1 413 "));
  }
}

TEST_F(HttpServerTest, TwoHundredConnectionsAtOnce) {
  Start();
  std::vector<RawClientForTest> clients;
  for (int i = 0; i < 200; ++i) {
    clients.push_back(Connect());
    ASSERT_TRUE(clients.back().connected());
  }
  for (int i = 0; i < 200; ++i) {
    const std::string body = fmt::format("client {}", i);
    clients[i].Send(i % 2 == 0 ? std::string(kWait)
                               : fmt::format("POST /echo HTTP/1.1\r\nHost: h\r\n"
                                             "Content-Length: {}\r\n\r\n{}",
                                             body.size(), body));
  }
  std::vector<std::thread> answering;
  for (int t = 0; t < 2; ++t) {
    answering.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        const auto exchange = waiting.Take();
        ASSERT_NE(exchange, nullptr);
        exchange->Post([exchange] { exchange->Reply(200, "text/plain", "late"); });
      }
    });
  }
  for (std::thread& thread : answering) thread.join();
  for (int i = 0; i < 200; ++i) {
    EXPECT_THAT(clients[i].ReadReply(),
                EndsWith("\r\n\r\n" + (i % 2 == 0 ? "late" : fmt::format("client {}", i))));
  }
  EXPECT_EQ(server->counters().requests, 200u);
}

TEST_F(HttpServerTest, TooManyConnections) {
  HttpServer::Options options;
  options.max_connections = 3;
  Start(options);
  std::vector<RawClientForTest> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(Connect());
    clients.back().Send(kGet);
    EXPECT_THAT(clients.back().ReadReply(), EndsWith("hello"));
  }
  RawClientForTest refused = Connect();
  refused.Send(kGet);
  const std::string reply = refused.ReadToEnd();
  EXPECT_THAT(reply, StartsWith("HTTP/1.1 503 "));
  EXPECT_THAT(reply, HasSubstr("\r\nRetry-After: 1\r\n"));
  EXPECT_THAT(reply, HasSubstr("too_many_connections"));
  EXPECT_EQ(server->counters().connections_refused, 1u);
  refused.Close();
  clients.pop_back();
  ASSERT_TRUE(Eventually([&] { return server->counters().connections_open == 2; }));
  RawClientForTest admitted = Connect();
  admitted.Send(kGet);
  EXPECT_THAT(admitted.ReadReply(), EndsWith("hello"));
  // A flood: those that are not told 503 at once wait in the kernel, and are served in the end.
  std::vector<RawClientForTest> flood;
  for (int i = 0; i < 100; ++i) flood.push_back(Connect());
  clients.clear();
  for (RawClientForTest& client : flood) client.Send(kGet);
  for (RawClientForTest& client : flood) {
    EXPECT_THAT(client.ReadReply(),
                ::testing::AnyOf(StartsWith("HTTP/1.1 503 "), EndsWith("hello")));
    client.Close();
  }
}

TEST_F(HttpServerTest, DrainLetsRunningRequestsFinish) {
  Start();
  RawClientForTest idle = Connect(), streaming = Connect(), plain = Connect();
  idle.Send(kGet);
  EXPECT_THAT(idle.ReadReply(), EndsWith("hello"));
  streaming.Send(kWait);
  const auto first = waiting.Take();
  plain.Send(kWait);
  const auto second = waiting.Take();
  ASSERT_TRUE(first != nullptr && second != nullptr);
  On(first, [&] { first->StartStream(200, "text/plain"); });
  server->BeginDrain();
  EXPECT_EQ(idle.ReadToEnd(), "");
  EXPECT_FALSE(server->WaitDrained(milliseconds(50)));
  EXPECT_TRUE(Eventually([&] { return !Connect().connected(); })) << "still accepts";
  On(second, [&] { second->Reply(200, "text/plain", "whole"); });
  On(first, [&] { first->Write("stream"); });
  On(first, [&] { first->Finish(); });
  const std::string reply = plain.ReadToEnd();
  EXPECT_THAT(reply, HasSubstr("\r\nConnection: close\r\n"));
  EXPECT_THAT(reply, EndsWith("whole"));
  EXPECT_THAT(streaming.ReadToEnd(), EndsWith("6\r\nstream\r\n0\r\n\r\n"));
  plain.Close();
  streaming.Close();
  EXPECT_TRUE(server->WaitDrained(seconds(5)));
}

TEST_F(HttpServerTest, StopTellsAndExchangesOutliveTheServer) {
  Start();
  RawClientForTest client = Connect();
  client.Send(kWait);
  const auto exchange = waiting.Take();
  ASSERT_NE(exchange, nullptr);
  Signal told;
  On(exchange, [&] { exchange->OnDisconnect([&] { told.Set(); }); });
  server->Stop();
  EXPECT_TRUE(told.Wait(milliseconds(0))) << "told before Stop returned";
  EXPECT_EQ(exchange->disconnect(), HttpDisconnect::kStopped);
  EXPECT_EQ(client.ReadToEnd(), "");
  server->Stop();
  server.reset();
  auto held = std::make_shared<int>(0);
  exchange->Post([held] { ADD_FAILURE() << "no strand is left"; });
  EXPECT_EQ(held.use_count(), 1);
  exchange->Reply(200, "text/plain", "nobody hears");
}

TEST_F(HttpServerTest, StopWhileOthersPost) {
  Start();
  RawClientForTest client = Connect();
  client.Send(kWait);
  const auto exchange = waiting.Take();
  ASSERT_NE(exchange, nullptr);
  std::atomic<bool> done{false};
  std::thread poster([&] {
    while (!done) {
      exchange->Post([exchange] {});
      std::this_thread::yield();
    }
  });
  std::this_thread::sleep_for(milliseconds(20));
  server->Stop();
  done = true;
  poster.join();
  EXPECT_EQ(exchange.use_count(), 1) << "no posted function is left behind";
}

TEST_F(HttpServerTest, DroppedFromAnotherThread) {
  Start();
  RawClientForTest client = Connect();
  client.Send(kWait);
  auto exchange = waiting.Take();
  ASSERT_NE(exchange, nullptr);
  exchange.reset();
  EXPECT_THAT(client.ReadReply(), StartsWith("HTTP/1.1 500 "));
  client.Send(kGet);
  EXPECT_THAT(client.ReadReply(), EndsWith("hello"));
}

TEST_F(HttpServerTest, NeverStarted) {
  auto created = HttpServer::Create({}, Routes());
  ASSERT_TRUE(created.ok());
  server = *std::move(created);
  RawClientForTest client = Connect();
  EXPECT_TRUE(client.connected()) << "the kernel's queue takes it";
  server.reset();
}

TEST_F(HttpServerTest, WhatCannotBeListenedOnIsNamed) {
  Start();
  HttpServer::Options options;
  options.port = server->port();
  const auto taken = HttpServer::Create(options, {});
  ASSERT_FALSE(taken.ok());
  EXPECT_EQ(std::string(MessageOf(taken.status())),
            fmt::format("cannot listen on 127.0.0.1:{}: Address already in use; choose another "
                        "address or port",
                        server->port()));
  options = {};
  options.host = "203.0.113.7";
  EXPECT_THAT(std::string(MessageOf(HttpServer::Create(options, {}).status())),
              StartsWith("cannot listen on 203.0.113.7:0: Cannot assign"));
  options.host = "no such host";
  EXPECT_THAT(std::string(MessageOf(HttpServer::Create(options, {}).status())),
              StartsWith("cannot listen on no such host: "));
  options = {};
  options.cors_origin = "a\r\nb";
  EXPECT_EQ(HttpServer::Create(options, {}).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(HttpServerTest, OptionsAreChecked) {
  HttpServer::Options options;
  options.host = "";  // Not all addresses by mistake.
  EXPECT_EQ(HttpServer::Create(options, {}).status().code(), StatusCode::kInvalidArgument);
  options = {};
  options.threads = 0;
  EXPECT_EQ(HttpServer::Create(options, {}).status().code(), StatusCode::kInvalidArgument);
  options = {};
  options.max_header_bytes = 10;
  EXPECT_EQ(HttpServer::Create(options, {}).status().code(), StatusCode::kInvalidArgument);
  options = {};
  options.max_connections = 0;
  EXPECT_EQ(HttpServer::Create(options, {}).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(HttpServerTest, Ipv6) {
  HttpServer::Options options;
  options.host = "::1";
  auto created = HttpServer::Create(options, Routes());
  if (!created.ok()) GTEST_SKIP() << MessageOf(created.status());
  EXPECT_EQ((*created)->address(), fmt::format("[::1]:{}", (*created)->port()));
}

// Without descriptors left, the server must neither spin nor give up accepting for good.
TEST_F(HttpServerTest, SurvivesRunningOutOfDescriptors) {
  Start();
  RawClientForTest before = Connect();
  before.Send(kGet);
  EXPECT_THAT(before.ReadReply(), EndsWith("hello"));
  struct rlimit limit {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  struct rlimit small = limit;
  small.rlim_cur = 200;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &small), 0);
  std::vector<int> hoard;
  for (int fd = dup(0); fd >= 0; fd = dup(0)) hoard.push_back(fd);
  ASSERT_FALSE(hoard.empty());
  close(hoard.back());
  hoard.pop_back();
  RawClientForTest client = Connect();  // Takes the last one: accept finds none.
  client.Send(kGet);
  std::this_thread::sleep_for(milliseconds(120));
  EXPECT_EQ(server->counters().connections_accepted, 1u);
  for (const int fd : hoard) close(fd);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_THAT(client.ReadReply(), EndsWith("hello"));
}

TEST_F(HttpServerTest, RoutesAreChecked) {
  const HttpHandler handler = [](auto) {};
  const auto error_of = [](std::vector<HttpRoute> routes) {
    const auto created = HttpServer::Create({}, std::move(routes));
    return created.ok() ? "" : std::string(MessageOf(created.status()));
  };
  EXPECT_EQ(error_of({{"GET", "/a", handler}, {"POST", "/a", handler}}), "");
  EXPECT_EQ(error_of({{"GET", "/a", handler}, {"GET", "/a", handler}}),
            "route GET /a is given twice");
  EXPECT_THAT(error_of({{"GET", "a", handler}}), HasSubstr("want /a/path"));
  EXPECT_THAT(error_of({{"GET", "/{id}/a", handler}}), HasSubstr("want /a/path"));
  EXPECT_THAT(error_of({{"G T", "/a", handler}}), HasSubstr("is not a token"));
  EXPECT_THAT(error_of({{"GET", "/a", nullptr}}), HasSubstr("no handler"));
}

}  // namespace
}  // namespace kvasir
