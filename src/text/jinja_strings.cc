#include "text/jinja_strings.h"

#include "text/jinja_unicode.h"

namespace kvasir::jinja {
namespace {

bool IsCased(uint32_t c) { return IsUpper(c) || IsLower(c); }

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
      return IsUpper(c) ? ToLower(c) : ToUpper(c);
    case CaseChange::kFold:
      return ToFolded(c);
  }
  return {};
}

// Python lowers a capital sigma at the end of a word to the final form.
bool IsFinalSigma(std::string_view text, size_t at) {
  if (at == 0) return false;
  size_t before = at - 1;
  while (before > 0 && (static_cast<unsigned char>(text[before]) & 0xc0) == 0x80) --before;
  const size_t after = at + CharLength(text, at);
  return IsCased(CodePointAt(text, before)) &&
         (after >= text.size() || !IsCased(CodePointAt(text, after)));
}

}  // namespace

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
  const auto in_set = [&](std::string_view character) {
    // A whole character of the set: a match inside another's bytes is impossible in UTF-8.
    return chars->find(character) != std::string_view::npos;
  };
  while (left && begin < end) {
    const size_t length = CharLength(bytes, begin);
    if (!in_set(bytes.substr(begin, length))) break;
    begin += length;
  }
  while (right && end > begin) {
    size_t start = end - 1;
    while (start > begin && (static_cast<unsigned char>(bytes[start]) & 0xc0) == 0x80) --start;
    if (!in_set(bytes.substr(start, end - start))) break;
    end = start;
  }
  return text.Slice(begin, end);
}

StatusOr<TracedText> Replace(Runtime& runtime, const TracedText& text, std::string_view from,
                             const TracedText& to, int64_t limit) {
  const std::string_view bytes = text.view();
  KV_RETURN_IF_ERROR(runtime.Spend(static_cast<int64_t>(bytes.size() / 64)));
  TracedText out;
  size_t done = 0;
  size_t search = 0;
  while (limit != 0) {
    const size_t found = from.empty() ? search : bytes.find(from, search);
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
