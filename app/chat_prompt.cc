#include "chat_prompt.h"

#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "text_input.h"

namespace kvasir {

std::tm LocalTimeNow() {
  const std::time_t now = std::time(nullptr);
  std::tm local = {};
  ::localtime_r(&now, &local);
  return local;
}

Status TemplateProblem(const Status& status, std::string_view prefix) {
  const Status prefixed = WithPrefix(status, prefix);
  if (prefixed.code() != StatusCode::kResourceExhausted) return prefixed;
  return MakeStatus(StatusCode::kInvalidArgument, MessageOf(prefixed));
}

StatusOr<ChatTemplate> LoadChatTemplate(const TextModel& text, const std::string& template_path) {
  if (!template_path.empty()) {
    KV_ASSIGN_OR_RETURN(std::string source, ReadText(template_path));
    StatusOr<ChatTemplate> parsed = ChatTemplate::Parse(std::move(source));
    if (!parsed.ok()) return TemplateProblem(parsed.status(), InputName(template_path));
    return parsed;
  }
  if (!text.chat_template().has_value()) {
    return InvalidArgument("has no chat template; give one as a Jinja file");
  }
  StatusOr<ChatTemplate> parsed = ChatTemplate::Parse(*text.chat_template());
  if (!parsed.ok()) return TemplateProblem(parsed.status(), "its chat template");
  return parsed;
}

StatusOr<ChatPrompt> ChatPrompt::Create(const TextModel& text, const std::string& template_path) {
  KV_ASSIGN_OR_RETURN(ChatTemplate parsed, LoadChatTemplate(text, template_path));
  return ChatPrompt(text, std::move(parsed));
}

StatusOr<std::vector<TokenId>> ChatPrompt::Encode(std::span<const ChatMessage> messages) const {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const ChatMessage& message : messages) {
    json.push_back({{"role", message.role}, {"content", message.content}});
  }
  ChatInput input;
  input.messages_json = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  input.bos_token = text_->bos_text();
  input.eos_token = text_->eos_text();
  input.now = LocalTimeNow();
  StatusOr<RenderedPrompt> prompt = template_.Render(input);
  if (!prompt.ok()) return TemplateProblem(prompt.status(), "chat template");
  return text_->tokenizer().EncodeSegments(prompt->Views());
}

}  // namespace kvasir
