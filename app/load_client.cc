#include "load_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "load_events.h"
#include "terminal.h"

namespace kvasir {
namespace {

using Json = nlohmann::json;

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

HttpClient::Options ClientOptions(const LoadTarget& target) {
  HttpClient::Options options;
  options.idle_timeout = std::chrono::milliseconds(static_cast<int64_t>(target.timeout_s * 1e3));
  options.connect_timeout = std::min(options.connect_timeout, options.idle_timeout);
  return options;
}

HttpClientRequest Request(const LoadTarget& target, const char* method, const std::string& path) {
  HttpClientRequest request;
  request.method = method;
  request.target = target.url.path + path;
  request.headers.Add("Content-Type", "application/json");
  if (!target.api_key.empty()) request.headers.Add("Authorization", "Bearer " + target.api_key);
  return request;
}

// The kind of a transport's failure.
std::string_view KindOf(const Status& status) {
  switch (status.code()) {
    case StatusCode::kCancelled:
      return LoadClient::kCancelledError;
    case StatusCode::kDeadlineExceeded:
      return "timeout";
    case StatusCode::kInvalidArgument:
      return "not HTTP";
    default:
      return "connection lost";
  }
}

// A conversation as the text that /v1/completions continues.
std::string Transcript(const std::vector<LoadMessage>& messages) {
  std::string text;
  for (const LoadMessage& message : messages) {
    if (!text.empty()) text += '\n';
    text += message.text;
  }
  return text;
}

// The body of a 200; kUnavailable otherwise.
StatusOr<std::string> Exchange(const LoadTarget& target, const HttpClientRequest& request) {
  HttpClient client(target.url.host, target.url.port, ClientOptions(target));
  const StatusOr<HttpResponse> response = client.Send(request);
  if (!response.ok()) {
    return MakeStatus(StatusCode::kUnavailable, MessageOf(response.status()));
  }
  if (response->status != 200) {
    return MakeStatus(
        StatusCode::kUnavailable,
        fmt::format("{} port {}: {} {} answered {}: {}", target.url.host, target.url.port,
                    request.method, request.target, response->status, ErrorText(response->body)));
  }
  return response->body;
}

}  // namespace

LoadClient::LoadClient(const LoadTarget& target)
    : target_(target), http_(target.url.host, target.url.port, ClientOptions(target)) {}

std::string LoadClient::Body(const std::vector<LoadMessage>& messages,
                             uint32_t output_tokens) const {
  Json json;
  json["model"] = target_.model;
  if (target_.chat) {
    Json& list = json["messages"] = Json::array();
    for (const LoadMessage& message : messages) {
      list.push_back(
          {{"role", message.from_user ? "user" : "assistant"}, {"content", message.text}});
    }
  } else {
    json["prompt"] = Transcript(messages);
  }
  json["max_tokens"] = output_tokens;
  json["temperature"] = 0;
  json["stream"] = true;
  json["stream_options"] = {{"include_usage", true}};
  if (target_.ignore_eos) json["ignore_eos"] = true;
  return Dump(json);
}

LoadRecord LoadClient::Ask(const std::vector<LoadMessage>& messages, uint32_t output_tokens,
                           double epoch_s, double intended_s, std::string* answer) {
  LoadRecord record;
  record.intended_s = intended_s;
  answer->clear();
  const char* path = target_.chat ? "/v1/chat/completions" : "/v1/completions";
  HttpClientRequest request = Request(target_, "POST", path);
  request.headers.Add("Accept", "text/event-stream");
  request.body = Body(messages, output_tokens);
  const double sent_s = NowSeconds() - epoch_s;
  const Status connected = http_.Connect();
  LoadEvents events(&record, answer);
  bool late = false;
  if (!connected.ok()) {
    const bool cancelled = connected.code() == StatusCode::kCancelled;
    SetError(cancelled ? kCancelledError : "connect", MessageOf(connected), &record);
  } else {
    const StatusOr<HttpResponse> response = http_.Stream(request, [&](std::string_view bytes) {
      const double now_s = NowSeconds() - epoch_s;
      late = now_s - sent_s > target_.timeout_s;
      return events.Feed(bytes, now_s) && !late;
    });
    if (!response.ok()) {
      SetError(KindOf(response.status()), MessageOf(response.status()), &record);
    } else if (response->status / 100 != 2) {
      SetError(fmt::format("HTTP {}", response->status), ErrorText(response->body), &record);
    } else if (late) {
      SetError("timeout", fmt::format("not done after {} s", target_.timeout_s), &record);
    } else if (events.event_count() == 0) {
      SetError("no event stream", ErrorText(events.head()), &record);
    } else if (!events.finished()) {
      SetError("answer cut short", "the stream ended without a finish reason", &record);
    }
  }
  record.end_s = NowSeconds() - epoch_s;
  if (!record.has_usage) record.output_tokens = record.piece_s.size();
  return record;
}

StatusOr<std::string> AskModelName(const LoadTarget& target) {
  KV_ASSIGN_OR_RETURN(const std::string body,
                      Exchange(target, Request(target, "GET", "/v1/models")));
  const Json json = Json::parse(body, nullptr, /*allow_exceptions=*/false);
  if (json.is_object() && json.contains("data") && json["data"].is_array()) {
    for (const Json& model : json["data"]) {
      if (model.is_object() && model.contains("id") && model["id"].is_string()) {
        return model["id"].get<std::string>();
      }
    }
  }
  return MakeStatus(StatusCode::kUnavailable,
                    fmt::format("{} port {}: GET {}/v1/models names no model; say --model",
                                target.url.host, target.url.port, target.url.path));
}

StatusOr<uint64_t> AskTokenCount(const LoadTarget& target, const std::string& text) {
  HttpClientRequest request = Request(target, "POST", "/tokenize");
  Status status = OkStatus();
  // llama-server's form, then vLLM's.
  Json forms[2];
  forms[0]["content"] = text;
  forms[1]["model"] = target.model;
  forms[1]["prompt"] = text;
  for (const Json& form : forms) {
    request.body = Dump(form);
    const StatusOr<std::string> body = Exchange(target, request);
    if (!body.ok()) {
      status = body.status();
      continue;
    }
    const Json reply = Json::parse(*body, nullptr, /*allow_exceptions=*/false);
    if (reply.is_object() && reply.contains("tokens") && reply["tokens"].is_array()) {
      return reply["tokens"].size();
    }
  }
  if (!status.ok()) return status;
  return MakeStatus(StatusCode::kUnavailable, "POST /tokenize answered without tokens");
}

}  // namespace kvasir
