// SpecialTokens: finds the tokens that are recognised in text as a whole, before any merging:
// control tokens (where the caller trusts the text) and user-defined tokens (everywhere).
//
// At a position the longest token wins. Sorted by bytes; a look-up narrows the range of tokens that
// agree with the text byte by byte, so it costs O(length of the match * log tokens) and nothing at
// all at most positions.
//
// Thread: immutable after construction.
#ifndef KVASIR_TEXT_SPECIAL_TOKENS_H_
#define KVASIR_TEXT_SPECIAL_TOKENS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "text/vocabulary.h"

namespace kvasir {

class SpecialTokens {
 public:
  struct Match {
    int32_t id = -1;  // -1: none.
    size_t length = 0;
    bool control = false;
  };

  // Views into `vocabulary`, which must outlive this.
  explicit SpecialTokens(const Vocabulary& vocabulary);

  // Whether any token starts with this byte.
  bool MayStart(char byte) const { return Bucket(byte).begin < Bucket(byte).end; }

  // The longest token at `offset`; of the control tokens only those that end at or before
  // `trusted_end`. REQUIRES: offset < text.size().
  Match LongestMatch(std::string_view text, size_t offset, size_t trusted_end) const;

 private:
  struct Entry {
    std::string_view bytes;  // Not empty.
    int32_t id;
    bool control;  // Control and unknown tokens.
  };
  struct Range {
    uint32_t begin = 0;
    uint32_t end = 0;
  };
  const Range& Bucket(char byte) const { return buckets_[static_cast<uint8_t>(byte)]; }

  std::vector<Entry> entries_;        // Sorted by bytes, user-defined before control among equals.
  std::array<Range, 256> buckets_{};  // entries_ by first byte.
};

}  // namespace kvasir

#endif  // KVASIR_TEXT_SPECIAL_TOKENS_H_
