#include "api/openai_schema.h"

#include <utility>

#include "api/chat_messages.h"
#include "api/chat_tools.h"

namespace kvasir {
namespace {

constexpr size_t kMaxNameBytes = 1024;
constexpr size_t kMaxTextBytes = size_t{1} << 30;
constexpr int64_t kMaxTokenCount = INT32_MAX;

// Fields that would change the answer and are not done here. Off (null, false, [], ...) they pass,
// and with the number that means off in their case.
struct Unsupported {
  const char* name;
  const char* what;
  double off = 0.0;
};
constexpr Unsupported kUnsupported[] = {
    {"audio", "audio output"},
    {"web_search_options", "web search"},
    {"functions", "the form before tools"},
    {"function_call", "the form before tool_choice"},
    {"guided_json", "constrained decoding"},
    {"guided_regex", "constrained decoding"},
    {"guided_choice", "constrained decoding"},
    {"guided_grammar", "constrained decoding"},
    {"structured_outputs", "constrained decoding"},
    {"grammar", "constrained decoding"},
    {"json_schema", "constrained decoding"},
    {"use_beam_search", "beam search"},
    {"stop_token_ids", "a list of stop tokens"},
    {"bad_words", "a list of banned words"},
    {"truncate_prompt_tokens", "truncation of the prompt"},
    {"prompt_logprobs", "this form of prompt log-probabilities (use echo with logprobs)"},
    {"allowed_token_ids", "a list of allowed tokens"},
    {"logits_processors", "code of the request's own"},
    {"include_stop_str_in_output", "keeping the stop string"},
    {"n_predict", "llama-server's name (use max_tokens)", -1.0},
    {"repeat_penalty", "llama-server's name (use repetition_penalty)", 1.0},
    {"typical_p", "typical sampling", 1.0},
    {"mirostat", "Mirostat sampling"},
    {"dynatemp_range", "a dynamic temperature"},
    {"dry_multiplier", "DRY sampling"},
    {"xtc_probability", "XTC sampling"},
    {"suffix", "insertion"},
    {"lora", "adapters"},
};

void RefuseUnsupported(RequestFields& fields) {
  for (const Unsupported& field : kUnsupported) {
    if (fields.IsOff(field.name) || fields.IsNumber(field.name, field.off)) continue;
    fields.Fail(UnsupportedField(field.name, field.what));
  }
  std::string format;
  if (fields.ReadTypeOf("response_format", &format) && format != "text") {
    fields.Fail(UnsupportedField("response_format", fmt::format("the format '{}'", format)));
  }
  if (!fields.IsOff("modalities")) {
    std::vector<std::string> modalities;
    fields.ReadStrings("modalities", 8, &modalities);
    for (const std::string& modality : modalities) {
      if (modality == "text") continue;
      fields.Fail(UnsupportedField("modalities", fmt::format("the modality '{}'", modality)));
    }
  }
}

void ReadSampling(RequestFields& fields, GenerationParameters* out) {
  SamplingOptions& sampling = out->sequence.sampling;
  sampling.temperature = 1.0f;  // As OpenAI.
  double number = 0.0;
  int64_t integer = 0;
  if (fields.ReadNumber("temperature", 0.0, 2.0, &number)) {
    sampling.temperature = static_cast<float>(number);
  }
  // 0 is in OpenAI's range and means the best token alone.
  if (fields.ReadNumber("top_p", 0.0, 1.0, &number)) {
    sampling.top_p = number > 1e-9 ? static_cast<float>(number) : 1e-9f;
  }
  if (fields.ReadInteger("top_k", -1, kMaxTokenCount, &integer)) {
    sampling.top_k = integer < 0 ? 0 : static_cast<uint32_t>(integer);
  }
  if (fields.ReadNumber("min_p", 0.0, 1.0, &number)) sampling.min_p = static_cast<float>(number);
  if (fields.ReadNumber("presence_penalty", -2.0, 2.0, &number)) {
    sampling.presence_penalty = static_cast<float>(number);
  }
  if (fields.ReadNumber("frequency_penalty", -2.0, 2.0, &number)) {
    sampling.frequency_penalty = static_cast<float>(number);
  }
  if (fields.ReadNumber("repetition_penalty", 0.01, 100.0, &number)) {
    sampling.repetition_penalty = static_cast<float>(number);
  }
  if (fields.ReadInteger("seed", INT64_MIN, INT64_MAX, &integer)) {
    sampling.seed = static_cast<uint64_t>(integer);
    out->seed_given = true;
  }
  fields.ReadLogitBias("logit_bias", &sampling.logit_bias);
}

void ReadLength(RequestFields& fields, int64_t least, bool chat, GenerationParameters* out) {
  int64_t integer = 0;
  if (fields.ReadInteger("max_tokens", least, kMaxTokenCount, &integer)) {
    out->max_tokens = static_cast<uint32_t>(integer);
  }
  if (chat && fields.ReadInteger("max_completion_tokens", least, kMaxTokenCount, &integer)) {
    out->max_tokens = static_cast<uint32_t>(integer);
  }
  if (fields.ReadInteger("min_tokens", 0, kMaxTokenCount, &integer)) {
    out->sequence.min_new_tokens = static_cast<uint32_t>(integer);
    if (out->max_tokens.has_value() && out->sequence.min_new_tokens > *out->max_tokens) {
      fields.Fail(BadField("min_tokens", "'min_tokens' is {}, more than the {} of max_tokens",
                           integer, *out->max_tokens));
    }
  }
  if (fields.ReadInteger("n", 1, kMaxChoices, &integer)) {
    out->choice_count = static_cast<uint32_t>(integer);
  }
  if (fields.ReadInteger("best_of", 0, kMaxChoices, &integer) && integer != 0 &&
      integer != int64_t{out->choice_count}) {
    fields.Fail(UnsupportedField("best_of", "choosing among more answers than 'n'"));
  }
  fields.ReadStrings("stop", kMaxStops, &out->sequence.stops);
  size_t stop_bytes = 0;
  for (const std::string& stop : out->sequence.stops) stop_bytes += stop.size();
  if (stop_bytes > kMaxStopBytes) {
    fields.Fail(BadField("stop",
                         "The strings of 'stop' have {} bytes together, at most {} are "
                         "allowed",
                         stop_bytes, kMaxStopBytes));
  }
  fields.ReadBool("ignore_eos", &out->sequence.ignore_eos);
}

void ReadDelivery(RequestFields& fields, GenerationParameters* out) {
  fields.ReadString("model", kMaxNameBytes, &out->model);
  fields.ReadBool("stream", &out->stream);
  fields.ReadBoolIn("stream_options", "include_usage", &out->include_usage);
  if (fields.Has("stream_options") && !out->stream) {
    fields.Fail(
        BadField("stream_options", "'stream_options' is only allowed with \"stream\": true"));
  }
  fields.ReadBool("return_tokens_as_token_ids", &out->return_tokens_as_token_ids);
  fields.ReadBool("kvasir", &out->explain);
  fields.ReadString("user", kMaxNameBytes, &out->user);
  fields.ReadString("cache_salt", kMaxNameBytes, &out->cache_salt);
  fields.ReadBool("no_store", &out->no_store);
  int64_t integer = 0;
  if (fields.ReadInteger("priority", INT32_MIN, INT32_MAX, &integer)) {
    out->priority = static_cast<int32_t>(integer);
  }
  double seconds = 0.0;
  if (fields.ReadNumber("timeout_s", 0.001, kMaxTimeoutSeconds, &seconds)) out->timeout_s = seconds;
}

void ReadGeneration(RequestFields& fields, bool chat, const SchemaContext& context,
                    GenerationParameters* out) {
  RefuseUnsupported(fields);
  ReadDelivery(fields, out);
  ReadLength(fields, chat ? 1 : 0, chat, out);
  ReadSampling(fields, out);
  if (fields.error().has_value()) return;
  const Status status = out->sequence.sampling.Validate(context.vocab_size);
  // Every range was checked above but that of the ids.
  if (!status.ok()) fields.Fail(BadField("logit_bias", "{}", MessageOf(status)));
}

// "auto" and "none" leave the answer to the model; anything else would have to constrain it.
void ReadTools(RequestFields& fields, ChatPromptInput* out) {
  if (fields.ReadArrayText("tools", &out->tools_json)) {
    if (std::optional<ApiError> error = CheckTools(out->tools_json)) {
      return fields.Fail(*std::move(error));
    }
    if (fields.IsOff("tools")) out->tools_json.clear();
  }
  if (!fields.Has("tool_choice")) return;
  std::string choice;
  if (!fields.IsString("tool_choice")) {
    if (fields.ReadTypeOf("tool_choice", &choice)) {
      fields.Fail(UnsupportedField("tool_choice", "forcing a tool"));
    }
  } else if (fields.ReadString("tool_choice", kMaxNameBytes, &choice)) {
    if (choice == "none") {
      out->tools_json.clear();
    } else if (choice == "required") {
      fields.Fail(UnsupportedField("tool_choice", "'required'"));
    } else if (choice != "auto") {
      fields.Fail(BadField("tool_choice",
                           "'tool_choice' is '{}', must be \"none\", \"auto\", \"required\" or an "
                           "object",
                           choice));
    }
  }
}

void ReadChatPrompt(RequestFields& fields, const SchemaContext& context, ChatPromptInput* out) {
  std::string messages;
  if (!fields.ReadArrayText("messages", &messages)) {
    fields.Fail(BadField("messages", "'messages' is missing; an array is expected"));
    return;
  }
  NormalizedMessages normalized;
  std::optional<ApiError> error =
      NormalizeMessages(messages, context.developer_is_system, &normalized);
  if (error.has_value()) return fields.Fail(*std::move(error));
  out->messages_json = std::move(normalized.json);
  ReadTools(fields, out);
  fields.ReadObjectText("chat_template_kwargs", &out->variables_json);
  fields.ReadBool("continue_final_message", &out->continue_final_message);
  const bool given = fields.ReadBool("add_generation_prompt", &out->add_generation_prompt);
  if (!out->continue_final_message) return;
  if (given && out->add_generation_prompt) {
    fields.Fail(
        BadField("continue_final_message",
                 "'continue_final_message' and 'add_generation_prompt' exclude each other"));
  }
  if (normalized.last_role != "assistant" || normalized.last_content.empty()) {
    fields.Fail(BadField("continue_final_message",
                         "'continue_final_message' needs an assistant message with content at the "
                         "end of 'messages'"));
  }
  out->add_generation_prompt = false;
  out->final_message = std::move(normalized.last_content);
}

}  // namespace

std::optional<ApiError> ParseChatRequest(std::string_view body, const SchemaContext& context,
                                         ChatRequest* out) {
  RequestFields fields(body);
  ReadGeneration(fields, /*chat=*/true, context, &out->generation);
  if (!fields.IsOff("echo")) {
    fields.Fail(UnsupportedField("echo", "repeating messages (POST /v1/completions repeats)"));
  }
  ReadChatPrompt(fields, context, &out->prompt);
  fields.ReadBool("logprobs", &out->generation.want_logprobs);
  int64_t top = 0;
  if (fields.ReadInteger("top_logprobs", 0, kMaxTopLogprobs, &top)) {
    out->generation.top_logprobs = static_cast<uint32_t>(top);
    if (top > 0 && !out->generation.want_logprobs) {
      fields.Fail(BadField("top_logprobs", "'top_logprobs' needs \"logprobs\": true"));
    }
  }
  return fields.error();
}

std::optional<ApiError> ParseCompletionRequest(std::string_view body, const SchemaContext& context,
                                               CompletionRequest* out) {
  RequestFields fields(body);
  ReadGeneration(fields, /*chat=*/false, context, &out->generation);
  if (!fields.ReadPrompts("prompt", context.vocab_size, kMaxPrompts, &out->prompts)) {
    fields.Fail(BadField("prompt", "'prompt' is missing"));
  }
  int64_t top = 0;
  if (fields.ReadInteger("logprobs", 0, kMaxTopLogprobs, &top)) {
    out->generation.want_logprobs = true;
    out->generation.top_logprobs = static_cast<uint32_t>(top);
  }
  fields.ReadBool("echo", &out->echo);
  fields.ReadBool("parse_special", &out->parse_special);
  return fields.error();
}

std::optional<ApiError> ParseTokenizeRequest(std::string_view body, TokenizeRequest* out) {
  RequestFields fields(body);
  fields.ReadString("model", kMaxNameBytes, &out->model);
  // llama-server's form, or vLLM's, each with its own default.
  if (fields.ReadString("content", kMaxTextBytes, &out->text)) {
    out->add_special = false;
  } else if (fields.ReadString("prompt", kMaxTextBytes, &out->text)) {
    out->add_special = true;
  } else {
    fields.Fail(BadField("content", "'content' is missing; a string is expected"));
  }
  fields.ReadBool("add_special", &out->add_special);
  fields.ReadBool("add_special_tokens", &out->add_special);
  fields.ReadBool("parse_special", &out->parse_special);
  fields.ReadBool("with_pieces", &out->with_pieces);
  return fields.error();
}

std::optional<ApiError> ParseDetokenizeRequest(std::string_view body, const SchemaContext& context,
                                               DetokenizeRequest* out) {
  RequestFields fields(body);
  fields.ReadString("model", kMaxNameBytes, &out->model);
  if (!fields.ReadTokens("tokens", context.vocab_size, &out->tokens)) {
    fields.Fail(BadField("tokens", "'tokens' is missing; an array of token ids is expected"));
  }
  return fields.error();
}

std::optional<ApiError> ParseApplyTemplateRequest(std::string_view body,
                                                  const SchemaContext& context, std::string* model,
                                                  ChatPromptInput* out) {
  RequestFields fields(body);
  fields.ReadString("model", kMaxNameBytes, model);
  ReadChatPrompt(fields, context, out);
  return fields.error();
}

}  // namespace kvasir
