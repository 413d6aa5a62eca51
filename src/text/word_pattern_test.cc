#include "text/word_pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace kvasir {
namespace {

using testing::HasSubstr;

std::vector<std::string> Matches(std::string_view expression, std::string_view text) {
  const WordPattern pattern = WordPattern::Compile(expression).value();
  WordPattern::Hopeless hopeless;
  std::vector<std::string> out;
  for (size_t at = 0; at < text.size();) {
    const WordPattern::Match match = pattern.Find(text, at, &hopeless);
    if (match.begin < match.end)
      out.emplace_back(text.substr(match.begin, match.end - match.begin));
    at = match.end;
  }
  return out;
}

using Words = std::vector<std::string>;

TEST(WordPattern, RepetitionIsGreedyAndGivesBack) {
  EXPECT_EQ(Matches("[a-c]*[c-e]+", "abcd c"), (Words{"abcd", "c"}));
  EXPECT_EQ(Matches("[a-c]*[c-e]+", "abccc"), (Words{"abccc"}));
  EXPECT_EQ(Matches("é*é[x]", "ééx"), (Words{"ééx"}));
  EXPECT_EQ(Matches("a{2,3}", "aaaaaaa"), (Words{"aaa", "aaa"}));
  EXPECT_EQ(Matches("[0-9][0-9][0-9]", "1234567"), (Words{"123", "456"}));
}

TEST(WordPattern, TheFirstAlternativeThatMatchesWins) {
  EXPECT_EQ(Matches("a|ab", "ab"), (Words{"a"}));
  EXPECT_EQ(Matches("ab|a", "ab aa"), (Words{"ab", "a", "a"}));
  EXPECT_EQ(Matches("(?i:'s|'ll)|x", "'S 'Ll 'ſ x"), (Words{"'S", "'Ll", "'ſ", "x"}));
  EXPECT_EQ(Matches("[a-z]+(?:'s|'t)?", "it's a'x"), (Words{"it's", "a", "x"}));
}

TEST(WordPattern, EndsLookAhead) {
  EXPECT_EQ(Matches(R"(\s+(?!\S))", "a   b  "), (Words{"  ", "  "}));
  EXPECT_EQ(Matches(R"(\s+$)", "  a  "), (Words{"  "}));
  EXPECT_EQ(Matches(R"(\s+$)", "  a"), Words{});
}

TEST(WordPattern, BytesOutsideCharactersMatchNegatedClassesOnly) {
  EXPECT_EQ(Matches("[^a]+", "a\xFF\xE2\x96z"), (Words{"\xFF\xE2\x96z"}));
  EXPECT_EQ(Matches(R"(\p{L}+)", "\xFF\xC3\xA9\xC3"), (Words{"\xC3\xA9"}));
  EXPECT_EQ(Matches(R"([\p{So}\p{Cn}]+)", "\xFF"), Words{});
}

std::string Problem(std::string_view expression) {
  const StatusOr<WordPattern> pattern = WordPattern::Compile(expression);
  return pattern.ok() ? "" : std::string(MessageOf(pattern.status()));
}

TEST(WordPattern, RefusesWhatItDoesNotKnow) {
  EXPECT_THAT(Problem("a**"), HasSubstr("byte 2: lazy and possessive"));
  EXPECT_THAT(Problem("a+?"), HasSubstr("lazy"));
  EXPECT_THAT(Problem("*a"), HasSubstr("byte 0"));
  EXPECT_THAT(Problem("a*"), HasSubstr("may match nothing"));
  EXPECT_THAT(Problem("a|"), HasSubstr("may match nothing"));
  EXPECT_THAT(Problem("(a)"), HasSubstr("a group other than"));
  EXPECT_THAT(Problem("(?=a)b"), HasSubstr("a group other than"));
  EXPECT_THAT(Problem("(?!a)b"), HasSubstr("a look-ahead other than"));
  EXPECT_THAT(Problem("$a"), HasSubstr("behind $"));
  EXPECT_THAT(Problem("(?:a)?b"), HasSubstr("behind $, a look-ahead or (...)?"));
  EXPECT_THAT(Problem("(?:a"), HasSubstr("expected ')'"));
  EXPECT_THAT(Problem("a)"), HasSubstr("without '('"));
  EXPECT_THAT(Problem("[a"), HasSubstr("without ']'"));
  EXPECT_THAT(Problem("[z-a]"), HasSubstr("ends before it begins"));
  EXPECT_THAT(Problem(R"(\p{Greek})"), HasSubstr("unknown category"));
  EXPECT_THAT(Problem(R"(\d)"), HasSubstr("unsupported escape"));
  EXPECT_THAT(Problem("a{3,2}"), HasSubstr("cannot be"));
  EXPECT_THAT(Problem("\xFF"), HasSubstr("not UTF-8"));
}

}  // namespace
}  // namespace kvasir
