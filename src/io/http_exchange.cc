#include <utility>

#include "base/check.h"
#include "io/http_connection.h"
#include "io/http_server.h"

namespace kvasir {

// The methods copy connection_ where the call may destroy a callback that holds this exchange.

HttpExchange::HttpExchange(HttpRequest request, std::shared_ptr<HttpConnection> connection)
    : request_(std::move(request)), connection_(std::move(connection)) {}

HttpExchange::~HttpExchange() {
  if (state_ == State::kDone) return;
  connection_->Post([connection = connection_] { connection->Abandon(); });
}

void HttpExchange::Reply(int status, std::string_view content_type, std::string body,
                         const HttpHeaders& headers) {
  KV_CHECK(state_ == State::kWaiting);
  state_ = State::kDone;
  status_ = status;
  body_bytes_ = body.size();
  const auto connection = connection_;
  connection->Reply(status, content_type, body, headers);
}

void HttpExchange::StartStream(int status, std::string_view content_type,
                               const HttpHeaders& headers) {
  KV_CHECK(state_ == State::kWaiting);
  KV_CHECK(status != 204 && status != 304);  // They have no body to stream.
  state_ = State::kStreaming;
  status_ = status;
  connection_->StartStream(status, content_type, headers);
}

void HttpExchange::Write(std::string bytes) {
  KV_CHECK(state_ == State::kStreaming);
  body_bytes_ += bytes.size();
  connection_->Write(bytes);
}

void HttpExchange::Finish() {
  KV_CHECK(state_ == State::kStreaming);
  state_ = State::kDone;
  const auto connection = connection_;
  connection->Finish();
}

void HttpExchange::Post(std::function<void()> function) { connection_->Post(std::move(function)); }

void HttpExchange::OnDisconnect(std::function<void()> callback) {
  if (state_ == State::kDone) return;
  const auto connection = connection_;
  connection->SetOnDisconnect(std::move(callback));
}

void HttpExchange::OnDeadline(std::chrono::milliseconds after, std::function<void()> callback) {
  if (state_ == State::kDone) return;
  const auto connection = connection_;
  const auto us = std::chrono::duration_cast<std::chrono::microseconds>(after);
  connection->SetOnDeadline(us.count(), std::move(callback));
}

HttpDisconnect HttpExchange::disconnect() const { return connection_->disconnect(); }

}  // namespace kvasir
