// POST /v1/chat/completions.
#include <utility>

#include "api/generation_exchange.h"
#include "api/handlers.h"

namespace kvasir {

void HandleChatCompletion(ApiService& service, std::shared_ptr<HttpExchange> exchange) {
  constexpr const char* kRoute = "/v1/chat/completions";
  std::shared_ptr<const ServedModel> model = service.model();
  if (model == nullptr) {
    return service.ReplyError(*exchange, kRoute, NotAvailable("The model is being loaded"));
  }
  ChatRequest request;
  RenderedPrompt prompt;
  std::optional<ApiError> error =
      ParseChatRequest(exchange->TakeBody(), model->schema_context(), &request);
  if (!error.has_value()) error = service.CheckModelName(request.generation.model);
  if (!error.has_value()) {
    error = RenderPrompt(*model, request.prompt, service.LocalTime(), &prompt);
  }
  if (!error.has_value()) {
    error = CheckTextLength(*model, prompt.text, request.generation.max_tokens, "messages");
  }
  if (error.has_value()) return service.ReplyError(*exchange, kRoute, *error);

  GenerationInput input;
  input.route = kRoute;
  input.where = "messages";
  input.chat = true;
  input.parameters = std::move(request.generation);
  GenerationPrompt& tokens = input.prompts.emplace_back();
  // Only what the template wrote can become a control token, whatever the messages spell.
  tokens.tokens = model->text->tokenizer().EncodeSegments(prompt.Views());
  if (service.options().log_prompts) input.prompt_text = std::move(prompt.text);
  GenerationExchange::Start(service, std::move(model), std::move(exchange), std::move(input));
}

}  // namespace kvasir
