// The parts of Python's str that depend on Unicode: code points in UTF-8, white space, case.
//
// Works on valid UTF-8 (templates and messages are validated where they enter); an invalid byte is
// treated as one character and never read past. utf8proc's mappings and categories, completed by
// the tables of jinja_case_tables.h: equal to Python's for every character of Unicode 14.
#ifndef KVASIR_TEXT_JINJA_UNICODE_H_
#define KVASIR_TEXT_JINJA_UNICODE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kvasir::jinja {

// Bytes of the character that starts at `offset`. REQUIRES: offset < text.size().
size_t CharLength(std::string_view text, size_t offset);
// The code point at `offset`; an invalid sequence yields its first byte.
uint32_t CodePointAt(std::string_view text, size_t offset);
size_t CodePointCount(std::string_view text);
// Byte offset of each character, and text.size() at the end: [CodePointCount + 1].
std::vector<size_t> CharOffsets(std::string_view text);
// Appends `code_point` as UTF-8; false for surrogates and values above 0x10ffff.
bool AppendUtf8(uint32_t code_point, std::string* out);
// "\\u00e9": a backslash, `kind` and `digits` hexadecimal digits.
std::string HexEscape(char kind, uint32_t code_point, int digits);
bool IsValidUtf8(std::string_view text);

// Python's str.isspace() and the line ends of str.splitlines().
bool IsSpace(uint32_t code_point);
bool IsLineEnd(uint32_t code_point);
bool IsAlpha(uint32_t code_point);
bool IsDecimal(uint32_t code_point);
// The value of a decimal digit of any script, or -1.
int DecimalValue(uint32_t code_point);
bool IsDigit(uint32_t code_point);
bool IsNumeric(uint32_t code_point);
bool IsUpper(uint32_t code_point);
bool IsLower(uint32_t code_point);
bool IsTitlecase(uint32_t code_point);  // A digraph such as U+01C5.
// Characters of Python's names (XID_Start and XID_Continue).
bool StartsIdentifier(uint32_t code_point);
bool ContinuesIdentifier(uint32_t code_point);
// What casing looks through: accents, apostrophes, full stops ...
bool IsCaseIgnorable(uint32_t code_point);
// Whether Python's repr() prints the character as it is.
bool IsPrintable(uint32_t code_point);

std::string ToUpper(uint32_t code_point);
std::string ToLower(uint32_t code_point);
std::string ToTitle(uint32_t code_point);
// Full case folding, as str.casefold().
std::string ToFolded(uint32_t code_point);

// Byte offsets of `text` without leading and trailing white space.
size_t SkipSpaces(std::string_view text, size_t begin);
size_t DropTrailingSpaces(std::string_view text, size_t begin, size_t end);

}  // namespace kvasir::jinja

#endif  // KVASIR_TEXT_JINJA_UNICODE_H_
