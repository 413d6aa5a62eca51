#include "text/special_tokens.h"

#include <algorithm>

namespace kvasir {

SpecialTokens::SpecialTokens(const Vocabulary& vocabulary) {
  const int32_t size = static_cast<int32_t>(vocabulary.size());
  for (int32_t id = 0; id < size; ++id) {
    const TokenKind kind = vocabulary.kind(TokenId{id});
    const bool control = kind == TokenKind::kControl || kind == TokenKind::kUnknown;
    if (!control && kind != TokenKind::kUserDefined) continue;
    const std::string_view bytes = vocabulary.bytes(TokenId{id});
    if (!bytes.empty()) entries_.push_back({bytes, id, control});
  }
  std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
    if (const int order = a.bytes.compare(b.bytes); order != 0) return order < 0;
    return a.control != b.control ? !a.control : a.id < b.id;
  });
  for (uint32_t i = 0; i < entries_.size(); ++i) {
    Range& bucket = buckets_[static_cast<uint8_t>(entries_[i].bytes[0])];
    if (bucket.begin == bucket.end) bucket.begin = i;
    bucket.end = i + 1;
  }
}

SpecialTokens::Match SpecialTokens::LongestMatch(std::string_view text, size_t offset,
                                                 size_t trusted_end) const {
  Match best;
  Range range = Bucket(text[offset]);
  // Invariant: entries_[range] are the tokens whose first `depth` bytes are the text's.
  for (size_t depth = 1; range.begin < range.end; ++depth) {
    for (; range.begin < range.end && entries_[range.begin].bytes.size() == depth; ++range.begin) {
      const Entry& entry = entries_[range.begin];
      const bool allowed = !entry.control || offset + depth <= trusted_end;
      // Of two spellings of the same bytes the first allowed one is it.
      if (allowed && best.length < depth) best = {entry.id, depth, entry.control};
    }
    if (offset + depth >= text.size()) break;
    const uint8_t wanted = static_cast<uint8_t>(text[offset + depth]);
    const auto byte_at = [depth](const Entry& entry) {
      return static_cast<uint8_t>(entry.bytes[depth]);
    };
    const auto first = entries_.begin() + range.begin;
    const auto last = entries_.begin() + range.end;
    const auto low = std::partition_point(
        first, last, [&](const Entry& entry) { return byte_at(entry) < wanted; });
    const auto high = std::partition_point(
        low, last, [&](const Entry& entry) { return byte_at(entry) <= wanted; });
    range = {static_cast<uint32_t>(low - entries_.begin()),
             static_cast<uint32_t>(high - entries_.begin())};
  }
  return best;
}

}  // namespace kvasir
