// POST /v1/completions.
#include <utility>

#include "api/generation_exchange.h"
#include "api/handlers.h"
#include "text/utf8.h"

namespace kvasir {
namespace {

GenerationPrompt Encode(const Tokenizer& tokenizer, PromptInput input, bool parse_special,
                        bool echo) {
  GenerationPrompt prompt;
  if (input.is_tokens) {
    if (echo) prompt.echo = RepairUtf8(tokenizer.Decode(input.tokens, {.special = true}));
    prompt.tokens = std::move(input.tokens);
    return prompt;
  }
  EncodeOptions options;
  options.parse_special = parse_special;
  prompt.tokens = tokenizer.Encode(input.text, options);
  prompt.bos_added =
      tokenizer.adds_bos() && !prompt.tokens.empty() && tokenizer.bos() == prompt.tokens.front();
  if (echo) prompt.echo = std::move(input.text);
  return prompt;
}

}  // namespace

void HandleCompletion(ApiService& service, std::shared_ptr<HttpExchange> exchange) {
  constexpr const char* kRoute = "/v1/completions";
  std::shared_ptr<const ServedModel> model = service.model();
  if (model == nullptr) {
    return service.ReplyError(*exchange, kRoute, NotAvailable("The model is being loaded"));
  }
  CompletionRequest request;
  std::optional<ApiError> error =
      ParseCompletionRequest(exchange->TakeBody(), model->schema_context(), &request);
  if (!error.has_value()) error = service.CheckModelName(request.generation.model);
  for (const PromptInput& prompt : request.prompts) {
    if (error.has_value()) break;
    error = CheckTextLength(*model, prompt.text, request.generation.max_tokens, "prompt");
  }
  if (error.has_value()) return service.ReplyError(*exchange, kRoute, *error);

  GenerationInput input;
  input.route = kRoute;
  input.where = "prompt";
  input.parameters = std::move(request.generation);
  input.echo = request.echo;
  for (PromptInput& prompt : request.prompts) {
    if (service.options().log_prompts) {
      if (!input.prompt_text.empty()) input.prompt_text += '\n';
      input.prompt_text += prompt.text;
    }
    input.prompts.push_back(
        Encode(model->text->tokenizer(), std::move(prompt), request.parse_special, request.echo));
  }
  GenerationExchange::Start(service, std::move(model), std::move(exchange), std::move(input));
}

}  // namespace kvasir
