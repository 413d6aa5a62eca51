// Request bodies of the OpenAI API, with the extensions that vLLM's and llama-server's users know,
// as typed values. Every 400 that does not need the tokenized prompt is decided here.
//
// docs/HTTP_API.md lists the fields, their ranges and defaults. Unknown fields are ignored; fields
// that are known elsewhere and would change the answer but are not supported are refused by name.
// Thread: pure functions.
// Source: OpenAI API reference, "Create chat completion" and "Create completion".
#ifndef KVASIR_API_OPENAI_SCHEMA_H_
#define KVASIR_API_OPENAI_SCHEMA_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/error.h"
#include "api/request_fields.h"
#include "engine/sequence.h"

namespace kvasir {

// What a body is judged against.
struct SchemaContext {
  uint32_t vocab_size = 0;
  // Templates that do not know the role "developer" get "system" in its place.
  bool developer_is_system = true;
};

inline constexpr uint32_t kMaxChoices = 128;
inline constexpr size_t kMaxPrompts = 256;
inline constexpr size_t kMaxStops = 16;
inline constexpr size_t kMaxStopBytes = 4096;  // Of all together; each choice has their automaton.
inline constexpr uint32_t kMaxTopLogprobs = 20;
inline constexpr double kMaxTimeoutSeconds = 86'400.0;

// What chat and plain completions have in common.
struct GenerationParameters {
  std::string model;                   // Empty: not named.
  std::optional<uint32_t> max_tokens;  // nullopt: the room left. 0 only for completions.
  SequenceOptions sequence;            // Without max_new_tokens, which needs the prompt's length.
  bool seed_given = false;             // Otherwise the handler draws one.
  uint32_t choice_count = 1;
  bool want_logprobs = false;
  uint32_t top_logprobs = 0;
  bool return_tokens_as_token_ids = false;
  bool stream = false;
  bool include_usage = false;
  bool explain = false;  // "kvasir": true.
  std::string user;
  std::string cache_salt;
  bool no_store = false;  // Neither finds cached KV nor leaves any that another request finds.
  int32_t priority = 0;
  std::optional<double> timeout_s;
};

struct ChatPromptInput {
  std::string messages_json;   // As ChatInput wants it: "content" is always a string.
  std::string tools_json;      // Empty: none.
  std::string variables_json;  // chat_template_kwargs; empty: none.
  bool add_generation_prompt = true;
  bool continue_final_message = false;
  std::string final_message;  // With continue_final_message: its content.
};

struct ChatRequest {
  GenerationParameters generation;
  ChatPromptInput prompt;
};

struct CompletionRequest {
  GenerationParameters generation;
  std::vector<PromptInput> prompts;  // At least one.
  bool parse_special = true;         // Control tokens written in string prompts are control tokens.
  bool echo = false;
};

struct TokenizeRequest {
  std::string model;
  std::string text;
  bool add_special = false;  // BOS in front, if the model has it.
  bool parse_special = true;
  bool with_pieces = false;
};

struct DetokenizeRequest {
  std::string model;
  std::vector<TokenId> tokens;
};

// Each returns what is wrong, or nullopt having filled `out`.
std::optional<ApiError> ParseChatRequest(std::string_view body, const SchemaContext& context,
                                         ChatRequest* out);
std::optional<ApiError> ParseCompletionRequest(std::string_view body, const SchemaContext& context,
                                               CompletionRequest* out);
std::optional<ApiError> ParseTokenizeRequest(std::string_view body, TokenizeRequest* out);
std::optional<ApiError> ParseDetokenizeRequest(std::string_view body, const SchemaContext& context,
                                               DetokenizeRequest* out);
// The fields of a chat request that make its prompt; the others are ignored.
std::optional<ApiError> ParseApplyTemplateRequest(std::string_view body,
                                                  const SchemaContext& context, std::string* model,
                                                  ChatPromptInput* out);

}  // namespace kvasir

#endif  // KVASIR_API_OPENAI_SCHEMA_H_
