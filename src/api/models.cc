// GET /v1/models, /v1/models/{id}; GET /metrics.
#include <nlohmann/json.hpp>

#include "api/handlers.h"

namespace kvasir {
namespace {

using Json = nlohmann::ordered_json;

Json ModelJson(const ApiService& service, const std::string& id) {
  Json json;
  json["id"] = id;
  json["object"] = "model";
  json["created"] = service.started_at();
  json["owned_by"] = "kvasir";
  const std::shared_ptr<const ServedModel> model = service.model();
  if (model != nullptr) json["max_model_len"] = model->context_tokens;
  return json;
}

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

void HandleModels(ApiService& service, std::shared_ptr<HttpExchange> exchange) {
  Json json;
  json["object"] = "list";
  json["data"] = Json::array();
  for (const std::string& name : service.options().served_names) {
    json["data"].push_back(ModelJson(service, name));
  }
  service.Reply(*exchange, "/v1/models", 200, Dump(json));
}

void HandleModel(ApiService& service, std::shared_ptr<HttpExchange> exchange) {
  const std::string& id = exchange->request().path_parameter;
  const std::optional<ApiError> error = service.CheckModelName(id);
  if (error.has_value()) return service.ReplyError(*exchange, "/v1/models/{id}", *error);
  service.Reply(*exchange, "/v1/models/{id}", 200, Dump(ModelJson(service, id)));
}

void HandleMetrics(ApiService& service, std::shared_ptr<HttpExchange> exchange) {
  std::optional<EngineSnapshot> engine;
  const std::shared_ptr<const ServedModel> model = service.model();
  if (model != nullptr) engine = model->engine->snapshot();
  std::string text = service.metrics().Render(service.options().served_names.front(), engine,
                                              service.http_counters());
  RequestRecord record = RecordOf(*exchange, 200);
  exchange->Reply(200, "text/plain; version=0.0.4; charset=utf-8", std::move(text));
  service.Record("/metrics", std::move(record));
}

}  // namespace kvasir
