#include <algorithm>
#include <cctype>

#include "text/jinja_filters.h"
#include "text/jinja_strings.h"
#include "text/jinja_unicode.h"

namespace kvasir::jinja {
namespace {

template <CaseChange change>
StatusOr<Value> CaseFilter(Runtime& runtime, const Value& self, const Arguments& arguments) {
  KV_RETURN_IF_ERROR(Bound::Make(arguments, {}).status());
  KV_ASSIGN_OR_RETURN(const TracedText text, runtime.Text(self));
  KV_RETURN_IF_ERROR(runtime.SpendOnChars(text.size()));
  return runtime.String(ChangeCase(text, change));
}

// Unlike str.title(), a word begins after white space, - ( { [ or <.
StatusOr<Value> Title(Runtime& runtime, const Value& self, const Arguments& arguments) {
  KV_RETURN_IF_ERROR(Bound::Make(arguments, {}).status());
  KV_ASSIGN_OR_RETURN(const TracedText text, runtime.Text(self));
  KV_RETURN_IF_ERROR(runtime.SpendOnChars(text.size()));
  const std::string_view bytes = text.view();
  const auto splits = [bytes](size_t at) {
    const uint32_t c = CodePointAt(bytes, at);
    return IsSpace(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
  };
  TracedText out;
  for (size_t begin = 0; begin < bytes.size();) {
    const size_t first = CharLength(bytes, begin);
    size_t end = begin + first;
    if (!splits(begin)) {
      while (end < bytes.size() && !splits(end)) end += CharLength(bytes, end);
    }
    out.Append(ToUpper(CodePointAt(bytes, begin)), text.TrustedAt(begin));
    out.Append(ChangeCase(text.Slice(begin + first, end), CaseChange::kLower));
    begin = end;
  }
  return runtime.String(std::move(out));
}

StatusOr<Value> ToString(Runtime& runtime, const Value& self, const Arguments& arguments) {
  KV_RETURN_IF_ERROR(Bound::Make(arguments, {}).status());
  KV_ASSIGN_OR_RETURN(TracedText text, runtime.Text(self));
  return runtime.String(std::move(text));
}

StatusOr<Value> Escape(Runtime& runtime, const Value& self, const Arguments& arguments) {
  KV_RETURN_IF_ERROR(Bound::Make(arguments, {}).status());
  KV_ASSIGN_OR_RETURN(const TracedText text, runtime.Text(self));
  KV_RETURN_IF_ERROR(runtime.SpendOnChars(text.size()));
  TracedText out;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text.view()[i];
    std::string_view escaped = text.view().substr(i, 1);
    if (c == '&') escaped = "&amp;";
    if (c == '<') escaped = "&lt;";
    if (c == '>') escaped = "&gt;";
    if (c == '\'') escaped = "&#39;";
    if (c == '"') escaped = "&#34;";
    out.Append(escaped, text.TrustedAt(i));
  }
  return runtime.String(std::move(out));
}

StatusOr<Value> Trim(Runtime& runtime, const Value& self, const Arguments& arguments) {
  KV_ASSIGN_OR_RETURN(const Bound bound, Bound::Make(arguments, {"chars"}));
  KV_ASSIGN_OR_RETURN(const TracedText text, runtime.Text(self));
  if (!bound.has(0) || bound[0].is(Kind::kNone)) {
    return runtime.String(Strip(text, std::nullopt, true, true));
  }
  KV_ASSIGN_OR_RETURN(const TracedText chars, bound.Text(0, ""));
  KV_RETURN_IF_ERROR(runtime.Spend(static_cast<int64_t>(chars.size())));
  return runtime.String(Strip(text, chars.view(), true, true));
}

StatusOr<Value> ReplaceFilter(Runtime& runtime, const Value& self, const Arguments& arguments) {
  KV_ASSIGN_OR_RETURN(const Bound bound, Bound::Make(arguments, {"old", "new", "count"}, 2));
  KV_ASSIGN_OR_RETURN(const TracedText text, runtime.Text(self));
  KV_ASSIGN_OR_RETURN(const TracedText from, runtime.Text(bound[0]));
  KV_ASSIGN_OR_RETURN(const TracedText to, runtime.Text(bound[1]));
  int64_t limit = -1;
  if (bound.has(2) && !bound[2].is(Kind::kNone)) {
    KV_ASSIGN_OR_RETURN(limit, bound.Int(2, -1));
  }
  KV_ASSIGN_OR_RETURN(TracedText out, Replace(runtime, text, from.view(), to, limit));
  return runtime.String(std::move(out));
}

// The byte ranges of the lines of `text`, line ends excluded.
std::vector<std::pair<size_t, size_t>> LineRanges(std::string_view text) {
  std::vector<std::pair<size_t, size_t>> lines;
  size_t begin = 0;
  for (size_t i = 0; i < text.size();) {
    const size_t length = CharLength(text, i);
    if (!IsLineEnd(CodePointAt(text, i))) {
      i += length;
      continue;
    }
    lines.emplace_back(begin, i);
    i += text.substr(i, 2) == "\r\n" ? 2 : length;
    begin = i;
  }
  if (begin < text.size()) lines.emplace_back(begin, text.size());
  return lines;
}

// What Python does with the methods of str, jinja2 does to strings only.
Status RequireString(const Value& value) {
  if (value.is(Kind::kString)) return OkStatus();
  return InvalidArgument("needs a string, not {}", TypeName(value));
}

StatusOr<Value> Indent(Runtime& runtime, const Value& self, const Arguments& arguments) {
  KV_ASSIGN_OR_RETURN(const Bound bound, Bound::Make(arguments, {"width", "first", "blank"}));
  KV_RETURN_IF_ERROR(RequireString(self));
  KV_ASSIGN_OR_RETURN(TracedText text, runtime.Text(self));
  TracedText indention;
  if (bound.has(0) && bound[0].is(Kind::kString)) {
    indention = bound[0].text();
  } else {
    KV_ASSIGN_OR_RETURN(const int64_t width, bound.Int(0, 4));
    if (width > 4096) return ResourceExhausted("a width over 4096");
    indention.Append(std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' '), false);
  }
  KV_RETURN_IF_ERROR(runtime.SpendOnChars(text.size()));
  text.Append("\n", false);  // So that a trailing line end counts as an empty last line.
  const auto lines = LineRanges(text.view());
  KV_RETURN_IF_ERROR(runtime.Allocate(lines.size() * (indention.size() + 32)));
  TracedText out;
  for (size_t i = 0; i < lines.size(); ++i) {
    const auto [begin, end] = lines[i];
    // The line end itself comes from the text, if it was there.
    if (i > 0) out.Append("\n", text.TrustedAt(begin - 1));
    const bool indents = i == 0 ? bound.Truthy(1, false) : (begin < end || bound.Truthy(2, false));
    if (indents) out.Append(indention);
    out.AppendSlice(text, begin, end);
  }
  return runtime.String(std::move(out));
}

StatusOr<Value> Center(Runtime& runtime, const Value& self, const Arguments& arguments) {
  KV_ASSIGN_OR_RETURN(const Bound bound, Bound::Make(arguments, {"width"}));
  KV_ASSIGN_OR_RETURN(const int64_t width, bound.Int(0, 80));
  KV_ASSIGN_OR_RETURN(const TracedText text, runtime.Text(self));
  KV_RETURN_IF_ERROR(runtime.SpendOnChars(text.size()));
  const auto length = static_cast<int64_t>(CodePointCount(text.view()));
  if (width > (1 << 20)) return ResourceExhausted("a width over a million");
  if (width <= length) return runtime.String(text);
  const int64_t missing = width - length;
  const int64_t left = missing / 2 + (missing & width & 1);
  TracedText out(std::string(static_cast<size_t>(left), ' '), false);
  out.Append(text);
  out.Append(std::string(static_cast<size_t>(missing - left), ' '), false);
  return runtime.String(std::move(out));
}

StatusOr<Value> Truncate(Runtime& runtime, const Value& self, const Arguments& arguments) {
  KV_ASSIGN_OR_RETURN(const Bound bound,
                      Bound::Make(arguments, {"length", "killwords", "end", "leeway"}));
  KV_ASSIGN_OR_RETURN(const int64_t length, bound.Int(0, 255));
  KV_ASSIGN_OR_RETURN(const TracedText end, bound.Text(2, "..."));
  int64_t leeway = 5;
  if (bound.has(3) && !bound[3].is(Kind::kNone)) {
    KV_ASSIGN_OR_RETURN(leeway, bound.Int(3, 5));
  }
  if (!self.is(Kind::kString)) {
    // A short list passes as it is: jinja2 only looks at the length before it cuts.
    KV_ASSIGN_OR_RETURN(const int64_t size, Length(self));
    if (size <= length + leeway) return self;
    return InvalidArgument("needs a string, not {}", TypeName(self));
  }
  KV_ASSIGN_OR_RETURN(const TracedText text, runtime.Text(self));
  KV_RETURN_IF_ERROR(runtime.SpendOnChars(text.size() + end.size()));
  KV_RETURN_IF_ERROR(runtime.Allocate(text.size() * sizeof(size_t)));
  const auto end_length = static_cast<int64_t>(CodePointCount(end.view()));
  if (length < end_length || leeway < 0) {
    return InvalidArgument("length {} or leeway {} is too small", length, leeway);
  }
  const std::vector<size_t> offsets = CharOffsets(text.view());
  const auto count = static_cast<int64_t>(offsets.size()) - 1;
  if (count <= length || count - length <= leeway) return runtime.String(text);
  size_t stop = offsets[static_cast<size_t>(length - end_length)];
  if (!bound.Truthy(1, false)) {
    const size_t space = text.view().substr(0, stop).rfind(' ');
    if (space != std::string_view::npos) stop = space;
  }
  TracedText out = text.Slice(0, stop);
  out.Append(end);
  return runtime.String(std::move(out));
}

StatusOr<Value> WordCount(Runtime& runtime, const Value& self, const Arguments& arguments) {
  KV_RETURN_IF_ERROR(Bound::Make(arguments, {}).status());
  KV_ASSIGN_OR_RETURN(const TracedText text, runtime.Text(self));
  KV_RETURN_IF_ERROR(runtime.SpendOnChars(text.size()));
  int64_t count = 0;
  bool in_word = false;
  for (size_t i = 0; i < text.size(); i += CharLength(text.view(), i)) {
    const uint32_t c = CodePointAt(text.view(), i);
    const bool is_word = IsAlpha(c) || IsNumeric(c) || c == '_';
    if (is_word && !in_word) ++count;
    in_word = is_word;
  }
  return Value::Int(count);
}

void AppendQuoted(const TracedText& text, bool keeps_slash, TracedText* out) {
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text.view()[i];
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       c == '_' || c == '.' || c == '-' || c == '~' || (c == '/' && keeps_slash);
    if (plain) {
      out->Append(text.view().substr(i, 1), text.TrustedAt(i));
    } else if (c == ' ' && !keeps_slash) {
      out->Append("+", text.TrustedAt(i));
    } else {
      out->Append(fmt::format("%{:02X}", static_cast<unsigned char>(c)), text.TrustedAt(i));
    }
  }
}

StatusOr<Value> UrlEncode(Runtime& runtime, const Value& self, const Arguments& arguments) {
  KV_RETURN_IF_ERROR(Bound::Make(arguments, {}).status());
  TracedText out;
  const bool is_query = self.is(Kind::kDict) || self.is(Kind::kSequence);
  if (!is_query) {
    KV_ASSIGN_OR_RETURN(const TracedText text, runtime.Text(self));
    KV_RETURN_IF_ERROR(runtime.Spend(static_cast<int64_t>(text.size())));
    AppendQuoted(text, true, &out);
    return runtime.String(std::move(out));
  }
  std::vector<std::pair<Value, Value>> pairs;
  if (self.is(Kind::kDict)) {
    pairs = self.dict().entries;
  } else {
    KV_ASSIGN_OR_RETURN(const ValueList items, Iterate(runtime, self));
    for (const Value& item : items) {
      KV_ASSIGN_OR_RETURN(const ValueList pair, Iterate(runtime, item));
      if (pair.size() != 2) return InvalidArgument("needs pairs");
      pairs.emplace_back(pair[0], pair[1]);
    }
  }
  for (size_t i = 0; i < pairs.size(); ++i) {
    if (i > 0) out.Append("&", false);
    KV_ASSIGN_OR_RETURN(const TracedText key, runtime.Text(pairs[i].first));
    KV_ASSIGN_OR_RETURN(const TracedText value, runtime.Text(pairs[i].second));
    KV_RETURN_IF_ERROR(runtime.Spend(static_cast<int64_t>(key.size() + value.size())));
    AppendQuoted(key, false, &out);
    out.Append("=", false);
    AppendQuoted(value, false, &out);
  }
  return runtime.String(std::move(out));
}

StatusOr<Value> FormatFilter(Runtime& runtime, const Value& self, const Arguments& arguments) {
  KV_ASSIGN_OR_RETURN(const TracedText text, runtime.Text(self));
  if (arguments.named.empty()) {
    KV_ASSIGN_OR_RETURN(const Value values,
                        runtime.Sequence(arguments.positional, SequenceType::kTuple));
    return FormatPercent(runtime, text, values);
  }
  if (!arguments.positional.empty()) {
    return InvalidArgument("takes positional or keyword arguments, not both");
  }
  auto dict = std::make_shared<DictObject>();
  for (const auto& [key, value] : arguments.named) dict->Set(key, value);
  KV_ASSIGN_OR_RETURN(const Value values, runtime.Dict(std::move(dict)));
  return FormatPercent(runtime, text, values);
}

// textwrap.wrap() of each line, with break_long_words and break_on_hyphens as jinja2 sets them.
class Wrapper {
 public:
  Wrapper(size_t width, bool breaks_long_words, bool breaks_on_hyphens, const TracedText* text)
      : width_(width),
        breaks_long_words_(breaks_long_words),
        breaks_on_hyphens_(breaks_on_hyphens),
        text_(*text) {}

  // The wrapped lines of bytes [begin, end).
  std::vector<TracedText> Wrap(size_t begin, size_t end) {
    lines_.clear();
    line_ = TracedText();
    used_ = 0;
    for (size_t i = begin; i < end;) {
      size_t stop = i;
      const bool space = text_.view()[i] == ' ' || text_.view()[i] == '\t';
      while (stop < end && (text_.view()[stop] == ' ' || text_.view()[stop] == '\t') == space) {
        ++stop;
        if (!space && breaks_on_hyphens_ && IsBreakAfter(i, stop, end)) break;
      }
      AddChunk(text_.Slice(i, stop), space);
      i = stop;
    }
    Flush();
    return std::move(lines_);
  }

 private:
  // After a hyphen between letters.
  bool IsBreakAfter(size_t begin, size_t at, size_t end) const {
    const std::string_view text = text_.view();
    return text[at - 1] == '-' && at - begin >= 3 && at + 1 < end &&
           IsAlpha(CodePointAt(text, at)) &&
           std::isalpha(static_cast<unsigned char>(text[at - 2])) != 0;
  }

  void AddChunk(const TracedText& chunk, bool space) {
    const std::vector<size_t> offsets = CharOffsets(chunk.view());
    size_t at = 0;  // Characters of the chunk already placed.
    while (true) {
      const size_t length = offsets.size() - 1 - at;
      if (space && line_.empty() && !lines_.empty()) return;
      const bool breaks = used_ + length > width_;
      if (breaks && length > width_ && breaks_long_words_) {
        const size_t fits =
            std::max<size_t>(width_ > used_ ? width_ - used_ : 0, line_.empty() ? 1 : 0);
        line_.AppendSlice(chunk, offsets[at], offsets[at + fits]);
        Flush();
        at += fits;
        continue;
      }
      if (breaks) Flush();
      if (breaks && space) return;
      line_.AppendSlice(chunk, offsets[at], chunk.size());
      used_ += length;
      return;
    }
  }

  void Flush() {
    const size_t end = DropTrailingSpaces(line_.view(), 0, line_.size());
    if (end > 0) lines_.push_back(line_.Slice(0, end));
    line_ = TracedText();
    used_ = 0;
  }

  const size_t width_;
  const bool breaks_long_words_;
  const bool breaks_on_hyphens_;
  const TracedText& text_;
  std::vector<TracedText> lines_;
  TracedText line_;
  size_t used_ = 0;  // Characters in line_.
};

StatusOr<Value> WordWrap(Runtime& runtime, const Value& self, const Arguments& arguments) {
  KV_ASSIGN_OR_RETURN(
      const Bound bound,
      Bound::Make(arguments, {"width", "break_long_words", "wrapstring", "break_on_hyphens"}));
  KV_RETURN_IF_ERROR(RequireString(self));
  KV_ASSIGN_OR_RETURN(const int64_t width, bound.Int(0, 79));
  KV_ASSIGN_OR_RETURN(const TracedText end, bound.Text(2, "\n"));
  KV_ASSIGN_OR_RETURN(const TracedText text, runtime.Text(self));
  if (width < 1) return InvalidArgument("a width under 1");
  KV_RETURN_IF_ERROR(runtime.Spend(static_cast<int64_t>(text.size())));
  // Every line is a string of its own before it is joined.
  const size_t line_bytes = sizeof(TracedText) + 32 + end.size();
  KV_RETURN_IF_ERROR(runtime.Allocate(
      text.size() + line_bytes * (8 + 2 * text.size() / static_cast<size_t>(width))));
  Wrapper wrapper(static_cast<size_t>(width), bound.Truthy(1, true), bound.Truthy(3, true), &text);
  TracedText out;
  bool first = true;
  for (const auto& [begin, stop] : LineRanges(text.view())) {
    if (!first) out.Append(end);
    first = false;
    const std::vector<TracedText> lines = wrapper.Wrap(begin, stop);
    for (size_t i = 0; i < lines.size(); ++i) {
      if (i > 0) out.Append(end);
      out.Append(lines[i]);
    }
  }
  return runtime.String(std::move(out));
}

// Drops <tags> and <!-- comments --> and collapses white space.
StatusOr<Value> StripTags(Runtime& runtime, const Value& self, const Arguments& arguments) {
  KV_RETURN_IF_ERROR(Bound::Make(arguments, {}).status());
  KV_ASSIGN_OR_RETURN(const TracedText text, runtime.Text(self));
  KV_RETURN_IF_ERROR(runtime.SpendOnChars(text.size()));
  const std::string_view bytes = text.view();
  TracedText plain;
  // Once there is no end of a tag or comment, there is none later; searching again for every '<'
  // would be quadratic.
  bool tags_end = true;
  bool comments_end = true;
  for (size_t i = 0; i < bytes.size();) {
    if (bytes[i] == '<') {
      const bool comment = bytes.substr(i, 4) == "<!--";
      bool& may_end = comment ? comments_end : tags_end;
      const size_t close = !may_end  ? bytes.npos
                           : comment ? bytes.find("-->", i + 4)
                                     : bytes.find('>', i);
      may_end = close != bytes.npos;
      if (close != bytes.npos) {
        i = close + (comment ? 3 : 1);
        continue;
      }
    }
    plain.AppendSlice(text, i, i + 1);
    ++i;
  }
  TracedText out;
  const std::string_view view = plain.view();
  for (size_t i = SkipSpaces(view, 0); i < view.size();) {
    size_t end = i;
    while (end < view.size() && !IsSpace(CodePointAt(view, end))) end += CharLength(view, end);
    if (!out.empty()) out.Append(" ", false);
    out.AppendSlice(plain, i, end);
    i = SkipSpaces(view, end);
  }
  return runtime.String(std::move(out));
}

}  // namespace

const std::vector<NativeEntry>& TextFilters() {
  static const std::vector<NativeEntry> kFilters = {
      {"upper", CaseFilter<CaseChange::kUpper>},
      {"lower", CaseFilter<CaseChange::kLower>},
      {"capitalize", CaseFilter<CaseChange::kCapitalize>},
      {"title", Title},
      {"string", ToString},
      {"safe", ToString},
      {"escape", Escape},
      {"e", Escape},
      {"forceescape", Escape},
      {"trim", Trim},
      {"replace", ReplaceFilter},
      {"indent", Indent},
      {"center", Center},
      {"truncate", Truncate},
      {"wordcount", WordCount},
      {"urlencode", UrlEncode},
      {"format", FormatFilter},
      {"striptags", StripTags},
      {"wordwrap", WordWrap},
  };
  return kFilters;
}

}  // namespace kvasir::jinja
