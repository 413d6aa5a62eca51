// WordPattern: one expression of a pre-tokenizer, compiled: finds the words of byte-level BPE.
//
// Reads the dialect that published pre-tokenizer expressions use, and refuses the rest:
// alternatives of sequences of characters, escapes (\s \S \r \n \t \p{L} \p{Lu} and quoted
// punctuation), bracket classes with ranges and ^, groups (?:...) and (?i:...), the quantifiers
// ? * + {n} {n,m}, and, at the end of an alternative, $ or (?!\S). The first alternative that
// matches wins, and repetition is greedy with backtracking, as in PCRE, Oniguruma and Python.
//
// Not a general engine: only classes repeat, a group is copied out once per alternative, and one
// that may be left out, (...)?, stands at the end. In return a match needs no stack and no memory,
// and whole texts are cut in linear time: an engine for everything needs limits on words of a
// megabyte.
//
// \s is White_Space; \p{..} are general categories (utf8proc). A byte that is not part of a
// well-formed character counts as one character that no category and no range holds, so that only
// negated classes match it.
//
// Alphabet::kBytes reads each byte as the character that spells it in the byte alphabet
// (bpe_bytes.h), of which only the Latin-1 ones can be written here: for expressions that models
// apply to text that is already spelled so.
//
// Thread: immutable once compiled.
#ifndef KVASIR_TEXT_WORD_PATTERN_H_
#define KVASIR_TEXT_WORD_PATTERN_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace kvasir {

class WordPattern {
 public:
  enum class Alphabet : uint8_t { kCharacters, kBytes };

  // A set of characters.
  struct CharSet {
    std::array<uint64_t, 2> ascii{};  // Bit c: whether it holds c, negation included.
    uint32_t categories = 0;          // Bit per utf8proc category; like the rest before negation.
    bool white_space = false;
    bool negated = false;
    std::vector<std::pair<uint32_t, uint32_t>> ranges;  // First and last; sorted, apart.

    bool Has(uint32_t code_point) const;  // Of any well-formed character but ASCII.
    bool operator==(const CharSet&) const = default;
  };

  struct Match {
    size_t begin;
    size_t end;  // begin == end: none, and begin is the end of the text.
  };

  // What a search knows of alternatives that cannot match before some offset. One per text.
  using Hopeless = std::vector<size_t>;

  // InvalidArgument names the offset and what stands there that the dialect does not have.
  static StatusOr<WordPattern> Compile(std::string_view expression,
                                       Alphabet alphabet = Alphabet::kCharacters);

  // Bytes of the match that begins at `offset`, 0 if none does. REQUIRES: offset < text.size().
  size_t MatchAt(std::string_view text, size_t offset, Hopeless* hopeless) const;

  // The first match that begins at or after `offset`. The text's end is where $ matches.
  Match Find(std::string_view text, size_t offset, Hopeless* hopeless) const;

  size_t alternatives() const { return branches_.size(); }

 private:
  friend class WordPatternParser;

  enum class Ending : uint8_t { kAny, kTextEnd, kNoWordFollows };  // "", "$", "(?!\S)"
  struct Item {
    uint16_t set;
    uint16_t min;
    uint16_t max;  // kNoLimit: any number.
  };
  struct Branch {
    std::vector<Item> items;
    std::vector<std::vector<Item>> tails;  // The first of them that fits is added to a match.
    Ending ending = Ending::kAny;
  };
  static constexpr uint16_t kNoLimit = 0xFFFF;

  WordPattern() = default;
  void FindFirsts();
  bool Ends(const Branch& branch, std::string_view text, size_t offset) const;
  // Offset behind the items from `item` on, or kNoMatch.
  size_t MatchItems(const Branch& branch, size_t item, std::string_view text, size_t offset) const;
  // Offset behind the first of the branch's tails that stands at `offset`, else `offset`.
  size_t AddTail(const Branch& branch, std::string_view text, size_t offset) const;
  // Length of the character at `offset` if `set` holds it, else 0.
  size_t Step(const CharSet& set, std::string_view text, size_t offset) const;

  // Where the character before `offset` begins. REQUIRES: 0 < offset, where a character ends.
  size_t Before(std::string_view text, size_t offset) const;

  Alphabet alphabet_ = Alphabet::kCharacters;
  std::vector<CharSet> sets_;
  std::vector<Branch> branches_;
  std::array<uint32_t, 128> firsts_{};  // [first byte] bit b: branch b may match there.
};

}  // namespace kvasir

#endif  // KVASIR_TEXT_WORD_PATTERN_H_
