#include "text/bpe_bytes.h"

#include <array>

#include "text/utf8.h"

namespace kvasir {
namespace {

constexpr uint32_t kAlphabetEnd = 0x100 + 68;

constexpr bool SpellsItself(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<uint16_t, 256> code_point_of{};
  std::array<int16_t, kAlphabetEnd> byte_of{};  // -1: not in the alphabet.
};

constexpr Alphabet MakeAlphabet() {
  Alphabet alphabet;
  for (int16_t& byte : alphabet.byte_of) byte = -1;
  uint32_t next = 0x100;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const uint32_t code_point = SpellsItself(byte) ? byte : next++;
    alphabet.code_point_of[byte] = static_cast<uint16_t>(code_point);
    alphabet.byte_of[code_point] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = MakeAlphabet();

}  // namespace

std::string BpeTextOfByte(uint8_t byte) {
  std::string text;
  AppendUtf8(kAlphabet.code_point_of[byte], &text);
  return text;
}

bool AppendBytesOfBpeText(std::string_view text, std::string* out) {
  const size_t before = out->size();
  for (size_t i = 0; i < text.size();) {
    const Utf8Char character = DecodeUtf8(text, i);
    if (!character.valid || character.code_point >= kAlphabetEnd ||
        kAlphabet.byte_of[character.code_point] < 0) {
      out->resize(before);
      return false;
    }
    out->push_back(static_cast<char>(kAlphabet.byte_of[character.code_point]));
    i += character.length;
  }
  return true;
}

}  // namespace kvasir
