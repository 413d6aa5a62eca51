// Truth, equality, order and printing of values.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/jinja_unicode.h"
#include "text/jinja_value.h"

namespace kvasir::jinja {
namespace {

bool ListsEqual(const ValueList& a, const ValueList& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), Equals);
}

// Of two dicts, with the keys alone or key and value in each item; in linear time.
bool ViewsEqual(const ValueList& a, const ValueList& b, bool has_values) {
  if (a.size() != b.size()) return false;
  DictObject other;
  for (const Value& item : b) {
    other.Set(has_values ? item.items()[0] : item, has_values ? item.items()[1] : Value());
  }
  return std::all_of(a.begin(), a.end(), [&](const Value& item) {
    const Value* found = other.Find(has_values ? item.items()[0] : item);
    return found != nullptr && (!has_values || Equals(*found, item.items()[1]));
  });
}

// Python compares dict keys and items views as sets, values by identity; generators by identity.
bool SequencesEqual(const Value& a, const Value& b) {
  if (a.object() == b.object()) return true;
  if (a.sequence_type() != b.sequence_type()) return false;
  switch (a.sequence_type()) {
    case SequenceType::kList:
    case SequenceType::kTuple:
    case SequenceType::kRange:
      return ListsEqual(a.items(), b.items());
    case SequenceType::kDictKeys:
    case SequenceType::kDictItems:
      return ViewsEqual(a.items(), b.items(), a.sequence_type() == SequenceType::kDictItems);
    default:
      return false;
  }
}

bool DictsEqual(const DictObject& a, const DictObject& b) {
  if (a.entries.size() != b.entries.size()) return false;
  return std::all_of(a.entries.begin(), a.entries.end(), [&](const auto& entry) {
    const Value* other = b.Find(entry.first);
    return other != nullptr && Equals(entry.second, *other);
  });
}

void AppendStringRepr(const TracedText& text, TracedText* out) {
  const std::string_view bytes = text.view();
  const bool double_quotes = bytes.find('\'') != bytes.npos && bytes.find('"') == bytes.npos;
  const char quote = double_quotes ? '"' : '\'';
  out->Append(std::string_view(&quote, 1), false);
  for (size_t i = 0; i < bytes.size();) {
    const size_t length = CharLength(bytes, i);
    const uint32_t c = CodePointAt(bytes, i);
    std::string escaped;
    if (c == '\\' || c == static_cast<uint32_t>(quote)) {
      escaped = {'\\', static_cast<char>(c)};
    } else if (c == '\n') {
      escaped = "\\n";
    } else if (c == '\r') {
      escaped = "\\r";
    } else if (c == '\t') {
      escaped = "\\t";
    } else if (!IsPrintable(c)) {
      escaped = c < 0x100     ? HexEscape('x', c, 2)
                : c < 0x10000 ? HexEscape('u', c, 4)
                              : HexEscape('U', c, 8);
    } else {
      escaped = bytes.substr(i, length);
    }
    out->Append(escaped, text.TrustedAt(i));
    i += length;
  }
  out->Append(std::string_view(&quote, 1), false);
}

void AppendListRepr(const ValueList& items, std::string_view open, std::string_view close,
                    TracedText* out) {
  out->Append(open, false);
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out->Append(", ", false);
    AppendRepr(items[i], out);
  }
  out->Append(close, false);
}

void AppendSequenceRepr(const Value& value, TracedText* out) {
  const ValueList& items = value.items();
  switch (value.sequence_type()) {
    case SequenceType::kList:
      return AppendListRepr(items, "[", "]", out);
    case SequenceType::kTuple:
      return AppendListRepr(items, "(", items.size() == 1 ? ",)" : ")", out);
    case SequenceType::kDictKeys:
      return AppendListRepr(items, "dict_keys([", "])", out);
    case SequenceType::kDictValues:
      return AppendListRepr(items, "dict_values([", "])", out);
    case SequenceType::kDictItems:
      return AppendListRepr(items, "dict_items([", "])", out);
    case SequenceType::kRange: {
      const int64_t first = items.empty() ? 0 : items.front().as_int();
      const int64_t step = items.size() < 2 ? 1 : items[1].as_int() - first;
      const int64_t end = items.empty() ? 0 : items.back().as_int() + step;
      out->Append(step == 1 ? fmt::format("range({}, {})", first, end)
                            : fmt::format("range({}, {}, {})", first, end, step),
                  false);
      return;
    }
    case SequenceType::kIterator:
      out->Append("<generator object>", false);
      return;
  }
}

void AppendDictRepr(const DictObject& dict, TracedText* out) {
  out->Append("{", false);
  for (size_t i = 0; i < dict.entries.size(); ++i) {
    if (i > 0) out->Append(", ", false);
    AppendRepr(dict.entries[i].first, out);
    out->Append(": ", false);
    AppendRepr(dict.entries[i].second, out);
  }
  out->Append("}", false);
}

}  // namespace

bool IsTruthy(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.as_int() != 0;
    case Kind::kFloat:
      return value.as_double() != 0;
    case Kind::kString:
      return !value.view().empty();
    case Kind::kSequence:
      return value.sequence_type() == SequenceType::kIterator || !value.items().empty();
    case Kind::kDict:
      return !value.dict().entries.empty();
    default:
      return true;
  }
}

bool Equals(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return a.as_int() == b.as_int();
    if (!a.long_digits().empty() && !b.long_digits().empty()) {
      return a.long_digits() == b.long_digits();
    }
    return a.as_double() == b.as_double();
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      return a.view() == b.view();
    case Kind::kSequence:
      return SequencesEqual(a, b);
    case Kind::kDict:
      return a.object() == b.object() || DictsEqual(a.dict(), b.dict());
    default:
      return a.object() == b.object();
  }
}

StatusOr<bool> LessThan(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return a.as_int() < b.as_int();
    return a.as_double() < b.as_double();
  }
  if (a.is(Kind::kString) && b.is(Kind::kString)) return a.view() < b.view();
  const bool ordered =
      a.is(Kind::kSequence) && b.is(Kind::kSequence) && a.sequence_type() == b.sequence_type() &&
      (a.sequence_type() == SequenceType::kList || a.sequence_type() == SequenceType::kTuple);
  if (ordered) {
    const size_t common = std::min(a.items().size(), b.items().size());
    for (size_t i = 0; i < common; ++i) {
      if (!Equals(a.items()[i], b.items()[i])) return LessThan(a.items()[i], b.items()[i]);
    }
    return a.items().size() < b.items().size();
  }
  for (const Value* side : {&a, &b}) {
    if (side->is(Kind::kUndefined)) return InvalidArgument("{}", side->undefined_hint());
  }
  return InvalidArgument("cannot order '{}' and '{}'", TypeName(a), TypeName(b));
}

std::string FloatRepr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[40];
  const auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  const std::string scientific(buffer, end.ptr);
  const size_t e = scientific.find('e');
  const int exponent = std::stoi(scientific.substr(e + 1));
  const bool negative = scientific[0] == '-';
  std::string digits;
  for (const char c : scientific.substr(0, e)) {
    if (c >= '0' && c <= '9') digits += c;
  }
  std::string out;
  const int count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out = digits.substr(0, 1);
    if (count > 1) out += "." + digits.substr(1);
    out += fmt::format("e{}{:02d}", exponent < 0 ? '-' : '+', std::abs(exponent));
  } else if (exponent < 0) {
    out = "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  } else if (count <= exponent + 1) {
    out = digits + std::string(static_cast<size_t>(exponent + 1 - count), '0') + ".0";
  } else {
    out = digits.substr(0, static_cast<size_t>(exponent) + 1) + "." +
          digits.substr(static_cast<size_t>(exponent) + 1);
  }
  return negative ? "-" + out : out;
}

TracedText ToText(const Value& value) {
  if (value.is(Kind::kString)) return value.text();
  TracedText out;
  if (value.is(Kind::kNamespace)) {
    const auto& space = *static_cast<const NamespaceObject*>(value.object());
    if (space.is_sealed) return TracedText("<Cycler>", false);
    out.Append("<Namespace ", false);
    AppendDictRepr(space.members, &out);
    out.Append(">", false);
    return out;
  }
  if (!value.is(Kind::kUndefined)) AppendRepr(value, &out);
  return out;
}

void AppendRepr(const Value& value, TracedText* out) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return out->Append("Undefined", false);
    case Kind::kNone:
      return out->Append("None", false);
    case Kind::kBool:
      return out->Append(value.as_bool() ? "True" : "False", false);
    case Kind::kInt:
      return out->Append(fmt::format("{}", value.as_int()), false);
    case Kind::kFloat:
      if (!value.long_digits().empty()) return out->Append(value.long_digits(), false);
      return out->Append(FloatRepr(value.as_double()), false);
    case Kind::kString:
      return AppendStringRepr(value.text(), out);
    case Kind::kSequence:
      return AppendSequenceRepr(value, out);
    case Kind::kDict:
      return AppendDictRepr(value.dict(), out);
    case Kind::kNamespace: {
      const auto& space = *static_cast<const NamespaceObject*>(value.object());
      return out->Append(space.is_sealed ? "<Cycler>" : "<Namespace {...}>", false);
    }
    case Kind::kLoop:
      return out->Append("<LoopContext>", false);
    case Kind::kMacro:
      return out->Append("<Macro>", false);
    case Kind::kNative:
      return out->Append("<function>", false);
  }
}

}  // namespace kvasir::jinja
