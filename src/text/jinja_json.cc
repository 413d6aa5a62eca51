// JSON text to values and back.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "text/jinja_strings.h"
#include "text/jinja_unicode.h"

namespace kvasir::jinja {
namespace {

// Builds values bottom-up from the parser's events.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  Value result;
  std::string error;

  bool null() override { return Add(Value::None()); }
  bool boolean(bool value) override { return Add(Value::Bool(value)); }
  bool number_integer(number_integer_t value) override { return Add(Value::Int(value)); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<uint64_t>(INT64_MAX)) {
      return Add(Value::LongInt(static_cast<double>(value), fmt::format("{}", value)));
    }
    return Add(Value::Int(static_cast<int64_t>(value)));
  }
  bool number_float(number_float_t value, const string_t& text) override {
    if (text.find_first_of(".eE") == string_t::npos) return Add(Value::LongInt(value, text));
    return Add(Value::Float(value));
  }
  bool string(string_t& value) override {
    return Add(Value::String(TracedText(std::move(value), false)));
  }
  bool binary(binary_t&) override { return Refuse("binary content"); }
  bool start_object(std::size_t) override { return Open(true); }
  bool start_array(std::size_t) override { return Open(false); }
  bool key(string_t& value) override {
    open_.back().key = Value::String(TracedText(std::move(value), false));
    return true;
  }
  bool end_object() override {
    Value value = Value::Dict(std::move(open_.back().dict));
    return Close(std::move(value));
  }
  bool end_array() override { return Close(Value::Sequence(std::move(open_.back().items))); }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& what) override {
    const std::string text = what.what();
    const size_t reason = text.rfind("; ");
    error = fmt::format("not valid JSON at byte {}{}", position,
                        reason == text.npos ? "" : text.substr(reason, 80));
    return false;
  }

 private:
  struct Container {
    std::shared_ptr<DictObject> dict;  // Null in a list.
    ValueList items;
    Value key;
  };

  bool Refuse(std::string_view what) {
    error = fmt::format("{} is not supported", what);
    return false;
  }
  bool Open(bool is_dict) {
    if (open_.size() >= static_cast<size_t>(kMaxContainerDepth) - 10) {
      return Refuse(fmt::format("JSON nested more than {} levels deep", kMaxContainerDepth - 10));
    }
    open_.emplace_back();
    if (is_dict) open_.back().dict = std::make_shared<DictObject>();
    return true;
  }
  bool Close(Value value) {
    open_.pop_back();
    if (value.is(Kind::kNone)) return Refuse("JSON of more than 32 MiB");
    return Add(std::move(value));
  }
  bool Add(Value value) {
    if (++values_ > kMaxValues)
      return Refuse(fmt::format("JSON of more than {} values", kMaxValues));
    if (open_.empty()) {
      result = std::move(value);
    } else if (open_.back().dict != nullptr) {
      open_.back().dict->Set(open_.back().key, std::move(value));
    } else {
      open_.back().items.push_back(std::move(value));
    }
    return true;
  }

  // A value costs up to a kilobyte and a microsecond, however few bytes it has in JSON.
  static constexpr size_t kMaxValues = 1'000'000;

  size_t values_ = 0;
  std::vector<Container> open_;
};

class Dumper {
 public:
  Dumper(Runtime* runtime, const JsonStyle* style) : runtime_(*runtime), style_(*style) {}

  Status Dump(const Value& value, int level) {
    switch (value.kind()) {
      case Kind::kNone:
        out_.Append("null", false);
        return OkStatus();
      case Kind::kBool:
        out_.Append(value.as_bool() ? "true" : "false", false);
        return OkStatus();
      case Kind::kInt:
        out_.Append(fmt::format("{}", value.as_int()), false);
        return OkStatus();
      case Kind::kFloat:
        out_.Append(value.long_digits().empty() ? FloatText(value.as_double())
                                                : std::string(value.long_digits()),
                    false);
        return OkStatus();
      case Kind::kString:
        DumpString(value.text());
        return OkStatus();
      case Kind::kSequence:
        if (!value.is_sequence(SequenceType::kList) && !value.is_sequence(SequenceType::kTuple)) {
          break;
        }
        return DumpList(value.items(), level);
      case Kind::kDict:
        return DumpDict(value.dict(), level);
      default:
        break;
    }
    return InvalidArgument("object of type {} is not JSON serializable{}", TypeName(value),
                           value.is(Kind::kUndefined) ? ": " + value.undefined_hint() : "");
  }

  TracedText Take() { return std::move(out_); }

 private:
  static std::string FloatText(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
    return FloatRepr(value);
  }

  void DumpString(const TracedText& text) {
    out_.Append("\"", false);
    const std::string_view bytes = text.view();
    for (size_t i = 0; i < bytes.size(); i += CharLength(bytes, i)) {
      out_.Append(Escape(bytes, i), text.TrustedAt(i));
    }
    out_.Append("\"", false);
  }

  std::string Escape(std::string_view bytes, size_t i) const {
    const uint32_t c = CodePointAt(bytes, i);
    switch (c) {
      case '"':
        return "\\\"";
      case '\\':
        return "\\\\";
      case '\n':
        return "\\n";
      case '\r':
        return "\\r";
      case '\t':
        return "\\t";
      case '\b':
        return "\\b";
      case '\f':
        return "\\f";
      default:
        break;
    }
    if (c < 0x20 || (style_.ensure_ascii && c > 0x7e && c < 0x10000)) {
      return c == 0x7f ? "\x7f" : HexEscape('u', c, 4);
    }
    if (style_.ensure_ascii && c >= 0x10000) {
      return HexEscape('u', 0xd800 + ((c - 0x10000) >> 10), 4) +
             HexEscape('u', 0xdc00 + ((c - 0x10000) & 0x3ff), 4);
    }
    return std::string(bytes.substr(i, CharLength(bytes, i)));
  }

  Status Newline(int level) {
    if (!style_.indent) return OkStatus();
    out_.Append("\n", false);
    KV_RETURN_IF_ERROR(runtime_.Spend(level / 4));
    KV_RETURN_IF_ERROR(runtime_.Allocate(style_.indent->size() * static_cast<size_t>(level) + 1));
    for (int i = 0; i < level; ++i) out_.Append(*style_.indent);
    return OkStatus();
  }

  Status DumpList(const ValueList& items, int level) {
    if (items.empty()) {
      out_.Append("[]", false);
      return OkStatus();
    }
    out_.Append("[", false);
    for (size_t i = 0; i < items.size(); ++i) {
      KV_RETURN_IF_ERROR(runtime_.Allocate(style_.item_separator.size()));
      if (i > 0) out_.Append(style_.item_separator);
      KV_RETURN_IF_ERROR(Newline(level + 1));
      KV_RETURN_IF_ERROR(Dump(items[i], level + 1));
    }
    KV_RETURN_IF_ERROR(Newline(level));
    out_.Append("]", false);
    return OkStatus();
  }

  Status DumpKey(const Value& key) {
    if (key.is(Kind::kString)) {
      DumpString(key.text());
      return OkStatus();
    }
    if (!key.is_number() && !key.is(Kind::kNone)) {
      return InvalidArgument("JSON keys must be str, int, float, bool or None, not {}",
                             TypeName(key));
    }
    out_.Append("\"", false);
    KV_RETURN_IF_ERROR(Dump(key, 0));
    out_.Append("\"", false);
    return OkStatus();
  }

  Status DumpDict(const DictObject& dict, int level) {
    if (dict.entries.empty()) {
      out_.Append("{}", false);
      return OkStatus();
    }
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    Status order;
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(), [&](const auto* a, const auto* b) {
        const StatusOr<bool> less = LessThan(a->first, b->first);
        if (!less.ok()) order = less.status();
        return less.ok() && *less;
      });
      KV_RETURN_IF_ERROR(order);
    }
    out_.Append("{", false);
    for (size_t i = 0; i < entries.size(); ++i) {
      KV_RETURN_IF_ERROR(
          runtime_.Allocate(style_.item_separator.size() + style_.key_separator.size()));
      if (i > 0) out_.Append(style_.item_separator);
      KV_RETURN_IF_ERROR(Newline(level + 1));
      KV_RETURN_IF_ERROR(DumpKey(entries[i]->first));
      out_.Append(style_.key_separator);
      KV_RETURN_IF_ERROR(Dump(entries[i]->second, level + 1));
    }
    KV_RETURN_IF_ERROR(Newline(level));
    out_.Append("}", false);
    return OkStatus();
  }

  Runtime& runtime_;
  const JsonStyle& style_;
  TracedText out_;
};

}  // namespace

StatusOr<TracedText> DumpJson(Runtime& runtime, const Value& value, const JsonStyle& style) {
  KV_RETURN_IF_ERROR(runtime.Spend(value.weight() / 4));
  KV_RETURN_IF_ERROR(runtime.Allocate(static_cast<size_t>(value.weight()) * 2));
  Dumper dumper(&runtime, &style);
  KV_RETURN_IF_ERROR(dumper.Dump(value, 0));
  return dumper.Take();
}

StatusOr<Value> ParseJson(std::string_view json) {
  Builder builder;
  if (nlohmann::json::sax_parse(json.begin(), json.end(), &builder)) return builder.result;
  return InvalidArgument("{}", builder.error);
}

}  // namespace kvasir::jinja
