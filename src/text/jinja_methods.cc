// Methods of strings, lists and dicts. Those that change an object do not exist, as in jinja2's
// immutable sandbox.
#include <algorithm>
#include <bit>
#include <cmath>

#include "text/jinja_filters.h"
#include "text/jinja_strings.h"
#include "text/jinja_unicode.h"

namespace kvasir::jinja {
namespace {

template <CaseChange change>
StatusOr<Value> CaseMethod(Runtime& runtime, const Value& self, const Arguments& arguments) {
  KV_RETURN_IF_ERROR(Bound::Make(arguments, {}).status());
  KV_RETURN_IF_ERROR(runtime.SpendOnChars(self.view().size()));
  return runtime.String(ChangeCase(self.text(), change));
}

template <bool left, bool right>
StatusOr<Value> StripMethod(Runtime& runtime, const Value& self, const Arguments& arguments) {
  KV_ASSIGN_OR_RETURN(const Bound bound, Bound::Make(arguments, {"chars"}));
  KV_RETURN_IF_ERROR(runtime.SpendOn(self));
  if (!bound.has(0) || bound[0].is(Kind::kNone)) {
    return runtime.String(Strip(self.text(), std::nullopt, left, right));
  }
  KV_ASSIGN_OR_RETURN(const TracedText chars, bound.Text(0, ""));
  KV_RETURN_IF_ERROR(runtime.Spend(static_cast<int64_t>(chars.size())));
  return runtime.String(Strip(self.text(), chars.view(), left, right));
}

StatusOr<Value> ReplaceMethod(Runtime& runtime, const Value& self, const Arguments& arguments) {
  KV_ASSIGN_OR_RETURN(const Bound bound, Bound::Make(arguments, {"old", "new", "count"}, 2));
  KV_ASSIGN_OR_RETURN(const TracedText from, bound.Text(0, ""));
  KV_ASSIGN_OR_RETURN(const TracedText to, bound.Text(1, ""));
  KV_ASSIGN_OR_RETURN(const int64_t limit, bound.Int(2, -1));
  KV_ASSIGN_OR_RETURN(TracedText out, Replace(runtime, self.text(), from.view(), to, limit));
  return runtime.String(std::move(out));
}

StatusOr<Value> JoinMethod(Runtime& runtime, const Value& self, const Arguments& arguments) {
  KV_ASSIGN_OR_RETURN(const Bound bound, Bound::Make(arguments, {"iterable"}, 1));
  KV_ASSIGN_OR_RETURN(const ValueList items, Iterate(runtime, bound[0]));
  for (const Value& item : items) {
    if (!item.is(Kind::kString)) {
      return InvalidArgument("can only join strings, not {}", TypeName(item));
    }
  }
  KV_ASSIGN_OR_RETURN(TracedText out, Join(runtime, self.text(), items));
  return runtime.String(std::move(out));
}

StatusOr<Value> FormatMethod(Runtime& runtime, const Value& self, const Arguments& arguments) {
  return FormatBraces(runtime, self.text(), arguments);
}

StatusOr<Value> FormatMap(Runtime& runtime, const Value& self, const Arguments& arguments) {
  KV_ASSIGN_OR_RETURN(const Bound bound, Bound::Make(arguments, {"mapping"}, 1));
  if (!bound[0].is(Kind::kDict)) {
    return InvalidArgument("needs a dict, not {}", TypeName(bound[0]));
  }
  Arguments named;
  for (const auto& [key, value] : bound[0].dict().entries) {
    if (key.is(Kind::kString)) named.named.emplace_back(key, value);
  }
  return FormatBraces(runtime, self.text(), named);
}

StatusOr<Value> IsPrintableText(Runtime& runtime, const Value& self, const Arguments& arguments) {
  KV_RETURN_IF_ERROR(Bound::Make(arguments, {}).status());
  KV_RETURN_IF_ERROR(runtime.SpendOnChars(self.view().size()));
  for (size_t i = 0; i < self.view().size(); i += CharLength(self.view(), i)) {
    if (!IsPrintable(CodePointAt(self.view(), i))) return Value::Bool(false);
  }
  return Value::Bool(true);
}

// ljust, rjust, center: spaces needed on the left, out of `missing`.
enum class Side : uint8_t { kLeft, kRight, kCenter };

template <Side side>
StatusOr<Value> Justify(Runtime& runtime, const Value& self, const Arguments& arguments) {
  KV_ASSIGN_OR_RETURN(const Bound bound, Bound::Make(arguments, {"width", "fillchar"}, 1));
  KV_ASSIGN_OR_RETURN(const int64_t width, bound.Int(0, 0));
  KV_ASSIGN_OR_RETURN(const TracedText fill, bound.Text(1, " "));
  KV_RETURN_IF_ERROR(runtime.SpendOnChars(self.view().size() + fill.size()));
  if (CodePointCount(fill.view()) != 1) return InvalidArgument("fillchar must be one character");
  const auto length = static_cast<int64_t>(CodePointCount(self.view()));
  if (width <= length) return self;
  if (width > (1 << 20)) return ResourceExhausted("a width over a million");
  const int64_t missing = width - length;
  int64_t left = 0;
  if (side == Side::kRight) left = missing;
  if (side == Side::kCenter) left = missing / 2 + (missing & width & 1);
  KV_RETURN_IF_ERROR(runtime.Spend(missing / 8));
  TracedText out;
  for (int64_t i = 0; i < left; ++i) out.Append(fill);
  out.Append(self.text());
  for (int64_t i = left; i < missing; ++i) out.Append(fill);
  return runtime.String(std::move(out));
}

StatusOr<Value> ZFill(Runtime& runtime, const Value& self, const Arguments& arguments) {
  KV_ASSIGN_OR_RETURN(const Bound bound, Bound::Make(arguments, {"width"}, 1));
  KV_ASSIGN_OR_RETURN(const int64_t width, bound.Int(0, 0));
  KV_RETURN_IF_ERROR(runtime.SpendOnChars(self.view().size()));
  const auto length = static_cast<int64_t>(CodePointCount(self.view()));
  if (width <= length) return self;
  if (width > (1 << 20)) return ResourceExhausted("a width over a million");
  const bool signed_text = length > 0 && (self.view()[0] == '-' || self.view()[0] == '+');
  TracedText out = self.text().Slice(0, signed_text ? 1 : 0);
  out.Append(std::string(static_cast<size_t>(width - length), '0'), false);
  out.AppendSlice(self.text(), signed_text ? 1 : 0, self.text().size());
  return runtime.String(std::move(out));
}

// Whether the string is not empty and `predicate` holds for all characters.
template <bool (*predicate)(uint32_t)>
StatusOr<Value> AllAre(Runtime& runtime, const Value& self, const Arguments& arguments) {
  KV_RETURN_IF_ERROR(Bound::Make(arguments, {}).status());
  KV_RETURN_IF_ERROR(runtime.SpendOnChars(self.view().size()));
  const std::string_view text = self.view();
  for (size_t i = 0; i < text.size(); i += CharLength(text, i)) {
    if (!predicate(CodePointAt(text, i))) return Value::Bool(false);
  }
  return Value::Bool(!text.empty());
}

bool IsAlnum(uint32_t c) { return IsAlpha(c) || IsNumeric(c); }
bool IsAscii(uint32_t c) { return c < 0x80; }
// Digits in the wide sense: decimals, superscripts and circled digits.
StatusOr<Value> IsAsciiText(Runtime& runtime, const Value& self, const Arguments& arguments) {
  if (self.view().empty()) return Value::Bool(true);
  return AllAre<IsAscii>(runtime, self, arguments);
}

StatusOr<Value> IsIdentifier(Runtime& runtime, const Value& self, const Arguments&) {
  KV_RETURN_IF_ERROR(runtime.SpendOnChars(self.view().size()));
  const std::string_view text = self.view();
  for (size_t i = 0; i < text.size(); i += CharLength(text, i)) {
    const uint32_t c = CodePointAt(text, i);
    if (!(i == 0 ? StartsIdentifier(c) : ContinuesIdentifier(c))) return Value::Bool(false);
  }
  return Value::Bool(!text.empty());
}

StatusOr<Value> ExpandTabs(Runtime& runtime, const Value& self, const Arguments& arguments) {
  KV_ASSIGN_OR_RETURN(const Bound bound, Bound::Make(arguments, {"tabsize"}));
  KV_ASSIGN_OR_RETURN(const int64_t size, bound.Int(0, 8));
  if (size > 1024) return ResourceExhausted("a tab size over 1024");
  KV_RETURN_IF_ERROR(runtime.SpendOnChars(self.view().size()));
  const TracedText& text = self.text();
  TracedText out;
  int64_t column = 0;
  for (size_t i = 0; i < text.size(); i += CharLength(text.view(), i)) {
    const char c = text.view()[i];
    if (c != '\t') {
      out.AppendSlice(text, i, i + CharLength(text.view(), i));
      column = c == '\n' || c == '\r' ? 0 : column + 1;
      continue;
    }
    const int64_t spaces = size <= 0 ? 0 : size - column % size;
    KV_RETURN_IF_ERROR(runtime.Allocate(static_cast<size_t>(spaces)));
    out.Append(std::string(static_cast<size_t>(spaces), ' '), text.TrustedAt(i));
    column += spaces;
  }
  return runtime.String(std::move(out));
}

template <bool wants_upper>
StatusOr<Value> IsCase(Runtime& runtime, const Value& self, const Arguments&) {
  KV_ASSIGN_OR_RETURN(const bool holds,
                      ApplyTest(runtime, wants_upper ? "upper" : "lower", self, {}));
  return Value::Bool(holds);
}

StatusOr<Value> IsTitle(Runtime& runtime, const Value& self, const Arguments&) {
  KV_RETURN_IF_ERROR(runtime.SpendOnChars(self.view().size()));
  const std::string_view text = self.view();
  bool in_word = false;
  bool found = false;
  for (size_t i = 0; i < text.size(); i += CharLength(text, i)) {
    const uint32_t c = CodePointAt(text, i);
    const bool begins_word = IsUpper(c) || IsTitlecase(c);
    if (begins_word ? in_word : IsLower(c) && !in_word) return Value::Bool(false);
    in_word = begins_word || IsLower(c);
    found = found || in_word;
  }
  return Value::Bool(found);
}

StatusOr<Value> SequenceCount(Runtime& runtime, const Value& self, const Arguments& arguments) {
  KV_ASSIGN_OR_RETURN(const Bound bound, Bound::Make(arguments, {"value"}, 1));
  int64_t count = 0;
  for (const Value& item : self.items()) {
    KV_RETURN_IF_ERROR(runtime.Spend(1));
    KV_RETURN_IF_ERROR(runtime.SpendOnComparison(item, bound[0]));
    if (Equals(item, bound[0])) ++count;
  }
  return Value::Int(count);
}

StatusOr<Value> SequenceIndex(Runtime& runtime, const Value& self, const Arguments& arguments) {
  KV_ASSIGN_OR_RETURN(const Bound bound, Bound::Make(arguments, {"value"}, 1));
  for (size_t i = 0; i < self.items().size(); ++i) {
    KV_RETURN_IF_ERROR(runtime.Spend(1));
    KV_RETURN_IF_ERROR(runtime.SpendOnComparison(self.items()[i], bound[0]));
    if (Equals(self.items()[i], bound[0])) return Value::Int(static_cast<int64_t>(i));
  }
  return InvalidArgument("the value is not in the {}", TypeName(self));
}

StatusOr<Value> Copy(Runtime&, const Value& self, const Arguments& arguments) {
  KV_RETURN_IF_ERROR(Bound::Make(arguments, {}).status());
  return self;
}

StatusOr<Value> DictGet(Runtime& runtime, const Value& self, const Arguments& arguments) {
  KV_ASSIGN_OR_RETURN(const Bound bound, Bound::Make(arguments, {"key", "default"}, 1));
  KV_RETURN_IF_ERROR(runtime.SpendOn(bound[0]));
  if (!HashKey(bound[0])) return InvalidArgument("unhashable type: '{}'", TypeName(bound[0]));
  if (const Value* found = self.dict().Find(bound[0])) return *found;
  return bound.has(1) ? bound[1] : Value::None();
}

template <SequenceType type>
StatusOr<Value> DictView(Runtime& runtime, const Value& self, const Arguments& arguments) {
  KV_RETURN_IF_ERROR(Bound::Make(arguments, {}).status());
  ValueList items;
  for (const auto& [key, value] : self.dict().entries) {
    if (type == SequenceType::kDictKeys) {
      items.push_back(key);
    } else if (type == SequenceType::kDictValues) {
      items.push_back(value);
    } else {
      KV_ASSIGN_OR_RETURN(Value pair, runtime.Sequence({key, value}, SequenceType::kTuple));
      items.push_back(std::move(pair));
    }
  }
  return runtime.Sequence(std::move(items), type);
}

const std::vector<NativeEntry>& ListMethods() {
  static const std::vector<NativeEntry> kMethods = {{"count", SequenceCount},
                                                    {"index", SequenceIndex}};
  return kMethods;
}

const std::vector<NativeEntry>& DictMethods() {
  static const std::vector<NativeEntry> kMethods = {
      {"get", DictGet},
      {"keys", DictView<SequenceType::kDictKeys>},
      {"values", DictView<SequenceType::kDictValues>},
      {"items", DictView<SequenceType::kDictItems>},
      {"copy", Copy},
  };
  return kMethods;
}

StatusOr<Value> BitLength(Runtime&, const Value& self, const Arguments& arguments) {
  KV_RETURN_IF_ERROR(Bound::Make(arguments, {}).status());
  if (!self.is_integral()) return InvalidArgument("'float' has no attribute 'bit_length'");
  const auto bits = static_cast<uint64_t>(self.as_int());
  return Value::Int(std::bit_width(self.as_int() < 0 ? ~bits + 1 : bits));
}

StatusOr<Value> IsInteger(Runtime&, const Value& self, const Arguments& arguments) {
  KV_RETURN_IF_ERROR(Bound::Make(arguments, {}).status());
  if (!self.is(Kind::kFloat)) return InvalidArgument("'int' has no attribute 'is_integer'");
  return Value::Bool(std::trunc(self.as_double()) == self.as_double());
}

StatusOr<Value> Conjugate(Runtime&, const Value& self, const Arguments& arguments) {
  KV_RETURN_IF_ERROR(Bound::Make(arguments, {}).status());
  return self.is(Kind::kFloat) ? self : Value::Int(self.as_int());
}

const std::vector<NativeEntry>& NumberMethods() {
  static const std::vector<NativeEntry> kMethods = {
      {"bit_length", BitLength}, {"is_integer", IsInteger}, {"conjugate", Conjugate}};
  return kMethods;
}

NativeFunction FindMethodFunction(const Value& value, std::string_view name) {
  if (value.is(Kind::kDict)) return FindNative(DictMethods(), name);
  if (value.is(Kind::kString)) {
    const NativeFunction found = FindNative(StringMethods(), name);
    return found != nullptr ? found : FindNative(StringSearchMethods(), name);
  }
  if (value.is_number()) return FindNative(NumberMethods(), name);
  if (value.is_sequence(SequenceType::kList) && name == "copy") return Copy;
  if (value.is_sequence(SequenceType::kList) || value.is_sequence(SequenceType::kTuple) ||
      value.is_sequence(SequenceType::kRange)) {
    return FindNative(ListMethods(), name);
  }
  return nullptr;
}

bool Mutates(const Value& value, std::string_view name) {
  static constexpr std::string_view kDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
  static constexpr std::string_view kList[] = {"append", "clear", "pop",    "reverse",
                                               "insert", "sort",  "extend", "remove"};
  if (value.is(Kind::kDict))
    return std::find(std::begin(kDict), std::end(kDict), name) != std::end(kDict);
  return value.is_sequence(SequenceType::kList) &&
         std::find(std::begin(kList), std::end(kList), name) != std::end(kList);
}

}  // namespace

const std::vector<NativeEntry>& StringMethods() {
  static const std::vector<NativeEntry> kMethods = {
      {"upper", CaseMethod<CaseChange::kUpper>},
      {"lower", CaseMethod<CaseChange::kLower>},
      {"casefold", CaseMethod<CaseChange::kFold>},
      {"title", CaseMethod<CaseChange::kTitle>},
      {"capitalize", CaseMethod<CaseChange::kCapitalize>},
      {"swapcase", CaseMethod<CaseChange::kSwap>},
      {"strip", StripMethod<true, true>},
      {"lstrip", StripMethod<true, false>},
      {"rstrip", StripMethod<false, true>},
      {"replace", ReplaceMethod},
      {"join", JoinMethod},
      {"format", FormatMethod},
      {"ljust", Justify<Side::kLeft>},
      {"rjust", Justify<Side::kRight>},
      {"center", Justify<Side::kCenter>},
      {"zfill", ZFill},
      {"isalpha", AllAre<IsAlpha>},
      {"isalnum", AllAre<IsAlnum>},
      {"isdigit", AllAre<IsDigit>},
      {"isdecimal", AllAre<IsDecimal>},
      {"isnumeric", AllAre<IsNumeric>},
      {"isspace", AllAre<IsSpace>},
      {"isascii", IsAsciiText},
      {"isupper", IsCase<true>},
      {"islower", IsCase<false>},
      {"istitle", IsTitle},
      {"isidentifier", IsIdentifier},
      {"isprintable", IsPrintableText},
      {"format_map", FormatMap},
      {"expandtabs", ExpandTabs},
  };
  return kMethods;
}

std::optional<Value> FindMethod(const Value& value, std::string_view name) {
  if (Mutates(value, name)) {
    return Value::Undefined(
        fmt::format("'{}' would change the {}, which templates cannot do", name, TypeName(value)));
  }
  const NativeFunction function = FindMethodFunction(value, name);
  if (function == nullptr) return std::nullopt;
  return MakeNative(name, function, value);
}

}  // namespace kvasir::jinja
