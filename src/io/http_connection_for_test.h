// ConnectionForTest: an HttpConnection over memory, with a clock that stands still until told.
//
// Tests and the fuzz target only. A client that reads everything at once, unless told not to.
// Thread: one.
#ifndef KVASIR_IO_HTTP_CONNECTION_FOR_TEST_H_
#define KVASIR_IO_HTTP_CONNECTION_FOR_TEST_H_

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "io/http_connection.h"

namespace kvasir {

class ConnectionForTest final : public HttpConnection {
 public:
  static std::shared_ptr<HttpService> Service(HttpServer::Options options,
                                              std::vector<HttpRoute> routes) {
    auto service = std::make_shared<HttpService>();
    auto router = HttpRouter::Create(std::move(routes));
    KV_CHECK(router.ok());
    service->router = *std::move(router);
    service->options = std::move(options);
    return service;
  }

  explicit ConnectionForTest(std::shared_ptr<HttpService> service)
      : HttpConnection(std::move(service), "test:1") {}

  void Open() {
    OnOpen();
    Settle();
  }

  void Receive(std::string_view bytes) {
    OnBytes(bytes);
    Settle();
  }

  // Runs what was posted and, when the client reads, takes what is to be sent, until all is quiet.
  void Settle() {
    while (true) {
      if (!posted_.empty()) {
        const std::function<void()> function = std::move(posted_.front());
        posted_.pop_front();
        function();
      } else if (reading && has_output()) {
        const std::string bytes = TakeOutput();
        sent += bytes;
        OnWritten(bytes.size());
      } else {
        return;
      }
    }
  }

  // Lets time pass, stopping at every deadline on the way.
  void Pass(TimeUs duration) {
    const TimeUs end = now_ + duration;
    while (deadline() <= end) {
      now_ = std::max(now_, deadline());
      const TimeUs before = deadline();
      OnTime();
      Settle();
      KV_CHECK(deadline() > before || deadline() > now_);  // Or it would never end.
    }
    now_ = end;
  }

  std::string TakeSent() { return std::exchange(sent, std::string()); }

  void Post(std::function<void()> function) override { posted_.push_back(std::move(function)); }

  std::string sent;     // What the client has got.
  bool reading = true;  // false: it takes nothing.

 private:
  TimeUs Now() const override { return now_; }
  void Pump() override {}

  TimeUs now_ = 1'000'000;
  std::deque<std::function<void()>> posted_;
};

}  // namespace kvasir

#endif  // KVASIR_IO_HTTP_CONNECTION_FOR_TEST_H_
