#include "api/openai_schema.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace kvasir {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr SchemaContext kContext{.vocab_size = 1000, .developer_is_system = true};

std::string ChatBody(const std::string& fields) {
  return R"({"messages": [{"role": "user", "content": "hi"}])" +
         (fields.empty() ? "" : ", " + fields) + "}";
}

ChatRequest Chat(const std::string& fields) {
  ChatRequest request;
  const auto error = ParseChatRequest(ChatBody(fields), kContext, &request);
  EXPECT_FALSE(error.has_value()) << fields << ": " << (error ? error->message : "");
  return request;
}

CompletionRequest Completion(const std::string& body) {
  CompletionRequest request;
  const auto error = ParseCompletionRequest(body, kContext, &request);
  EXPECT_FALSE(error.has_value()) << body << ": " << (error ? error->message : "");
  return request;
}

// The error about a chat body, which must be a 400.
ApiError ErrorOf(const std::string& body) {
  ChatRequest request;
  const auto error = ParseChatRequest(body, kContext, &request);
  EXPECT_TRUE(error.has_value()) << body;
  EXPECT_EQ(error.value_or(ApiError()).status, 400);
  return error.value_or(ApiError());
}

ApiError CompletionErrorOf(const std::string& body) {
  CompletionRequest request;
  const auto error = ParseCompletionRequest(body, kContext, &request);
  EXPECT_TRUE(error.has_value()) << body;
  return error.value_or(ApiError());
}

TEST(OpenAiSchema, DefaultsAreOpenAis) {
  const ChatRequest request = Chat("");
  const GenerationParameters& g = request.generation;
  EXPECT_EQ(g.sequence.sampling.temperature, 1.0f);
  EXPECT_EQ(g.sequence.sampling.top_p, 1.0f);
  EXPECT_EQ(g.sequence.sampling.top_k, 0u);
  EXPECT_EQ(g.sequence.sampling.repetition_penalty, 1.0f);
  EXPECT_FALSE(g.max_tokens.has_value());
  EXPECT_FALSE(g.seed_given);
  EXPECT_EQ(g.choice_count, 1u);
  EXPECT_FALSE(g.stream || g.want_logprobs || g.explain || g.no_store || g.include_usage);
  EXPECT_TRUE(g.model.empty());
  EXPECT_TRUE(request.prompt.add_generation_prompt);
  EXPECT_TRUE(Completion(R"({"prompt": "x"})").parse_special);
}

TEST(OpenAiSchema, EveryFieldArrives) {
  const ChatRequest request = Chat(R"(
    "model": "m", "max_tokens": 7, "temperature": 0.5, "top_p": 0.25, "top_k": 40, "min_p": 0.125,
    "n": 3, "stop": ["a", "b"], "seed": -5, "presence_penalty": 1.5, "frequency_penalty": -1.5,
    "repetition_penalty": 1.25, "logit_bias": {"17": -100, "18": 2.5}, "logprobs": true,
    "top_logprobs": 4, "stream": true, "stream_options": {"include_usage": true}, "user": "u",
    "priority": -2, "cache_salt": "s", "no_store": true, "ignore_eos": true, "min_tokens": 2,
    "timeout_s": 1.5, "return_tokens_as_token_ids": true, "kvasir": true,
    "chat_template_kwargs": {"x": [1]}, "add_generation_prompt": false,
    "tools": [{"type": "function", "function": {"name": "f"}}])");
  const GenerationParameters& g = request.generation;
  const SamplingOptions& s = g.sequence.sampling;
  EXPECT_EQ(g.model, "m");
  EXPECT_EQ(g.max_tokens, 7u);
  EXPECT_EQ(s.temperature, 0.5f);
  EXPECT_EQ(s.top_p, 0.25f);
  EXPECT_EQ(s.top_k, 40u);
  EXPECT_EQ(s.min_p, 0.125f);
  EXPECT_EQ(g.choice_count, 3u);
  EXPECT_THAT(g.sequence.stops, ElementsAre("a", "b"));
  EXPECT_TRUE(g.seed_given);
  EXPECT_EQ(s.seed, static_cast<uint64_t>(-5));
  EXPECT_EQ(s.presence_penalty, 1.5f);
  EXPECT_EQ(s.frequency_penalty, -1.5f);
  EXPECT_EQ(s.repetition_penalty, 1.25f);
  ASSERT_EQ(s.logit_bias.size(), 2u);
  EXPECT_EQ(s.logit_bias[0], std::make_pair(TokenId{17}, -INFINITY));
  EXPECT_EQ(s.logit_bias[1], std::make_pair(TokenId{18}, 2.5f));
  EXPECT_TRUE(g.want_logprobs);
  EXPECT_EQ(g.top_logprobs, 4u);
  EXPECT_TRUE(g.stream);
  EXPECT_TRUE(g.include_usage);
  EXPECT_EQ(g.user, "u");
  EXPECT_EQ(g.priority, -2);
  EXPECT_EQ(g.cache_salt, "s");
  EXPECT_TRUE(g.no_store);
  EXPECT_TRUE(g.sequence.ignore_eos);
  EXPECT_EQ(g.sequence.min_new_tokens, 2u);
  EXPECT_EQ(g.timeout_s, 1.5);
  EXPECT_TRUE(g.return_tokens_as_token_ids);
  EXPECT_TRUE(g.explain);
  EXPECT_EQ(request.prompt.variables_json, R"({"x":[1]})");
  EXPECT_EQ(request.prompt.tools_json, R"([{"type":"function","function":{"name":"f"}}])");
  EXPECT_FALSE(request.prompt.add_generation_prompt);
}

TEST(OpenAiSchema, FormsThatMeanTheSame) {
  EXPECT_EQ(Chat(R"("max_tokens": 5, "max_completion_tokens": 9)").generation.max_tokens, 9u);
  EXPECT_EQ(Chat(R"("max_tokens": 16.0)").generation.max_tokens, 16u);
  EXPECT_THAT(Chat(R"("stop": "x")").generation.sequence.stops, ElementsAre("x"));
  EXPECT_EQ(Chat(R"("top_k": -1)").generation.sequence.sampling.top_k, 0u);
  EXPECT_GT(Chat(R"("top_p": 0)").generation.sequence.sampling.top_p, 0.0f);
  // The last of a key that comes twice counts, and null is the same as nothing.
  EXPECT_EQ(Chat(R"("n": 2, "n": 4)").generation.choice_count, 4u);
  EXPECT_EQ(Chat(R"("n": null)").generation.choice_count, 1u);
  EXPECT_TRUE(
      Chat(R"("tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "none")")
          .prompt.tools_json.empty());
}

TEST(OpenAiSchema, PromptsOfAllForms) {
  EXPECT_EQ(Completion(R"({"prompt": "x"})").prompts.size(), 1u);
  const auto ids = Completion(R"({"prompt": [1, 2]})").prompts;
  ASSERT_EQ(ids.size(), 1u);
  EXPECT_TRUE(ids[0].is_tokens);
  EXPECT_THAT(ids[0].tokens, ElementsAre(TokenId{1}, TokenId{2}));
  const auto mixed = Completion(R"({"prompt": ["a", [3]]})").prompts;
  ASSERT_EQ(mixed.size(), 2u);
  EXPECT_EQ(mixed[0].text, "a");
  EXPECT_THAT(mixed[1].tokens, ElementsAre(TokenId{3}));
  const CompletionRequest scored =
      Completion(R"({"prompt": "x", "max_tokens": 0, "echo": true, "logprobs": 0,
                     "parse_special": false})");
  EXPECT_EQ(scored.generation.max_tokens, 0u);
  EXPECT_TRUE(scored.echo && scored.generation.want_logprobs && !scored.parse_special);
  for (const char* prompt : {"null", "[]", "{}", "5", "[[1.5]]", "[1000]", "[-1]", R"(["a", 1])",
                             R"([1, "a"])", "[[[1]]]", "true"}) {
    const ApiError error = CompletionErrorOf(fmt::format(R"({{"prompt": {}}})", prompt));
    EXPECT_THAT(error.param.value_or(""), testing::StartsWith("prompt")) << prompt;
  }
}

TEST(OpenAiSchema, OutOfRangeIsRefusedByName) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("temperature": 2.1)", "temperature"},
      {R"("temperature": -0.1)", "temperature"},
      {R"("temperature": "1")", "temperature"},
      {R"("top_p": 1.01)", "top_p"},
      {R"("top_p": -1)", "top_p"},
      {R"("top_k": -2)", "top_k"},
      {R"("top_k": 1.5)", "top_k"},
      {R"("min_p": 1.5)", "min_p"},
      {R"("n": 0)", "n"},
      {R"("n": 129)", "n"},
      {R"("max_tokens": 0)", "max_tokens"},
      {R"("max_tokens": 4294967296)", "max_tokens"},
      {R"("max_tokens": 18446744073709551615)", "max_tokens"},
      {R"("max_completion_tokens": -1)", "max_completion_tokens"},
      {R"("min_tokens": 3, "max_tokens": 2)", "min_tokens"},
      {R"("stop": {"a": 1})", "stop"},
      {R"("stop": [1])", "stop"},
      {R"("stop": "")", "stop"},
      {R"("stop": ["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16","17"])",
       "stop"},
      {R"("seed": 1.5)", "seed"},
      {R"("presence_penalty": 2.1)", "presence_penalty"},
      {R"("frequency_penalty": -2.1)", "frequency_penalty"},
      {R"("repetition_penalty": 0)", "repetition_penalty"},
      {R"("logit_bias": [])", "logit_bias"},
      {R"("logit_bias": {"x": 1})", "logit_bias"},
      {R"("logit_bias": {"-1": 1})", "logit_bias"},
      {R"("logit_bias": {"1000": 1})", "logit_bias"},
      {R"("logit_bias": {"1": 1, "01": 1})", "logit_bias"},
      {R"("logit_bias": {"1": null})", "logit_bias"},
      {R"("logprobs": 1)", "logprobs"},
      {R"("logprobs": true, "top_logprobs": 21)", "top_logprobs"},
      {R"("top_logprobs": 1)", "top_logprobs"},
      {R"("stream": 1)", "stream"},
      {R"("stream_options": {"include_usage": true})", "stream_options"},
      {R"("stream": true, "stream_options": {"include_usage": 1})", "stream_options.include_usage"},
      {R"("stream": true, "stream_options": 1)", "stream_options"},
      {R"("user": 1)", "user"},
      {R"("priority": 2147483648)", "priority"},
      {R"("cache_salt": 1)", "cache_salt"},
      {R"("timeout_s": 0)", "timeout_s"},
      {R"("timeout_s": 1e9)", "timeout_s"},
      {R"("chat_template_kwargs": [])", "chat_template_kwargs"},
      {R"("continue_final_message": true)", "continue_final_message"},
      {R"("tools": {"a": 1})", "tools"},
      {R"("tools": "f")", "tools"},
      {R"("tools": [1])", "tools[0]"},
      {R"("tools": [null])", "tools[0]"},
      {R"("tools": [{"function": {"name": "f"}}])", "tools[0].type"},
      {R"("tools": [{"type": 1, "function": {"name": "f"}}])", "tools[0].type"},
      {R"("tools": [{"type": "custom", "custom": {"name": "f"}}])", "tools[0].type"},
      {R"("tools": [{"type": "function"}])", "tools[0].function"},
      {R"("tools": [{"type": "function", "function": "f"}])", "tools[0].function"},
      {R"("tools": [{"type": "function", "function": {}}])", "tools[0].function.name"},
      {R"("tools": [{"type": "function", "function": {"name": ""}}])", "tools[0].function.name"},
      {R"("tools": [{"type": "function", "function": {"name": "f"}},
                    {"type": "function", "function": {"name": 7}}])",
       "tools[1].function.name"},
      {R"("tools": [{"type": "function", "function": {"name": "f", "description": 1}}])",
       "tools[0].function.description"},
      {R"("tools": [{"type": "function", "function": {"name": "f", "parameters": "{}"}}])",
       "tools[0].function.parameters"},
      // Also those that will not be used.
      {R"("tools": [1], "tool_choice": "none")", "tools[0]"},
      {R"("tool_choice": "some")", "tool_choice"},
      {R"("tool_choice": 1)", "tool_choice"},
      {R"("tool_choice": false)", "tool_choice"},
      {R"("tool_choice": {})", "tool_choice"},
      {R"("tool_choice": ["auto"])", "tool_choice"},
      {R"("tool_choice": {"type": 1})", "tool_choice"},
      {R"("model": [])", "model"},
  };
  for (const auto& [fields, param] : cases) {
    EXPECT_EQ(ErrorOf(ChatBody(fields)).param, std::optional<std::string>(param)) << fields;
  }
  const auto stop = [](size_t bytes) { return "\"stop\": \"" + std::string(bytes, 'x') + "\""; };
  EXPECT_EQ(Chat(stop(kMaxStopBytes)).generation.sequence.stops.size(), 1u);
  EXPECT_EQ(ErrorOf(ChatBody(stop(kMaxStopBytes + 1))).param, "stop");
}

TEST(OpenAiSchema, KnownButNotDoneIsRefusedUnlessOff) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("tool_choice": "required")", "tool_choice"},
      {R"("tool_choice": {"type": "function", "function": {"name": "f"}})", "tool_choice"},
      {R"("response_format": {"type": "json_object"})", "response_format"},
      {R"("response_format": {"type": "json_schema", "json_schema": {}})", "response_format"},
      {R"("modalities": ["audio"])", "modalities"},
      {R"("audio": {"voice": "x"})", "audio"},
      {R"("functions": [{"name": "f"}])", "functions"},
      {R"("guided_regex": "a+")", "guided_regex"},
      {R"("use_beam_search": true)", "use_beam_search"},
      {R"("stop_token_ids": [1])", "stop_token_ids"},
      {R"("best_of": 2)", "best_of"},
      {R"("allowed_token_ids": [1])", "allowed_token_ids"},
      {R"("include_stop_str_in_output": true)", "include_stop_str_in_output"},
      {R"("n_predict": 5)", "n_predict"},
      {R"("repeat_penalty": 1.1)", "repeat_penalty"},
      {R"("typical_p": 0.5)", "typical_p"},
      {R"("mirostat": 2)", "mirostat"},
      {R"("echo": true)", "echo"},
      {R"("suffix": "x")", "suffix"},
  };
  for (const auto& [fields, param] : cases) {
    const ApiError error = ErrorOf(ChatBody(fields));
    EXPECT_EQ(error.param, std::optional<std::string>(param)) << fields;
    EXPECT_EQ(error.code, std::optional<std::string>("unsupported_parameter")) << fields;
  }
  Chat(R"("response_format": {"type": "text"}, "modalities": ["text"], "functions": [],
          "guided_regex": "", "use_beam_search": false, "stop_token_ids": [], "best_of": 1,
          "suffix": null, "tool_choice": "auto", "echo": false, "n_predict": -1,
          "repeat_penalty": 1.0, "typical_p": 1, "mirostat": 0, "a field nobody knows": {"deep": [1]})");
}

TEST(OpenAiSchema, BodiesThatAreNoJsonObjects) {
  EXPECT_THAT(ErrorOf("").message, HasSubstr("empty"));
  EXPECT_THAT(ErrorOf(" \n").message, HasSubstr("empty"));
  EXPECT_THAT(ErrorOf("{").message, HasSubstr("not valid JSON"));
  EXPECT_THAT(ErrorOf("{\"a\": \"my secret\" x}").message, testing::Not(HasSubstr("secret")));
  EXPECT_THAT(ErrorOf("{} x").message, HasSubstr("not valid JSON"));
  EXPECT_THAT(ErrorOf("[]").message, HasSubstr("an array"));
  EXPECT_THAT(ErrorOf("null").message, HasSubstr("null"));
  EXPECT_THAT(ErrorOf("{\"a\": 1e999}").message, HasSubstr("not valid JSON"));
  EXPECT_THAT(ErrorOf("{\"a\": \"\\ud800\"}").message, HasSubstr("not valid JSON"));
  EXPECT_THAT(ErrorOf("{\"a\": \"\xff\"}").message, HasSubstr("UTF-8"));
  EXPECT_THAT(ErrorOf("{\"a\": " + std::string(100'000, '[')).message, HasSubstr("nested"));
  EXPECT_THAT(ErrorOf(std::string(1 << 20, '{')).message, HasSubstr("nested"));
  EXPECT_EQ(ErrorOf("{}").param, "messages");
}

// An object of `count` members k0, k1, ...
std::string ObjectOf(size_t count) {
  std::string text = "{";
  for (size_t i = 0; i < count; ++i) text += fmt::format("{}\"k{}\": 1", i == 0 ? "" : ",", i);
  return text + "}";
}

TEST(OpenAiSchema, DepthIsThatOutsideOfStrings) {
  const auto nested = [](size_t depth) {
    return std::string(depth, '[') + R"("[[[[{{\"[[")" + std::string(depth, ']');
  };
  EXPECT_EQ(JsonShapeProblem(nested(kMaxJsonDepth)), std::nullopt);
  EXPECT_THAT(JsonShapeProblem(nested(kMaxJsonDepth + 1)).value_or(""), HasSubstr("64 levels"));
  EXPECT_EQ(JsonShapeProblem("]]]]["), std::nullopt);
  EXPECT_EQ(JsonShapeProblem(nested(60) + nested(60)), std::nullopt);
}

// Each key of an object is compared with those before it: 150,000 of them would take half a minute.
TEST(OpenAiSchema, ObjectsWithTooManyMembersAreRefused) {
  EXPECT_EQ(JsonShapeProblem(ObjectOf(8'000)), std::nullopt);
  EXPECT_THAT(JsonShapeProblem(ObjectOf(15'000)).value_or(""), HasSubstr("too many members"));
  std::string many = "[" + ObjectOf(2'000);
  for (int i = 0; i < 40; ++i) many += "," + ObjectOf(2'000);
  EXPECT_THAT(JsonShapeProblem(many + "]").value_or(""), HasSubstr("too many members"));
  std::string messages = "[" + ObjectOf(3);
  for (int i = 0; i < 100'000; ++i) messages += "," + ObjectOf(3);
  EXPECT_EQ(JsonShapeProblem(messages + "]"), std::nullopt);

  const std::string wide = ObjectOf(150'000);
  EXPECT_THAT(ErrorOf(wide).message, HasSubstr("too many members"));
  TokenizeRequest tokenize;
  EXPECT_TRUE(ParseTokenizeRequest(wide, &tokenize).has_value());
  std::string quoted;
  for (const char c : wide) quoted += c == '"' ? std::string("\\\"") : std::string(1, c);
  const ApiError error = ErrorOf(
      R"({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": ")" +
      quoted + R"("}}]}]})");
  EXPECT_EQ(error.param, "messages[0].tool_calls[0].function.arguments");
  EXPECT_THAT(error.message, HasSubstr("too many members"));
}

// What is wrong is told without what was sent: messages are logged.
TEST(OpenAiSchema, ErrorsOfJsonDoNotQuoteIt) {
  for (const char* body : {R"({"prompt": [1e4321]})", R"({"prompt": "secret 4321 \x"})",
                           R"({"prompt": "x", 4321: 1})"}) {
    EXPECT_THAT(CompletionErrorOf(body).message, testing::Not(HasSubstr("4321"))) << body;
  }
}

TEST(OpenAiSchema, ContinuesTheFinalMessage) {
  ChatRequest request;
  const char* messages =
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b "}],)";
  EXPECT_FALSE(ParseChatRequest(std::string(messages) + R"("continue_final_message": true})",
                                kContext, &request)
                   .has_value());
  EXPECT_TRUE(request.prompt.continue_final_message);
  EXPECT_FALSE(request.prompt.add_generation_prompt);
  EXPECT_EQ(request.prompt.final_message, "b ");
  EXPECT_EQ(ErrorOf(std::string(messages) +
                    R"("continue_final_message": true, "add_generation_prompt": true})")
                .param,
            "continue_final_message");
}

TEST(OpenAiSchema, TokenizeInBothForms) {
  TokenizeRequest llama, vllm, bad;
  EXPECT_FALSE(ParseTokenizeRequest(R"({"content": "x", "with_pieces": true})", &llama));
  EXPECT_FALSE(llama.add_special);
  EXPECT_TRUE(llama.with_pieces && llama.parse_special);
  EXPECT_FALSE(ParseTokenizeRequest(R"({"prompt": "x", "parse_special": false})", &vllm));
  EXPECT_TRUE(vllm.add_special);
  EXPECT_FALSE(vllm.parse_special);
  EXPECT_TRUE(ParseTokenizeRequest(R"({"text": "x"})", &bad));
  DetokenizeRequest ids;
  EXPECT_FALSE(ParseDetokenizeRequest(R"({"tokens": [5]})", kContext, &ids));
  EXPECT_THAT(ids.tokens, ElementsAre(TokenId{5}));
  EXPECT_EQ(ParseDetokenizeRequest(R"({"tokens": [1000]})", kContext, &ids)->param, "tokens[0]");
  EXPECT_EQ(ParseDetokenizeRequest("{}", kContext, &ids)->param, "tokens");
}

}  // namespace
}  // namespace kvasir
