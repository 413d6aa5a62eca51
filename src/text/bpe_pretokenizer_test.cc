#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/bpe_pretokenizer.h"

#include <gtest/gtest.h>
#include <pcre2.h>

#include <map>
#include <memory>
#include <string>
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
                          PCRE2_UTF | PCRE2_UCP | PCRE2_DOLLAR_ENDONLY, &error, &offset, nullptr);
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

// White_Space, for inside a class.
constexpr std::string_view kWhiteSpace =
    R"(\x{9}-\x{D}\x{20}\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";

// The expression with \s and \S spelled out.
std::string SpellOut(std::string_view expression) {
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < expression.size(); ++i) {
    const char c = expression[i];
    if (c == '\\' && (expression[i + 1] == 's' || expression[i + 1] == 'S')) {
      const bool negated = expression[++i] == 'S';
      out += in_class ? "" : negated ? "[^" : "[";
      out += kWhiteSpace;
      out += in_class ? "" : "]";
    } else if (c == '\\') {
      out += expression.substr(i++, 2);
    } else {
      if (c == '[') in_class = true;
      if (c == ']') in_class = false;
      out += c;
    }
  }
  return out;
}

#define GPT2 R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"
#define HAN "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7a3\\x{D7A4}-\\x{D7FF}]+"

// Written apart from the product's table, as the models' files have them.
struct Published {
  const char* name;
  std::vector<std::string> expressions;
};
const std::vector<Published>& PublishedRules() {
  static const std::vector<Published> kRules = {
      {"default", {R"([\p{P}\$\+<=>\^~\|]+)", GPT2, R"(\p{N}+)", "[0-9][0-9][0-9]"}},
      {"gpt-2", {GPT2}},
      {"smollm", {R"(\p{N})", GPT2}},
      {"llama-bpe",
       {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}},
      {"qwen2",
       {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}},
      {"gpt-4o",
       {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}},
      {"tekken",
       {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}},
      {"deepseek-coder", {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", HAN, R"(\p{N})"}},
      {"deepseek-v3",
       {R"(\p{N}{1,3})", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
        R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}},
      {"bloom", {R"( ?[^(\s|.,!?…。，、।۔،)]+)"}},
      {"viking", {R"( ?[^(\s|.,!?…。，、।۔،)]+)", R"(\p{N})"}},
  };
  return kRules;
}

std::vector<std::string> SplitByOracle(const Published& rule, const std::string& text) {
  static std::map<std::string, std::unique_ptr<Oracle>> oracles;
  std::vector<std::string> pieces = {text};
  for (const std::string& expression : rule.expressions) {
    std::unique_ptr<Oracle>& oracle = oracles[expression];
    if (oracle == nullptr) oracle = std::make_unique<Oracle>(SpellOut(expression).c_str());
    std::vector<std::string> finer;
    for (const std::string& piece : pieces) {
      for (std::string& word : oracle->Split(piece)) finer.push_back(std::move(word));
    }
    pieces = std::move(finer);
  }
  return pieces;
}

std::vector<std::string> SplitByScanner(std::string_view name, std::string_view text) {
  std::vector<std::string> out;
  WordCutter cutter(FindPretokenizerRule(name), text);
  for (std::string_view word; cutter.Next(&word);) {
    KV_CHECK(!word.empty());
    out.emplace_back(word);
  }
  return out;
}

using Words = std::vector<std::string>;

TEST(BpePretokenizer, SplitsAsPublished) {
  const auto gpt2 = [](const std::string& text) { return SplitByScanner("gpt-2", text); };
  const auto smollm = [](const std::string& text) { return SplitByScanner("smollm", text); };
  EXPECT_EQ(gpt2("Hello  world!!"), (Words{"Hello", " ", " world", "!!"}));
  EXPECT_EQ(gpt2("it's we'll 's"), (Words{"it", "'s", " we", "'ll", " '", "s"}));
  EXPECT_EQ(gpt2("a\n\n b "), (Words{"a", "\n\n", " b", " "}));
  EXPECT_EQ(gpt2("x 123 4"), (Words{"x", " 123", " 4"}));
  EXPECT_EQ(smollm("x  12 4"), (Words{"x", "  ", "1", "2", " ", "4"}));
  EXPECT_EQ(gpt2("x  12 4"), (Words{"x", " ", " 12", " 4"}));
  EXPECT_EQ(gpt2("\xC2\xA0x"), (Words{"\xC2\xA0", "x"}));
}

TEST(BpePretokenizer, InvalidBytesAreOtherCharacters) {
  EXPECT_EQ(SplitByScanner("gpt-2", "a\xFF\xE2\x96z"), (Words{"a", "\xFF\xE2\x96", "z"}));
}

TEST(BpePretokenizer, LaterRulesSplitAsPublished) {
  const auto cut = [](std::string_view name, std::string_view text) {
    return SplitByScanner(name, text);
  };
  EXPECT_EQ(cut("llama-bpe", "It'S 1234\n\n  x\t!!\n"),
            (Words{"It", "'S", " ", "123", "4", "\n\n", " ", " x", "\t", "!!\n"}));
  EXPECT_EQ(cut("qwen2", "a12 (b)\r\n"), (Words{"a", "1", "2", " (", "b", ")\r\n"}));
  EXPECT_EQ(cut("gpt-4o", "fooBarHTTP's x/\n/"), (Words{"foo", "Bar", "HTTP's", " x", "/\n/"}));
  EXPECT_EQ(cut("tekken", "HTTPServer's"), (Words{"HTTPServer", "'s"}));
  EXPECT_EQ(cut("deepseek-coder", "a\n\n  b, c"), (Words{"a", "\n", "\n", " ", " b", ",", " c"}));
  EXPECT_EQ(cut("deepseek-llm", "a 日本  12  "), (Words{"a", " ", "日本", "  ", "1", "2", "  "}));
  EXPECT_EQ(cut("default", "x 12345=="), (Words{"x", " ", "123", "45", "=="}));
  // Byte BC of the Cyrillic letter is spelled as a fraction, a number.
  EXPECT_EQ(cut("falcon", "x 1234м"), (Words{"x", " ", "123", "4", "\xD0", "\xBC"}));
}

TEST(BpePretokenizer, KnowsItsNames) {
  for (const char* name :
       {"default", "gpt-2", "smollm", "llama-bpe", "qwen2", "deepseek-llm", "deepseek-coder",
        "falcon", "starcoder", "refact", "command-r", "mpt", "tekken", "gpt-4o", "deepseek-v3"}) {
    EXPECT_NE(FindPretokenizerRule(name), nullptr) << name;
    EXPECT_NE((", " + KnownPretokenizerRules() + ",").find(fmt::format(", {},", name)),
              std::string::npos)
        << name;
  }
  EXPECT_EQ(FindPretokenizerRule("gpt2"), nullptr);
  EXPECT_EQ(FindPretokenizerRule(""), nullptr);
  EXPECT_EQ(FindPretokenizerRule("mpt"), FindPretokenizerRule("gpt-2"));
}

// Runs that an alternative scans in vain must not be scanned again from each of their characters.
TEST(BpePretokenizer, LongRunsTakeLinearTime) {
  for (const Published& rule : PublishedRules()) {
    for (const std::string unit : {" ", "\n ", "a", "A", "1", "!", "日", "'", "\xFF"}) {
      std::string text;
      while (text.size() < (1u << 16)) text += unit;
      SplitByScanner(rule.name, text);
      SplitByScanner(rule.name, text + "x");
    }
  }
  const std::string spaces(1u << 20, ' ');
  EXPECT_EQ(SplitByScanner("deepseek-llm", spaces + "!").size(), 2u);
}

void ExpectAgreement(const std::string& text) {
  for (const Published& rule : PublishedRules()) {
    ASSERT_EQ(SplitByScanner(rule.name, text), SplitByOracle(rule, text)) << rule.name << text;
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
    // Of the many ideographs and syllables some must do.
    const bool is_uniform = (c > 0x3410 && c < 0x9FF0) || (c > 0xAC10 && c < 0xD790) || c > 0x20010;
    if (is_uniform && c < 0xE0000 && c % 17 != 0) continue;
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
