#include "text/word_pattern.h"

#include <utf8proc.h>

#include <algorithm>
#include <bit>

#include "text/utf8.h"
#include "text/word_pattern_parser.h"

namespace kvasir {
namespace {

constexpr size_t kNoMatch = ~size_t{0};

bool IsWhiteSpace(uint32_t c) {
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool IsContinuation(char c) { return (static_cast<uint8_t>(c) & 0xC0) == 0x80; }

// \S at `offset`; an ill-formed byte is no white space.
bool IsWordCharacter(std::string_view text, size_t offset) {
  const uint8_t first = static_cast<uint8_t>(text[offset]);
  if (first < 0x80) return !(first == ' ' || (first >= '\t' && first <= '\r'));
  const Utf8Char character = DecodeUtf8(text, offset);
  return !character.valid || !IsWhiteSpace(character.code_point);
}

}  // namespace

size_t WordPattern::Before(std::string_view text, size_t offset) const {
  const size_t last = offset - 1;
  if (alphabet_ == Alphabet::kBytes || !IsContinuation(text[last])) return last;
  size_t lead = last;
  while (lead > 0 && last - lead < 3 && IsContinuation(text[lead])) --lead;
  // A lead byte is never inside another character, so it begins one, if it is one.
  const Utf8Char character = DecodeUtf8(text, lead);
  return character.valid && lead + character.length == offset ? lead : last;
}

bool WordPattern::CharSet::Has(uint32_t code_point) const {
  bool inside = (white_space && IsWhiteSpace(code_point)) ||
                (categories != 0 &&
                 (categories >> utf8proc_category(static_cast<utf8proc_int32_t>(code_point)) & 1));
  if (!inside && !ranges.empty()) {
    auto after = std::upper_bound(
        ranges.begin(), ranges.end(), code_point,
        [](uint32_t c, const std::pair<uint32_t, uint32_t>& range) { return c < range.first; });
    inside = after != ranges.begin() && code_point <= std::prev(after)->second;
  }
  return inside != negated;
}

StatusOr<WordPattern> WordPattern::Compile(std::string_view expression, Alphabet alphabet) {
  WordPattern pattern;
  pattern.alphabet_ = alphabet;
  KV_RETURN_IF_ERROR(WordPatternParser(expression, &pattern).Parse());
  pattern.FindFirsts();
  return pattern;
}

void WordPattern::FindFirsts() {
  for (size_t b = 0; b < branches_.size(); ++b) {
    for (const Item& item : branches_[b].items) {
      const CharSet& set = sets_[item.set];
      for (uint32_t c = 0; c < 128; ++c) {
        if (set.ascii[c / 64] >> (c % 64) & 1) firsts_[c] |= uint32_t{1} << b;
      }
      if (item.min > 0) break;
    }
  }
}

size_t WordPattern::Step(const CharSet& set, std::string_view text, size_t offset) const {
  const uint8_t first = static_cast<uint8_t>(text[offset]);
  if (first < 0x80) return set.ascii[first / 64] >> (first % 64) & 1;
  if (alphabet_ == Alphabet::kBytes) return set.Has(first) ? 1 : 0;
  const Utf8Char character = DecodeUtf8(text, offset);
  if (!character.valid) return set.negated ? 1 : 0;
  return set.Has(character.code_point) ? character.length : 0;
}

bool WordPattern::Ends(const Branch& branch, std::string_view text, size_t offset) const {
  if (branch.ending == Ending::kAny || offset == text.size()) return true;
  return branch.ending == Ending::kNoWordFollows && !IsWordCharacter(text, offset);
}

size_t WordPattern::MatchItems(const Branch& branch, size_t index, std::string_view text,
                               size_t offset) const {
  if (index == branch.items.size()) return Ends(branch, text, offset) ? offset : kNoMatch;
  const Item& item = branch.items[index];
  const CharSet& set = sets_[item.set];
  size_t end = offset;
  size_t least = offset;  // Where the shortest allowed repetition ends.
  uint32_t count = 0;
  while (count < item.max && end < text.size()) {
    const size_t length = Step(set, text, end);
    if (length == 0) break;
    end += length;
    // Counting stops where it no longer matters: words may be longer than any counter.
    if (item.max != kNoLimit || count < item.min) ++count;
    if (count == item.min && least == offset) least = end;
  }
  if (count < item.min) return kNoMatch;
  if (item.min == 0) least = offset;
  while (true) {
    const size_t found = MatchItems(branch, index + 1, text, end);
    if (found != kNoMatch || end == least) return found;
    end = Before(text, end);
  }
}

size_t WordPattern::AddTail(const Branch& branch, std::string_view text, size_t offset) const {
  for (const std::vector<Item>& tail : branch.tails) {
    size_t end = offset;
    for (const Item& item : tail) {
      const size_t length = end < text.size() ? Step(sets_[item.set], text, end) : 0;
      end = length > 0 ? end + length : kNoMatch;
      if (end == kNoMatch) break;
    }
    if (end != kNoMatch) return end;
  }
  return offset;
}

size_t WordPattern::MatchAt(std::string_view text, size_t offset, Hopeless* hopeless) const {
  const uint8_t first = static_cast<uint8_t>(text[offset]);
  const uint32_t all = branches_.size() == 32 ? ~0u : (uint32_t{1} << branches_.size()) - 1;
  hopeless->resize(branches_.size());
  for (uint32_t left = first < 0x80 ? firsts_[first] : all; left != 0; left &= left - 1) {
    const size_t b = static_cast<size_t>(std::countr_zero(left));
    const Branch& branch = branches_[b];
    if (offset < (*hopeless)[b]) continue;
    const size_t end = MatchItems(branch, 0, text, offset);
    if (end != kNoMatch) return AddTail(branch, text, end) - offset;
    // A lone class that repeats failed for what follows the run, so it fails from inside the run
    // too. Without this a long run would be scanned from each of its characters.
    if (branch.ending == Ending::kAny || branch.items.size() != 1) continue;
    size_t run = offset;
    while (run < text.size()) {
      const size_t length = Step(sets_[branch.items[0].set], text, run);
      if (length == 0) break;
      run += length;
    }
    if (branch.items[0].min <= 1 && branch.items[0].max == kNoLimit) (*hopeless)[b] = run;
  }
  return 0;
}

WordPattern::Match WordPattern::Find(std::string_view text, size_t offset,
                                     Hopeless* hopeless) const {
  while (offset < text.size()) {
    if (const size_t length = MatchAt(text, offset, hopeless); length > 0) {
      return {offset, offset + length};
    }
    const Utf8Char character = DecodeUtf8(text, offset);
    offset += character.valid && alphabet_ == Alphabet::kCharacters ? character.length : 1;
  }
  return {text.size(), text.size()};
}

}  // namespace kvasir
