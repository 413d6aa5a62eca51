// map, select, reject and their attribute forms.
#include <algorithm>

#include "text/jinja_filters.h"

namespace kvasir::jinja {
namespace {

// The arguments after the first `count` positional ones.
Arguments Rest(const Arguments& arguments, size_t count) {
  Arguments rest;
  rest.positional.assign(arguments.positional.begin() + static_cast<std::ptrdiff_t>(count),
                         arguments.positional.end());
  rest.named = arguments.named;
  return rest;
}

StatusOr<Value> Map(Runtime& runtime, const Value& self, const Arguments& arguments) {
  KV_ASSIGN_OR_RETURN(ValueList items, Iterate(runtime, self));
  const Value* attribute = arguments.Named("attribute");
  if (arguments.positional.empty() && attribute != nullptr) {
    const Value* fallback = arguments.Named("default");
    if (arguments.named.size() > (fallback == nullptr ? 1u : 2u)) {
      return InvalidArgument("map(attribute=...) takes only 'default' besides");
    }
    for (Value& item : items) {
      KV_ASSIGN_OR_RETURN(item, ReadPath(runtime, item, *attribute));
      if (item.is(Kind::kUndefined) && fallback != nullptr) item = *fallback;
    }
    return runtime.Sequence(std::move(items), SequenceType::kIterator);
  }
  if (arguments.positional.empty() || !arguments.positional[0].is(Kind::kString)) {
    return InvalidArgument("needs the name of a filter or attribute=");
  }
  const Arguments rest = Rest(arguments, 1);
  for (Value& item : items) {
    KV_ASSIGN_OR_RETURN(item, ApplyFilter(runtime, arguments.positional[0].view(), item, rest));
  }
  return runtime.Sequence(std::move(items), SequenceType::kIterator);
}

template <bool by_attribute, bool keeps>
StatusOr<Value> Select(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const size_t first = by_attribute ? 1 : 0;
  if (arguments.positional.size() < first) return InvalidArgument("needs an attribute");
  const bool has_test = arguments.positional.size() > first;
  if (has_test && !arguments.positional[first].is(Kind::kString)) {
    return InvalidArgument("needs the name of a test");
  }
  KV_ASSIGN_OR_RETURN(const ValueList items, Iterate(runtime, self));
  const Arguments rest = has_test ? Rest(arguments, first + 1) : Arguments();
  ValueList out;
  for (const Value& item : items) {
    Value subject = item;
    if (by_attribute) {
      KV_ASSIGN_OR_RETURN(subject, ReadPath(runtime, item, arguments.positional[0]));
    }
    bool holds = IsTruthy(subject);
    if (has_test) {
      KV_ASSIGN_OR_RETURN(holds,
                          ApplyTest(runtime, arguments.positional[first].view(), subject, rest));
    }
    if (holds == keeps) out.push_back(item);
  }
  return runtime.Sequence(std::move(out), SequenceType::kIterator);
}

}  // namespace

const std::vector<NativeEntry>& SelectionFilters() {
  static const std::vector<NativeEntry> kFilters = {
      {"map", Map},
      {"select", Select<false, true>},
      {"reject", Select<false, false>},
      {"selectattr", Select<true, true>},
      {"rejectattr", Select<true, false>},
  };
  return kFilters;
}

}  // namespace kvasir::jinja
