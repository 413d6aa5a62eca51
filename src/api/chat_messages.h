// Chat messages: the "messages" array of a request, checked and brought into the one form that
// chat templates expect.
#ifndef KVASIR_API_CHAT_MESSAGES_H_
#define KVASIR_API_CHAT_MESSAGES_H_

#include <optional>
#include <string>

#include "api/error.h"

namespace kvasir {

struct NormalizedMessages {
  std::string json;  // Every "content" is a string; the order of keys is kept.
  std::string last_role;
  std::string last_content;
};

// `messages_json` is an array. Roles must be known; text parts are joined by newlines; a null
// content (assistant only) becomes "". Arguments of tool calls stay as they are, text or object:
// the template gets the form that it expects (text/chat_template.h). Errors name the path:
// "messages[2].content[0].type".
std::optional<ApiError> NormalizeMessages(const std::string& messages_json,
                                          bool developer_is_system, NormalizedMessages* out);

}  // namespace kvasir

#endif  // KVASIR_API_CHAT_MESSAGES_H_
