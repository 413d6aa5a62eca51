// Python's two ways to format: text % values and text.format(...).
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "text/jinja_strings.h"
#include "text/jinja_unicode.h"

namespace kvasir::jinja {
namespace {

constexpr int64_t kMaxWidth = 1 << 20;
constexpr int64_t kMaxPrecision = 400;

// One conversion: what stands in %-08.3f or {:>8.3f}.
struct Spec {
  std::string fill = " ";
  char align = '\0';  // < > ^ = or none
  char sign = '-';    // - + or space
  bool alternate = false;
  bool zero = false;
  bool thousands = false;
  int64_t width = 0;
  int64_t precision = -1;
  char type = '\0';
};

// Reads digits at *i; false when the number is out of bounds.
bool ReadNumber(std::string_view text, size_t* i, int64_t bound, int64_t* number) {
  *number = 0;
  for (; *i < text.size() && text[*i] >= '0' && text[*i] <= '9'; ++*i) {
    *number = *number * 10 + (text[*i] - '0');
    if (*number > bound) return false;
  }
  return true;
}

std::string GroupThousands(const std::string& digits) {
  const size_t point = std::min(digits.find_first_not_of("0123456789"), digits.size());
  std::string out;
  for (size_t i = 0; i < point; ++i) {
    if (i > 0 && (point - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out + digits.substr(point);
}

std::string FloatDigits(double magnitude, const Spec& spec) {
  if (spec.type == '\0' && spec.precision < 0) return FloatRepr(magnitude);
  const char type = spec.type == '%' ? 'f' : spec.type == '\0' ? 'g' : spec.type;
  const int precision = spec.precision < 0 ? 6 : static_cast<int>(spec.precision);
  const char format[] = {'%', '.', '*', type, '\0'};
  std::string buffer(800, '\0');
  const double value = spec.type == '%' ? magnitude * 100 : magnitude;
  const int length = std::snprintf(buffer.data(), buffer.size(), format, precision, value);
  buffer.resize(static_cast<size_t>(std::max(length, 0)));
  return spec.type == '%' ? buffer + "%" : buffer;
}

std::string IntegerDigits(uint64_t magnitude, const Spec& spec) {
  switch (spec.type) {
    case 'x':
      return (spec.alternate ? "0x" : "") + fmt::format("{:x}", magnitude);
    case 'X':
      return (spec.alternate ? "0X" : "") + fmt::format("{:X}", magnitude);
    case 'o':
      return (spec.alternate ? "0o" : "") + fmt::format("{:o}", magnitude);
    case 'b':
      return (spec.alternate ? "0b" : "") + fmt::format("{:b}", magnitude);
    default:
      return fmt::format("{}", magnitude);
  }
}

// Pads `text`; '=' pads between the sign and the digits.
TracedText Pad(const TracedText& text, const Spec& spec, char default_align) {
  const auto length = static_cast<int64_t>(CodePointCount(text.view()));
  if (length >= spec.width) return text;
  const int64_t missing = spec.width - length;
  const char align = spec.align == '\0' ? default_align : spec.align;
  const auto fill = [&](int64_t count, TracedText* out) {
    for (int64_t i = 0; i < count; ++i) out->Append(spec.fill, false);
  };
  TracedText out;
  size_t sign = 0;
  int64_t before = missing;
  if (align == '<') before = 0;
  if (align == '^') before = missing / 2;
  if (align == '=' && !text.empty() &&
      std::string_view("+- ").find(text.view()[0]) != std::string_view::npos) {
    sign = 1;
  }
  out.AppendSlice(text, 0, sign);
  fill(before, &out);
  out.AppendSlice(text, sign, text.size());
  fill(missing - before, &out);
  return out;
}

StatusOr<TracedText> FormatNumber(const Value& value, Spec spec) {
  const bool as_float =
      value.is(Kind::kFloat) ||
      (spec.type != '\0' && std::string_view("feEgGF%").find(spec.type) != std::string_view::npos);
  bool negative = false;
  std::string digits;
  if (as_float) {
    const double number = value.as_double();
    negative = std::signbit(number);
    digits = FloatDigits(std::fabs(number), spec);
  } else {
    const int64_t number = value.as_int();
    negative = number < 0;
    const auto bits = static_cast<uint64_t>(number);
    digits = IntegerDigits(negative ? 0 - bits : bits, spec);
  }
  if (spec.thousands) digits = GroupThousands(digits);
  const std::string sign = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  if (spec.zero && spec.align == '\0') {
    spec.align = '=';
    spec.fill = "0";
  }
  return Pad(TracedText(sign + digits, false), spec, '>');
}

TracedText Shorten(const TracedText& text, int64_t characters) {
  if (characters < 0) return text;
  size_t end = 0;
  for (; characters > 0 && end < text.size(); --characters) end += CharLength(text.view(), end);
  return text.Slice(0, end);
}

StatusOr<TracedText> PercentItem(Runtime& runtime, const Value& value, Spec spec) {
  KV_RETURN_IF_ERROR(runtime.Allocate(static_cast<size_t>(spec.width)));
  KV_RETURN_IF_ERROR(runtime.Spend(4 + (spec.width + std::max<int64_t>(spec.precision, 0)) / 16));
  switch (spec.type) {
    case 's':
    case 'r':
    case 'a': {
      KV_RETURN_IF_ERROR(runtime.Spend(value.weight() / 2));
      KV_RETURN_IF_ERROR(runtime.Allocate(static_cast<size_t>(value.weight())));
      TracedText text;
      if (spec.type == 's') {
        text = ToText(value);
      } else {
        AppendRepr(value, &text);
      }
      return Pad(Shorten(text, spec.precision), spec, '>');
    }
    case 'c': {
      KV_RETURN_IF_ERROR(runtime.SpendOn(value));
      if (value.is(Kind::kString) && CodePointCount(value.view()) == 1) {
        return Pad(value.text(), spec, '>');
      }
      std::string character;
      if (!value.is_integral() || value.as_int() < 0 ||
          !AppendUtf8(static_cast<uint32_t>(std::min<int64_t>(value.as_int(), 0x110000)),
                      &character)) {
        return InvalidArgument("%c needs an int or one character");
      }
      return Pad(TracedText(character, false), spec, '>');
    }
    default:
      break;
  }
  if (!value.is_number()) {
    return InvalidArgument("%{} needs a number, not {}", spec.type, TypeName(value));
  }
  if (std::string_view("diuxXo").find(spec.type) != std::string_view::npos) {
    if (value.is(Kind::kFloat)) {
      const double number = std::trunc(value.as_double());
      if (std::string_view("diu").find(spec.type) == std::string_view::npos ||
          !(std::fabs(number) < 9.2e18)) {
        return InvalidArgument("%{} cannot format this float", spec.type);
      }
      return FormatNumber(Value::Int(static_cast<int64_t>(number)), spec);
    }
    return FormatNumber(value.is(Kind::kBool) ? Value::Int(value.as_int()) : value, spec);
  }
  return FormatNumber(value, spec);
}

// Parses the conversion after '%' at *i, which ends on the type.
Status ParsePercent(std::string_view text, size_t* i, Spec* spec) {
  for (bool more = true; more && *i < text.size(); *i += more ? 1 : 0) {
    const char c = text[*i];
    if (c == '-') {
      spec->align = '<';
    } else if (c == '0') {
      spec->zero = true;
    } else if (c == '+' || (c == ' ' && spec->sign != '+')) {
      spec->sign = c;
    } else if (c == '#') {
      spec->alternate = true;
    } else {
      more = c == ' ';
    }
  }
  if (!ReadNumber(text, i, kMaxWidth, &spec->width)) return InvalidArgument("width too large");
  if (*i < text.size() && text[*i] == '.') {
    ++*i;
    if (!ReadNumber(text, i, kMaxPrecision, &spec->precision)) {
      return InvalidArgument("precision too large");
    }
  }
  if (*i >= text.size()) return InvalidArgument("incomplete format");
  spec->type = text[(*i)++];
  if (std::string_view("srdiufFeEgGxXoca%").find(spec->type) == std::string_view::npos) {
    return InvalidArgument("unsupported format character '{}'", spec->type);
  }
  return OkStatus();
}

}  // namespace

StatusOr<Value> FormatPercent(Runtime& runtime, const TracedText& text, const Value& arguments) {
  KV_RETURN_IF_ERROR(runtime.SpendOnChars(text.size()));
  const bool is_tuple = arguments.is_sequence(SequenceType::kTuple);
  const ValueList values = is_tuple ? arguments.items() : ValueList{arguments};
  const std::string_view format = text.view();
  TracedText out;
  size_t used = 0;
  for (size_t i = 0; i < format.size();) {
    const size_t percent = std::min(format.find('%', i), format.size());
    out.AppendSlice(text, i, percent);
    i = percent + 1;
    if (percent == format.size()) break;
    Value value;
    bool has_value = false;
    if (i < format.size() && format[i] == '(') {
      const size_t close = format.find(')', i);
      if (close == format.npos || !arguments.is(Kind::kDict)) {
        return InvalidArgument("%(name) needs a dict");
      }
      const Value* found = arguments.dict().Find(format.substr(i + 1, close - i - 1));
      if (found == nullptr)
        return InvalidArgument("no key '{}'", format.substr(i + 1, close - i - 1));
      value = *found;
      has_value = true;
      used = values.size();
      i = close + 1;
    }
    Spec spec;
    KV_RETURN_IF_ERROR(ParsePercent(format, &i, &spec));
    if (spec.type == '%') {
      out.Append("%", text.TrustedAt(percent));
      continue;
    }
    if (!has_value) {
      if (used >= values.size()) return InvalidArgument("not enough arguments for format string");
      value = values[used++];
    }
    KV_ASSIGN_OR_RETURN(const TracedText item, PercentItem(runtime, value, spec));
    out.Append(item);
  }
  // Whatever can be indexed by name may stay unused, undefined included.
  if (used < values.size() && !arguments.is(Kind::kDict) && !arguments.is(Kind::kUndefined) &&
      !(arguments.is(Kind::kSequence) && !is_tuple)) {
    return InvalidArgument("not all arguments converted during string formatting");
  }
  return runtime.String(std::move(out));
}

namespace {

StatusOr<Spec> ParseBraceSpec(std::string_view text) {
  Spec spec;
  size_t i = 0;
  const auto is_align = [&](size_t at) {
    return at < text.size() && std::string_view("<>^=").find(text[at]) != std::string_view::npos;
  };
  const size_t first = text.empty() ? 0 : CharLength(text, 0);
  if (!text.empty() && is_align(first)) {
    spec.fill = text.substr(0, first);
    spec.align = text[first];
    i = first + 1;
  } else if (is_align(0)) {
    spec.align = text[i++];
  }
  const auto at = [&] { return i < text.size() ? text[i] : '\0'; };
  if (at() == '+' || at() == '-' || at() == ' ') spec.sign = text[i++];
  if (at() == '#') {
    spec.alternate = true;
    ++i;
  }
  if (at() == '0') {
    spec.zero = true;
    ++i;
  }
  if (!ReadNumber(text, &i, kMaxWidth, &spec.width)) return InvalidArgument("width too large");
  if (at() == ',') {
    spec.thousands = true;
    ++i;
  }
  if (at() == '.') {
    ++i;
    if (!ReadNumber(text, &i, kMaxPrecision, &spec.precision)) {
      return InvalidArgument("precision too large");
    }
  }
  if (i < text.size()) spec.type = text[i++];
  if (i != text.size() ||
      (spec.type != '\0' &&
       std::string_view("sdfFeEgGxXobcn%").find(spec.type) == std::string_view::npos)) {
    return InvalidArgument("bad format specification '{}'", text);
  }
  return spec;
}

StatusOr<TracedText> BraceItem(Runtime& runtime, const Value& value, char conversion,
                               std::string_view spec_text) {
  KV_ASSIGN_OR_RETURN(const Spec spec, ParseBraceSpec(spec_text));
  KV_RETURN_IF_ERROR(runtime.Allocate(static_cast<size_t>(spec.width)));
  KV_RETURN_IF_ERROR(runtime.Spend(4 + (spec.width + std::max<int64_t>(spec.precision, 0)) / 16));
  // A bool with a specification is an int, without one a word.
  if (conversion == '\0' && value.is_number() && !(value.is(Kind::kBool) && spec_text.empty())) {
    if (spec.type == 's') return InvalidArgument("format code 's' does not fit a number");
    const bool integral_type =
        spec.type != '\0' && std::string_view("dxXobc").find(spec.type) != std::string_view::npos;
    if (integral_type && value.is(Kind::kFloat)) {
      return InvalidArgument("format code '{}' does not fit a float", spec.type);
    }
    return FormatNumber(value, spec);
  }
  if (conversion == '\0' && !value.is(Kind::kString) && !spec_text.empty()) {
    return InvalidArgument("{} takes no format specification", TypeName(value));
  }
  if (spec.type != '\0' && spec.type != 's') {
    return InvalidArgument("format code '{}' does not fit {}", spec.type, TypeName(value));
  }
  KV_RETURN_IF_ERROR(runtime.Spend(value.weight() / 2));
  KV_RETURN_IF_ERROR(runtime.Allocate(static_cast<size_t>(value.weight())));
  TracedText text;
  if (conversion == 'r' || conversion == 'a') {
    AppendRepr(value, &text);
  } else {
    text = ToText(value);
  }
  return Pad(Shorten(text, spec.precision), spec, '<');
}

// The value that "0.name[key]" names.
StatusOr<Value> BraceField(Runtime& runtime, std::string_view field, const Arguments& arguments,
                           size_t* next) {
  const size_t end = std::min(field.find_first_of(".["), field.size());
  const std::string_view first = field.substr(0, end);
  Value value;
  if (first.empty() || (first[0] >= '0' && first[0] <= '9')) {
    int64_t index = 0;
    size_t i = 0;
    if (first.empty()) {
      index = static_cast<int64_t>((*next)++);
    } else if (!ReadNumber(first, &i, 1 << 20, &index) || i != first.size()) {
      return InvalidArgument("bad field '{}'", field);
    }
    if (index >= static_cast<int64_t>(arguments.positional.size())) {
      return InvalidArgument("no positional argument {}", index);
    }
    value = arguments.positional[static_cast<size_t>(index)];
  } else {
    const Value* named = arguments.Named(first);
    if (named == nullptr) return InvalidArgument("no argument '{}'", first);
    value = *named;
  }
  for (size_t i = end; i < field.size();) {
    KV_RETURN_IF_ERROR(runtime.Spend(1));
    if (field[i] == '.') {
      const size_t stop = std::min(field.find_first_of(".[", i + 1), field.size());
      KV_ASSIGN_OR_RETURN(value, GetAttribute(runtime, value, field.substr(i + 1, stop - i - 1)));
      i = stop;
      continue;
    }
    const size_t close = field.find(']', i);
    if (field[i] != '[' || close == field.npos) return InvalidArgument("bad field '{}'", field);
    const std::string_view key = field.substr(i + 1, close - i - 1);
    size_t digits = 0;
    int64_t index = 0;
    const bool is_index =
        !key.empty() && ReadNumber(key, &digits, 1 << 30, &index) && digits == key.size();
    KV_ASSIGN_OR_RETURN(
        value, GetItem(runtime, value, is_index ? Value::Int(index) : Value::String(key, false)));
    i = close + 1;
  }
  return value;
}

}  // namespace

StatusOr<Value> FormatBraces(Runtime& runtime, const TracedText& text, const Arguments& arguments) {
  KV_RETURN_IF_ERROR(runtime.SpendOnChars(text.size()));
  const std::string_view format = text.view();
  TracedText out;
  size_t next = 0;
  for (size_t i = 0; i < format.size();) {
    const size_t brace = std::min(format.find_first_of("{}", i), format.size());
    out.AppendSlice(text, i, brace);
    if (brace == format.size()) break;
    if (brace + 1 < format.size() && format[brace + 1] == format[brace]) {
      out.AppendSlice(text, brace, brace + 1);
      i = brace + 2;
      continue;
    }
    size_t close = format.find('}', brace);
    // A field may stand in the format specification of another: {:>{}}.
    const size_t inner = format.find('{', brace + 1);
    const bool nested = close != format.npos && inner < close;
    if (nested) close = format.find('}', close + 1);
    if (format[brace] == '}' || close == format.npos) {
      return InvalidArgument("single '{}' in format string", format[brace]);
    }
    std::string_view field = format.substr(brace + 1, close - brace - 1);
    std::string spec;
    char conversion = '\0';
    if (const size_t colon = field.find(':'); colon != field.npos) {
      spec = field.substr(colon + 1);
      field = field.substr(0, colon);
    }
    if (const size_t mark = field.find('!'); mark != field.npos) {
      if (mark + 2 != field.size() ||
          std::string_view("sra").find(field[mark + 1]) == std::string_view::npos) {
        return InvalidArgument("bad conversion in '{}'", field);
      }
      conversion = field[mark + 1];
      field = field.substr(0, mark);
    }
    KV_RETURN_IF_ERROR(runtime.Spend(1 + static_cast<int64_t>(arguments.named.size() / 8)));
    KV_ASSIGN_OR_RETURN(const Value value, BraceField(runtime, field, arguments, &next));
    if (nested) {
      const size_t open = spec.find('{');
      const size_t end = spec.find('}');
      if (open == spec.npos || end == spec.npos) return InvalidArgument("bad field '{}'", field);
      const std::string name = spec.substr(open + 1, end - open - 1);
      KV_ASSIGN_OR_RETURN(const Value width, BraceField(runtime, name, arguments, &next));
      KV_ASSIGN_OR_RETURN(const TracedText width_text, runtime.Text(width));
      spec = spec.substr(0, open) + width_text.bytes() + spec.substr(end + 1);
    }
    KV_ASSIGN_OR_RETURN(const TracedText item, BraceItem(runtime, value, conversion, spec));
    out.Append(item);
    i = close + 1;
  }
  return runtime.String(std::move(out));
}

}  // namespace kvasir::jinja
