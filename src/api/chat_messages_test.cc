#include "api/chat_messages.h"

#include <gtest/gtest.h>

#include <string>

namespace kvasir {
namespace {

std::string Normalized(const std::string& messages, bool developer_is_system = true) {
  NormalizedMessages out;
  const auto error = NormalizeMessages(messages, developer_is_system, &out);
  EXPECT_FALSE(error.has_value()) << (error ? error->message : "");
  return out.json;
}

std::string ParamOf(const std::string& messages) {
  NormalizedMessages out;
  const auto error = NormalizeMessages(messages, true, &out);
  return error.has_value() ? error->param.value_or("(none)") : "(ok)";
}

TEST(ChatMessages, TextPartsAreJoinedByNewlines) {
  EXPECT_EQ(Normalized(R"([{"role":"user","content":[{"type":"text","text":"a"},
                                                     {"type":"text","text":"b"}]}])"),
            R"([{"role":"user","content":"a\nb"}])");
  EXPECT_EQ(Normalized(R"([{"role":"user","content":[]}])"), R"([{"role":"user","content":""}])");
  EXPECT_EQ(Normalized(R"([{"role":"assistant","content":[{"type":"refusal","refusal":"no"}]}])"),
            R"([{"role":"assistant","content":"no"}])");
}

TEST(ChatMessages, OnlyAnAssistantMaySayNothing) {
  EXPECT_EQ(Normalized(R"([{"role":"assistant","content":null}])"),
            R"([{"role":"assistant","content":""}])");
  EXPECT_EQ(ParamOf(R"([{"role":"user","content":null}])"), "messages[0].content");
  EXPECT_EQ(ParamOf(R"([{"role":"tool"}])"), "messages[0].content");
}

TEST(ChatMessages, DeveloperIsSystemWhereTheTemplateDoesNotKnowIt) {
  const char* messages = R"([{"role":"developer","content":"x"}])";
  EXPECT_EQ(Normalized(messages), R"([{"role":"system","content":"x"}])");
  EXPECT_EQ(Normalized(messages, false), R"([{"role":"developer","content":"x"}])");
}

TEST(ChatMessages, ArgumentsOfToolCallsStayAsTheyWere) {
  EXPECT_EQ(Normalized(R"([{"role":"assistant","tool_calls":[
      {"id":"1","function":{"name":"f","arguments":"{\"x\": [1]}"}}]}])"),
            R"([{"role":"assistant","tool_calls":[{"id":"1","function":{"name":"f",)"
            R"("arguments":"{\"x\": [1]}"}}],"content":""}])");
  EXPECT_EQ(Normalized(R"([{"role":"assistant","content":"","tool_calls":[
      {"function":{"name":"f","arguments":"{x"}}]}])"),
            R"([{"role":"assistant","content":"","tool_calls":[{"function":{"name":"f",)"
            R"("arguments":"{x"}}]}])");
}

TEST(ChatMessages, ErrorsNameThePath) {
  EXPECT_EQ(ParamOf("[]"), "messages");
  EXPECT_EQ(ParamOf("[1]"), "messages[0]");
  EXPECT_EQ(ParamOf(R"([{"content":"x"}])"), "messages[0].role");
  EXPECT_EQ(ParamOf(R"([{"role":"user","content":"x"},{"role":"robot","content":"x"}])"),
            "messages[1].role");
  EXPECT_EQ(ParamOf(R"([{"role":"user","content":5}])"), "messages[0].content");
  EXPECT_EQ(ParamOf(R"([{"role":"user","content":["x"]}])"), "messages[0].content[0]");
  EXPECT_EQ(ParamOf(R"([{"role":"user","content":[{"type":"text","text":"a"},
                                                  {"type":"image_url"}]}])"),
            "messages[0].content[1].type");
  EXPECT_EQ(ParamOf(R"([{"role":"user","content":[{"type":"text"}]}])"),
            "messages[0].content[0].text");
  EXPECT_EQ(ParamOf(R"([{"role":"user","content":"x","name":1}])"), "messages[0].name");
  EXPECT_EQ(ParamOf(R"([{"role":"tool","content":"x","tool_call_id":1}])"),
            "messages[0].tool_call_id");
  EXPECT_EQ(ParamOf(R"([{"role":"assistant","tool_calls":{}}])"), "messages[0].tool_calls");
  EXPECT_EQ(ParamOf(R"([{"role":"assistant","tool_calls":[{}]}])"),
            "messages[0].tool_calls[0].function");
  EXPECT_EQ(ParamOf(R"([{"role":"assistant","tool_calls":[{"function":{}}]}])"),
            "messages[0].tool_calls[0].function.name");
  const auto call = [](const std::string& fields) {
    return ParamOf(R"([{"role":"assistant","tool_calls":[{"function":{"name":"f"}},{)" + fields +
                   "}]}]");
  };
  const std::string at = "messages[0].tool_calls[1]";
  EXPECT_EQ(call(R"("id":"1","type":"function","function":{"name":"f","arguments":{}})"), "(ok)");
  EXPECT_EQ(call(R"("id":null,"type":null,"function":{"name":"f","arguments":null})"), "(ok)");
  EXPECT_EQ(call(R"("id":1,"function":{"name":"f"})"), at + ".id");
  EXPECT_EQ(call(R"("type":"custom","function":{"name":"f"})"), at + ".type");
  EXPECT_EQ(call(R"("type":1,"function":{"name":"f"})"), at + ".type");
  EXPECT_EQ(call(R"("function":{"name":"f","arguments":5})"), at + ".function.arguments");
  EXPECT_EQ(call(R"("function":{"name":"f","arguments":[]})"), at + ".function.arguments");
  EXPECT_EQ(ParamOf(R"([{"role":"user","content":"x","tool_calls":[]}])"), "(ok)");
  EXPECT_EQ(ParamOf(R"([{"role":"user","content":"x","tool_calls":[{"function":{"name":"f"}}]}])"),
            "messages[0].tool_calls");
  EXPECT_EQ(ParamOf(R"([{"role":"assistant","content":"","function_call":{"name":"f"}}])"),
            "messages[0].function_call");
  const std::string deep = std::string(100, '[') + std::string(100, ']');
  EXPECT_EQ(ParamOf(R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":")" +
                    deep + R"("}}]}])"),
            "messages[0].tool_calls[0].function.arguments");
}

TEST(ChatMessages, MissingIsNotOfTheWrongType) {
  const auto message_of = [](const std::string& messages) {
    NormalizedMessages out;
    const auto error = NormalizeMessages(messages, true, &out);
    return error.has_value() ? error->message : "(ok)";
  };
  for (const char* absent : {R"([{"content":"x"}])", R"([{"role":null,"content":"x"}])"}) {
    EXPECT_EQ(message_of(absent), "messages[0].role is missing; a string is expected");
  }
  for (const char* wrong : {"1", "true", "[]", "{}", "[\"user\"]"}) {
    EXPECT_EQ(message_of(R"([{"role":)" + std::string(wrong) + R"(,"content":"x"}])"),
              "messages[0].role has the wrong type; a string is expected");
    EXPECT_EQ(message_of(R"([{"role":"user","content":[{"type":"text","text":)" +
                         std::string(wrong) + "}]}]"),
              "messages[0].content[0].text has the wrong type; a string is expected");
  }
  EXPECT_EQ(message_of(R"([{"role":"user","content":[{"type":"text"}]}])"),
            "messages[0].content[0].text is missing; a string is expected");
}

TEST(ChatMessages, TellsWhatComesLast) {
  NormalizedMessages out;
  ASSERT_FALSE(NormalizeMessages(R"([{"role":"user","content":"a"},
                                     {"role":"assistant","content":[{"type":"text","text":"b"}]}])",
                                 true, &out)
                   .has_value());
  EXPECT_EQ(out.last_role, "assistant");
  EXPECT_EQ(out.last_content, "b");
}

}  // namespace
}  // namespace kvasir
