// RandomText: text for tests, made of pieces that the small vocabularies know and of arbitrary
// characters.
#ifndef KVASIR_TEXT_RANDOM_TEXT_H_
#define KVASIR_TEXT_RANDOM_TEXT_H_

#include <string>
#include <vector>

#include "base/rng.h"
#include "text/utf8.h"

namespace kvasir {

// `pieces` of them in a row. Valid UTF-8.
inline std::string RandomText(Rng* rng, size_t pieces) {
  static const std::vector<std::string> kPieces = {"hello",
                                                   " world",
                                                   "a",
                                                   "aa",
                                                   "ab",
                                                   "ba",
                                                   " ",
                                                   "  ",
                                                   "\n",
                                                   "\n\n",
                                                   "\t",
                                                   "'s",
                                                   "'ll",
                                                   "1",
                                                   "42",
                                                   "<|im_start|>",
                                                   "<|im_end|>",
                                                   "<|im_",
                                                   "end|>",
                                                   "<|",
                                                   "|>",
                                                   "<s>",
                                                   "</s>",
                                                   "<unk>",
                                                   "<0x0A>",
                                                   "<tool>",
                                                   "<to",
                                                   "ol>",
                                                   "<start_of_turn>",
                                                   "<end_",
                                                   "of_turn>",
                                                   "!",
                                                   "!!!",
                                                   "\xC3\xA9t\xC3\xA9",
                                                   "\xE6\x97\xA5\xE6\x9C\xAC",
                                                   "\xF0\x9F\x8E\x89",
                                                   "\xE2\x80\x8B",
                                                   "\xC2\xA0",
                                                   "x",
                                                   "_",
                                                   ".",
                                                   "\x01"};
  std::string out;
  for (size_t i = 0; i < pieces; ++i) {
    if (rng->Below(8) != 0) {
      out += kPieces[rng->Below(kPieces.size())];
      continue;
    }
    const uint32_t planes[] = {0x80, 0x800, 0x10000, 0x110000};
    uint32_t c = static_cast<uint32_t>(rng->Below(planes[rng->Below(4)]));
    if (c >= 0xD800 && c < 0xE000) c -= 0x800;
    AppendUtf8(c, &out);
  }
  return out;
}

}  // namespace kvasir

#endif  // KVASIR_TEXT_RANDOM_TEXT_H_
