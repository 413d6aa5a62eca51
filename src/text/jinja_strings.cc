#include "text/jinja_strings.h"

#include <algorithm>
#include <bitset>
#include <cstring>

#include "text/jinja_unicode.h"

namespace kvasir::jinja {
namespace {

bool IsCased(uint32_t c) { return IsUpper(c) || IsLower(c) || IsTitlecase(c); }

std::string ChangeChar(uint32_t c, CaseChange change, bool starts_word, bool is_first) {
  switch (change) {
    case CaseChange::kUpper:
      return ToUpper(c);
    case CaseChange::kLower:
      return ToLower(c);
    case CaseChange::kTitle:
      return starts_word ? ToTitle(c) : ToLower(c);
    case CaseChange::kCapitalize:
      return is_first ? ToTitle(c) : ToLower(c);
    case CaseChange::kSwap:
      // A title-case digraph is neither, and stays.
      return IsUpper(c) ? ToLower(c) : IsTitlecase(c) ? ToTitle(c) : ToUpper(c);
    case CaseChange::kFold:
      return ToFolded(c);
  }
  return {};
}

// Python lowers a capital sigma at the end of a word to the final form.
bool IsFinalSigma(std::string_view text, size_t at) {
  // What ignores case (apostrophes, accents) is looked through, on both sides.
  bool follows_cased = false;
  for (size_t before = at; before > 0 && !follows_cased;) {
    --before;
    while (before > 0 && (static_cast<unsigned char>(text[before]) & 0xc0) == 0x80) --before;
    const uint32_t c = CodePointAt(text, before);
    if (IsCaseIgnorable(c)) continue;
    if (!IsCased(c)) return false;
    follows_cased = true;
  }
  if (!follows_cased) return false;
  for (size_t i = at + CharLength(text, at); i < text.size(); i += CharLength(text, i)) {
    const uint32_t c = CodePointAt(text, i);
    if (!IsCaseIgnorable(c)) return !IsCased(c);
  }
  return true;
}

constexpr size_t kShortNeedle = 256;

// Knuth, Morris, Pratt; jumps to the next first byte while nothing matches.
// REQUIRES: 0 < needle.size() <= kShortNeedle.
size_t FindShort(std::string_view text, std::string_view needle, size_t from) {
  uint16_t border[kShortNeedle];  // Of needle[0, i]: its longest prefix that is also its suffix.
  border[0] = 0;
  for (size_t i = 1, length = 0; i < needle.size(); ++i) {
    while (length > 0 && needle[i] != needle[length]) length = border[length - 1];
    if (needle[i] == needle[length]) ++length;
    border[i] = static_cast<uint16_t>(length);
  }
  size_t matched = 0;
  for (size_t i = from; i < text.size(); ++i) {
    if (matched == 0) {
      i = text.find(needle[0], i);
      if (i == text.npos) return i;
    }
    while (matched > 0 && text[i] != needle[matched]) matched = border[matched - 1];
    if (text[i] == needle[matched]) ++matched;
    if (matched == needle.size()) return i + 1 - matched;
  }
  return text.npos;
}

// The characters of a string. Built once, since the string may be as long as the one it strips.
class CharSet {
 public:
  explicit CharSet(std::string_view chars) {
    for (size_t i = 0; i < chars.size(); i += CharLength(chars, i)) {
      const uint32_t c = CodePointAt(chars, i);
      if (c < 128) {
        ascii_.set(c);
      } else {
        others_.push_back(c);
      }
    }
    std::sort(others_.begin(), others_.end());
  }

  bool Has(uint32_t c) const {
    return c < 128 ? ascii_.test(c) : std::binary_search(others_.begin(), others_.end(), c);
  }

 private:
  std::bitset<128> ascii_;
  std::vector<uint32_t> others_;
};

}  // namespace

size_t FindText(std::string_view text, std::string_view needle, size_t from) {
  if (from > text.size() || needle.size() > text.size() - from) return text.npos;
  if (needle.empty()) return from;
  if (needle.size() <= kShortNeedle) return FindShort(text, needle, from);
  // glibc's two-way search: linear, without memory.
  const void* found = memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  if (found == nullptr) return text.npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

size_t FindTextFromRight(std::string_view text, std::string_view needle) {
  if (needle.size() <= 16) return text.rfind(needle);
  const std::string text_reversed(text.rbegin(), text.rend());
  const std::string needle_reversed(needle.rbegin(), needle.rend());
  const size_t at = FindText(text_reversed, needle_reversed);
  return at == text.npos ? at : text.size() - at - needle.size();
}

TracedText ChangeCase(const TracedText& text, CaseChange change) {
  TracedText out;
  const std::string_view bytes = text.view();
  bool in_word = false;
  for (size_t i = 0; i < bytes.size(); i += CharLength(bytes, i)) {
    const uint32_t c = CodePointAt(bytes, i);
    std::string changed = ChangeChar(c, change, !in_word, i == 0);
    if (c == 0x3a3 && change != CaseChange::kFold && changed == "\xcf\x83" &&
        IsFinalSigma(bytes, i))
      changed = "\xcf\x82";
    out.Append(changed, text.TrustedAt(i));
    in_word = IsCased(c);
  }
  return out;
}

TracedText Strip(const TracedText& text, std::optional<std::string_view> chars, bool left,
                 bool right) {
  const std::string_view bytes = text.view();
  size_t begin = 0;
  size_t end = bytes.size();
  if (!chars) {
    if (left) begin = SkipSpaces(bytes, 0);
    if (right) end = DropTrailingSpaces(bytes, begin, end);
    return text.Slice(begin, end);
  }
  const CharSet set(*chars);
  while (left && begin < end) {
    const size_t length = CharLength(bytes, begin);
    if (!set.Has(CodePointAt(bytes, begin))) break;
    begin += length;
  }
  while (right && end > begin) {
    size_t start = end - 1;
    while (start > begin && (static_cast<unsigned char>(bytes[start]) & 0xc0) == 0x80) --start;
    if (!set.Has(CodePointAt(bytes, start))) break;
    end = start;
  }
  return text.Slice(begin, end);
}

StatusOr<TracedText> Replace(Runtime& runtime, const TracedText& text, std::string_view from,
                             const TracedText& to, int64_t limit) {
  const std::string_view bytes = text.view();
  KV_RETURN_IF_ERROR(runtime.SpendOnSearch(bytes, from));
  TracedText out;
  size_t done = 0;
  size_t search = 0;
  while (limit != 0) {
    const size_t found = from.empty() ? search : FindText(bytes, from, search);
    if (found == std::string_view::npos || found > bytes.size()) break;
    KV_RETURN_IF_ERROR(runtime.Spend(1));
    KV_RETURN_IF_ERROR(runtime.Allocate(to.size()));
    out.AppendSlice(text, done, found);
    out.Append(to);
    done = found + from.size();
    if (limit > 0) --limit;
    if (!from.empty()) {
      search = done;
      continue;
    }
    if (found == bytes.size()) break;
    search = found + CharLength(bytes, found);
  }
  out.AppendSlice(text, done, bytes.size());
  return out;
}

StatusOr<TracedText> Join(Runtime& runtime, const TracedText& separator, const ValueList& items) {
  TracedText out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.Append(separator);
    KV_RETURN_IF_ERROR(runtime.Allocate(separator.size()));
    KV_ASSIGN_OR_RETURN(const TracedText text, runtime.Text(items[i]));
    out.Append(text);
  }
  return out;
}

}  // namespace kvasir::jinja
