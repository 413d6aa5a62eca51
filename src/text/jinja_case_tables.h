// Tables behind jinja_unicode.h: what Python's str knows of Unicode and utf8proc does not.
#ifndef KVASIR_TEXT_JINJA_CASE_TABLES_H_
#define KVASIR_TEXT_JINJA_CASE_TABLES_H_

#include <cstdint>
#include <string_view>
#include <vector>

namespace kvasir::jinja {

// A character whose upper or title case is more than one character.
struct SpecialCase {
  uint32_t code_point;
  std::string_view upper;
  std::string_view title;
};
// Sorted by code point.
const std::vector<SpecialCase>& SpecialCases();

struct CodeRange {
  uint32_t first;
  uint32_t last;
};
// Each sorted. Lower-case characters that are not Ll, upper-case ones that are not Lu.
const std::vector<CodeRange>& OtherLowercase();
const std::vector<CodeRange>& OtherUppercase();
// Ideographs that are numbers.
const std::vector<CodeRange>& NumericLetters();
// Digits, as str.isdigit() sees them, that are no decimal digits: superscripts, circled ...
const std::vector<CodeRange>& OtherDigits();

}  // namespace kvasir::jinja

#endif  // KVASIR_TEXT_JINJA_CASE_TABLES_H_
