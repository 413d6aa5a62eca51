// String methods that search and split.
#include <algorithm>

#include "text/jinja_filters.h"
#include "text/jinja_strings.h"
#include "text/jinja_unicode.h"

namespace kvasir::jinja {
namespace {

using Range = std::pair<size_t, size_t>;

StatusOr<Value> Pieces(Runtime& runtime, const TracedText& text, const std::vector<Range>& ranges,
                       SequenceType type = SequenceType::kList) {
  ValueList items;
  for (const auto& [begin, end] : ranges) {
    KV_RETURN_IF_ERROR(runtime.Spend(1));
    KV_ASSIGN_OR_RETURN(Value item, runtime.String(text.Slice(begin, end)));
    items.push_back(std::move(item));
  }
  return runtime.Sequence(std::move(items), type);
}

// Fields between white space; after `limit` fields the rest stays whole, the space at its far end
// included, as Python leaves it.
std::vector<Range> SplitSpaces(std::string_view text, int64_t limit) {
  std::vector<Range> ranges;
  for (size_t i = SkipSpaces(text, 0); i < text.size();) {
    if (limit-- == 0) {
      ranges.emplace_back(i, text.size());
      break;
    }
    size_t end = i;
    while (end < text.size() && !IsSpace(CodePointAt(text, end))) end += CharLength(text, end);
    ranges.emplace_back(i, end);
    i = SkipSpaces(text, end);
  }
  return ranges;
}

std::vector<Range> SplitSpacesFromRight(std::string_view text, int64_t limit) {
  std::vector<Range> ranges;
  for (size_t end = DropTrailingSpaces(text, 0, text.size()); end > 0;) {
    if (limit-- == 0) {
      ranges.emplace_back(0, end);
      break;
    }
    size_t begin = end;
    while (begin > 0) {
      size_t start = begin - 1;
      while (start > 0 && (static_cast<unsigned char>(text[start]) & 0xc0) == 0x80) --start;
      if (IsSpace(CodePointAt(text, start))) break;
      begin = start;
    }
    ranges.emplace_back(begin, end);
    end = DropTrailingSpaces(text, 0, begin);
  }
  std::reverse(ranges.begin(), ranges.end());
  return ranges;
}

std::vector<Range> SplitBy(std::string_view text, std::string_view separator, int64_t limit) {
  std::vector<Range> ranges;
  size_t begin = 0;
  for (size_t at = FindText(text, separator); at != text.npos && limit != 0;
       at = FindText(text, separator, begin)) {
    ranges.emplace_back(begin, at);
    begin = at + separator.size();
    --limit;
  }
  ranges.emplace_back(begin, text.size());
  return ranges;
}

std::vector<Range> SplitByFromRight(std::string_view text, std::string_view separator,
                                    int64_t limit) {
  const std::string text_reversed(text.rbegin(), text.rend());
  const std::string separator_reversed(separator.rbegin(), separator.rend());
  std::vector<Range> ranges = SplitBy(text_reversed, separator_reversed, limit);
  for (auto& [begin, end] : ranges) {
    const size_t swapped = text.size() - end;
    end = text.size() - begin;
    begin = swapped;
  }
  std::reverse(ranges.begin(), ranges.end());
  return ranges;
}

template <bool from_right>
StatusOr<Value> Split(Runtime& runtime, const Value& self, const Arguments& arguments) {
  KV_ASSIGN_OR_RETURN(const Bound bound, Bound::Make(arguments, {"sep", "maxsplit"}));
  KV_ASSIGN_OR_RETURN(const int64_t limit, bound.Int(1, -1));
  KV_RETURN_IF_ERROR(runtime.Allocate(self.view().size()));
  if (!bound.has(0) || bound[0].is(Kind::kNone)) {
    KV_RETURN_IF_ERROR(runtime.SpendOnChars(self.view().size()));
    return Pieces(
        runtime, self.text(),
        from_right ? SplitSpacesFromRight(self.view(), limit) : SplitSpaces(self.view(), limit));
  }
  KV_ASSIGN_OR_RETURN(const TracedText separator, bound.Text(0, ""));
  if (separator.empty()) return InvalidArgument("empty separator");
  KV_RETURN_IF_ERROR(runtime.SpendOnSearch(self.view(), separator.view()));
  return Pieces(runtime, self.text(),
                from_right ? SplitByFromRight(self.view(), separator.view(), limit)
                           : SplitBy(self.view(), separator.view(), limit));
}

StatusOr<Value> SplitLines(Runtime& runtime, const Value& self, const Arguments& arguments) {
  KV_ASSIGN_OR_RETURN(const Bound bound, Bound::Make(arguments, {"keepends"}));
  KV_RETURN_IF_ERROR(runtime.SpendOnChars(self.view().size()));
  const std::string_view text = self.view();
  std::vector<Range> ranges;
  size_t begin = 0;
  for (size_t i = 0; i < text.size();) {
    const size_t length = CharLength(text, i);
    if (!IsLineEnd(CodePointAt(text, i))) {
      i += length;
      continue;
    }
    const size_t next = i + (text.substr(i, 2) == "\r\n" ? 2 : length);
    ranges.emplace_back(begin, bound.Truthy(0, false) ? next : i);
    begin = i = next;
  }
  if (begin < text.size()) ranges.emplace_back(begin, text.size());
  return Pieces(runtime, self.text(), ranges);
}

template <bool from_right>
StatusOr<Value> Partition(Runtime& runtime, const Value& self, const Arguments& arguments) {
  KV_ASSIGN_OR_RETURN(const Bound bound, Bound::Make(arguments, {"sep"}, 1));
  KV_ASSIGN_OR_RETURN(const TracedText separator, bound.Text(0, ""));
  if (separator.empty()) return InvalidArgument("empty separator");
  const std::string_view text = self.view();
  KV_RETURN_IF_ERROR(runtime.SpendOnSearch(text, separator.view()));
  const size_t at =
      from_right ? FindTextFromRight(text, separator.view()) : FindText(text, separator.view());
  std::vector<Range> ranges;
  if (at != text.npos) {
    ranges = {{0, at}, {at, at + separator.size()}, {at + separator.size(), text.size()}};
  } else if (from_right) {
    ranges = {{0, 0}, {0, 0}, {0, text.size()}};
  } else {
    ranges = {{0, text.size()}, {0, 0}, {0, 0}};
  }
  return Pieces(runtime, self.text(), ranges, SequenceType::kTuple);
}

template <bool at_end>
bool HasAffix(std::string_view text, std::string_view affix) {
  if (affix.size() > text.size()) return false;
  return (at_end ? text.substr(text.size() - affix.size()) : text.substr(0, affix.size())) == affix;
}

// The part of `self` that start and end (in characters) select, as bytes; nullopt when start lies
// behind the end of the string.
StatusOr<std::optional<Range>> Window(Runtime& runtime, const Value& self, const Bound& bound,
                                      size_t first) {
  const std::string_view text = self.view();
  if (!bound.has(first) && !bound.has(first + 1)) return std::optional<Range>({0, text.size()});
  KV_RETURN_IF_ERROR(runtime.SpendOnChars(text.size()));
  KV_RETURN_IF_ERROR(runtime.Allocate(text.size() * sizeof(size_t)));
  const std::vector<size_t> offsets = CharOffsets(text);
  const auto length = static_cast<int64_t>(offsets.size()) - 1;
  const auto read = [&](size_t i, int64_t fallback) -> StatusOr<int64_t> {
    if (!bound.has(i) || bound[i].is(Kind::kNone)) return fallback;
    KV_ASSIGN_OR_RETURN(const int64_t value, bound.Int(i, fallback));
    return value < 0 ? std::max<int64_t>(value + length, 0) : value;
  };
  KV_ASSIGN_OR_RETURN(const int64_t begin, read(first, 0));
  KV_ASSIGN_OR_RETURN(int64_t end, read(first + 1, length));
  end = std::min(end, length);
  if (begin > length || begin > end) return std::optional<Range>();
  return std::optional<Range>(
      {offsets[static_cast<size_t>(begin)], offsets[static_cast<size_t>(end)]});
}

template <bool at_end>
StatusOr<Value> Affix(Runtime& runtime, const Value& self, const Arguments& arguments) {
  KV_ASSIGN_OR_RETURN(const Bound bound, Bound::Make(arguments, {"affix", "start", "end"}, 1));
  KV_ASSIGN_OR_RETURN(const std::optional<Range> window, Window(runtime, self, bound, 1));
  ValueList affixes = {bound[0]};
  if (bound[0].is_sequence(SequenceType::kTuple)) {
    KV_ASSIGN_OR_RETURN(affixes, Iterate(runtime, bound[0]));
  }
  for (const Value& affix : affixes) {
    if (!affix.is(Kind::kString)) {
      return InvalidArgument("needs a string or a tuple of strings, not {}", TypeName(affix));
    }
    if (!window) continue;
    KV_RETURN_IF_ERROR(runtime.SpendOnBytes(affix.view().size()));
    const std::string_view text = self.view().substr(window->first, window->second - window->first);
    if (HasAffix<at_end>(text, affix.view())) return Value::Bool(true);
  }
  return Value::Bool(false);
}

template <bool at_end>
StatusOr<Value> RemoveAffix(Runtime& runtime, const Value& self, const Arguments& arguments) {
  KV_ASSIGN_OR_RETURN(const Bound bound, Bound::Make(arguments, {"affix"}, 1));
  KV_ASSIGN_OR_RETURN(const TracedText affix, bound.Text(0, ""));
  if (!HasAffix<at_end>(self.view(), affix.view())) return self;
  const size_t size = self.view().size();
  return runtime.String(at_end ? self.text().Slice(0, size - affix.size())
                               : self.text().Slice(affix.size(), size));
}

// find, rfind (-1 when absent), index, rindex (an error when absent).
template <bool from_right, bool must_exist>
StatusOr<Value> Find(Runtime& runtime, const Value& self, const Arguments& arguments) {
  KV_ASSIGN_OR_RETURN(const Bound bound, Bound::Make(arguments, {"sub", "start", "end"}, 1));
  KV_ASSIGN_OR_RETURN(const TracedText needle, bound.Text(0, ""));
  KV_RETURN_IF_ERROR(runtime.SpendOnSearch(self.view(), needle.view()));
  KV_ASSIGN_OR_RETURN(const std::optional<Range> window, Window(runtime, self, bound, 1));
  if (window) {
    const std::string_view text = self.view().substr(window->first, window->second - window->first);
    const size_t at =
        from_right ? FindTextFromRight(text, needle.view()) : FindText(text, needle.view());
    if (at != text.npos) {
      return Value::Int(
          static_cast<int64_t>(CodePointCount(self.view().substr(0, window->first + at))));
    }
  }
  if (must_exist) return InvalidArgument("substring not found");
  return Value::Int(-1);
}

StatusOr<Value> Count(Runtime& runtime, const Value& self, const Arguments& arguments) {
  KV_ASSIGN_OR_RETURN(const Bound bound, Bound::Make(arguments, {"sub", "start", "end"}, 1));
  KV_ASSIGN_OR_RETURN(const TracedText needle, bound.Text(0, ""));
  KV_RETURN_IF_ERROR(runtime.SpendOnSearch(self.view(), needle.view()));
  KV_ASSIGN_OR_RETURN(const std::optional<Range> window, Window(runtime, self, bound, 1));
  if (!window) return Value::Int(0);
  const std::string_view text = self.view().substr(window->first, window->second - window->first);
  if (needle.empty()) return Value::Int(static_cast<int64_t>(CodePointCount(text)) + 1);
  int64_t count = 0;
  for (size_t at = FindText(text, needle.view()); at != text.npos;
       at = FindText(text, needle.view(), at + needle.size())) {
    ++count;
  }
  return Value::Int(count);
}

}  // namespace

const std::vector<NativeEntry>& StringSearchMethods() {
  static const std::vector<NativeEntry> kMethods = {
      {"split", Split<false>},
      {"rsplit", Split<true>},
      {"splitlines", SplitLines},
      {"partition", Partition<false>},
      {"rpartition", Partition<true>},
      {"startswith", Affix<false>},
      {"endswith", Affix<true>},
      {"removeprefix", RemoveAffix<false>},
      {"removesuffix", RemoveAffix<true>},
      {"find", Find<false, false>},
      {"rfind", Find<true, false>},
      {"index", Find<false, true>},
      {"rindex", Find<true, true>},
      {"count", Count},
  };
  return kMethods;
}

}  // namespace kvasir::jinja
