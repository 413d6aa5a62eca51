// The byte alphabet of byte-level BPE: each byte is spelled as one printable character, so that
// merges and token texts are plain strings. Printable Latin-1 bytes spell themselves; the other 68
// are U+0100, U+0101, ... in order of their value.
//
// Thread: pure functions.
// Source: Radford et al. 2019 (GPT-2), the published encoder's byte table.
#ifndef KVASIR_TEXT_BPE_BYTES_H_
#define KVASIR_TEXT_BPE_BYTES_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace kvasir {

// The character that spells `byte`, as UTF-8 (1 or 2 bytes).
std::string BpeTextOfByte(uint8_t byte);

// Appends the bytes that `text` spells. Returns false, and leaves `*out` as it was, when a
// character is outside the alphabet: such a token was added by hand and is spelled literally.
bool AppendBytesOfBpeText(std::string_view text, std::string* out);

}  // namespace kvasir

#endif  // KVASIR_TEXT_BPE_BYTES_H_
