#include "text/jinja_value.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace kvasir::jinja {

Value Value::Undefined(std::string hint) {
  auto object = std::make_shared<UndefinedObject>();
  object->hint = std::move(hint);
  return Wrap(Kind::kUndefined, std::move(object));
}

Value Value::None() {
  Value value;
  value.kind_ = Kind::kNone;
  return value;
}

Value Value::Bool(bool b) {
  Value value;
  value.kind_ = Kind::kBool;
  value.integer_ = b ? 1 : 0;
  return value;
}

Value Value::Int(int64_t i) {
  Value value;
  value.kind_ = Kind::kInt;
  value.integer_ = i;
  return value;
}

Value Value::Float(double d) {
  Value value;
  value.kind_ = Kind::kFloat;
  value.number_ = d;
  return value;
}

Value Value::LongInt(double d, std::string digits) {
  auto object = std::make_shared<StringObject>();
  object->weight += static_cast<int64_t>(digits.size());
  object->text = TracedText(std::move(digits), false);
  Value value = Wrap(Kind::kFloat, std::move(object));
  value.number_ = d;
  return value;
}

std::string_view Value::long_digits() const {
  if (!is(Kind::kFloat) || object_ == nullptr) return {};
  return static_cast<const StringObject*>(object_.get())->text.view();
}

Value Value::String(TracedText text) {
  auto object = std::make_shared<StringObject>();
  object->text = std::move(text);
  return Wrap(Kind::kString, std::move(object));
}

Value Value::String(std::string_view text, bool trusted) {
  return String(TracedText(std::string(text), trusted));
}

Value Value::Sequence(ValueList items, SequenceType type) {
  auto object = std::make_shared<SequenceObject>();
  object->type = type;
  object->depth = 1;
  for (const Value& item : items) {
    object->depth = std::max(object->depth, item.container_depth() + 1);
    object->weight += item.weight();
  }
  if (object->depth > kMaxContainerDepth || object->weight > kMaxWeight) return None();
  object->items = std::move(items);
  return Wrap(Kind::kSequence, std::move(object));
}

Value Value::Dict(std::shared_ptr<DictObject> dict) {
  dict->depth = 1;
  for (const auto& [key, value] : dict->entries) {
    dict->depth = std::max({dict->depth, key.container_depth() + 1, value.container_depth() + 1});
    dict->weight += key.weight() + value.weight();
  }
  if (dict->depth > kMaxContainerDepth || dict->weight > kMaxWeight) return None();
  return Wrap(Kind::kDict, std::move(dict));
}

Value Value::Wrap(Kind kind, std::shared_ptr<Object> object) {
  Value value;
  value.kind_ = kind;
  value.object_ = std::move(object);
  return value;
}

bool Value::is_sequence(SequenceType type) const {
  return is(Kind::kSequence) && sequence_type() == type;
}

bool Value::is_number() const { return is_integral() || is(Kind::kFloat); }

double Value::as_double() const {
  KV_CHECK(is_number());
  return is(Kind::kFloat) ? number_ : static_cast<double>(integer_);
}

const TracedText& Value::text() const {
  KV_CHECK(is(Kind::kString));
  return static_cast<const StringObject*>(object_.get())->text;
}

const ValueList& Value::items() const {
  KV_CHECK(is(Kind::kSequence));
  return static_cast<const SequenceObject*>(object_.get())->items;
}

SequenceType Value::sequence_type() const {
  KV_CHECK(is(Kind::kSequence));
  return static_cast<const SequenceObject*>(object_.get())->type;
}

const DictObject& Value::dict() const {
  KV_CHECK(is(Kind::kDict));
  return *static_cast<const DictObject*>(object_.get());
}

std::string Value::undefined_hint() const {
  if (!is(Kind::kUndefined) || object_ == nullptr) return "the value is undefined";
  return static_cast<const UndefinedObject*>(object_.get())->hint;
}

int Value::container_depth() const { return object_ == nullptr ? 0 : object_->depth; }

int64_t Value::weight() const {
  if (is(Kind::kString)) return 1 + static_cast<int64_t>(view().size());
  return object_ == nullptr ? 1 : object_->weight;
}

std::optional<std::string> HashKey(const Value& value) {
  switch (value.kind()) {
    case Kind::kString: {
      std::string key = "s";
      key += value.view();
      return key;
    }
    case Kind::kNone:
      return "N";
    case Kind::kUndefined:
      return "U";
    case Kind::kBool:
    case Kind::kInt:
      return fmt::format("n{}", value.as_int());
    case Kind::kFloat: {
      if (!value.long_digits().empty()) return fmt::format("n{}", value.long_digits());
      const double d = value.as_double();
      if (d == std::floor(d) && std::fabs(d) < 9.2e18) {
        return fmt::format("n{}", static_cast<int64_t>(d));
      }
      return "f" + FloatRepr(d);
    }
    case Kind::kSequence: {
      if (value.sequence_type() != SequenceType::kTuple) return std::nullopt;
      std::string key = "t(";
      for (const Value& item : value.items()) {
        const auto part = HashKey(item);
        if (!part) return std::nullopt;
        key += fmt::format("{}:", part->size());
        key += *part;
      }
      return key;
    }
    default:
      return std::nullopt;
  }
}

bool DictObject::Set(const Value& key, Value value) {
  auto hash = HashKey(key);
  if (!hash) return false;
  const auto [it, inserted] = index_.try_emplace(std::move(*hash), entries.size());
  if (inserted) {
    entries.emplace_back(key, std::move(value));
  } else {
    entries[it->second].second = std::move(value);
  }
  return true;
}

const Value* DictObject::Find(const Value& key) const {
  const auto hash = HashKey(key);
  if (!hash) return nullptr;
  const auto it = index_.find(*hash);
  return it == index_.end() ? nullptr : &entries[it->second].second;
}

const Value* DictObject::Find(std::string_view key) const {
  std::string hash = "s";
  hash += key;
  const auto it = index_.find(hash);
  return it == index_.end() ? nullptr : &entries[it->second].second;
}

std::string_view TypeName(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return value.long_digits().empty() ? "float" : "int";
    case Kind::kString:
      return "str";
    case Kind::kDict:
      return "dict";
    case Kind::kNamespace:
      return "namespace";
    case Kind::kLoop:
      return "loop";
    case Kind::kMacro:
      return "macro";
    case Kind::kNative:
      return "function";
    case Kind::kSequence:
      break;
  }
  switch (value.sequence_type()) {
    case SequenceType::kList:
      return "list";
    case SequenceType::kTuple:
      return "tuple";
    case SequenceType::kRange:
      return "range";
    case SequenceType::kIterator:
      return "generator";
    case SequenceType::kDictKeys:
      return "dict_keys";
    case SequenceType::kDictValues:
      return "dict_values";
    case SequenceType::kDictItems:
      return "dict_items";
  }
  return "?";
}

}  // namespace kvasir::jinja
