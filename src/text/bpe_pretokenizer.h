// The pre-tokenizers of byte-level BPE: they cut text into the words (with their leading space)
// inside which pairs merge. No merge crosses a cut.
//
// A model file names its pre-tokenizer (tokenizer.ggml.pre). Each is a list of published regular
// expressions, applied one after the other: the first cuts the text into its matches and what lies
// between them, each further one cuts the pieces of the one before, and at the end of a piece the
// text ends. The table is in bpe_pretokenizer.cc, the expressions' dialect in word_pattern.h.
//
// Thread: rules are immutable; a WordCutter belongs to one caller.
// Source: the models' published tokenizer.json files.
#ifndef KVASIR_TEXT_BPE_PRETOKENIZER_H_
#define KVASIR_TEXT_BPE_PRETOKENIZER_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "text/word_pattern.h"

namespace kvasir {

struct PretokenizerRule {
  std::vector<WordPattern> passes;  // Not empty.
  // A word that is a token as it stands becomes that token, whatever the merges say.
  bool whole_words_first = false;
  // Texts begin with BOS unless the file says otherwise.
  bool adds_bos = false;
};

// The rule that tokenizer.ggml.pre names, or nullptr. Lives as long as the program.
const PretokenizerRule* FindPretokenizerRule(std::string_view name);
// "default, gpt-2, ...": for messages.
std::string KnownPretokenizerRules();

// The words of one text, in order; together they are the text. O(length).
class WordCutter {
 public:
  // Both outlive the cutter.
  WordCutter(const PretokenizerRule* rule, std::string_view text);

  // False at the end. Words are not empty.
  bool Next(std::string_view* word);

 private:
  struct Level {
    size_t offset = 0;     // What is left of the piece that this pass cuts,
    size_t end = 0;        // up to here.
    size_t match_end = 0;  // offset < match_end: a found match, which comes next.
    WordPattern::Hopeless hopeless;
  };

  bool NextPiece(size_t level, std::string_view* piece);

  const PretokenizerRule* rule_;
  std::string_view text_;
  bool begun_ = false;
  std::vector<Level> levels_;  // One per pass.
};

}  // namespace kvasir

#endif  // KVASIR_TEXT_BPE_PRETOKENIZER_H_
