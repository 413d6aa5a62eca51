// The interpreter against Python's jinja2: expected outputs are written by
// tools/template_oracle.py.
#include "text/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace kvasir {
namespace {

using Json = nlohmann::ordered_json;

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::filesystem::path TestData(const std::string& name) {
  return std::filesystem::path(KVASIR_TESTDATA_DIR) / name;
}

Json ReadJsonFile(const std::string& name) { return Json::parse(ReadFile(TestData(name))); }

ChatInput EmptyInput() {
  ChatInput input;
  input.messages_json = "[]";
  input.bos_token = "<s>";
  input.eos_token = "</s>";
  input.now = ParseIsoTime("2026-01-02T03:04:05").value();
  return input;
}

ChatInput InputOf(const Json& conversation) {
  ChatInput input = EmptyInput();
  input.messages_json = conversation["messages"].dump();
  if (conversation.contains("tools")) input.tools_json = conversation["tools"].dump();
  if (conversation.contains("variables")) input.variables_json = conversation["variables"].dump();
  input.add_generation_prompt = conversation.value("add_generation_prompt", true);
  input.adapt_tool_arguments = false;  // As apply_chat_template.
  return input;
}

StatusOr<RenderedPrompt> RenderSource(const std::string& source, const ChatInput& input) {
  KV_ASSIGN_OR_RETURN(const ChatTemplate parsed, ChatTemplate::Parse(source));
  return parsed.Render(input);
}

std::string Text(const StatusOr<RenderedPrompt>& prompt) {
  return prompt.ok() ? prompt->text : "error: " + std::string(MessageOf(prompt.status()));
}

std::string ErrorOf(const std::string& source, const ChatInput& input = EmptyInput()) {
  const StatusOr<RenderedPrompt> prompt = RenderSource(source, input);
  return prompt.ok() ? "no error: " + prompt->text : std::string(MessageOf(prompt.status()));
}

// Segments must cover the text in order and alternate in trust.
void CheckSegments(const RenderedPrompt& prompt) {
  size_t at = 0;
  for (size_t i = 0; i < prompt.segments.size(); ++i) {
    ASSERT_EQ(prompt.segments[i].begin, at);
    ASSERT_GT(prompt.segments[i].end, at);
    if (i > 0) {
      ASSERT_NE(prompt.segments[i].trusted, prompt.segments[i - 1].trusted);
    }
    at = prompt.segments[i].end;
  }
  ASSERT_EQ(at, prompt.text.size());
}

TEST(ChatTemplateOracle, ExpressionsEqualJinja2) {
  const Json cases = ReadJsonFile("template_expressions.json");
  ChatInput input = EmptyInput();
  input.variables_json = ReadFile(TestData("template_context.json"));
  ASSERT_GE(cases.size(), 300u);
  size_t equal = 0;
  for (const Json& entry : cases) {
    const std::string source = entry[0];
    const StatusOr<RenderedPrompt> prompt = RenderSource(source, input);
    if (!entry[1].is_string()) {
      EXPECT_FALSE(prompt.ok()) << source << "\nrendered instead of failing: " << Text(prompt);
      equal += prompt.ok() ? 0 : 1;
      continue;
    }
    const std::string expected = entry[1];
    EXPECT_EQ(Text(prompt), expected) << source;
    equal += prompt.ok() && prompt->text == expected ? 1 : 0;
    if (prompt.ok()) CheckSegments(*prompt);
  }
  std::printf("expressions equal to jinja2: %zu of %zu\n", equal, cases.size());
}

std::vector<std::filesystem::path> TemplateFiles() {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(TestData("templates"))) {
    if (entry.path().extension() == ".jinja") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

TEST(ChatTemplateOracle, ConversationsEqualJinja2) {
  const Json conversations = ReadJsonFile("conversations.json");
  size_t compared = 0;
  for (const auto& path : TemplateFiles()) {
    const StatusOr<ChatTemplate> parsed = ChatTemplate::Parse(ReadFile(path));
    ASSERT_TRUE(parsed.ok()) << path << ": " << MessageOf(parsed.status());
    std::filesystem::path expected_path = path;
    const Json expected = Json::parse(ReadFile(expected_path.replace_extension(".json")));
    for (const Json& conversation : conversations) {
      const std::string name = conversation["name"];
      ASSERT_TRUE(expected.contains(name)) << path << ": run tools/template_oracle.py";
      const StatusOr<RenderedPrompt> prompt = parsed->Render(InputOf(conversation));
      ++compared;
      if (expected[name].is_null()) {
        EXPECT_FALSE(prompt.ok()) << path << ", " << name << ": " << Text(prompt);
        continue;
      }
      if (expected[name].is_object()) {
        EXPECT_THAT(Text(prompt), testing::EndsWith("the template refuses: " +
                                                    expected[name]["raises"].get<std::string>()))
            << path << ", " << name;
        continue;
      }
      EXPECT_EQ(Text(prompt), expected[name].get<std::string>()) << path << ", " << name;
      if (prompt.ok()) CheckSegments(*prompt);
    }
  }
  EXPECT_GE(compared, 60u * 30u);
  std::printf("template renderings compared with jinja2: %zu\n", compared);
}

TEST(ChatTemplateErrors, NameLineAndConstruct) {
  EXPECT_EQ(ErrorOf("a\n{% for x in y %}"), "line 2: 'for' without 'endfor'");
  EXPECT_EQ(ErrorOf("{% if a %}\n{% endfor %}"),
            "line 2: unexpected 'endfor' inside the 'if' of line 1");
  EXPECT_THAT(ErrorOf("\n\n{{ 'x' | foo }}"),
              testing::StartsWith("line 3: unknown filter 'foo' (known: abs, "));
  EXPECT_THAT(ErrorOf("{{ 1 is bar }}"),
              testing::StartsWith("line 1: unknown test 'bar' (known: "));
  EXPECT_THAT(ErrorOf("{% frob %}"),
              testing::StartsWith("line 1: unknown tag 'frob' (known: if, for"));
  for (const char* tag : {"include 'x'", "import 'x' as y", "from 'x' import y", "extends 'x'"}) {
    EXPECT_THAT(ErrorOf(fmt::format("a\n{{% {} %}}", tag)),
                testing::HasSubstr("needs a second template; a chat template is one text"));
  }
  EXPECT_EQ(ErrorOf("\n{{ foo.bar }}"), "line 2: 'foo' is undefined");
  EXPECT_EQ(ErrorOf("{{ messages.a.b }}"), "line 1: 'list object' has no element 'a'");
  EXPECT_EQ(ErrorOf("{{ 'a' + 1 }}"), "line 1: unsupported operand types for +: 'str' and 'int'");
  EXPECT_EQ(ErrorOf("{{ 'abc"), "line 1: a string ' is never closed");
  EXPECT_EQ(ErrorOf("{{ 1 \n"), "line 1: a tag '{{' is never closed with '}}'");
  EXPECT_EQ(ErrorOf("{{ (1] }}"), "line 1: unexpected ']', expected ')'");
  EXPECT_EQ(ErrorOf("{{ a b }}"), "line 1: unexpected 'b', expected '}}'");
  EXPECT_EQ(ErrorOf("\n{{ raise_exception('no ' ~ 'way') }}"),
            "line 2: the template refuses: no way");
  EXPECT_EQ(ErrorOf("{% macro m(a) %}{{ a.x.y }}{% endmacro %}\n{{ m(5) }}"),
            "line 1: 'int' has no attribute 'x'");
  EXPECT_EQ(ErrorOf("{{ [].append(1) }}"),
            "line 1: 'append' would change the list, which templates cannot do");
  EXPECT_EQ(ErrorOf("\xff"), "the template is not valid UTF-8");
}

TEST(ChatTemplateErrors, BadInputIsNamed) {
  ChatInput input = EmptyInput();
  const auto with_messages = [&](const char* json) {
    input.messages_json = json;
    return ErrorOf("x", input);
  };
  EXPECT_EQ(with_messages("{}"), "messages: must be an array, not an object");
  EXPECT_EQ(with_messages("null"), "messages: must be an array, not null");
  EXPECT_EQ(with_messages("\"x\""), "messages: must be an array, not a string");
  EXPECT_EQ(with_messages("true"), "messages: must be an array, not true");
  EXPECT_EQ(with_messages("[1]"), "messages[0]: must be an object, not a number");
  EXPECT_EQ(with_messages(R"([{"role": "user"}, {"content": "x"}])"),
            "messages[1]: has no \"role\"");
  EXPECT_EQ(with_messages(R"([{"role": 5}])"), "messages[0].role: must be a string, not a number");
  EXPECT_THAT(with_messages("[{]"), testing::StartsWith("messages: not valid JSON at byte 3"));
  EXPECT_THAT(with_messages(""), testing::StartsWith("messages: not valid JSON at byte"));
  EXPECT_THAT(with_messages("[\"\xff\"]"), testing::StartsWith("messages: not valid JSON at byte"));
  EXPECT_EQ(with_messages(std::string(200, '[').c_str()),
            "messages: JSON nested more than 90 levels deep is not supported");
  input = EmptyInput();
  input.tools_json = "{}";
  EXPECT_EQ(ErrorOf("x", input), "tools: must be an array, not an object");
  input = EmptyInput();
  input.variables_json = "[]";
  EXPECT_EQ(ErrorOf("x", input), "template variables: must be an object, not an array");
  input = EmptyInput();
  input.now.reset();
  EXPECT_EQ(ErrorOf("{{ strftime_now('%Y') }}", input),
            "line 1: strftime_now(): the caller gave no time");
}

TEST(ChatTemplateLimits, TimeMemoryAndDepthAreBounded) {
  using testing::HasSubstr;
  EXPECT_THAT(ErrorOf("{{ 'x' * 10 ** 9 * 100 }}"), HasSubstr("line 1:"));
  EXPECT_THAT(ErrorOf("{{ [1] * 10 ** 10 }}"), HasSubstr("line 1:"));
  EXPECT_THAT(ErrorOf("{{ range(10 ** 12) }}"), HasSubstr("a range is limited to 100000 items"));
  EXPECT_THAT(
      ErrorOf("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"),
      HasSubstr("more than"));
  EXPECT_THAT(ErrorOf("{% set ns = namespace(s='x') %}{% for i in range(99) %}"
                      "{% set ns.s = ns.s ~ ns.s %}{% endfor %}"),
              HasSubstr("MiB of values"));
  EXPECT_THAT(ErrorOf("{% set ns = namespace(l=[1]) %}{% for i in range(999) %}"
                      "{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}"),
              HasSubstr("a list is too large or nested more than 100 levels deep"));
  EXPECT_THAT(ErrorOf("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"),
              HasSubstr("nested more than 100 deep"));
  EXPECT_THAT(ErrorOf("{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}"),
              HasSubstr("nested more than 100 deep"));
  EXPECT_THAT(ErrorOf("{{ " + std::string(5000, '(') + "1" + std::string(5000, ')') + " }}"),
              HasSubstr("nested more than 200 levels deep"));
  EXPECT_THAT(ErrorOf("{{ " + std::string(5000, '-') + "1 }}"),
              HasSubstr("nested more than 200 levels"));
  std::string sum = "{{ 1";
  for (int i = 0; i < 5000; ++i) sum += " + 1";
  EXPECT_THAT(ErrorOf(sum + " }}"), HasSubstr("nested more than 200 levels deep"));
  std::string blocks;
  for (int i = 0; i < 5000; ++i) blocks += "{% if true %}";
  EXPECT_THAT(ErrorOf(blocks), HasSubstr("blocks are nested more than 200 levels deep"));
  ChatInput input = EmptyInput();
  const auto parsed = ChatTemplate::Parse("{% for i in range(1000) %}0123456789{% endfor %}");
  ASSERT_TRUE(parsed.ok());
  ChatTemplateLimits limits;
  limits.output_bytes = 5000;
  EXPECT_EQ(parsed->Render(input, limits).status().code(), StatusCode::kResourceExhausted);
  limits.output_bytes = 10000;
  EXPECT_TRUE(parsed->Render(input, limits).ok());
  limits.steps = 1000;
  EXPECT_EQ(parsed->Render(input, limits).status().code(), StatusCode::kResourceExhausted);
}

// Values may hold each other in cycles; the address sanitizer's leak check judges this test.
TEST(ChatTemplateLimits, CyclesAndLongChainsAreFreed) {
  const char* source =
      "{% set ns = namespace() %}{% set ns.me = ns %}{% set ns.list = [ns] %}"
      "{% set c = cycler(1, 2) %}{% set ns.c = c %}"
      "{% macro m() %}{{ m is defined }}{% endmacro %}{% set ns.m = m %}"
      "{% for i in range(30000) %}{% set ns.next = namespace(prev=ns.next) %}{% endfor %}"
      "{% for i in range(30000) %}{% set prev = ns.f %}{% macro g() %}{{ prev() }}{% endmacro %}"
      "{% set ns.f = g %}{% endfor %}"
      "{% for i in range(30000) %}{% for x in [ns.loop] %}{% set ns.loop = loop %}"
      "{% set y = loop.changed(loop) %}{% endfor %}{% endfor %}{{ m() }}";
  EXPECT_EQ(Text(RenderSource(source, EmptyInput())), "True");
}

TEST(ChatTemplate, ManyMessagesRenderInLinearTime) {
  Json messages = Json::array();
  for (int i = 0; i < 2000; ++i) {
    messages.push_back({{"role", i % 2 == 0 ? "user" : "assistant"},
                        {"content", std::string(500, static_cast<char>('a' + i % 26))}});
  }
  ChatInput input = EmptyInput();
  input.messages_json = messages.dump();
  for (const char* name : {"qwen3_reasoning", "llama31_tools", "gemma", "mistral_v3"}) {
    const auto parsed =
        ChatTemplate::Parse(ReadFile(TestData("templates") / (std::string(name) + ".jinja")));
    ASSERT_TRUE(parsed.ok());
    const StatusOr<RenderedPrompt> prompt = parsed->Render(input);
    ASSERT_TRUE(prompt.ok()) << name << ": " << MessageOf(prompt.status());
    EXPECT_GT(prompt->text.size(), 1'000'000u);
  }
}

TEST(ChatTemplate, ReadsTimes) {
  const auto time = ParseIsoTime("2026-01-02T03:04:05");
  ASSERT_TRUE(time.ok());
  EXPECT_EQ(time->tm_year, 126);
  EXPECT_EQ(time->tm_hour, 3);
  EXPECT_EQ(time->tm_wday, 5);  // A Friday.
  EXPECT_TRUE(ParseIsoTime("2024-02-29").ok());
  for (const char* bad : {"", "2026", "2026-13-01", "2026-02-30", "2026-01-02T25:00:00", "x",
                          "2026-01-02T03:04", "2026-01-02T03:04:05Z"}) {
    EXPECT_FALSE(ParseIsoTime(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace kvasir
