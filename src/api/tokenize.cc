// POST /tokenize, /detokenize, /apply-template: what the server would make of a text, in the forms
// of both llama-server and vLLM.
#include <nlohmann/json.hpp>

#include "api/handlers.h"
#include "text/utf8.h"

namespace kvasir {
namespace {

using Json = nlohmann::ordered_json;

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// A token's bytes as a string, or as an array of numbers where they are not whole characters.
Json PieceOf(const Tokenizer& tokenizer, TokenId id) {
  const std::string_view bytes = tokenizer.TokenBytes(id);
  if (!FindInvalidUtf8(bytes).has_value()) return std::string(bytes);
  Json array = Json::array();
  for (const char c : bytes) array.push_back(static_cast<uint8_t>(c));
  return array;
}

Json TokensJson(const Tokenizer& tokenizer, const std::vector<TokenId>& tokens, bool with_pieces) {
  Json array = Json::array();
  for (const TokenId id : tokens) {
    if (with_pieces) {
      array.push_back({{"id", Index(id)}, {"piece", PieceOf(tokenizer, id)}});
    } else {
      array.push_back(Index(id));
    }
  }
  return array;
}

}  // namespace

void HandleTokenize(ApiService& service, std::shared_ptr<HttpExchange> exchange) {
  constexpr const char* kRoute = "/tokenize";
  const std::shared_ptr<const ServedModel> model = service.model();
  if (model == nullptr) {
    return service.ReplyError(*exchange, kRoute, NotAvailable("The model is being loaded"));
  }
  TokenizeRequest request;
  std::optional<ApiError> error = ParseTokenizeRequest(exchange->request().body, &request);
  if (!error.has_value()) error = service.CheckModelName(request.model);
  if (error.has_value()) return service.ReplyError(*exchange, kRoute, *error);
  const Tokenizer& tokenizer = model->text->tokenizer();
  EncodeOptions options;
  options.parse_special = request.parse_special;
  options.add_bos = request.add_special;
  const std::vector<TokenId> tokens = tokenizer.Encode(request.text, options);
  Json json;
  json["tokens"] = TokensJson(tokenizer, tokens, request.with_pieces);
  json["count"] = tokens.size();
  json["max_model_len"] = model->context_tokens;
  service.Reply(*exchange, kRoute, 200, Dump(json));
}

void HandleDetokenize(ApiService& service, std::shared_ptr<HttpExchange> exchange) {
  constexpr const char* kRoute = "/detokenize";
  const std::shared_ptr<const ServedModel> model = service.model();
  if (model == nullptr) {
    return service.ReplyError(*exchange, kRoute, NotAvailable("The model is being loaded"));
  }
  DetokenizeRequest request;
  std::optional<ApiError> error =
      ParseDetokenizeRequest(exchange->request().body, model->schema_context(), &request);
  if (!error.has_value()) error = service.CheckModelName(request.model);
  if (error.has_value()) return service.ReplyError(*exchange, kRoute, *error);
  DecodeOptions options;
  options.special = true;
  const std::string text = RepairUtf8(model->text->tokenizer().Decode(request.tokens, options));
  // llama-server calls it content, vLLM prompt.
  const Json json = {{"content", text}, {"prompt", text}};
  service.Reply(*exchange, kRoute, 200, Dump(json));
}

void HandleApplyTemplate(ApiService& service, std::shared_ptr<HttpExchange> exchange) {
  constexpr const char* kRoute = "/apply-template";
  const std::shared_ptr<const ServedModel> model = service.model();
  if (model == nullptr) {
    return service.ReplyError(*exchange, kRoute, NotAvailable("The model is being loaded"));
  }
  std::string name;
  ChatPromptInput input;
  RenderedPrompt prompt;
  std::optional<ApiError> error =
      ParseApplyTemplateRequest(exchange->request().body, model->schema_context(), &name, &input);
  if (!error.has_value()) error = service.CheckModelName(name);
  if (!error.has_value()) error = RenderPrompt(*model, input, service.LocalTime(), &prompt);
  if (error.has_value()) return service.ReplyError(*exchange, kRoute, *error);
  const Json json = {{"prompt", prompt.text}};
  service.Reply(*exchange, kRoute, 200, Dump(json));
}

}  // namespace kvasir
