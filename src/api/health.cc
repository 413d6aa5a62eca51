// GET /health, /ready, /version.
#include <nlohmann/json.hpp>

#include "api/handlers.h"

namespace kvasir {

void HandleHealth(ApiService& service, std::shared_ptr<HttpExchange> exchange) {
  if (service.model() == nullptr) {
    return service.ReplyError(*exchange, "/health", NotAvailable("The model is being loaded"));
  }
  service.Reply(*exchange, "/health", 200, "{\"status\":\"ok\"}");
}

void HandleReady(ApiService& service, std::shared_ptr<HttpExchange> exchange) {
  if (service.model() == nullptr) {
    return service.ReplyError(*exchange, "/ready", NotAvailable("The model is being loaded"));
  }
  if (service.draining()) {
    return service.ReplyError(*exchange, "/ready", NotAvailable("The server is shutting down"));
  }
  service.Reply(*exchange, "/ready", 200, "{\"status\":\"ready\"}");
}

void HandleVersion(ApiService& service, std::shared_ptr<HttpExchange> exchange) {
  const nlohmann::ordered_json json = {{"version", service.options().version}};
  service.Reply(*exchange, "/version", 200, json.dump());
}

}  // namespace kvasir
