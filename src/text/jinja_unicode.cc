#include "text/jinja_unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>

#include "text/jinja_case_tables.h"

namespace kvasir::jinja {
namespace {

bool IsContinuation(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

const SpecialCase* FindSpecialCase(uint32_t code_point) {
  const std::vector<SpecialCase>& cases = SpecialCases();
  const auto found =
      std::lower_bound(cases.begin(), cases.end(), code_point,
                       [](const SpecialCase& entry, uint32_t c) { return entry.code_point < c; });
  return found != cases.end() && found->code_point == code_point ? &*found : nullptr;
}

bool IsIn(const std::vector<CodeRange>& ranges, uint32_t code_point) {
  const auto after =
      std::upper_bound(ranges.begin(), ranges.end(), code_point,
                       [](uint32_t c, const CodeRange& range) { return c < range.first; });
  return after != ranges.begin() && code_point <= std::prev(after)->last;
}

std::string Encode(uint32_t code_point) {
  std::string out;
  AppendUtf8(code_point, &out);
  return out;
}

utf8proc_category_t Category(uint32_t code_point) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code_point));
}

}  // namespace

size_t CharLength(std::string_view text, size_t offset) {
  const auto lead = static_cast<unsigned char>(text[offset]);
  size_t want = 1;
  if (lead >= 0xf0 && lead < 0xf8) {
    want = 4;
  } else if (lead >= 0xe0 && lead < 0xf0) {
    want = 3;
  } else if (lead >= 0xc0 && lead < 0xe0) {
    want = 2;
  }
  size_t length = 1;
  while (length < want && offset + length < text.size() && IsContinuation(text[offset + length])) {
    ++length;
  }
  return length == want ? want : 1;
}

uint32_t CodePointAt(std::string_view text, size_t offset) {
  const size_t length = CharLength(text, offset);
  const auto byte = [&](size_t i) {
    return static_cast<uint32_t>(static_cast<unsigned char>(text[offset + i]));
  };
  switch (length) {
    case 2:
      return (byte(0) & 0x1f) << 6 | (byte(1) & 0x3f);
    case 3:
      return (byte(0) & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f);
    case 4:
      return (byte(0) & 0x07) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 |
             (byte(3) & 0x3f);
    default:
      return byte(0);
  }
}

size_t CodePointCount(std::string_view text) {
  size_t count = 0;
  for (size_t i = 0; i < text.size(); i += CharLength(text, i)) ++count;
  return count;
}

std::vector<size_t> CharOffsets(std::string_view text) {
  std::vector<size_t> offsets;
  offsets.reserve(text.size() + 1);
  for (size_t i = 0; i < text.size(); i += CharLength(text, i)) offsets.push_back(i);
  offsets.push_back(text.size());
  return offsets;
}

std::string HexEscape(char kind, uint32_t code_point, int digits) {
  std::string out = {'\\', kind};
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) {
    out += "0123456789abcdef"[(code_point >> shift) & 15];
  }
  return out;
}

bool AppendUtf8(uint32_t code_point, std::string* out) {
  if (code_point > 0x10ffff || (code_point >= 0xd800 && code_point < 0xe000)) return false;
  utf8proc_uint8_t buffer[4];
  const auto length = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code_point), buffer);
  out->append(reinterpret_cast<const char*>(buffer), static_cast<size_t>(length));
  return true;
}

bool IsValidUtf8(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    if (static_cast<unsigned char>(text[i]) < 0x80) {
      ++i;
      continue;
    }
    utf8proc_int32_t code_point = 0;
    const auto length =
        utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + i,
                         static_cast<utf8proc_ssize_t>(text.size() - i), &code_point);
    if (length <= 0) return false;
    i += static_cast<size_t>(length);
  }
  return true;
}

bool IsSpace(uint32_t c) {
  if (c < 0x80) return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20);
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
         c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool IsLineEnd(uint32_t c) {
  return (c >= 10 && c <= 13) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

bool IsAlpha(uint32_t c) {
  const auto category = Category(c);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool IsDecimal(uint32_t c) { return Category(c) == UTF8PROC_CATEGORY_ND; }

int DecimalValue(uint32_t c) {
  if (!IsDecimal(c)) return -1;
  // Scripts have their ten digits in a row; MATHEMATICAL ones follow each other without a gap.
  if (c >= 0x1D7CE && c <= 0x1D7FF) return static_cast<int>((c - 0x1D7CE) % 10);
  int value = 0;
  while (value < 9 && IsDecimal(c - static_cast<uint32_t>(value) - 1)) ++value;
  return value;
}

bool IsNumeric(uint32_t c) {
  const auto category = Category(c);
  if (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO) return true;
  return category == UTF8PROC_CATEGORY_LO && IsIn(NumericLetters(), c);
}

bool IsDigit(uint32_t c) { return IsDecimal(c) || (c >= 0x80 && IsIn(OtherDigits(), c)); }

bool IsUpper(uint32_t c) {
  return Category(c) == UTF8PROC_CATEGORY_LU || (c >= 0x80 && IsIn(OtherUppercase(), c));
}

bool IsLower(uint32_t c) {
  return Category(c) == UTF8PROC_CATEGORY_LL || (c >= 0x80 && IsIn(OtherLowercase(), c));
}

bool IsTitlecase(uint32_t c) { return Category(c) == UTF8PROC_CATEGORY_LT; }

bool StartsIdentifier(uint32_t c) {
  return IsAlpha(c) || c == '_' || Category(c) == UTF8PROC_CATEGORY_NL || c == 0x2118 ||
         c == 0x212e;
}

bool ContinuesIdentifier(uint32_t c) {
  if (StartsIdentifier(c) || c == 0xb7 || c == 0x387) return true;
  const auto category = Category(c);
  return category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_MN ||
         category == UTF8PROC_CATEGORY_MC || category == UTF8PROC_CATEGORY_PC;
}

bool IsCaseIgnorable(uint32_t c) {
  switch (Category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      break;
  }
  // Punctuation inside words (Word_Break MidLetter, MidNumLet, Single_Quote).
  static constexpr uint32_t kInside[] = {0x27,   0x2e,   0x3a,   0xb7,   0x387,  0x55f,
                                         0x5f4,  0x2018, 0x2019, 0x2024, 0x2027, 0xfe13,
                                         0xfe52, 0xfe55, 0xff07, 0xff0e, 0xff1a};
  return std::binary_search(std::begin(kInside), std::end(kInside), c);
}

bool IsPrintable(uint32_t c) {
  if (c == ' ') return true;
  switch (Category(c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    default:
      return true;
  }
}

std::string ToUpper(uint32_t c) {
  if (c >= 0x80) {
    if (const SpecialCase* special = FindSpecialCase(c)) return std::string(special->upper);
  }
  return Encode(static_cast<uint32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
}

std::string ToLower(uint32_t c) {
  if (c == 0x130) return "i\xcc\x87";
  return Encode(static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
}

std::string ToTitle(uint32_t c) {
  if (c >= 0x80) {
    if (const SpecialCase* special = FindSpecialCase(c)) return std::string(special->title);
  }
  return Encode(static_cast<uint32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))));
}

std::string ToFolded(uint32_t c) {
  utf8proc_int32_t folded[8];
  int boundary = 0;
  const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), folded, 8,
                                             UTF8PROC_CASEFOLD, &boundary);
  if (count <= 0 || count > 8) return Encode(c);
  std::string out;
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    AppendUtf8(static_cast<uint32_t>(folded[i]), &out);
  }
  return out;
}

size_t SkipSpaces(std::string_view text, size_t begin) {
  while (begin < text.size() && IsSpace(CodePointAt(text, begin))) begin += CharLength(text, begin);
  return begin;
}

size_t DropTrailingSpaces(std::string_view text, size_t begin, size_t end) {
  while (end > begin) {
    size_t start = end - 1;
    while (start > begin && IsContinuation(text[start])) --start;
    if (!IsSpace(CodePointAt(text.substr(0, end), start))) break;
    end = start;
  }
  return end;
}

}  // namespace kvasir::jinja
