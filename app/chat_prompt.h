// ChatPrompt: from chat messages to token ids, through a model's chat template.
//
// What the template wrote may become control tokens; what the messages say is text, whatever it
// spells (text/chat_template.h).
#ifndef KVASIR_APP_CHAT_PROMPT_H_
#define KVASIR_APP_CHAT_PROMPT_H_

#include <ctime>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "engine/text_model.h"
#include "text/chat_template.h"

namespace kvasir {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant".
  std::string content;
};

// This moment in the local time zone, for templates that ask for the date.
std::tm LocalTimeNow();

// `status` of parsing or rendering a template: its limits are broken by what the user gave, which
// is bad input and no fault of the machine.
Status TemplateProblem(const Status& status, std::string_view prefix);

// The template in the file `template_path` or, when that is empty, the model's own.
// kInvalidArgument when the model has none, or when it does not parse (naming the file, if any).
StatusOr<ChatTemplate> LoadChatTemplate(const TextModel& text, const std::string& template_path);

class ChatPrompt {
 public:
  // As LoadChatTemplate. `text` must outlive it.
  static StatusOr<ChatPrompt> Create(const TextModel& text, const std::string& template_path);

  // The prompt that asks for the next assistant message.
  StatusOr<std::vector<TokenId>> Encode(std::span<const ChatMessage> messages) const;

 private:
  ChatPrompt(const TextModel& text, ChatTemplate chat_template)
      : text_(&text), template_(std::move(chat_template)) {}

  const TextModel* text_;
  ChatTemplate template_;
};

}  // namespace kvasir

#endif  // KVASIR_APP_CHAT_PROMPT_H_
