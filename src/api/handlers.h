// The endpoints, one function each, as in docs/HTTP_API.md. Each replies exactly once, now or
// later; keys have been checked before.
#ifndef KVASIR_API_HANDLERS_H_
#define KVASIR_API_HANDLERS_H_

#include <memory>

#include "api/service.h"
#include "io/http_server.h"

namespace kvasir {

void HandleChatCompletion(ApiService& service, std::shared_ptr<HttpExchange> exchange);
void HandleCompletion(ApiService& service, std::shared_ptr<HttpExchange> exchange);
void HandleModels(ApiService& service, std::shared_ptr<HttpExchange> exchange);
void HandleModel(ApiService& service, std::shared_ptr<HttpExchange> exchange);
void HandleTokenize(ApiService& service, std::shared_ptr<HttpExchange> exchange);
void HandleDetokenize(ApiService& service, std::shared_ptr<HttpExchange> exchange);
void HandleApplyTemplate(ApiService& service, std::shared_ptr<HttpExchange> exchange);
void HandleHealth(ApiService& service, std::shared_ptr<HttpExchange> exchange);
void HandleReady(ApiService& service, std::shared_ptr<HttpExchange> exchange);
void HandleVersion(ApiService& service, std::shared_ptr<HttpExchange> exchange);
void HandleMetrics(ApiService& service, std::shared_ptr<HttpExchange> exchange);
void HandleKvList(ApiService& service, std::shared_ptr<HttpExchange> exchange);
void HandleKvPin(ApiService& service, std::shared_ptr<HttpExchange> exchange);
void HandleKvUnpin(ApiService& service, std::shared_ptr<HttpExchange> exchange);
void HandleKvClear(ApiService& service, std::shared_ptr<HttpExchange> exchange);

}  // namespace kvasir

#endif  // KVASIR_API_HANDLERS_H_
