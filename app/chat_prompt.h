// ChatPrompt: from chat messages to token ids, through a model's chat template.
//
// What the template wrote may become control tokens; what the messages say is text, whatever it
// spells (text/chat_template.h).
#ifndef KVASIR_APP_CHAT_PROMPT_H_
#define KVASIR_APP_CHAT_PROMPT_H_

#include <memory>
#include <span>
#include <string>
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

class ChatPrompt {
 public:
  // `template_path` empty: the model's own template; kInvalidArgument when it has none.
  // `text` must outlive it.
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
