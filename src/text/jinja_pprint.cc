// The pprint filter: Python's pprint.pformat in its default style (80 columns, dicts sorted by
// key).
#include <algorithm>

#include "text/jinja_filters.h"
#include "text/jinja_strings.h"
#include "text/jinja_unicode.h"

namespace kvasir::jinja {
namespace {

constexpr int64_t kWidth = 80;

int64_t CharsIn(const TracedText& text) {
  return static_cast<int64_t>(CodePointCount(text.view()));
}

// What sorting compares: keys of one type by their order, others by their type's name.
bool KeyLess(const Value& a, const Value& b) {
  const StatusOr<bool> less = LessThan(a, b);
  return less.ok() ? *less : TypeName(a) < TypeName(b);
}

class Printer {
 public:
  explicit Printer(TracedText* out) : out_(*out) {}

  // `indent`: the column where the value begins; `allowance`: characters that follow its last line.
  void Print(const Value& value, int64_t indent, int64_t allowance, int level) {
    const TracedText flat = Flat(value);
    if (CharsIn(flat) > kWidth - indent - allowance) {
      if (value.is(Kind::kDict)) return PrintDict(value, indent, allowance, level);
      if (value.is_sequence(SequenceType::kList)) {
        return PrintItems(value.items(), "[", "]", indent, allowance, level);
      }
      if (value.is_sequence(SequenceType::kTuple)) {
        const std::string_view close = value.items().size() == 1 ? ",)" : ")";
        return PrintItems(value.items(), "(", close, indent, allowance, level);
      }
      if (value.is(Kind::kString)) return PrintString(value.text(), indent, allowance, level);
    }
    out_.Append(flat);
  }

 private:
  using Entries = std::vector<std::pair<Value, Value>>;

  static Entries Sorted(const Value& dict) {
    Entries entries = dict.dict().entries;
    std::stable_sort(entries.begin(), entries.end(),
                     [](const auto& a, const auto& b) { return KeyLess(a.first, b.first); });
    return entries;
  }

  // repr(), with sorted dicts.
  static TracedText Flat(const Value& value) {
    TracedText out;
    const auto append_items = [&out](const ValueList& items) {
      for (size_t i = 0; i < items.size(); ++i) {
        if (i > 0) out.Append(", ", false);
        out.Append(Flat(items[i]));
      }
    };
    if (value.is(Kind::kDict)) {
      out.Append("{", false);
      for (const auto& [key, item] : Sorted(value)) {
        if (out.size() > 1) out.Append(", ", false);
        out.Append(Flat(key));
        out.Append(": ", false);
        out.Append(Flat(item));
      }
      out.Append("}", false);
    } else if (value.is_sequence(SequenceType::kList)) {
      out.Append("[", false);
      append_items(value.items());
      out.Append("]", false);
    } else if (value.is_sequence(SequenceType::kTuple)) {
      out.Append("(", false);
      append_items(value.items());
      out.Append(value.items().size() == 1 ? ",)" : ")", false);
    } else {
      AppendRepr(value, &out);
    }
    return out;
  }

  void Line(int64_t indent) {
    out_.Append("\n" + std::string(static_cast<size_t>(indent), ' '), false);
  }

  void PrintDict(const Value& value, int64_t indent, int64_t allowance, int level) {
    out_.Append("{", false);
    const Entries entries = Sorted(value);
    for (size_t i = 0; i < entries.size(); ++i) {
      const bool is_last = i + 1 == entries.size();
      const TracedText key = Flat(entries[i].first);
      out_.Append(key);
      out_.Append(": ", false);
      Print(entries[i].second, indent + 1 + CharsIn(key) + 2, is_last ? allowance + 1 : 1,
            level + 1);
      if (is_last) break;
      out_.Append(",", false);
      Line(indent + 1);
    }
    out_.Append("}", false);
  }

  void PrintItems(const ValueList& items, std::string_view open, std::string_view close,
                  int64_t indent, int64_t allowance, int level) {
    out_.Append(open, false);
    for (size_t i = 0; i < items.size(); ++i) {
      const bool is_last = i + 1 == items.size();
      Print(items[i], indent + 1, is_last ? allowance + static_cast<int64_t>(close.size()) : 1,
            level + 1);
      if (is_last) break;
      out_.Append(",", false);
      Line(indent + 1);
    }
    out_.Append(close, false);
  }

  // A long string becomes several, cut at line ends and then behind spaces.
  void PrintString(const TracedText& text, int64_t indent, int64_t allowance, int level) {
    if (level == 1) {
      ++indent;
      ++allowance;
    }
    std::vector<TracedText> chunks;
    const int64_t width = kWidth - indent;
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = LineEnd(text.view(), begin);
      const bool is_last = end == text.size();
      TracedText line = Quoted(text, begin, end);
      if (CharsIn(line) <= width - (is_last ? allowance : 0)) {
        chunks.push_back(std::move(line));
      } else {
        CutLine(text, begin, end, width, is_last ? allowance : 0, &chunks);
      }
      begin = end;
    }
    if (chunks.size() == 1) {
      out_.Append(Quoted(text, 0, text.size()));
      return;
    }
    if (level == 1) out_.Append("(", false);
    for (size_t i = 0; i < chunks.size(); ++i) {
      if (i > 0) Line(indent);
      out_.Append(chunks[i]);
    }
    if (level == 1) out_.Append(")", false);
  }

  static void CutLine(const TracedText& text, size_t begin, size_t end, int64_t width,
                      int64_t allowance, std::vector<TracedText>* chunks) {
    size_t current = begin;  // The chunk so far is [current, part).
    for (size_t part = begin; part < end;) {
      size_t next = part;
      while (next < end && !IsSpace(CodePointAt(text.view(), next))) {
        next += CharLength(text.view(), next);
      }
      next = std::min(end, SkipSpaces(text.view(), next));
      const int64_t limit = width - (next == end ? allowance : 0);
      if (part > current && CharsIn(Quoted(text, current, next)) > limit) {
        chunks->push_back(Quoted(text, current, part));
        current = part;
      }
      part = next;
    }
    if (current < end) chunks->push_back(Quoted(text, current, end));
  }

  static TracedText Quoted(const TracedText& text, size_t begin, size_t end) {
    TracedText out;
    AppendRepr(Value::String(text.Slice(begin, end)), &out);
    return out;
  }

  // One past the line that begins at `begin`, its end included.
  static size_t LineEnd(std::string_view text, size_t begin) {
    for (size_t i = begin; i < text.size();) {
      const size_t length = CharLength(text, i);
      if (IsLineEnd(CodePointAt(text, i))) return i + (text.substr(i, 2) == "\r\n" ? 2 : length);
      i += length;
    }
    return text.size();
  }

  TracedText& out_;
};

}  // namespace

StatusOr<Value> PrettyPrint(Runtime& runtime, const Value& self, const Arguments& arguments) {
  KV_RETURN_IF_ERROR(Bound::Make(arguments, {}).status());
  // Every level prints what lies below it once to see whether it fits, and indents it.
  const int64_t levels = self.container_depth() + 2;
  if (self.weight() > kMaxWeight / levels) return ResourceExhausted("a value that large");
  KV_RETURN_IF_ERROR(runtime.Spend(self.weight() * levels));
  KV_RETURN_IF_ERROR(runtime.Allocate(static_cast<size_t>(self.weight() * levels)));
  TracedText out;
  Printer(&out).Print(self, 0, 0, 1);
  return runtime.String(std::move(out));
}

}  // namespace kvasir::jinja
