// What a hostile template or conversation can cost: searches that would be quadratic, work that is
// cheap in steps but heavy in bytes, and input too large to build.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <string>

#include "text/chat_template.h"

namespace kvasir {
namespace {

using testing::HasSubstr;

ChatInput InputOf(std::string messages) {
  ChatInput input;
  input.messages_json = std::move(messages);
  input.now = ParseIsoTime("2026-01-02T03:04:05").value();
  return input;
}

// The rendered text, or the message of the error.
std::string Rendered(const std::string& source, const ChatInput& input = InputOf("[]"),
                     const ChatTemplateLimits& limits = {}) {
  const auto parsed = ChatTemplate::Parse(source);
  if (!parsed.ok()) return std::string(MessageOf(parsed.status()));
  const std::clock_t begin = std::clock();
  const StatusOr<RenderedPrompt> prompt = parsed->Render(input, limits);
  std::printf("%6.2f s CPU: %s\n",
              static_cast<double>(std::clock() - begin) / static_cast<double>(CLOCKS_PER_SEC),
              source.substr(0, 150).c_str());
  return prompt.ok() ? prompt->text : std::string(MessageOf(prompt.status()));
}

// How rendering `expression` in an endless loop after `setup` fails. Fewer steps than by default,
// so that all cases together are quick; what is not paid for takes minutes all the same.
std::string LoopError(const std::string& setup, const std::string& expression) {
  ChatTemplateLimits limits;
  limits.steps = 2'000'000;
  return Rendered(setup + "{% for i in range(99999) %}{% for j in range(99999) %}{% set x = " +
                      expression + " %}{% endfor %}{% endfor %}",
                  InputOf("[]"), limits);
}

TEST(ChatTemplateLimits, OneSearchIsLinear) {
  const std::string big = "{% set h = 'a' * 1000000 %}{% set n = 'a' * 500000 ~ 'b' %}";
  const std::string left = "{% set h = 'a' * 1000000 %}{% set n = 'b' ~ 'a' * 500000 %}";
  const std::string few = "{% set h = 'a' * 1000000 %}{% set n = 'b' ~ 'a' * 200 %}";
  for (const std::string& setup : {big, left, few}) {
    EXPECT_EQ(Rendered(setup + "{{ h.find(n) }} {{ h.rfind(n) }} {{ h.count(n) }} {{ n in h }}"),
              "-1 -1 0 False");
    EXPECT_EQ(Rendered(setup + "{{ h.split(n) | length }} {{ h.rsplit(n) | length }} "
                               "{{ h.replace(n, 'x') | length }} {{ h.partition(n)[1] }}"
                               "{{ h.rpartition(n)[1] }}"),
              "1 1 1000000 ");
  }
  EXPECT_EQ(Rendered("{% set h = 'a' * 30000000 %}{% set n = 'a' * 15000000 + 'b' %}{{ n in h }}"),
            "False");
}

TEST(ChatTemplateLimits, SearchesFindWhatIsThere) {
  // Long enough for each of the ways a string is searched.
  for (const char* times : {"1", "5", "100", "300"}) {
    const std::string setup = "{% set n = 'aab' * " + std::string(times) +
                              " %}{% set k = n | length %}"
                              "{% set h = 'aa' ~ n ~ 'é-' ~ n ~ n ~ 'aab'[:2] %}";
    EXPECT_EQ(Rendered(setup + "{{ h.find(n) == 2 }} {{ h.rfind(n) == 4 + 2 * k }} "
                               "{{ h.find(n, 3) == k + 4 or k == 3 }} {{ n in h }} "
                               "{{ n ~ 'b' in h }} {{ h.split(n) }} {{ h.rsplit(n, 1)[1] }} "
                               "{{ h.rsplit(n) == h.split(n) }} {{ h.count(n) }} "
                               "{{ h.replace(n, '<>') }} {{ h.rpartition(n)[2] }}"),
              "True True True True False ['aa', 'é-', '', 'aa'] aa True 3 aa<>é-<><>aa aa")
        << times;
  }
}

TEST(ChatTemplateLimits, WorkOnLongStringsIsPaidFor) {
  const std::string setup =
      "{% set h = 'a' * 1000000 %}{% set g = 'a' * 999999 ~ 'b' %}{% set l = [h, g] %}"
      "{% set d = {h: 1} %}";
  for (const char* expression : {
           "('a' * 100000).find('a' * 50000 + 'b')",
           "h.startswith(g)",
           "h.endswith(g)",
           "h.startswith((g, g))",
           "h.startswith('a', 5)",
           "h.removeprefix(g)",
           "h.find(g)",
           "h.rfind(g)",
           "h.count('ab')",
           "h.count('b' ~ 'a' * 200)",
           "h.split('b')",
           "h.rsplit(g)",
           "h.partition('b')",
           "h.replace('b', '')",
           "h == g",
           "h < g",
           "h != g",
           "h is eq g",
           "h is sameas g",
           "g in h",
           "g in l",
           "g in d",
           "d[g]",
           "d.get(g)",
           "l.count(g)",
           "l.index(g)",
           "l == [h, h]",
           "l < [h, h]",
           "l | min",
           "l | sort",
           "l | unique | list",
           "h | length",
           "h[5]",
           "h[5:6]",
           "h.upper()",
           "h | upper",
           "h | title",
           "h.isupper()",
           "h is lower",
           "h.isalpha()",
           "h.strip('a')",
           "'a'.strip(h)",
           "h | trim",
           "h | int",
           "h | float",
           "h.ljust(1)",
           "h.zfill(1)",
           "h.splitlines()",
           "h.split()",
           "h | wordcount",
           "h | truncate(9999)",
           "h | striptags",
           "h | escape",
           "h | urlencode",
           "h | tojson",
           "l | string",
           "h | center(3)",
           "h | indent",
           "h ~ g",
           "h + g",
           "'%s' % h",
           "'{}'.format(h)",
           "h % ()",
           "h.format()",
           "'x' | attr(h)",
           "h | wordwrap(8)",
           "l | join(h)",
           "[1, 2] | tojson(separators=[h, h])",
           "h.expandtabs()",
       }) {
    EXPECT_THAT(LoopError(setup, expression),
                testing::AnyOf(HasSubstr("needs more than"), HasSubstr("MiB of values")))
        << expression;
  }
}

TEST(ChatTemplateLimits, WorkOnManyPiecesIsPaidFor) {
  const std::string setup =
      "{% set r = range(50000) %}{% set p = range(50000) | list %}"
      "{% set d = dict(r | batch(2)) %}{% set e = dict(r | batch(2)) %}"
      "{% set t = ((((((1, 2) * 5000,),),),),) %}"
      "{% set nested = [[[[[[[[p]]]]]]]] %}{% set other = [[[[[[[[p + [1]]]]]]]]] %}";
  for (const char* expression : {
           "[t] | unique | list",
           "t in {t: 1}",
           "1.1 | round(300)",
           "strftime_now('%c' * 500)",
           "p == p + []",
           "p < p + []",
           "nested < other",
           "p in [p + []]",
           "p.count(5)",
           "d == e",
           "d.keys() == e.keys()",
           "d.items() == e.items()",
           "p | tojson",
           "p | sort",
           "p | join",
           "'%%' * 100000 % ()",
           "('{{' * 100000).format()",
           "('<' * 100000) | striptags",
           "('<!--' * 100000) | striptags",
           "('a ' * 100000) | wordwrap(1000000)",
           "('a' * 100000) | wordwrap(8)",
       }) {
    EXPECT_THAT(LoopError(setup, expression),
                testing::AnyOf(HasSubstr("needs more than"), HasSubstr("MiB of values")))
        << expression;
  }
  std::string parameters = "a0=0";
  for (int i = 1; i < 3000; ++i) parameters += fmt::format(", a{}=0", i);
  EXPECT_THAT(LoopError("{% macro m(" + parameters + ") %}{% endmacro %}", "m()"),
              HasSubstr("needs more than"));
  EXPECT_THAT(LoopError("", "dict(" + parameters + ")"),
              testing::AnyOf(HasSubstr("needs more than"), HasSubstr("MiB of values")));
  EXPECT_THAT(LoopError("", std::string(1'000'000, 'a')), HasSubstr("needs more than"));
}

TEST(ChatTemplateLimits, JsonIsBoundedBeforeItIsBuilt) {
  const std::string long_text(kMaxChatJsonBytes - 2, ' ');
  EXPECT_EQ(Rendered("x", InputOf("[" + long_text + "]")), "x");
  EXPECT_EQ(Rendered("x", InputOf("[ " + long_text + "]")),
            "messages: 33554433 bytes of JSON; at most 32 MiB are supported");
  ChatInput input = InputOf("[]");
  input.tools_json = "[ " + long_text + "]";
  EXPECT_EQ(Rendered("x", input), "tools: 33554433 bytes of JSON; at most 32 MiB are supported");
  input.tools_json.clear();
  input.variables_json = "{ " + long_text + "}";
  EXPECT_EQ(Rendered("x", input),
            "template variables: 33554433 bytes of JSON; at most 32 MiB are supported");
  std::string many = "[";
  for (int i = 0; i < 1'500'000; ++i) many += R"({"role":"user"},)";
  EXPECT_EQ(Rendered("x", InputOf(many + "{}]")),
            "messages: JSON of more than 1000000 values is not supported");
}

}  // namespace
}  // namespace kvasir
