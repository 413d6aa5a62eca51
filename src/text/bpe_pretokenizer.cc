#include "text/bpe_pretokenizer.h"

#include <algorithm>
#include <map>

#include "base/check.h"

namespace kvasir {
namespace {

using Expressions = std::vector<std::string_view>;

// GPT-2's; written there with a last alternative \s+, which takes the one white-space character
// that would be left over as a piece of its own anyway.
constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// What GPT-4's (cl100k) and its descendants share.
#define KVASIR_CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define KVASIR_WORD R"([^\r\n\p{L}\p{N}]?\p{L}+)"
#define KVASIR_TAIL R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"
#define KVASIR_SLASH_TAIL R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"
// Words that begin with capitals, then words that are capitals only (o200k, Tekken).
#define KVASIR_HEAD R"([^\r\n\p{L}\p{N}]?)"
#define KVASIR_UPPER R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"
#define KVASIR_LOWER R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])"

constexpr std::string_view kLlama3 =
    KVASIR_CONTRACTIONS "|" KVASIR_WORD R"(|\p{N}{1,3})" KVASIR_TAIL;
constexpr std::string_view kQwen2 = KVASIR_CONTRACTIONS "|" KVASIR_WORD R"(|\p{N})" KVASIR_TAIL;
constexpr std::string_view kO200k = KVASIR_HEAD KVASIR_UPPER
    "*" KVASIR_LOWER "+" KVASIR_CONTRACTIONS "?|" KVASIR_HEAD KVASIR_UPPER "+" KVASIR_LOWER
    "*" KVASIR_CONTRACTIONS R"(?|\p{N}{1,3})" KVASIR_SLASH_TAIL;
constexpr std::string_view kTekken = KVASIR_HEAD KVASIR_UPPER
    "*" KVASIR_LOWER "+|" KVASIR_HEAD KVASIR_UPPER "+" KVASIR_LOWER R"(*|\p{N})" KVASIR_SLASH_TAIL;

// The cased letters of DeepSeek's first tokenizers. Characters that Unicode normalisation would
// replace, and with them the end of a range, are written as bytes.
constexpr std::string_view kDeepseekLetters =
    R"(\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚ)"
    R"(Ḁ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-)"
    "\xE1\xBD\xBD"
    R"(ᾀ-ᾴᾶ-ᾼ)"
    "\xE1\xBE\xBE"
    R"(ῂ-ῄῆ-ῌῐ-)"
    "\xE1\xBF\x93"
    R"(ῖ-)"
    "\xE1\xBF\x9B"
    R"(ῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ)"
    "\xE2\x84\xA6"
    R"(ℨ)"
    "\xE2\x84\xAA"
    R"(-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿ)"
    R"(ﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+)";
constexpr std::string_view kDeepseekHan = "[一-龥ࠀ-一가-\xED\x9F\xBF]+";
constexpr std::string_view kDeepseek3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
    R"(| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// Everything but white space and the punctuation of many scripts (Bloom).
constexpr std::string_view kBloom = R"( ?[^(\s|.,!?…。，、।۔،)]+)";

// Names with the same expressions.
struct Family {
  std::vector<std::string_view> names;
  Expressions expressions;
  // Digits as Falcon's tokenizer cuts them: it does so after it spelled bytes as characters, some
  // of which (¹²³¼½¾) are numbers, so that these bytes are cut off inside other characters.
  bool byte_digits = false;
  bool whole_words_first = false;
  bool adds_bos = false;
};

const std::vector<Family>& Families() {
  static const std::vector<Family> kFamilies = {
      {{"default"}, {R"([\p{P}$+<=>\^~|]+)", kGpt2, R"(\p{N}+)", "[0-9][0-9][0-9]"}},
      {{"gpt-2", "phi-2", "mpt", "olmo", "jais", "roberta-bpe", "jina-es", "jina-de", "jina-v1-en",
        "jina-v2-es", "jina-v2-de", "jina-v2-code", "gigachat", "a.x-4.0", "mellum", "trillion",
        "granite-docling", "exaone4"},
       {kGpt2}},
      {{"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"},
       {R"(\p{N})", kGpt2}},
      {{"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"},
       {kLlama3},
       false,
       true,
       true},
      {{"dbrx", "smaug-bpe", "chatglm-bpe", "glm4"}, {kLlama3}},
      {{"qwen2", "deepseek-r1-qwen", "stablelm2", "hunyuan", "megrez", "kormo"}, {kQwen2}},
      {{"gpt-4o", "llama4", "kanana2"}, {kO200k}},
      {{"tekken"}, {kTekken}, false, true, true},
      {{"deepseek-llm"},
       {R"([\r\n])", kDeepseekLetters, R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)", R"(\s+$)", kDeepseekHan,
        R"(\p{N})"}},
      {{"deepseek-coder"}, {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", kDeepseekHan, R"(\p{N})"}},
      {{"deepseek-v3", "hunyuan-dense"}, {R"(\p{N}{1,3})", "[一-龥぀-ゟ゠-ヿ]+", kDeepseek3}},
      {{"falcon"}, {R"([\p{P}$+<=>\^~|`]+)", kGpt2}, true},
      {{"bloom", "poro-chat", "gpt3-finnish"}, {kBloom}},
      {{"viking"}, {kBloom, R"(\p{N})"}},
  };
  return kFamilies;
}

WordPattern CompileOrDie(std::string_view expression, WordPattern::Alphabet alphabet) {
  StatusOr<WordPattern> pattern = WordPattern::Compile(expression, alphabet);
  KV_CHECK(pattern.ok());
  return std::move(pattern).value();
}

PretokenizerRule RuleOf(const Family& family) {
  using Alphabet = WordPattern::Alphabet;
  PretokenizerRule rule;
  for (const std::string_view expression : family.expressions) {
    rule.passes.push_back(CompileOrDie(expression, Alphabet::kCharacters));
  }
  if (family.byte_digits) {
    rule.passes.push_back(CompileOrDie("[0-9²³¹¼½¾]+", Alphabet::kBytes));
    rule.passes.push_back(CompileOrDie("[0-9][0-9][0-9]", Alphabet::kBytes));
  }
  rule.whole_words_first = family.whole_words_first;
  rule.adds_bos = family.adds_bos;
  return rule;
}

// Compiled when first asked for: a process serves one model.
const std::map<std::string_view, const PretokenizerRule*>& RulesByName() {
  static const std::map<std::string_view, const PretokenizerRule*>* const kRules = [] {
    auto* rules = new std::map<std::string_view, const PretokenizerRule*>;
    for (const Family& family : Families()) {
      const auto* rule = new PretokenizerRule(RuleOf(family));
      for (const std::string_view name : family.names) (*rules)[name] = rule;
    }
    return rules;
  }();
  return *kRules;
}

}  // namespace

const PretokenizerRule* FindPretokenizerRule(std::string_view name) {
  const auto found = RulesByName().find(name);
  return found == RulesByName().end() ? nullptr : found->second;
}

std::string KnownPretokenizerRules() {
  std::string out;
  for (const Family& family : Families()) {
    for (const std::string_view name : family.names) {
      if (!out.empty()) out += ", ";
      out += name;
    }
  }
  return out;
}

WordCutter::WordCutter(const PretokenizerRule* rule, std::string_view text)
    : rule_(rule), text_(text), levels_(rule->passes.size()) {}

bool WordCutter::Next(std::string_view* word) { return NextPiece(levels_.size() - 1, word); }

bool WordCutter::NextPiece(size_t index, std::string_view* piece) {
  Level& level = levels_[index];
  if (level.offset == level.end) {
    std::string_view whole;
    if (index > 0) {
      if (!NextPiece(index - 1, &whole)) return false;
    } else {
      if (begun_ || text_.empty()) return false;
      begun_ = true;
      whole = text_;
    }
    level.offset = static_cast<size_t>(whole.data() - text_.data());
    level.end = level.offset + whole.size();
    level.match_end = level.offset;
    level.hopeless.clear();
  }
  if (level.match_end <= level.offset) {
    const WordPattern::Match match =
        rule_->passes[index].Find(text_.substr(0, level.end), level.offset, &level.hopeless);
    level.match_end = match.end;
    if (match.begin > level.offset) {  // What lies before the match, or the rest.
      *piece = text_.substr(level.offset, match.begin - level.offset);
      level.offset = match.begin;
      return true;
    }
  }
  *piece = text_.substr(level.offset, level.match_end - level.offset);
  level.offset = level.match_end;
  return true;
}

}  // namespace kvasir
