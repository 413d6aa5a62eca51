#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "text/jinja_filters.h"
#include "text/jinja_strings.h"
#include "text/jinja_unicode.h"

namespace kvasir::jinja {
namespace {

StatusOr<Value> Default(Runtime&, const Value& self, const Arguments& arguments) {
  KV_ASSIGN_OR_RETURN(const Bound bound, Bound::Make(arguments, {"default_value", "boolean"}));
  const bool replaces = self.is(Kind::kUndefined) || (bound.Truthy(1, false) && !IsTruthy(self));
  if (!replaces) return self;
  return bound.has(0) ? bound[0] : Value::String(TracedText());
}

StatusOr<Value> Abs(Runtime&, const Value& self, const Arguments& arguments) {
  KV_RETURN_IF_ERROR(Bound::Make(arguments, {}).status());
  if (self.is(Kind::kFloat)) return Value::Float(std::fabs(self.as_double()));
  if (!self.is_integral()) return InvalidArgument("needs a number, not {}", TypeName(self));
  if (self.as_int() < 0) return Negate(self);
  return Value::Int(self.as_int());
}

StatusOr<Value> Attr(Runtime& runtime, const Value& self, const Arguments& arguments) {
  KV_ASSIGN_OR_RETURN(const Bound bound, Bound::Make(arguments, {"name"}, 1));
  KV_ASSIGN_OR_RETURN(const TracedText name, bound.Text(0, ""));
  if (self.is(Kind::kUndefined)) return InvalidArgument("{}", self.undefined_hint());
  // Unlike a dot, this never falls back to items.
  if (self.is(Kind::kNamespace)) return GetAttribute(runtime, self, name.view());
  if (auto method = FindMethod(self, name.view())) return std::move(*method);
  return Value::Undefined(fmt::format("'{}' has no attribute '{}'", TypeName(self), name.view()));
}

// The text of a number as Python's int() and float() accept it: stripped, underscores between
// digits removed; nullopt when it cannot be a number.
std::optional<std::string> NumberText(std::string_view text) {
  const size_t begin = SkipSpaces(text, 0);
  const size_t end = DropTrailingSpaces(text, begin, text.size());
  std::string out;
  for (size_t i = begin; i < end; ++i) {
    if (static_cast<unsigned char>(text[i]) >= 0x80) {  // Decimal digits of any script.
      const int digit = DecimalValue(CodePointAt(text, i));
      if (digit < 0) return std::nullopt;
      out += static_cast<char>('0' + digit);
      i += CharLength(text, i) - 1;
      continue;
    }
    if (text[i] != '_') {
      out += text[i];
      continue;
    }
    const auto is_alnum = [&](size_t at) {
      return at < end && std::isalnum(static_cast<unsigned char>(text[at])) != 0;
    };
    if (i == begin || !is_alnum(i - 1) || !is_alnum(i + 1)) return std::nullopt;
  }
  if (out.empty()) return std::nullopt;
  return out;
}

std::optional<double> ParseFloat(std::string_view text) {
  const auto number = NumberText(text);
  if (!number) return std::nullopt;
  size_t begin = (*number)[0] == '+' ? 1 : 0;
  const char* last = number->data() + number->size();
  if (begin == 1 && number->size() > 1 && ((*number)[1] == '-' || (*number)[1] == '+')) {
    return std::nullopt;
  }
  double value = 0;
  const auto parsed = std::from_chars(number->data() + begin, last, value);
  if (parsed.ptr != last) return std::nullopt;
  if (parsed.ec == std::errc::result_out_of_range) return std::strtod(number->c_str(), nullptr);
  if (parsed.ec != std::errc()) return std::nullopt;
  return value;
}

std::optional<int64_t> ParseInt(std::string_view text, int base) {
  const auto number = NumberText(text);
  if (!number) return std::nullopt;
  std::string digits = *number;
  const bool negative = digits[0] == '-';
  if (digits[0] == '-' || digits[0] == '+') digits.erase(0, 1);
  const std::string prefix = digits.substr(0, 2);
  const auto is_prefix = [&](const char* lower, const char* upper, int prefix_base) {
    return (prefix == lower || prefix == upper) && (base == prefix_base || base == 0);
  };
  if (is_prefix("0x", "0X", 16) || is_prefix("0o", "0O", 8) || is_prefix("0b", "0B", 2)) {
    if (base == 0) base = (prefix[1] | 32) == 'x' ? 16 : (prefix[1] | 32) == 'o' ? 8 : 2;
    digits.erase(0, 2);
  }
  if (base == 0) base = 10;
  if (digits.empty() || digits[0] == '-' || digits[0] == '+') return std::nullopt;
  if (negative) digits.insert(digits.begin(), '-');
  int64_t value = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (parsed.ec != std::errc() || parsed.ptr != digits.data() + digits.size()) return std::nullopt;
  return value;
}

StatusOr<Value> TruncateFloat(double value, const Value& fallback) {
  if (!std::isfinite(value)) return fallback;
  const double whole = std::trunc(value);
  if (std::fabs(whole) >= 9.2e18) return Value::LongInt(whole, fmt::format("{:.0f}", whole));
  return Value::Int(static_cast<int64_t>(whole));
}

StatusOr<Value> ToInt(Runtime& runtime, const Value& self, const Arguments& arguments) {
  KV_ASSIGN_OR_RETURN(const Bound bound, Bound::Make(arguments, {"default", "base"}));
  const Value fallback = bound.has(0) ? bound[0] : Value::Int(0);
  KV_ASSIGN_OR_RETURN(const int64_t base, bound.Int(1, 10));
  if (base != 0 && (base < 2 || base > 36)) return fallback;
  if (self.is_integral()) return Value::Int(self.as_int());
  if (!self.long_digits().empty()) return self;
  if (self.is(Kind::kFloat)) return TruncateFloat(self.as_double(), fallback);
  if (self.is(Kind::kUndefined)) return InvalidArgument("{}", self.undefined_hint());
  if (!self.is(Kind::kString)) return fallback;
  KV_RETURN_IF_ERROR(runtime.SpendOnChars(2 * self.view().size()));
  if (const auto value = ParseInt(self.view(), static_cast<int>(base))) return Value::Int(*value);
  if (const auto value = ParseFloat(self.view())) return TruncateFloat(*value, fallback);
  return fallback;
}

StatusOr<Value> ToFloat(Runtime& runtime, const Value& self, const Arguments& arguments) {
  KV_ASSIGN_OR_RETURN(const Bound bound, Bound::Make(arguments, {"default"}));
  if (self.is_number()) return Value::Float(self.as_double());
  if (self.is(Kind::kUndefined)) return InvalidArgument("{}", self.undefined_hint());
  if (self.is(Kind::kString)) {
    KV_RETURN_IF_ERROR(runtime.SpendOnChars(self.view().size()));
    if (const auto value = ParseFloat(self.view())) return Value::Float(*value);
  }
  return bound.has(0) ? bound[0] : Value::Float(0);
}

// Python's round(): the decimal nearest to the exact binary value, ties to even. printf rounds the
// exact value the same way.
double RoundTo(double value, int64_t precision) {
  if (!std::isfinite(value)) return value;
  if (precision >= 0) {
    char buffer[800];
    std::snprintf(buffer, sizeof(buffer), "%.*f", static_cast<int>(precision), value);
    return std::strtod(buffer, nullptr);
  }
  const double scale = std::pow(10.0, static_cast<double>(-precision));
  return std::nearbyint(value / scale) * scale;
}

StatusOr<Value> Round(Runtime& runtime, const Value& self, const Arguments& arguments) {
  KV_ASSIGN_OR_RETURN(const Bound bound, Bound::Make(arguments, {"precision", "method"}));
  KV_ASSIGN_OR_RETURN(const int64_t precision, bound.Int(0, 0));
  KV_ASSIGN_OR_RETURN(const TracedText method, bound.Text(1, "common"));
  if (!self.is_number()) return InvalidArgument("needs a number, not {}", TypeName(self));
  if (precision < -300 || precision > 300) return InvalidArgument("precision out of range");
  KV_RETURN_IF_ERROR(runtime.Spend(4 + std::abs(precision) / 4));
  const double value = self.as_double();
  if (method.view() == "common") {
    if (self.is(Kind::kFloat)) return Value::Float(RoundTo(value, precision));
    if (precision >= 0) return Value::Int(self.as_int());
    return TruncateFloat(RoundTo(value, precision), self);
  }
  if (method.view() != "ceil" && method.view() != "floor") {
    return InvalidArgument("method must be common, ceil or floor, not '{}'", method.view());
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled =
      method.view() == "ceil" ? std::ceil(value * scale) : std::floor(value * scale);
  return Value::Float(scaled / scale);
}

StatusOr<Value> ToJson(Runtime& runtime, const Value& self, const Arguments& arguments) {
  KV_ASSIGN_OR_RETURN(const Bound bound, Bound::Make(arguments, {"ensure_ascii", "indent",
                                                                 "separators", "sort_keys"}));
  JsonStyle style;
  style.ensure_ascii = bound.Truthy(0, false);
  style.sort_keys = bound.Truthy(3, false);
  if (bound.has(1) && !bound[1].is(Kind::kNone)) {
    if (bound[1].is(Kind::kString)) {
      style.indent = bound[1].text();
    } else {
      KV_ASSIGN_OR_RETURN(const int64_t width, bound.Int(1, 0));
      if (width > 1000) return ResourceExhausted("an indent over 1000");
      style.indent.emplace(std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' '),
                           false);
    }
  }
  style.item_separator.Append(style.indent ? "," : ", ", false);
  style.key_separator.Append(": ", false);
  if (bound.has(2) && !bound[2].is(Kind::kNone)) {
    KV_ASSIGN_OR_RETURN(const ValueList parts, Iterate(runtime, bound[2]));
    if (parts.size() != 2 || !parts[0].is(Kind::kString) || !parts[1].is(Kind::kString)) {
      return InvalidArgument("separators must be two strings");
    }
    style.item_separator = parts[0].text();
    style.key_separator = parts[1].text();
  }
  KV_ASSIGN_OR_RETURN(TracedText text, DumpJson(runtime, self, style));
  return runtime.String(std::move(text));
}

StatusOr<Value> FileSize(Runtime& runtime, const Value& self, const Arguments& arguments) {
  KV_ASSIGN_OR_RETURN(const Bound bound, Bound::Make(arguments, {"binary"}));
  const bool binary = bound.Truthy(0, false);
  std::optional<double> bytes;
  if (self.is_number()) bytes = self.as_double();
  KV_RETURN_IF_ERROR(runtime.SpendOn(self));
  if (self.is(Kind::kString)) bytes = ParseFloat(self.view());
  if (!bytes) return InvalidArgument("needs a number, not {}", TypeName(self));
  const double base = binary ? 1024 : 1000;
  if (*bytes == 1) return Value::String("1 Byte", false);
  if (*bytes < base) return Value::String(fmt::format("{} Bytes", std::trunc(*bytes) + 0.0), false);
  double unit = base;
  for (const char prefix : std::string_view("kMGTPEZY")) {
    unit *= base;
    if (*bytes < unit || prefix == 'Y') {
      const std::string name = binary ? std::string(1, prefix == 'k' ? 'K' : prefix) + "iB"
                                      : std::string(1, prefix) + "B";
      return Value::String(fmt::format("{:.1f} {}", base * *bytes / unit, name), false);
    }
  }
  return Value::None();
}

StatusOr<Value> XmlAttr(Runtime& runtime, const Value& self, const Arguments& arguments) {
  KV_ASSIGN_OR_RETURN(const Bound bound, Bound::Make(arguments, {"autospace"}));
  if (!self.is(Kind::kDict)) return InvalidArgument("needs a dict, not {}", TypeName(self));
  TracedText out;
  for (const auto& [key, value] : self.dict().entries) {
    if (value.is(Kind::kNone) || value.is(Kind::kUndefined)) continue;
    KV_ASSIGN_OR_RETURN(const Value name, ApplyFilter(runtime, "escape", key, {}));
    KV_ASSIGN_OR_RETURN(const Value content, ApplyFilter(runtime, "escape", value, {}));
    if (name.view().find_first_of(" \t\n\f\r/>=") != std::string_view::npos) {
      return InvalidArgument("bad attribute name '{}'", name.view());
    }
    if (!out.empty()) out.Append(" ", false);
    out.Append(name.text());
    out.Append("=\"", false);
    out.Append(content.text());
    out.Append("\"", false);
  }
  if (bound.Truthy(0, true) && !out.empty()) {
    TracedText spaced(" ", false);
    spaced.Append(out);
    return runtime.String(std::move(spaced));
  }
  return runtime.String(std::move(out));
}

}  // namespace

const std::vector<NativeEntry>& ValueFilters() {
  static const std::vector<NativeEntry> kFilters = {
      {"default", Default}, {"d", Default},          {"abs", Abs},
      {"attr", Attr},       {"int", ToInt},          {"float", ToFloat},
      {"round", Round},     {"tojson", ToJson},      {"filesizeformat", FileSize},
      {"xmlattr", XmlAttr}, {"pprint", PrettyPrint},
  };
  return kFilters;
}

}  // namespace kvasir::jinja
