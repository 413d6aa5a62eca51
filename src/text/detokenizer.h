// Detokenizer: the text of a token stream, piece by piece, as it is generated.
//
// Tokens may end in the middle of a character; such bytes are held back until the character is
// whole, so every piece is valid UTF-8. Bytes that can no longer become a character turn into
// U+FFFD, one per maximal subpart (utf8.h). Whatever the cuts between tokens, the pieces plus
// Finish() are the repaired Decode() of the whole stream.
//
// Invariant: at most 3 bytes are held back.
// Thread:    one at a time; the Tokenizer must outlive it.
#ifndef KVASIR_TEXT_DETOKENIZER_H_
#define KVASIR_TEXT_DETOKENIZER_H_

#include <string>
#include <string_view>

#include "base/ids.h"
#include "text/tokenizer.h"

namespace kvasir {

struct DetokenizerOptions {
  bool special = false;  // Control tokens appear as their text; otherwise they yield nothing.
  // The stream begins a text (or follows a control token), so that a model which encodes texts with
  // a space in front gets that space taken off. False when it continues text: "Hello" + " world".
  bool starts_text = false;
};

class Detokenizer {
 public:
  explicit Detokenizer(const Tokenizer* tokenizer, DetokenizerOptions options = {});

  // The text that `id` completes, often one token's, sometimes empty. Valid until the next call.
  // Allocates only when a token is longer than any before it.
  std::string_view Append(TokenId id);

  // What is held back, as U+FFFD; empty most of the time. The next Append begins a new stream.
  std::string_view Finish();

  // Back to the state after construction, with other options.
  void Reset(DetokenizerOptions options);

 private:
  const Tokenizer* tokenizer_;
  DetokenizerOptions options_;
  bool stretch_starts_;
  std::string held_;  // The beginning of a character.
  std::string out_;   // What the last call returned.
};

}  // namespace kvasir

#endif  // KVASIR_TEXT_DETOKENIZER_H_
