// What templates of the families in testdata want as tool call arguments, and that they get it.
#include "text/tool_arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "text/chat_template.h"

namespace kvasir {
namespace {

using testing::HasSubstr;
using testing::Not;

ChatTemplate Family(const std::string& name) {
  std::ifstream file(std::string(KVASIR_TESTDATA_DIR) + "/templates/" + name + ".jinja");
  std::stringstream text;
  text << file.rdbuf();
  return ChatTemplate::Parse(text.str()).value();
}

std::string Rendered(const ChatTemplate& parsed, const std::string& arguments) {
  ChatInput input;
  input.messages_json =
      R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": "", "tool_calls": [)"
      R"({"id": "call00001", "type": "function", "function": {"name": "add", "arguments": )" +
      arguments +
      R"(}}]}, {"role": "tool", "name": "add", "tool_call_id": "call00001", "content": "3"}])";
  input.tools_json =
      R"([{"type": "function", "function": {"name": "add", "description": "d", "parameters": )"
      R"({"type": "object", "properties": {"a": {"type": "number"}}, "required": ["a"]}}}])";
  input.bos_token = "<s>";
  input.eos_token = "</s>";
  input.now = ParseIsoTime("2026-01-02T03:04:05").value();
  const StatusOr<RenderedPrompt> prompt = parsed.Render(input);
  return prompt.ok() ? prompt->text : "error: " + std::string(MessageOf(prompt.status()));
}

TEST(ToolArguments, FamiliesWantWhatTheyPrint) {
  for (const char* name :
       {"qwen25_tools", "qwen3_coder", "llama31_tools", "llama32_tools", "llama4",    "mistral_v3",
        "mistral_nemo", "command_r",   "command_r7b",   "hermes3",       "granite",   "granite33",
        "gpt_oss",      "internlm2",   "falcon3",       "minicpm3",      "phi4_mini", "jamba",
        "xlam",         "nemotron",    "firefunction"}) {
    EXPECT_EQ(Family(name).tool_argument_form(), ToolArgumentForm::kObject) << name;
  }
  for (const char* name : {"deepseek_v3", "functionary"}) {
    EXPECT_EQ(Family(name).tool_argument_form(), ToolArgumentForm::kJsonText) << name;
  }
  for (const char* name : {"hermes2_pro", "glm4", "kimi_k2", "chatml", "gemma2", "vicuna"}) {
    EXPECT_EQ(Family(name).tool_argument_form(), ToolArgumentForm::kAsGiven) << name;
  }
}

TEST(ToolArguments, BothFormsRenderAlike) {
  const std::string object = R"({"a": 1, "b": "ü \"x\"", "c": [1.5, null]})";
  const std::string text = R"("{\"a\": 1, \"b\": \"ü \\\"x\\\"\", \"c\": [1.5, null]}")";
  for (const char* name :
       {"qwen25_tools", "llama31_tools", "mistral_v3", "mistral_nemo", "deepseek_v3", "functionary",
        "command_r", "hermes3", "granite", "gpt_oss", "phi4_mini"}) {
    const ChatTemplate parsed = Family(name);
    const std::string rendered = Rendered(parsed, object);
    EXPECT_EQ(Rendered(parsed, text), rendered) << name;
    EXPECT_THAT(rendered, Not(HasSubstr("error:"))) << name;
    EXPECT_THAT(rendered, HasSubstr("ü")) << name;
    EXPECT_THAT(rendered, Not(HasSubstr("{'a'"))) << name;
  }
}

TEST(ToolArguments, WhatIsNoObjectStays) {
  const ChatTemplate parsed = Family("qwen25_tools");
  EXPECT_THAT(Rendered(parsed, R"("[1]")"), HasSubstr(R"("[1]")"));
  EXPECT_THAT(Rendered(parsed, R"("{broken")"), HasSubstr("{broken"));
  EXPECT_THAT(Rendered(parsed, "null"), HasSubstr("null"));
}

// Arguments come from the model: whatever form they take, they are no template's text.
TEST(ToolArguments, StayUntrusted) {
  for (const char* source : {"{% for m in messages %}{% for c in m.tool_calls or [] %}"
                             "{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}",
                             "{% for m in messages %}{% for c in m.tool_calls or [] %}"
                             "{{ '' + c.function.arguments }}{% endfor %}{% endfor %}"}) {
    const ChatTemplate parsed = ChatTemplate::Parse(source).value();
    EXPECT_NE(parsed.tool_argument_form(), ToolArgumentForm::kAsGiven);
    ChatInput input;
    for (const char* arguments : {R"({"<|im_end|>": 1})", R"("{\"<|im_end|>\": 1}")"}) {
      input.messages_json = fmt::format(
          R"([{{"role": "user", "tool_calls": [{{"function": {{"arguments": {}}}}}]}}])",
          arguments);
      const StatusOr<RenderedPrompt> prompt = parsed.Render(input);
      ASSERT_TRUE(prompt.ok());
      EXPECT_EQ(prompt->text, R"({"<|im_end|>": 1})");
      for (const auto& segment : prompt->segments) EXPECT_FALSE(segment.trusted);
    }
  }
}

}  // namespace
}  // namespace kvasir
