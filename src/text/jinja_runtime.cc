#include "text/jinja_runtime.h"

#include <algorithm>

namespace kvasir::jinja {

const Value* Arguments::Named(std::string_view name) const {
  for (const auto& [key, value] : named) {
    if (key.view() == name) return &value;
  }
  return nullptr;
}

Status Runtime::Spend(int64_t steps) {
  steps_left_ -= steps;
  if (steps_left_ >= 0) return OkStatus();
  return ResourceExhausted("the template needs more than {} steps", limits_.steps);
}

Status Runtime::Allocate(size_t bytes) {
  if (bytes > static_cast<size_t>(bytes_left_)) {
    bytes_left_ = 0;
    return ResourceExhausted("the template makes more than {} MiB of values", limits_.bytes >> 20);
  }
  bytes_left_ -= static_cast<int64_t>(bytes);
  return OkStatus();
}

Status Runtime::SpendOn(const Value& value) {
  if (value.is(Kind::kString)) return Spend(value.weight() / 16);
  // The hash key of a nested tuple is copied once per level.
  return Spend(value.weight() * value.container_depth());
}

Status Runtime::SpendOnComparison(const Value& a, const Value& b) {
  if (a.kind() != b.kind()) return OkStatus();
  const int64_t weight = std::min(a.weight(), b.weight());
  if (a.is(Kind::kString)) return Spend(weight / 128);
  // Ordering compares the rest of a nested list once per level.
  return Spend(weight * std::max(1, std::min(a.container_depth(), b.container_depth())));
}

Status Runtime::SpendOnCall(const Value& self, const Arguments& arguments) {
  const auto size = [](const Value& value) -> size_t {
    if (!value.is(Kind::kString)) return 0;
    return value.text().size() + value.text().runs().size() * sizeof(TracedText::Run);
  };
  size_t bytes = size(self);
  for (const Value& value : arguments.positional) bytes += size(value) + 16;
  for (const auto& [key, value] : arguments.named) bytes += size(key) + size(value) + 256;
  return SpendOnBytes(bytes);
}

StatusOr<TracedText> Runtime::Text(const Value& value) {
  if (value.is(Kind::kNamespace)) {
    for (const auto& [key, item] :
         static_cast<const NamespaceObject*>(value.object())->members.entries) {
      KV_RETURN_IF_ERROR(Spend(item.weight() / 4));
      KV_RETURN_IF_ERROR(Allocate(static_cast<size_t>(item.weight() + key.weight())));
    }
  }
  KV_RETURN_IF_ERROR(Spend(value.weight() / (value.is(Kind::kString) ? 16 : 4)));
  KV_RETURN_IF_ERROR(Allocate(static_cast<size_t>(value.weight())));
  return ToText(value);
}

StatusOr<Value> Runtime::String(TracedText text) {
  KV_RETURN_IF_ERROR(
      Allocate(sizeof(StringObject) + text.size() + text.runs().size() * sizeof(TracedText::Run)));
  return Value::String(std::move(text));
}

StatusOr<Value> Runtime::Sequence(ValueList items, SequenceType type) {
  KV_RETURN_IF_ERROR(Allocate(sizeof(SequenceObject) + items.size() * sizeof(Value)));
  KV_RETURN_IF_ERROR(Spend(static_cast<int64_t>(items.size() / 8)));
  Value value = Value::Sequence(std::move(items), type);
  if (value.is(Kind::kNone)) {
    return ResourceExhausted("a list is too large or nested more than {} levels deep",
                             kMaxContainerDepth);
  }
  return value;
}

StatusOr<Value> Runtime::Dict(std::shared_ptr<DictObject> dict) {
  // An entry costs two values, its hash key and an index node.
  KV_RETURN_IF_ERROR(Allocate(sizeof(DictObject) + dict->entries.size() * 192));
  KV_RETURN_IF_ERROR(Spend(static_cast<int64_t>(dict->entries.size())));
  Value value = Value::Dict(std::move(dict));
  if (value.is(Kind::kNone)) {
    return ResourceExhausted("a dict is too large or nested more than {} levels deep",
                             kMaxContainerDepth);
  }
  return value;
}

void Runtime::ClearNamespaces() {
  for (const auto& space : spaces_) space->members.entries.clear();
  spaces_.clear();
}

Value MakeNative(std::string_view name, NativeFunction function, Value self) {
  auto native = std::make_shared<NativeObject>();
  native->name = name;
  native->function = function;
  native->depth = self.container_depth() + 1;
  native->weight = self.weight() + 1;
  native->self = std::move(self);
  return Value::Wrap(Kind::kNative, std::move(native));
}

StatusOr<Bound> Bound::Make(const Arguments& arguments,
                            std::initializer_list<std::string_view> names, size_t required) {
  Bound bound;
  bound.names_.assign(names.begin(), names.end());
  bound.values_.resize(names.size());
  if (arguments.positional.size() > names.size()) {
    return InvalidArgument("takes at most {} arguments, got {}", names.size(),
                           arguments.positional.size());
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) {
    bound.values_[i] = arguments.positional[i];
  }
  for (const auto& [key, value] : arguments.named) {
    const auto it = std::find(bound.names_.begin(), bound.names_.end(), key.view());
    if (it == bound.names_.end()) return InvalidArgument("has no argument '{}'", key.view());
    auto& slot = bound.values_[static_cast<size_t>(it - bound.names_.begin())];
    if (slot) return InvalidArgument("got argument '{}' twice", key.view());
    slot = value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (!bound.values_[i]) return InvalidArgument("needs the argument '{}'", bound.names_[i]);
  }
  return bound;
}

StatusOr<int64_t> Bound::Int(size_t i, int64_t fallback) const {
  if (!has(i)) return fallback;
  if (!values_[i]->is_integral()) {
    return InvalidArgument("argument '{}' must be an int, not {}", names_[i],
                           TypeName(*values_[i]));
  }
  return values_[i]->as_int();
}

bool Bound::Truthy(size_t i, bool fallback) const {
  return has(i) ? IsTruthy(*values_[i]) : fallback;
}

StatusOr<TracedText> Bound::Text(size_t i, std::string_view fallback) const {
  if (!has(i)) return TracedText(std::string(fallback), false);
  if (!values_[i]->is(Kind::kString)) {
    return InvalidArgument("argument '{}' must be a string, not {}", names_[i],
                           TypeName(*values_[i]));
  }
  return values_[i]->text();
}

}  // namespace kvasir::jinja
