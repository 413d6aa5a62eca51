#include "text/utf8.h"

#include "base/check.h"

namespace kvasir {
namespace {

// What a lead byte promises: how many bytes follow, and the range of the first of them (later ones
// are always 80..BF). Restricting the second byte is what rules out overlong forms and surrogates.
struct Lead {
  uint32_t trailing = 0;
  uint8_t low = 0x80;
  uint8_t high = 0xBF;
};

Lead LeadOf(uint8_t byte) {
  if (byte >= 0xC2 && byte <= 0xDF) return {1, 0x80, 0xBF};
  if (byte == 0xE0) return {2, 0xA0, 0xBF};
  if (byte == 0xED) return {2, 0x80, 0x9F};
  if (byte >= 0xE1 && byte <= 0xEF) return {2, 0x80, 0xBF};
  if (byte == 0xF0) return {3, 0x90, 0xBF};
  if (byte >= 0xF1 && byte <= 0xF3) return {3, 0x80, 0xBF};
  if (byte == 0xF4) return {3, 0x80, 0x8F};
  return {};
}

}  // namespace

Utf8Char DecodeUtf8(std::string_view text, size_t offset) {
  KV_DCHECK(offset < text.size());
  const uint8_t first = static_cast<uint8_t>(text[offset]);
  if (first < 0x80) return {first, 1, true, false};
  const Lead lead = LeadOf(first);
  const uint32_t broken = 0xD800u + first;
  if (lead.trailing == 0) return {broken, 1, false, false};
  uint32_t code_point = first & (0x3Fu >> lead.trailing);
  uint8_t low = lead.low;
  uint8_t high = lead.high;
  for (uint32_t i = 1; i <= lead.trailing; ++i) {
    if (offset + i >= text.size()) return {broken, i, false, true};
    const uint8_t byte = static_cast<uint8_t>(text[offset + i]);
    if (byte < low || byte > high) return {broken, i, false, false};
    code_point = code_point << 6 | (byte & 0x3Fu);
    low = 0x80;
    high = 0xBF;
  }
  return {code_point, lead.trailing + 1, true, false};
}

void AppendUtf8(uint32_t code_point, std::string* out) {
  KV_CHECK(code_point <= 0x10FFFF && (code_point < 0xD800 || code_point > 0xDFFF));
  const auto trailing = [code_point](uint32_t shift) {
    return static_cast<char>(0x80 | (code_point >> shift & 0x3F));
  };
  if (code_point < 0x80) {
    out->push_back(static_cast<char>(code_point));
  } else if (code_point < 0x800) {
    *out += {static_cast<char>(0xC0 | code_point >> 6), trailing(0)};
  } else if (code_point < 0x10000) {
    *out += {static_cast<char>(0xE0 | code_point >> 12), trailing(6), trailing(0)};
  } else {
    *out += {static_cast<char>(0xF0 | code_point >> 18), trailing(12), trailing(6), trailing(0)};
  }
}

std::optional<size_t> FindInvalidUtf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const Utf8Char character = DecodeUtf8(text, i);
    if (!character.valid) return i;
    i += character.length;
  }
  return std::nullopt;
}

Status ValidateUtf8(std::string_view text) {
  const std::optional<size_t> offset = FindInvalidUtf8(text);
  if (!offset) return OkStatus();
  return InvalidArgument("invalid UTF-8 at byte {} (0x{:02X})", *offset,
                         static_cast<uint8_t>(text[*offset]));
}

size_t AppendValidUtf8(std::string_view text, std::string* out) {
  size_t i = 0;
  size_t clean = 0;  // text[clean, i) is valid and not yet appended.
  while (i < text.size()) {
    const Utf8Char character = DecodeUtf8(text, i);
    if (!character.valid) {
      out->append(text.substr(clean, i - clean));
      if (character.incomplete) return i;
      out->append(kReplacementUtf8);
      clean = i + character.length;
    }
    i += character.length;
  }
  out->append(text.substr(clean));
  return text.size();
}

std::string RepairUtf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  if (AppendValidUtf8(text, &out) < text.size()) out.append(kReplacementUtf8);
  return out;
}

}  // namespace kvasir
