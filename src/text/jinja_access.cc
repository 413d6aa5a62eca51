// Iteration, attributes, items and slices.
#include <algorithm>

#include "text/jinja_runtime.h"
#include "text/jinja_unicode.h"

namespace kvasir::jinja {
namespace {

Status UndefinedError(const Value& value) { return InvalidArgument("{}", value.undefined_hint()); }

std::string_view ObjectName(const Value& value) {
  return value.is(Kind::kDict) ? "dict object" : TypeName(value);
}

StatusOr<Value> MissingMember(Runtime& runtime, const Value& value, const Value& key) {
  KV_RETURN_IF_ERROR(runtime.Spend(key.weight() / 4));
  TracedText repr;
  if (value.is(Kind::kSequence)) {
    AppendRepr(key, &repr);
    return Value::Undefined(
        fmt::format("'{} object' has no element {}", ObjectName(value), repr.view()));
  }
  AppendRepr(key, &repr);
  return Value::Undefined(
      fmt::format("'{}' has no attribute {}", ObjectName(value), repr.view().substr(0, 100)));
}

// The item, or nullopt when there is none under this key.
StatusOr<std::optional<Value>> FindItem(Runtime& runtime, const Value& value, const Value& key) {
  if (value.is(Kind::kDict)) {
    const Value* found = value.dict().Find(key);
    if (found == nullptr) return std::optional<Value>();
    return std::optional<Value>(*found);
  }
  if (!key.is_integral()) return std::optional<Value>();
  int64_t index = key.as_int();
  if (value.is(Kind::kString)) {
    const std::string_view text = value.view();
    KV_RETURN_IF_ERROR(runtime.Spend(static_cast<int64_t>(text.size() / 16)));
    const auto count = static_cast<int64_t>(CodePointCount(text));
    if (index < 0) index += count;
    if (index < 0 || index >= count) return std::optional<Value>();
    size_t offset = 0;
    for (int64_t i = 0; i < index; ++i) offset += CharLength(text, offset);
    KV_ASSIGN_OR_RETURN(
        Value item, runtime.String(value.text().Slice(offset, offset + CharLength(text, offset))));
    return std::optional<Value>(std::move(item));
  }
  const bool indexable = value.is_sequence(SequenceType::kList) ||
                         value.is_sequence(SequenceType::kTuple) ||
                         value.is_sequence(SequenceType::kRange);
  if (!indexable) return std::optional<Value>();
  const auto count = static_cast<int64_t>(value.items().size());
  if (index < 0) index += count;
  if (index < 0 || index >= count) return std::optional<Value>();
  return std::optional<Value>(value.items()[static_cast<size_t>(index)]);
}

std::optional<Value> NumberAttribute(const Value& value, std::string_view name) {
  const bool is_float = value.is(Kind::kFloat);
  const auto same = [&] { return is_float ? value : Value::Int(value.as_int()); };
  if (name == "real" || (name == "numerator" && !is_float)) return same();
  if (name == "imag") return is_float ? Value::Float(0) : Value::Int(0);
  if (name == "denominator" && !is_float) return Value::Int(1);
  return FindMethod(value, name);
}

std::optional<Value> FindAttribute(const Value& value, std::string_view name) {
  if (value.is(Kind::kNamespace)) {
    const auto& members = static_cast<const NamespaceObject*>(value.object())->members;
    if (const Value* found = members.Find(name)) return *found;
    return std::nullopt;
  }
  if (value.is(Kind::kSequence) && static_cast<SequenceObject*>(value.object())->is_group) {
    if (name == "grouper") return value.items()[0];
    if (name == "list") return value.items()[1];
  }
  if (value.is_number()) return NumberAttribute(value, name);
  return FindMethod(value, name);
}

struct SliceRange {
  int64_t start;
  int64_t step;
  int64_t count;
};

// Python's slice.indices().
StatusOr<SliceRange> ResolveSlice(int64_t length, const Value& start, const Value& stop,
                                  const Value& step) {
  for (const Value* part : {&start, &stop, &step}) {
    if (!part->is(Kind::kNone) && !part->is_integral()) {
      return InvalidArgument("a slice needs int or none, not {}", TypeName(*part));
    }
  }
  const int64_t by = step.is(Kind::kNone) ? 1 : step.as_int();
  if (by == 0) return InvalidArgument("a slice step cannot be zero");
  const int64_t low = by > 0 ? 0 : -1;
  const int64_t high = by > 0 ? length : length - 1;
  const auto resolve = [&](const Value& part, int64_t fallback) {
    if (part.is(Kind::kNone)) return fallback;
    int64_t index = part.as_int();
    if (index < 0) index = index < -length ? low : index + length;
    return std::clamp(index, low, high);
  };
  const int64_t first = resolve(start, by > 0 ? low : high);
  const int64_t last = resolve(stop, by > 0 ? high : low);
  int64_t count = 0;
  if (by > 0 && last > first) count = (last - first - 1) / by + 1;
  if (by < 0 && first > last) {
    // -by would overflow for the lowest int; a step that long takes one item.
    count = by < -length ? 1 : (first - last - 1) / -by + 1;
  }
  return SliceRange{first, by, count};
}

}  // namespace

StatusOr<ValueList> Iterate(Runtime& runtime, const Value& value) {
  ValueList items;
  switch (value.kind()) {
    case Kind::kUndefined:
      return items;
    case Kind::kString: {
      const TracedText& text = value.text();
      KV_RETURN_IF_ERROR(runtime.Spend(static_cast<int64_t>(text.size())));
      for (size_t i = 0; i < text.size();) {
        const size_t length = CharLength(text.view(), i);
        KV_ASSIGN_OR_RETURN(Value item, runtime.String(text.Slice(i, i + length)));
        items.push_back(std::move(item));
        i += length;
      }
      return items;
    }
    case Kind::kDict:
      KV_RETURN_IF_ERROR(runtime.Spend(static_cast<int64_t>(value.dict().entries.size())));
      for (const auto& [key, item] : value.dict().entries) items.push_back(key);
      return items;
    case Kind::kSequence: {
      KV_RETURN_IF_ERROR(runtime.Spend(static_cast<int64_t>(value.items().size())));
      KV_RETURN_IF_ERROR(runtime.Allocate(value.items().size() * sizeof(Value)));
      auto* sequence = static_cast<SequenceObject*>(value.object());
      if (sequence->type == SequenceType::kIterator) {
        if (sequence->consumed) return items;
        sequence->consumed = true;
      }
      return sequence->items;
    }
    default:
      return InvalidArgument("'{}' object is not iterable", TypeName(value));
  }
}

StatusOr<int64_t> Length(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      return static_cast<int64_t>(CodePointCount(value.view()));
    case Kind::kDict:
      return static_cast<int64_t>(value.dict().entries.size());
    case Kind::kSequence:
      if (value.sequence_type() == SequenceType::kIterator) break;
      return static_cast<int64_t>(value.items().size());
    default:
      break;
  }
  return InvalidArgument("object of type '{}' has no length", TypeName(value));
}

StatusOr<Value> GetAttribute(Runtime& runtime, const Value& value, std::string_view name) {
  if (value.is(Kind::kUndefined)) return UndefinedError(value);
  if (auto attribute = FindAttribute(value, name)) return std::move(*attribute);
  const Value key = Value::String(name, true);
  KV_ASSIGN_OR_RETURN(std::optional<Value> item, FindItem(runtime, value, key));
  if (item) return std::move(*item);
  return MissingMember(runtime, value, key);
}

StatusOr<Value> GetItem(Runtime& runtime, const Value& value, const Value& key) {
  if (value.is(Kind::kUndefined)) return UndefinedError(value);
  KV_ASSIGN_OR_RETURN(std::optional<Value> item, FindItem(runtime, value, key));
  if (item) return std::move(*item);
  if (key.is(Kind::kString)) {
    if (auto attribute = FindAttribute(value, key.view())) return std::move(*attribute);
  }
  return MissingMember(runtime, value, key);
}

StatusOr<Value> GetSlice(Runtime& runtime, const Value& value, const Value& start,
                         const Value& stop, const Value& step) {
  if (value.is(Kind::kUndefined)) return UndefinedError(value);
  if (value.is(Kind::kString)) {
    const TracedText& text = value.text();
    KV_RETURN_IF_ERROR(runtime.Spend(static_cast<int64_t>(text.size() / 16)));
    KV_RETURN_IF_ERROR(runtime.Allocate(text.size() * sizeof(size_t)));
    const std::vector<size_t> offsets = CharOffsets(text.view());
    KV_ASSIGN_OR_RETURN(const SliceRange range,
                        ResolveSlice(static_cast<int64_t>(offsets.size()) - 1, start, stop, step));
    const auto first = static_cast<size_t>(std::max<int64_t>(range.start, 0));
    if (range.count == 0) return runtime.String(TracedText());
    if (range.step == 1) {
      return runtime.String(
          text.Slice(offsets[first], offsets[first + static_cast<size_t>(range.count)]));
    }
    TracedText out;
    for (int64_t i = 0; i < range.count; ++i) {
      const auto at = static_cast<size_t>(range.start + i * range.step);
      out.AppendSlice(text, offsets[at], offsets[at + 1]);
    }
    return runtime.String(std::move(out));
  }
  const bool sliceable = value.is_sequence(SequenceType::kList) ||
                         value.is_sequence(SequenceType::kTuple) ||
                         value.is_sequence(SequenceType::kRange);
  if (!sliceable) return InvalidArgument("'{}' object cannot be sliced", TypeName(value));
  KV_ASSIGN_OR_RETURN(const SliceRange range,
                      ResolveSlice(static_cast<int64_t>(value.items().size()), start, stop, step));
  KV_RETURN_IF_ERROR(runtime.Spend(range.count / 4));
  ValueList items;
  items.reserve(static_cast<size_t>(range.count));
  for (int64_t i = 0; i < range.count; ++i) {
    items.push_back(value.items()[static_cast<size_t>(range.start + i * range.step)]);
  }
  return runtime.Sequence(std::move(items), value.sequence_type());
}

}  // namespace kvasir::jinja
