// Any bytes from a client, cut into any pieces: the connection answers or closes, and what reaches
// the handlers does not depend on the cutting (two readings of one stream are how requests get
// smuggled).
//
// The first byte of the input chooses the size of the pieces and when the client hangs up, the rest
// is what it sends. No sockets: HttpConnection over memory.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "io/http_connection_for_test.h"

namespace kvasir {
namespace {

// A text that two runs over the same bytes must agree on.
std::string Seen(const HttpExchange& exchange) {
  const HttpRequest& request = exchange.request();
  KV_CHECK(IsSaneRequestId(request.request_id));
  KV_CHECK(!request.path.empty() && request.path[0] == '/');
  KV_CHECK(request.path.find('\0') == std::string::npos);
  KV_CHECK_LE(request.body.size(), 3000u);
  std::string seen = request.method + " " + request.path + "?" + request.query + " ";
  for (const auto& [name, value] : request.headers) seen += name + ": " + value + "\n";
  return seen + request.body;
}

std::vector<HttpRoute> Routes(std::vector<std::string>* seen) {
  const auto reply = [seen](const std::shared_ptr<HttpExchange>& exchange) {
    seen->push_back(Seen(*exchange));
    exchange->Reply(200, "text/plain", exchange->request().body,
                    {{"X-Echo", exchange->request().path}});
  };
  const auto stream = [seen](const std::shared_ptr<HttpExchange>& exchange) {
    seen->push_back(Seen(*exchange));
    exchange->OnDisconnect([] {});
    exchange->StartStream(200, "text/event-stream");
    exchange->Post([exchange] { exchange->Write("data: " + exchange->request().query + "\n\n"); });
    exchange->Post([exchange] { exchange->Finish(); });
  };
  const auto drop = [seen](const std::shared_ptr<HttpExchange>& exchange) {
    seen->push_back(Seen(*exchange));
  };
  return {{"GET", "/a", reply},       {"POST", "/a", reply},  {"GET", "/a/{id}", reply},
          {"GET", "/s", stream},      {"POST", "/s", stream}, {"GET", "/d", drop},
          {"DELETE", "/d/{id}", drop}};
}

// What the client got must be whole responses, one after the other.
void CheckReplies(std::string_view sent) {
  while (!sent.empty()) {
    HttpResponseParser parser(/*to_head_request=*/false, nullptr);
    const auto used = parser.Feed(sent);
    KV_CHECK(used.ok());
    KV_CHECK(parser.FeedEnd().ok());
    KV_CHECK(parser.response().status >= 200);
    sent.remove_prefix(*used);
  }
}

std::vector<std::string> Run(std::string_view bytes, size_t piece, bool hang_up) {
  std::vector<std::string> seen;
  HttpServer::Options options;
  options.max_header_bytes = 1000;
  options.max_body_bytes = 3000;
  const auto service = ConnectionForTest::Service(options, Routes(&seen));
  const auto connection = std::make_shared<ConnectionForTest>(service);
  connection->Open();
  for (size_t i = 0; i < bytes.size() && !connection->closed(); i += piece) {
    if (!connection->wants_read()) break;
    connection->Receive(bytes.substr(i, piece));
  }
  if (hang_up && !connection->closed()) connection->OnReadEnd();
  connection->Settle();
  connection->Pass(600'000'000);  // Every deadline: whatever came, the connection ends.
  KV_CHECK(connection->closed());
  KV_CHECK_EQ(service->requests, seen.size());
  // Which reply is HEAD's, and has no body for all its Content-Length, is not to be seen here.
  if (!hang_up && bytes.find("HEAD") == std::string_view::npos) CheckReplies(connection->sent);
  return seen;
}

}  // namespace
}  // namespace kvasir

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t piece = std::max<size_t>(1, data[0] & 0x7f);
  const bool hang_up = (data[0] & 0x80) != 0;
  const auto whole = kvasir::Run(bytes, std::max<size_t>(1, bytes.size()), hang_up);
  KV_CHECK(kvasir::Run(bytes, piece, hang_up) == whole);
  KV_CHECK(kvasir::Run(bytes, 1, hang_up) == whole);
  return 0;
}
