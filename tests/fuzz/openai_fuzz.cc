// Any bytes as the body of a request: every parser answers with a request or an error that can be
// shown, and a chat request that is taken gives messages that parse again to the same.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "api/chat_messages.h"
#include "api/openai_schema.h"
#include "base/check.h"
#include "text/utf8.h"

namespace kvasir {
namespace {

constexpr SchemaContext kContext{.vocab_size = 1000, .developer_is_system = true};

void CheckError(const ApiError& error) {
  KV_CHECK_EQ(error.status, 400);
  KV_CHECK(!error.message.empty());
  KV_CHECK(!FindInvalidUtf8(FormatError(error)).has_value());
}

void CheckGeneration(const GenerationParameters& parameters) {
  KV_CHECK(parameters.sequence.sampling.Validate(kContext.vocab_size).ok());
  KV_CHECK(parameters.choice_count >= 1 && parameters.choice_count <= kMaxChoices);
  KV_CHECK_LE(parameters.sequence.stops.size(), kMaxStops);
  KV_CHECK_LE(parameters.top_logprobs, kMaxTopLogprobs);
}

void Chat(std::string_view body) {
  ChatRequest request;
  const auto error = ParseChatRequest(body, kContext, &request);
  if (error.has_value()) return CheckError(*error);
  CheckGeneration(request.generation);
  NormalizedMessages again;
  KV_CHECK(!NormalizeMessages(request.prompt.messages_json, true, &again).has_value());
  KV_CHECK(again.json == request.prompt.messages_json);
}

void Completion(std::string_view body) {
  CompletionRequest request;
  const auto error = ParseCompletionRequest(body, kContext, &request);
  if (error.has_value()) return CheckError(*error);
  CheckGeneration(request.generation);
  KV_CHECK(!request.prompts.empty() && request.prompts.size() <= kMaxPrompts);
  for (const PromptInput& prompt : request.prompts) {
    for (const TokenId id : prompt.tokens) {
      KV_CHECK(Index(id) >= 0 && static_cast<uint32_t>(Index(id)) < kContext.vocab_size);
    }
  }
}

void Tokens(std::string_view body) {
  TokenizeRequest tokenize;
  if (const auto error = ParseTokenizeRequest(body, &tokenize)) CheckError(*error);
  DetokenizeRequest detokenize;
  if (const auto error = ParseDetokenizeRequest(body, kContext, &detokenize)) CheckError(*error);
}

}  // namespace
}  // namespace kvasir

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  kvasir::Chat(body);
  kvasir::Completion(body);
  kvasir::Tokens(body);
  return 0;
}
