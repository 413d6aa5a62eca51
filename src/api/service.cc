#include "api/service.h"

#include <span>
#include <utility>

#include "api/handlers.h"
#include "base/check.h"
#include "base/rng.h"

namespace kvasir {
namespace {

constexpr const char* kJson = "application/json";

BlockHash DigestOfText(std::string_view text) {
  return DigestOf(std::as_bytes(std::span<const char>(text.data(), text.size())));
}

// Equal in a time that does not depend on where they differ.
bool EqualInConstantTime(const BlockHash& a, const BlockHash& b) {
  uint8_t difference = 0;
  for (size_t i = 0; i < a.bytes.size(); ++i) {
    difference = static_cast<uint8_t>(difference | (a.bytes[i] ^ b.bytes[i]));
  }
  return difference == 0;
}

// The key that a request shows; empty: none.
std::string_view ShownKey(const HttpRequest& request) {
  constexpr std::string_view kBearer = "Bearer ";
  if (const std::string* value = request.headers.Find("Authorization")) {
    const std::string_view text = *value;
    if (text.size() > kBearer.size() && EqualsIgnoreCase(text.substr(0, kBearer.size()), kBearer)) {
      return text.substr(kBearer.size());
    }
    return {};
  }
  const std::string* value = request.headers.Find("X-Api-Key");
  return value == nullptr ? std::string_view() : std::string_view(*value);
}

// Probes and scrapes come every few seconds and say nothing about anybody's request.
bool WorthALine(std::string_view route) {
  return route != "/health" && route != "/ready" && route != "/metrics";
}

}  // namespace

ApiService::ApiService(Options options)
    : options_(std::move(options)),
      started_at_(options_.wall_clock()),
      random_counter_(options_.random_seed) {
  KV_CHECK(!options_.served_names.empty());
  KV_CHECK(options_.log);
  for (const std::string& key : options_.api_keys) key_digests_.push_back(DigestOfText(key));
}

int64_t ApiService::UnixTimeOf(TimeUs moment, TimeUs now) {
  // The wall clock tells whole seconds, so that a difference taken anew each time would wander by
  // one. Only where it is further off is it another time of day.
  constexpr TimeUs kSecond = 1'000'000;
  const TimeUs fresh = UnixTime() * kSecond + kSecond / 2 - now;
  TimeUs known = engine_to_unix_us_.load();
  while (known == 0 || std::abs(fresh - known) > 2 * kSecond) {
    if (engine_to_unix_us_.compare_exchange_weak(known, fresh)) known = fresh;
  }
  return (moment + known) / kSecond;
}

std::vector<HttpRoute> ApiService::Routes() {
  return {
      Route("POST", "/v1/chat/completions", true, HandleChatCompletion),
      Route("POST", "/v1/completions", true, HandleCompletion),
      Route("GET", "/v1/models", true, HandleModels),
      Route("GET", "/v1/models/{id}", true, HandleModel),
      Route("POST", "/tokenize", true, HandleTokenize),
      Route("POST", "/detokenize", true, HandleDetokenize),
      Route("POST", "/apply-template", true, HandleApplyTemplate),
      Route("GET", "/metrics", true, HandleMetrics),
      Route("GET", "/v1/kv", true, HandleKvList),
      Route("POST", "/v1/kv/pin", true, HandleKvPin),
      Route("POST", "/v1/kv/unpin", true, HandleKvUnpin),
      Route("POST", "/v1/kv/clear", true, HandleKvClear),
      // What probes ask; it says nothing about anybody's requests.
      Route("GET", "/health", false, HandleHealth),
      Route("GET", "/ready", false, HandleReady),
      Route("GET", "/version", false, HandleVersion),
  };
}

HttpRoute ApiService::Route(const char* method, const char* path, bool needs_key,
                            void (*handler)(ApiService&, std::shared_ptr<HttpExchange>)) {
  HttpRoute route;
  route.method = method;
  route.path = path;
  route.handler = [this, path, needs_key, handler](std::shared_ptr<HttpExchange> exchange) {
    if (needs_key && !TenantOf(exchange->request()).has_value()) {
      return ReplyError(*exchange, path, InvalidApiKey());
    }
    handler(*this, std::move(exchange));
  };
  return route;
}

void ApiService::SetReady(std::shared_ptr<const ServedModel> model) {
  MutexLock lock(mutex_);
  model_ = std::move(model);
}

std::shared_ptr<const ServedModel> ApiService::model() const {
  MutexLock lock(mutex_);
  return model_;
}

std::optional<HttpServerCounters> ApiService::http_counters() const {
  const HttpServer* server = http_server_.load();
  if (server == nullptr) return std::nullopt;
  return server->counters();
}

std::optional<ApiError> ApiService::CheckModelName(const std::string& name) const {
  if (options_.any_model || name.empty()) return std::nullopt;
  for (const std::string& served : options_.served_names) {
    if (name == served) return std::nullopt;
  }
  return ModelNotFound(name);
}

std::string ApiService::ReplyName(const std::string& name) const {
  return name.empty() ? options_.served_names.front() : name;
}

std::optional<uint32_t> ApiService::TenantOf(const HttpRequest& request) const {
  if (key_digests_.empty()) return 0;
  const std::string_view shown = ShownKey(request);
  if (shown.empty()) return std::nullopt;
  // Digests have one length, and no match ends the loop early.
  const BlockHash digest = DigestOfText(shown);
  std::optional<uint32_t> tenant;
  for (uint32_t i = 0; i < key_digests_.size(); ++i) {
    if (EqualInConstantTime(digest, key_digests_[i])) tenant = i;
  }
  return tenant;
}

std::string ApiService::SaltOf(uint32_t tenant, const std::string& cache_salt) const {
  // The tenant's part has a fixed length, so that the two cannot be shifted into each other.
  std::string salt = key_digests_.empty() ? std::string() : ToHex(key_digests_[tenant]);
  if (salt.empty() && cache_salt.empty()) return salt;
  salt += "/" + cache_salt;
  return salt;
}

uint64_t ApiService::NextRandom() {
  return Mix64(random_counter_.fetch_add(1, std::memory_order_relaxed));
}

std::tm ApiService::LocalTime() const {
  const std::time_t now = options_.wall_clock();
  std::tm local = {};
  ::localtime_r(&now, &local);
  return local;
}

void ApiService::Reply(HttpExchange& exchange, std::string_view route, int status,
                       std::string body) {
  RequestRecord record = RecordOf(exchange, status);
  exchange.Reply(status, kJson, std::move(body));
  Record(route, std::move(record));
}

void ApiService::ReplyError(HttpExchange& exchange, std::string_view route, const ApiError& error) {
  HttpHeaders headers;
  if (error.status == 429 || error.status == 503) headers.Add("Retry-After", "1");
  if (error.status == 401) headers.Add("WWW-Authenticate", "Bearer");
  RequestRecord record = RecordOf(exchange, error.status);
  record.error = error.message;
  exchange.Reply(error.status, kJson, FormatError(error), headers);
  Record(route, std::move(record));
}

void ApiService::Record(std::string_view route, RequestRecord record) {
  metrics_.CountReply(route, record.status);
  if (WorthALine(route)) options_.log(FormatRecord(record, options_.log_json));
}

void ApiService::LogRejection(const HttpRejection& rejection) {
  RequestRecord record;
  record.request_id = rejection.request_id;
  record.peer = rejection.peer;
  record.method = rejection.method;
  record.path = rejection.path;
  record.status = rejection.status;
  record.error = rejection.message;
  options_.log(FormatRecord(record, options_.log_json));
}

RequestRecord RecordOf(const HttpExchange& exchange, int status) {
  const HttpRequest& request = exchange.request();
  RequestRecord record;
  record.request_id = request.request_id;
  record.peer = request.peer;
  record.method = request.method;
  record.path = request.path;
  record.status = status;
  record.total_ms = static_cast<double>(SteadyClock().Now() - request.received_us) / 1000.0;
  return record;
}

}  // namespace kvasir
