#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/bpe_pretokenizer.h"

#include <gtest/gtest.h>
#include <pcre2.h>

#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "text/utf8.h"

namespace kvasir {
namespace {

// The published expressions, run by PCRE2. \s is spelled out as White_Space: PCRE2's own \s also
// takes U+180E, which has not been white space since Unicode 6.3.
class Oracle {
 public:
  explicit Oracle(const char* pattern) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    code_ = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern), PCRE2_ZERO_TERMINATED,
                          PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr);
    KV_CHECK(code_ != nullptr);
    pcre2_jit_compile(code_, PCRE2_JIT_COMPLETE);
    match_ = pcre2_match_data_create(1, nullptr);
  }
  ~Oracle() {
    pcre2_match_data_free(match_);
    pcre2_code_free(code_);
  }
  Oracle(const Oracle&) = delete;
  Oracle& operator=(const Oracle&) = delete;

  // Cuts `text` into matches and what lies between them.
  std::vector<std::string> Split(const std::string& text) const {
    std::vector<std::string> out;
    size_t begin = 0;
    while (begin < text.size()) {
      const int count = pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                                    begin, 0, match_, nullptr);
      const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(match_);
      const size_t from = count > 0 ? bounds[0] : text.size();
      if (from > begin) out.push_back(text.substr(begin, from - begin));
      if (count <= 0) break;
      out.push_back(text.substr(from, bounds[1] - from));
      begin = bounds[1];
    }
    return out;
  }

 private:
  pcre2_code* code_ = nullptr;
  pcre2_match_data* match_ = nullptr;
};

#define WS                                                                           \
  "\\x{9}-\\x{D}\\x{20}\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}" \
  "\\x{202F}\\x{205F}\\x{3000}"
constexpr const char* kGpt2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" WS
                              "\\p{L}\\p{N}]+|[" WS "]+(?![^" WS "])|[" WS "]+";

std::vector<std::string> SplitByOracle(PretokenizerRule rule, const std::string& text) {
  static const Oracle gpt2(kGpt2);
  static const Oracle number("\\p{N}");
  if (rule == PretokenizerRule::kGpt2) return gpt2.Split(text);
  std::vector<std::string> out;
  for (const std::string& stretch : number.Split(text)) {
    // A stretch that is a number is one character, which gpt-2 leaves alone.
    for (std::string& word : gpt2.Split(stretch)) out.push_back(std::move(word));
  }
  return out;
}

std::vector<std::string> SplitByScanner(PretokenizerRule rule, const std::string& text) {
  std::vector<std::string> out;
  for (size_t offset = 0; offset < text.size();) {
    const size_t length = NextWordLength(rule, text, offset);
    KV_CHECK(length > 0 && offset + length <= text.size());
    out.push_back(text.substr(offset, length));
    offset += length;
  }
  return out;
}

using Words = std::vector<std::string>;

TEST(BpePretokenizer, SplitsAsPublished) {
  const auto gpt2 = [](const std::string& text) {
    return SplitByScanner(PretokenizerRule::kGpt2, text);
  };
  const auto smollm = [](const std::string& text) {
    return SplitByScanner(PretokenizerRule::kSmollm, text);
  };
  EXPECT_EQ(gpt2("Hello  world!!"), (Words{"Hello", " ", " world", "!!"}));
  EXPECT_EQ(gpt2("it's we'll 's"), (Words{"it", "'s", " we", "'ll", " '", "s"}));
  EXPECT_EQ(gpt2("a\n\n b "), (Words{"a", "\n\n", " b", " "}));
  EXPECT_EQ(gpt2("x 123 4"), (Words{"x", " 123", " 4"}));
  EXPECT_EQ(smollm("x  12 4"), (Words{"x", "  ", "1", "2", " ", "4"}));
  EXPECT_EQ(gpt2("x  12 4"), (Words{"x", " ", " 12", " 4"}));
  EXPECT_EQ(gpt2("\xC2\xA0x"), (Words{"\xC2\xA0", "x"}));
}

TEST(BpePretokenizer, InvalidBytesAreOtherCharacters) {
  EXPECT_EQ(SplitByScanner(PretokenizerRule::kGpt2, "a\xFF\xE2\x96z"),
            (Words{"a", "\xFF\xE2\x96", "z"}));
}

TEST(BpePretokenizer, KnowsItsNames) {
  EXPECT_EQ(FindPretokenizerRule("gpt-2"), PretokenizerRule::kGpt2);
  EXPECT_EQ(FindPretokenizerRule("smollm"), PretokenizerRule::kSmollm);
  EXPECT_FALSE(FindPretokenizerRule("gpt2"));
  EXPECT_EQ(KnownPretokenizerRules(), "gpt-2, smollm");
}

void ExpectAgreement(const std::string& text) {
  for (const PretokenizerRule rule : {PretokenizerRule::kGpt2, PretokenizerRule::kSmollm}) {
    ASSERT_EQ(SplitByScanner(rule, text), SplitByOracle(rule, text)) << text;
  }
}

// Every character, between neighbours that would join a word with it.
TEST(BpePretokenizer, AgreesWithPcre2OnEveryCharacter) {
  // utf8proc knows Unicode 15.0 and PCRE2 14.0: characters that one of them has never heard of are
  // left out, by asking PCRE2 for "unassigned".
  const Oracle unassigned("\\p{Cn}");
  for (uint32_t c = 1; c < 0x110000; ++c) {
    if (c == 0xD800) c = 0xF8F0;    // Over surrogates and private use, but for its end.
    if (c == 0x32400) c = 0xE0000;  // Planes 3 (its rest) to 13 are empty.
    if (c == 0xE0200) c = 0x10FF00;
    std::string character;
    AppendUtf8(c, &character);
    if (unassigned.Split(character + "a").size() == 2) continue;
    ExpectAgreement("a" + character + "1" + character + "! " + character + " " + character);
    if (HasFatalFailure()) return;
  }
}

TEST(BpePretokenizerProperty, AgreesWithPcre2OnRandomText) {
  for (const uint64_t seed : TestSeeds(2000)) {
    SCOPED_TRACE(fmt::format("KVASIR_TEST_SEED={}", seed));
    Rng rng(seed);
    std::string text;
    // Mostly a small alphabet, so that the alternatives meet each other.
    static const std::vector<std::string> kAlphabet = {" ",
                                                       " ",
                                                       "\n",
                                                       "\t",
                                                       "a",
                                                       "Z",
                                                       "s",
                                                       "t",
                                                       "r",
                                                       "e",
                                                       "v",
                                                       "l",
                                                       "d",
                                                       "m",
                                                       "'",
                                                       "1",
                                                       "9",
                                                       "!",
                                                       "_",
                                                       "\xC2\xA0",
                                                       "\xE3\x80\x80",
                                                       "\xC3\xA9",
                                                       "\xC2\xB2",
                                                       "\xE2\x85\xA3",
                                                       "\xCC\x81",
                                                       "\xF0\x9F\x8E\x89"};
    const size_t length = rng.Below(24);
    for (size_t i = 0; i < length; ++i) text += kAlphabet[rng.Below(kAlphabet.size())];
    ExpectAgreement(text);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace kvasir
