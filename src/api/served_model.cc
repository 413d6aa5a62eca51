#include "api/served_model.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace kvasir {
namespace {

// Texts up to this many bytes for each token of the context are tokenized, and counted exactly.
constexpr size_t kCountedBytesPerToken = 64;

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
}

void CutAt(size_t end, RenderedPrompt* prompt) {
  prompt->text.resize(end);
  while (!prompt->segments.empty() && prompt->segments.back().begin >= end) {
    prompt->segments.pop_back();
  }
  if (!prompt->segments.empty()) prompt->segments.back().end = end;
}

// Cuts the prompt behind the last place where the final message's content stands. Templates often
// trim contents, so that is what is looked for; blanks at its end are kept if they were rendered.
bool CutAfterFinalMessage(const std::string& content, RenderedPrompt* prompt) {
  const std::string_view trimmed = Trimmed(content);
  const size_t at = prompt->text.rfind(trimmed);
  if (trimmed.empty() || at == std::string::npos) return false;
  const std::string_view with_tail(
      content.data() + (trimmed.data() - content.data()),
      content.size() - static_cast<size_t>(trimmed.data() - content.data()));
  const bool tail_rendered = prompt->text.compare(at, with_tail.size(), with_tail) == 0;
  CutAt(at + (tail_rendered ? with_tail.size() : trimmed.size()), prompt);
  return true;
}

}  // namespace

SchemaContext ServedModel::schema_context() const {
  SchemaContext context;
  context.vocab_size = vocab_size;
  context.developer_is_system =
      !chat_template.has_value() || chat_template->source().find("developer") == std::string::npos;
  return context;
}

std::optional<ApiError> RenderPrompt(const ServedModel& model, const ChatPromptInput& input,
                                     const std::tm& now, RenderedPrompt* out) {
  if (!model.chat_template.has_value()) {
    return BadField(
        "messages",
        "This model has no chat template: use /v1/completions, or start the server with "
        "--chat-template FILE");
  }
  ChatInput chat;
  chat.messages_json = input.messages_json;
  chat.tools_json = input.tools_json;
  chat.variables_json = input.variables_json;
  chat.add_generation_prompt = input.add_generation_prompt;
  chat.bos_token = model.text->bos_text();
  chat.eos_token = model.text->eos_text();
  chat.now = now;
  StatusOr<RenderedPrompt> rendered = model.chat_template->Render(chat);
  if (!rendered.ok()) {
    return BadField("messages", "The chat template refuses these messages: {}",
                    MessageOf(rendered.status()));
  }
  *out = *std::move(rendered);
  if (input.continue_final_message && !CutAfterFinalMessage(input.final_message, out)) {
    return BadField("continue_final_message",
                    "The chat template does not render the content of the final message as it is, "
                    "so that it cannot be continued");
  }
  return std::nullopt;
}

ApiError ServedModel::TooLong(uint64_t prompt_tokens, uint64_t completion_tokens,
                              std::string_view where, bool at_least) const {
  ApiError error =
      ContextLengthExceeded(context_tokens, prompt_tokens, completion_tokens, where, at_least);
  if (unlimited_context_tokens > 0) {
    error.message += fmt::format(
        " It is this server's KV memory that holds no more; the model itself has a context of {} "
        "tokens.",
        unlimited_context_tokens);
  }
  return error;
}

std::optional<ApiError> CheckTextLength(const ServedModel& model, std::string_view text,
                                        std::optional<uint32_t> max_tokens,
                                        std::string_view where) {
  const Tokenizer& tokenizer = model.text->tokenizer();
  if (text.size() <= kCountedBytesPerToken * model.context_tokens) return std::nullopt;
  size_t longest = 1;
  std::array<bool, 256> is_token{};  // Other bytes may vanish, or share an unknown token.
  for (size_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string_view bytes = tokenizer.TokenBytes(TokenId{static_cast<int32_t>(id)});
    longest = std::max(longest, bytes.size());
    if (bytes.size() == 1) is_token[static_cast<uint8_t>(bytes[0])] = true;
  }
  const uint64_t least =
      static_cast<uint64_t>(std::count_if(
          text.begin(), text.end(), [&](char c) { return is_token[static_cast<uint8_t>(c)]; })) /
      longest;
  const uint64_t completion = max_tokens.value_or(1);
  if (least + completion <= model.context_tokens) return std::nullopt;
  return model.TooLong(least, completion, where, /*at_least=*/true);
}

}  // namespace kvasir
