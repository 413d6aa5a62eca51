#include "text/bpe_pretokenizer.h"

#include <utf8proc.h>

#include <array>
#include <utility>

#include "text/utf8.h"

namespace kvasir {
namespace {

enum class CharClass : uint8_t { kLetter, kNumber, kSpace, kOther };

CharClass ClassifySlow(uint32_t code_point) {
  switch (code_point) {
    case 0x85:
    case 0xA0:
    case 0x1680:
    case 0x2028:
    case 0x2029:
    case 0x202F:
    case 0x205F:
    case 0x3000:
      return CharClass::kSpace;
    default:
      break;
  }
  if (code_point >= 0x2000 && code_point <= 0x200A) return CharClass::kSpace;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code_point))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return CharClass::kLetter;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return CharClass::kNumber;
    default:
      return CharClass::kOther;
  }
}

constexpr CharClass ClassifyAscii(uint32_t c) {
  if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return CharClass::kLetter;
  if (c >= '0' && c <= '9') return CharClass::kNumber;
  if (c == ' ' || (c >= '\t' && c <= '\r')) return CharClass::kSpace;
  return CharClass::kOther;
}

struct ClassifiedChar {
  CharClass char_class;
  uint32_t length;
};

// REQUIRES: offset < text.size().
ClassifiedChar CharAt(std::string_view text, size_t offset) {
  const uint8_t first = static_cast<uint8_t>(text[offset]);
  if (first < 0x80) return {ClassifyAscii(first), 1};
  const Utf8Char character = DecodeUtf8(text, offset);
  if (!character.valid) return {CharClass::kOther, 1};
  return {ClassifySlow(character.code_point), character.length};
}

// One past the run of characters of `wanted` that starts at `offset`.
size_t EndOfRun(std::string_view text, size_t offset, CharClass wanted) {
  while (offset < text.size()) {
    const ClassifiedChar next = CharAt(text, offset);
    if (next.char_class != wanted) break;
    offset += next.length;
  }
  return offset;
}

// Length of 's, 't, 're, 've, 'm, 'll or 'd at `offset`, or 0.
size_t ContractionLength(std::string_view text, size_t offset) {
  if (text[offset] != '\'' || offset + 1 >= text.size()) return 0;
  const char first = text[offset + 1];
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  const std::string_view two = text.substr(offset + 1, 2);
  return two == "re" || two == "ve" || two == "ll" ? 3 : 0;
}

// White space that no word claims: all of it at the end of the text, else all but its last
// character, which the next word may want (and which stands alone if it does not).
size_t SpaceLength(PretokenizerRule rule, std::string_view text, size_t offset) {
  size_t end = offset;
  size_t last_length = 0;
  while (end < text.size()) {
    const ClassifiedChar next = CharAt(text, end);
    if (next.char_class != CharClass::kSpace) {
      const bool stretch_ends =
          rule == PretokenizerRule::kSmollm && next.char_class == CharClass::kNumber;
      if (!stretch_ends && end - offset > last_length) end -= last_length;
      break;
    }
    last_length = next.length;
    end += next.length;
  }
  return end - offset;
}

constexpr std::array<std::pair<std::string_view, PretokenizerRule>, 2> kRules = {{
    {"gpt-2", PretokenizerRule::kGpt2},
    {"smollm", PretokenizerRule::kSmollm},
}};

}  // namespace

std::optional<PretokenizerRule> FindPretokenizerRule(std::string_view name) {
  for (const auto& [known, rule] : kRules) {
    if (name == known) return rule;
  }
  return std::nullopt;
}

std::string KnownPretokenizerRules() {
  std::string out;
  for (const auto& [known, rule] : kRules) {
    if (!out.empty()) out += ", ";
    out += known;
  }
  return out;
}

size_t NextWordLength(PretokenizerRule rule, std::string_view text, size_t offset) {
  const ClassifiedChar first = CharAt(text, offset);
  const bool digits_alone = rule == PretokenizerRule::kSmollm;
  if (first.char_class == CharClass::kNumber && digits_alone) return first.length;
  if (const size_t length = ContractionLength(text, offset); length > 0) return length;
  if (first.char_class != CharClass::kSpace) {
    return EndOfRun(text, offset + first.length, first.char_class) - offset;
  }
  // Only U+0020 may lead a word.
  if (text[offset] == ' ' && offset + 1 < text.size()) {
    const ClassifiedChar next = CharAt(text, offset + 1);
    const bool leads = next.char_class != CharClass::kSpace &&
                       !(digits_alone && next.char_class == CharClass::kNumber);
    if (leads) return EndOfRun(text, offset + 1 + next.length, next.char_class) - offset;
  }
  return SpaceLength(rule, text, offset);
}

}  // namespace kvasir
