// StopMatcher: finds stop strings in text that arrives in pieces, and releases the text before
// them.
//
// Text that could be the beginning of a stop string is held back until it is clear whether it is;
// as little as possible, so a stream shows everything else at once. The stop string that is
// complete first ends the text; of several that end with the same byte, the longest. So the result
// does not depend on how the text is cut into pieces.
//
// Cost:   O(1) amortised per byte for few strings (Aho-Corasick: all strings at once).
// Thread: one at a time.
// Source: Aho, Corasick 1975, "Efficient string matching: an aid to bibliographic search".
#ifndef KVASIR_TEXT_STOP_MATCHER_H_
#define KVASIR_TEXT_STOP_MATCHER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace kvasir {

class StopMatcher {
 public:
  struct Result {
    std::string_view emit;          // Text to show now; valid until the next call.
    std::optional<size_t> matched;  // Index of the stop string that ended the text.
  };

  // InvalidArgument: an empty stop string (it would match before anything is generated) or more
  // than kMaxTotalBytes of them. No stop strings at all is fine: everything passes. Of equal
  // strings the first is reported.
  static StatusOr<StopMatcher> Create(std::span<const std::string> stops);
  static constexpr size_t kMaxTotalBytes = size_t{1} << 20;

  // The next piece of text. After a match everything further is dropped: emit is empty, `matched`
  // stays.
  Result Feed(std::string_view text);

  // The end of the text: what was held back, now that no stop string can come of it. Empty after a
  // match.
  std::string_view Flush();

  // Back to the beginning of a text.
  void Reset();

  size_t held_bytes() const { return buffer_.size() - released_; }

 private:
  // A node of the trie of stop strings: the text read so far ends with the string that leads here,
  // and with no longer prefix of a stop string.
  struct Node {
    uint32_t first_child = 0;  // 0: none (the root is nobody's child).
    uint32_t sibling = 0;      // Next child of the same parent; 0: none.
    uint32_t fail = 0;         // The longest proper suffix that is a node.
    uint32_t depth = 0;        // Bytes from the root: what has to be held back.
    int32_t match = -1;        // The longest stop string that is a suffix; -1: none.
    uint8_t byte = 0;          // On the edge from the parent.
  };

  StopMatcher() = default;
  void Insert(std::string_view stop, int32_t index);
  void LinkFailures();
  uint32_t Child(uint32_t node, uint8_t byte) const;  // 0: none.
  uint32_t Step(uint32_t node, uint8_t byte) const;

  std::vector<std::string> stops_;
  std::vector<Node> nodes_;
  std::array<uint32_t, 256> root_children_{};  // By byte: most text is read at the root.

  uint32_t state_ = 0;
  std::string buffer_;  // [released_, end) is held back; what lies before was returned last time.
  size_t released_ = 0;
  std::optional<size_t> matched_;
};

}  // namespace kvasir

#endif  // KVASIR_TEXT_STOP_MATCHER_H_
