// ApiService: what all handlers share: which model is served under which names, who may ask, the
// state of the server, metrics and the request log.
//
// Handlers are free functions over it, one file per endpoint; Routes() is the table for HttpServer.
// States: loading (health and ready say 503, requests are refused with 503), ready, draining (ready
// says 503; the engine refuses new requests while running ones end).
// Thread: any, once constructed. Must outlive the HttpServer that has its routes.
#ifndef KVASIR_API_SERVICE_H_
#define KVASIR_API_SERVICE_H_

#include <atomic>
#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/error.h"
#include "api/metrics.h"
#include "api/request_log.h"
#include "api/served_model.h"
#include "base/mutex.h"
#include "io/http_server.h"
#include "kv/block_hash.h"

namespace kvasir {

class ApiService {
 public:
  struct Options {
    std::vector<std::string> served_names;  // At least one; the first stands in replies.
    bool any_model = false;                 // Accept every model name.
    std::vector<std::string> api_keys;      // Empty: no key is asked for.
    TimeUs request_timeout_us = 0;          // Longest a request may take; 0: no limit.
    std::string version;
    bool log_prompts = false;
    bool kv_show_text = false;  // GET /v1/kv says what the cached tokens spell.
    bool log_json = false;
    std::function<void(const std::string& line)> log;  // Any thread.
    std::function<std::time_t()> wall_clock;           // Any thread.
    uint64_t random_seed = 0;  // Where ids and the seeds of requests without one begin.
  };
  explicit ApiService(Options options);

  // The table for the HTTP server; handlers refer to this object.
  std::vector<HttpRoute> Routes();

  void SetReady(std::shared_ptr<const ServedModel> model) KV_EXCLUDES(mutex_);
  void BeginDrain() { draining_.store(true); }
  // Where GET /metrics reads the server's counters. It must live as long as its handlers run.
  void SetHttpServer(const HttpServer* server) { http_server_.store(server); }

  // The model, or nullptr while it loads.
  std::shared_ptr<const ServedModel> model() const KV_EXCLUDES(mutex_);
  bool draining() const { return draining_.load(); }
  std::optional<HttpServerCounters> http_counters() const;
  const Options& options() const { return options_; }
  ApiMetrics& metrics() { return metrics_; }

  // 404 unless requests may name this model; empty stands for the default.
  std::optional<ApiError> CheckModelName(const std::string& name) const;
  // What replies call the model that was asked for by `name`.
  std::string ReplyName(const std::string& name) const;

  // Whose request it is: the index of its key, or 0 when no keys are asked for. nullopt: a wrong
  // key or none. Compares with every key in constant time.
  std::optional<uint32_t> TenantOf(const HttpRequest& request) const;
  // The salt of a tenant's KV names, divided further by the request's own salt.
  std::string SaltOf(uint32_t tenant, const std::string& cache_salt) const;

  uint64_t NextRandom();
  std::tm LocalTime() const;
  int64_t started_at() const { return started_at_; }  // Unix time, as the next.
  int64_t UnixTime() const { return static_cast<int64_t>(options_.wall_clock()); }
  // The Unix time of a moment of the engine's clock, on which it is `now`. The same for the same
  // moment whenever it is asked for, unless the wall clock was set.
  int64_t UnixTimeOf(TimeUs moment, TimeUs now);

  // Replies, counts and logs. `route` is the metrics' label: the path's pattern.
  void Reply(HttpExchange& exchange, std::string_view route, int status, std::string body);
  void ReplyError(HttpExchange& exchange, std::string_view route, const ApiError& error);
  // Logs a reply of the HTTP server's own, which counts those itself.
  void LogRejection(const HttpRejection& rejection);
  // Counts and logs a reply that was sent otherwise.
  void Record(std::string_view route, RequestRecord record);

 private:
  // Wraps a handler in the checks that come before it.
  HttpRoute Route(const char* method, const char* path, bool needs_key,
                  void (*handler)(ApiService&, std::shared_ptr<HttpExchange>));

  const Options options_;
  const int64_t started_at_;
  std::vector<BlockHash> key_digests_;  // [api_keys]
  std::atomic<bool> draining_{false};
  std::atomic<const HttpServer*> http_server_{nullptr};
  std::atomic<uint64_t> random_counter_;
  std::atomic<TimeUs> engine_to_unix_us_{0};  // Wall clock minus engine's, as first compared.
  ApiMetrics metrics_;
  mutable Mutex mutex_;
  std::shared_ptr<const ServedModel> model_ KV_GUARDED_BY(mutex_);
};

// A record with what the exchange knows; status and times as of now.
RequestRecord RecordOf(const HttpExchange& exchange, int status);

}  // namespace kvasir

#endif  // KVASIR_API_SERVICE_H_
