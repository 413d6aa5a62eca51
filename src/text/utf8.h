// UTF-8: decoding one character, finding the first invalid byte, repairing a byte string.
//
// Valid means well-formed as in table 3-7 of the Unicode Standard: no surrogates, no overlong
// forms, nothing above U+10FFFF. An ill-formed stretch is measured in maximal subparts
// (section 3.9, the practice of the WHATWG decoder): the longest prefix of a well-formed sequence,
// or one byte; each becomes one U+FFFD, however the bytes arrive.
//
// Thread: pure functions.
#ifndef KVASIR_TEXT_UTF8_H_
#define KVASIR_TEXT_UTF8_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace kvasir {

inline constexpr uint32_t kReplacementCharacter = 0xFFFD;
inline constexpr std::string_view kReplacementUtf8 = "\xEF\xBF\xBD";

struct Utf8Char {
  // The character, or 0xD800 + the first byte when !valid. Surrogates never occur in valid text, so
  // an invalid byte can neither equal a character nor another invalid byte.
  uint32_t code_point = 0;
  uint32_t length = 0;  // Bytes: 1..4, or the maximal subpart (1..3) when !valid.
  bool valid = false;
  // !valid only because the text ends: more bytes could still make it a character.
  bool incomplete = false;
};

// The character that starts at `offset`. REQUIRES: offset < text.size().
Utf8Char DecodeUtf8(std::string_view text, size_t offset);

// Appends a character. REQUIRES: it is at most U+10FFFF and no surrogate.
void AppendUtf8(uint32_t code_point, std::string* out);

// Byte offset of the first ill-formed sequence, or nullopt when the whole text is valid.
std::optional<size_t> FindInvalidUtf8(std::string_view text);

// OK, or InvalidArgument that names the offset and the byte.
Status ValidateUtf8(std::string_view text);

// Appends `text` to `*out` with each ill-formed maximal subpart replaced by U+FFFD. A sequence that
// is merely cut off at the end is not appended; the return value is how many bytes were consumed,
// so text.substr(result) is that rest (at most 3 bytes).
size_t AppendValidUtf8(std::string_view text, std::string* out);

// The whole text as valid UTF-8, the cut-off end included (as one U+FFFD).
std::string RepairUtf8(std::string_view text);

}  // namespace kvasir

#endif  // KVASIR_TEXT_UTF8_H_
