// ServedModel: what a loaded model and its engine are to the API: how to make prompts for it, and
// where to send them.
//
// Made once by the program when loading is over; immutable from then on, so any thread may use it.
#ifndef KVASIR_API_SERVED_MODEL_H_
#define KVASIR_API_SERVED_MODEL_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/error.h"
#include "api/openai_schema.h"
#include "base/clock.h"
#include "engine/engine_client.h"
#include "engine/text_model.h"
#include "kv/block_hash.h"
#include "text/chat_template.h"

namespace kvasir {

struct ServedModel {
  const TextModel* text = nullptr;
  std::optional<ChatTemplate> chat_template;  // nullopt: chat is refused.
  EngineClient* engine = nullptr;
  const Clock* clock = nullptr;  // The engine's; deadlines are on it.
  // The name of the empty prefix for a salt: who shares KV with whom.
  std::function<BlockHash(const std::string& salt)> root;
  uint32_t vocab_size = 0;  // Rows of logits.
  uint32_t context_tokens = 0;
  // The model's own context where the KV memory holds no sequence of that length; 0: it does.
  uint32_t unlimited_context_tokens = 0;
  uint32_t block_tokens = 0;
  std::string fingerprint;  // Changes when answers may: build and model.

  SchemaContext schema_context() const;
  // ContextLengthExceeded of this model, and whether it is its memory that sets the limit.
  ApiError TooLong(uint64_t prompt_tokens, uint64_t completion_tokens, std::string_view where,
                   bool at_least = false) const;
};

// Renders a chat prompt; with continue_final_message it ends right after that message's content.
// `now` is local time. 400 when the model has no template, or the template refuses the messages.
std::optional<ApiError> RenderPrompt(const ServedModel& model, const ChatPromptInput& input,
                                     const std::tm& now, RenderedPrompt* out);

// 400 when a text is so long that it exceeds the context whatever its tokens are. Tokenizing a body
// of 16 MiB takes seconds; this costs nothing for texts that may fit.
std::optional<ApiError> CheckTextLength(const ServedModel& model, std::string_view text,
                                        std::optional<uint32_t> max_tokens, std::string_view where);

}  // namespace kvasir

#endif  // KVASIR_API_SERVED_MODEL_H_
