#include "text/utf8.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/rng.h"
#include "text/random_text.h"

namespace kvasir {
namespace {

TEST(Utf8, DecodesTheEdgesOfEachLength) {
  const std::vector<std::pair<std::string, uint32_t>> cases = {
      {std::string(1, '\0'), 0},     {"\x7F", 0x7F},           {"\xC2\x80", 0x80},
      {"\xDF\xBF", 0x7FF},           {"\xE0\xA0\x80", 0x800},  {"\xED\x9F\xBF", 0xD7FF},
      {"\xEE\x80\x80", 0xE000},      {"\xEF\xBF\xBF", 0xFFFF}, {"\xF0\x90\x80\x80", 0x10000},
      {"\xF4\x8F\xBF\xBF", 0x10FFFF}};
  for (const auto& [text, code_point] : cases) {
    const Utf8Char c = DecodeUtf8(text, 0);
    EXPECT_TRUE(c.valid);
    EXPECT_EQ(c.code_point, code_point);
    EXPECT_EQ(c.length, text.size());
    EXPECT_FALSE(FindInvalidUtf8(text));
    std::string again;
    AppendUtf8(code_point, &again);
    EXPECT_EQ(again, text);
  }
}

TEST(Utf8, RefusesWhatTheStandardRefuses) {
  for (const std::string_view text :
       {"\x80", "\xBF", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xED\xBF\xBF",
        "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "\xC2", "\xE2\x96",
        "\xF0\x9F\x8E"}) {
    EXPECT_FALSE(DecodeUtf8(text, 0).valid);
    EXPECT_EQ(FindInvalidUtf8("ok" + std::string(text)), 2u);
  }
}

TEST(Utf8, NamesOffsetAndByte) {
  EXPECT_TRUE(ValidateUtf8("na\xC3\xAFve").ok());
  const Status status = ValidateUtf8("abc\xFFz");
  EXPECT_EQ(MessageOf(status), "invalid UTF-8 at byte 3 (0xFF)");
}

// The example of the Unicode Standard, section 3.9, table 3-8 and its neighbours.
TEST(Utf8, RepairsByMaximalSubparts) {
  const std::string r(kReplacementUtf8);
  EXPECT_EQ(RepairUtf8("\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64"),
            "a" + r + r + r + "b" + r + "c" + r + r + "d");
  EXPECT_EQ(RepairUtf8("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"),
            r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(RepairUtf8("\xED\xA0\x80\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"),
            r + r + r + r + r + r + r + r + "A" + r + r + "B");
  EXPECT_EQ(RepairUtf8("\xF0\x9F\x8E"), r);
  EXPECT_EQ(RepairUtf8(""), "");
}

TEST(Utf8, ACutOffEndIsLeftToTheCaller) {
  std::string out;
  EXPECT_EQ(AppendValidUtf8("ab\xE2\x96", &out), 2u);
  EXPECT_EQ(out, "ab");
  EXPECT_EQ(AppendValidUtf8("\xE2\x96\x81\xE2\x28", &out), 5u);
  EXPECT_EQ(out, "ab\xE2\x96\x81" + std::string(kReplacementUtf8) + "(");
}

TEST(Utf8Property, RepairedTextIsValidAndValidTextIsKept) {
  for (const uint64_t seed : TestSeeds(200)) {
    SCOPED_TRACE(fmt::format("KVASIR_TEST_SEED={}", seed));
    Rng rng(seed);
    std::string text = RandomText(&rng, 20);
    ASSERT_EQ(RepairUtf8(text), text);
    ASSERT_FALSE(FindInvalidUtf8(text));
    for (int i = 0; i < 5; ++i) {
      text[rng.Below(text.size())] = static_cast<char>(rng.Below(256));
      ASSERT_FALSE(FindInvalidUtf8(RepairUtf8(text)));
    }
  }
}

}  // namespace
}  // namespace kvasir
