#include <algorithm>

#include "text/jinja_filters.h"
#include "text/jinja_strings.h"
#include "text/jinja_unicode.h"

namespace kvasir::jinja {
namespace {

StatusOr<Value> LengthFilter(Runtime& runtime, const Value& self, const Arguments& arguments) {
  KV_RETURN_IF_ERROR(Bound::Make(arguments, {}).status());
  KV_RETURN_IF_ERROR(runtime.Spend(self.is(Kind::kString) ? self.weight() / 16 : 1));
  KV_ASSIGN_OR_RETURN(const int64_t length, Length(self));
  return Value::Int(length);
}

StatusOr<Value> First(Runtime& runtime, const Value& self, const Arguments& arguments) {
  KV_RETURN_IF_ERROR(Bound::Make(arguments, {}).status());
  if (self.is(Kind::kString)) {
    if (self.text().empty()) return Value::Undefined("no first item, the sequence was empty");
    return GetItem(runtime, self, Value::Int(0));
  }
  KV_ASSIGN_OR_RETURN(const ValueList items, Iterate(runtime, self));
  return items.empty() ? Value::Undefined("no first item, the sequence was empty") : items.front();
}

Status RequireReversible(const Value& value) {
  if (value.is_sequence(SequenceType::kIterator)) {
    return InvalidArgument("'{}' object is not reversible", TypeName(value));
  }
  return OkStatus();
}

StatusOr<Value> Last(Runtime& runtime, const Value& self, const Arguments& arguments) {
  KV_RETURN_IF_ERROR(Bound::Make(arguments, {}).status());
  KV_RETURN_IF_ERROR(RequireReversible(self));
  KV_ASSIGN_OR_RETURN(const ValueList items, Iterate(runtime, self));
  return items.empty() ? Value::Undefined("no last item, the sequence was empty") : items.back();
}

StatusOr<Value> ListFilter(Runtime& runtime, const Value& self, const Arguments& arguments) {
  KV_RETURN_IF_ERROR(Bound::Make(arguments, {}).status());
  KV_ASSIGN_OR_RETURN(ValueList items, Iterate(runtime, self));
  return runtime.Sequence(std::move(items));
}

StatusOr<Value> Reverse(Runtime& runtime, const Value& self, const Arguments& arguments) {
  KV_RETURN_IF_ERROR(Bound::Make(arguments, {}).status());
  if (self.is(Kind::kString)) {
    return GetSlice(runtime, self, Value::None(), Value::None(), Value::Int(-1));
  }
  KV_ASSIGN_OR_RETURN(ValueList items, Iterate(runtime, self));
  std::reverse(items.begin(), items.end());
  return runtime.Sequence(std::move(items), SequenceType::kIterator);
}

StatusOr<Value> JoinFilter(Runtime& runtime, const Value& self, const Arguments& arguments) {
  KV_ASSIGN_OR_RETURN(const Bound bound, Bound::Make(arguments, {"d", "attribute"}));
  TracedText separator;
  if (bound.has(0)) {
    KV_ASSIGN_OR_RETURN(separator, runtime.Text(bound[0]));
  }
  KV_ASSIGN_OR_RETURN(ValueList items, Iterate(runtime, self));
  if (bound.has(1) && !bound[1].is(Kind::kNone)) {
    for (Value& item : items) {
      KV_ASSIGN_OR_RETURN(item, ReadPath(runtime, item, bound[1]));
    }
  }
  KV_ASSIGN_OR_RETURN(TracedText out, Join(runtime, separator, items));
  return runtime.String(std::move(out));
}

StatusOr<Value> Batch(Runtime& runtime, const Value& self, const Arguments& arguments) {
  KV_ASSIGN_OR_RETURN(const Bound bound, Bound::Make(arguments, {"linecount", "fill_with"}, 1));
  KV_ASSIGN_OR_RETURN(const int64_t size, bound.Int(0, 1));
  KV_ASSIGN_OR_RETURN(const ValueList items, Iterate(runtime, self));
  const bool fills = bound.has(1) && !bound[1].is(Kind::kNone);
  ValueList batches;
  ValueList batch;
  for (const Value& item : items) {
    // jinja2 compares for equality: a size below one never cuts.
    if (static_cast<int64_t>(batch.size()) == size) {
      KV_ASSIGN_OR_RETURN(Value value, runtime.Sequence(std::move(batch)));
      batches.push_back(std::move(value));
      batch.clear();
    }
    batch.push_back(item);
  }
  if (!batch.empty()) {
    if (fills) {
      KV_RETURN_IF_ERROR(runtime.Spend(std::max<int64_t>(size, 0)));
      while (static_cast<int64_t>(batch.size()) < size) batch.push_back(bound[1]);
    }
    KV_ASSIGN_OR_RETURN(Value value, runtime.Sequence(std::move(batch)));
    batches.push_back(std::move(value));
  }
  return runtime.Sequence(std::move(batches), SequenceType::kIterator);
}

StatusOr<Value> SliceFilter(Runtime& runtime, const Value& self, const Arguments& arguments) {
  KV_ASSIGN_OR_RETURN(const Bound bound, Bound::Make(arguments, {"slices", "fill_with"}, 1));
  KV_ASSIGN_OR_RETURN(const int64_t slices, bound.Int(0, 1));
  KV_ASSIGN_OR_RETURN(const ValueList items, Iterate(runtime, self));
  if (slices <= 0) return InvalidArgument("needs at least one slice");
  KV_RETURN_IF_ERROR(runtime.Spend(slices));
  const auto count = static_cast<int64_t>(items.size());
  const int64_t per_slice = count / slices;
  const int64_t with_extra = count % slices;
  ValueList out;
  int64_t begin = 0;
  for (int64_t s = 0; s < slices; ++s) {
    const int64_t end = begin + per_slice + (s < with_extra ? 1 : 0);
    ValueList part(items.begin() + begin, items.begin() + end);
    if (bound.has(1) && !bound[1].is(Kind::kNone) && s >= with_extra) part.push_back(bound[1]);
    KV_ASSIGN_OR_RETURN(Value value, runtime.Sequence(std::move(part)));
    out.push_back(std::move(value));
    begin = end;
  }
  return runtime.Sequence(std::move(out), SequenceType::kIterator);
}

// Sorts by key with Python's order; the first pair without an order is the error.
struct Keyed {
  Value key;
  Value item;
};

Status SortKeyed(Runtime& runtime, bool reverse, std::vector<Keyed>* items) {
  Status failed;
  int64_t weight = 0;
  for (const Keyed& keyed : *items) {
    weight += 8 + keyed.key.weight() * (1 + 4 * keyed.key.container_depth());
  }
  KV_RETURN_IF_ERROR(runtime.Spend(weight));
  std::stable_sort(items->begin(), items->end(), [&](const Keyed& a, const Keyed& b) {
    if (!failed.ok()) return false;
    const StatusOr<bool> less = reverse ? LessThan(b.key, a.key) : LessThan(a.key, b.key);
    if (!less.ok()) failed = less.status();
    return less.ok() && *less;
  });
  return failed;
}

// The key that `attribute` (comma-separated paths, or absent) reads from `item`.
StatusOr<Value> SortKey(Runtime& runtime, const Value& item, const Value* attribute,
                        bool case_sensitive) {
  if (attribute == nullptr || attribute->is(Kind::kNone)) {
    if (case_sensitive) return item;
    return FoldCase(runtime, item);
  }
  if (!attribute->is(Kind::kString) || attribute->view().find(',') == std::string_view::npos) {
    KV_ASSIGN_OR_RETURN(const Value key, ReadPath(runtime, item, *attribute));
    if (case_sensitive) return key;
    return FoldCase(runtime, key);
  }
  ValueList keys;
  std::string_view rest = attribute->view();
  while (true) {
    const size_t comma = std::min(rest.find(','), rest.size());
    KV_ASSIGN_OR_RETURN(Value key,
                        ReadPath(runtime, item, Value::String(rest.substr(0, comma), true)));
    if (!case_sensitive) {
      KV_ASSIGN_OR_RETURN(key, FoldCase(runtime, key));
    }
    keys.push_back(std::move(key));
    if (comma == rest.size()) break;
    rest.remove_prefix(comma + 1);
  }
  return runtime.Sequence(std::move(keys));
}

StatusOr<std::vector<Keyed>> KeyItems(Runtime& runtime, const Value& self, const Value* attribute,
                                      bool case_sensitive) {
  KV_ASSIGN_OR_RETURN(const ValueList items, Iterate(runtime, self));
  std::vector<Keyed> keyed;
  for (const Value& item : items) {
    KV_ASSIGN_OR_RETURN(Value key, SortKey(runtime, item, attribute, case_sensitive));
    keyed.push_back({std::move(key), item});
  }
  return keyed;
}

StatusOr<Value> Sort(Runtime& runtime, const Value& self, const Arguments& arguments) {
  KV_ASSIGN_OR_RETURN(const Bound bound,
                      Bound::Make(arguments, {"reverse", "case_sensitive", "attribute"}));
  KV_ASSIGN_OR_RETURN(
      std::vector<Keyed> keyed,
      KeyItems(runtime, self, bound.has(2) ? &bound[2] : nullptr, bound.Truthy(1, false)));
  KV_RETURN_IF_ERROR(SortKeyed(runtime, bound.Truthy(0, false), &keyed));
  ValueList out;
  for (Keyed& entry : keyed) out.push_back(std::move(entry.item));
  return runtime.Sequence(std::move(out));
}

template <bool wants_max>
StatusOr<Value> Extreme(Runtime& runtime, const Value& self, const Arguments& arguments) {
  KV_ASSIGN_OR_RETURN(const Bound bound, Bound::Make(arguments, {"case_sensitive", "attribute"}));
  KV_ASSIGN_OR_RETURN(
      std::vector<Keyed> keyed,
      KeyItems(runtime, self, bound.has(1) ? &bound[1] : nullptr, bound.Truthy(0, false)));
  if (keyed.empty()) return Value::Undefined("no aggregated item, the sequence was empty");
  const Keyed* best = &keyed[0];
  for (size_t i = 1; i < keyed.size(); ++i) {
    const Keyed& entry = keyed[i];
    KV_RETURN_IF_ERROR(runtime.Spend(2));
    KV_RETURN_IF_ERROR(runtime.SpendOnComparison(best->key, entry.key));
    KV_ASSIGN_OR_RETURN(const bool better, wants_max ? LessThan(best->key, entry.key)
                                                     : LessThan(entry.key, best->key));
    if (better) best = &entry;
  }
  return best->item;
}

StatusOr<Value> Unique(Runtime& runtime, const Value& self, const Arguments& arguments) {
  KV_ASSIGN_OR_RETURN(const Bound bound, Bound::Make(arguments, {"case_sensitive", "attribute"}));
  KV_ASSIGN_OR_RETURN(
      std::vector<Keyed> keyed,
      KeyItems(runtime, self, bound.has(1) ? &bound[1] : nullptr, bound.Truthy(0, false)));
  DictObject seen;
  ValueList out;
  for (Keyed& entry : keyed) {
    KV_RETURN_IF_ERROR(runtime.Spend(2));
    KV_RETURN_IF_ERROR(runtime.SpendOn(entry.key));
    if (!HashKey(entry.key)) return InvalidArgument("unhashable type: '{}'", TypeName(entry.key));
    if (seen.Find(entry.key) != nullptr) continue;
    seen.Set(entry.key, Value::None());
    out.push_back(std::move(entry.item));
  }
  return runtime.Sequence(std::move(out), SequenceType::kIterator);
}

StatusOr<Value> DictSort(Runtime& runtime, const Value& self, const Arguments& arguments) {
  KV_ASSIGN_OR_RETURN(const Bound bound,
                      Bound::Make(arguments, {"case_sensitive", "by", "reverse"}));
  KV_ASSIGN_OR_RETURN(const TracedText by, bound.Text(1, "key"));
  if (by.view() != "key" && by.view() != "value") {
    return InvalidArgument("can only sort by 'key' or 'value', not '{}'", by.view());
  }
  if (!self.is(Kind::kDict)) return InvalidArgument("needs a dict, not {}", TypeName(self));
  std::vector<Keyed> keyed;
  for (const auto& [key, value] : self.dict().entries) {
    Value sorted = by.view() == "key" ? key : value;
    if (!bound.Truthy(0, false)) {
      KV_ASSIGN_OR_RETURN(sorted, FoldCase(runtime, sorted));
    }
    KV_ASSIGN_OR_RETURN(Value pair, runtime.Sequence({key, value}, SequenceType::kTuple));
    keyed.push_back({std::move(sorted), std::move(pair)});
  }
  KV_RETURN_IF_ERROR(SortKeyed(runtime, bound.Truthy(2, false), &keyed));
  ValueList out;
  for (Keyed& entry : keyed) out.push_back(std::move(entry.item));
  return runtime.Sequence(std::move(out));
}

StatusOr<Value> GroupBy(Runtime& runtime, const Value& self, const Arguments& arguments) {
  KV_ASSIGN_OR_RETURN(const Bound bound,
                      Bound::Make(arguments, {"attribute", "default", "case_sensitive"}, 1));
  KV_ASSIGN_OR_RETURN(const ValueList items, Iterate(runtime, self));
  const bool case_sensitive = bound.Truthy(2, false);
  std::vector<Keyed> keyed;
  for (const Value& item : items) {
    KV_ASSIGN_OR_RETURN(Value key, ReadPath(runtime, item, bound[0]));
    if (key.is(Kind::kUndefined) && bound.has(1)) key = bound[1];
    if (!case_sensitive) {
      KV_ASSIGN_OR_RETURN(key, FoldCase(runtime, key));
    }
    keyed.push_back({std::move(key), item});
  }
  KV_RETURN_IF_ERROR(SortKeyed(runtime, false, &keyed));
  ValueList groups;
  for (size_t begin = 0; begin < keyed.size();) {
    ValueList members;
    size_t end = begin;
    for (; end < keyed.size() && Equals(keyed[begin].key, keyed[end].key); ++end) {
      members.push_back(keyed[end].item);
    }
    // A key equal to nothing, itself included (nan), still makes a group.
    if (end == begin) members.push_back(keyed[end++].item);
    KV_ASSIGN_OR_RETURN(Value key, ReadPath(runtime, keyed[begin].item, bound[0]));
    if (key.is(Kind::kUndefined) && bound.has(1)) key = bound[1];
    KV_ASSIGN_OR_RETURN(Value list, runtime.Sequence(std::move(members)));
    KV_ASSIGN_OR_RETURN(Value group,
                        runtime.Sequence({std::move(key), std::move(list)}, SequenceType::kTuple));
    static_cast<SequenceObject*>(group.object())->is_group = true;
    groups.push_back(std::move(group));
    begin = end;
  }
  return runtime.Sequence(std::move(groups));
}

StatusOr<Value> Sum(Runtime& runtime, const Value& self, const Arguments& arguments) {
  KV_ASSIGN_OR_RETURN(const Bound bound, Bound::Make(arguments, {"attribute", "start"}));
  KV_ASSIGN_OR_RETURN(const ValueList items, Iterate(runtime, self));
  Value total = bound.has(1) ? bound[1] : Value::Int(0);
  if (total.is(Kind::kString)) return InvalidArgument("cannot sum strings; use join");
  for (const Value& item : items) {
    Value term = item;
    if (bound.has(0) && !bound[0].is(Kind::kNone)) {
      KV_ASSIGN_OR_RETURN(term, ReadPath(runtime, item, bound[0]));
    }
    KV_ASSIGN_OR_RETURN(total, BinaryOperation(runtime, "+", total, term));
  }
  return total;
}

StatusOr<Value> Items(Runtime& runtime, const Value& self, const Arguments& arguments) {
  KV_RETURN_IF_ERROR(Bound::Make(arguments, {}).status());
  ValueList pairs;
  if (self.is(Kind::kDict)) {
    for (const auto& [key, value] : self.dict().entries) {
      KV_ASSIGN_OR_RETURN(Value pair, runtime.Sequence({key, value}, SequenceType::kTuple));
      pairs.push_back(std::move(pair));
    }
  } else if (!self.is(Kind::kUndefined)) {
    return InvalidArgument("needs a dict, not {}", TypeName(self));
  }
  return runtime.Sequence(std::move(pairs), SequenceType::kIterator);
}

}  // namespace

const std::vector<NativeEntry>& SequenceFilters() {
  static const std::vector<NativeEntry> kFilters = {
      {"length", LengthFilter}, {"count", LengthFilter},
      {"first", First},         {"last", Last},
      {"list", ListFilter},     {"reverse", Reverse},
      {"join", JoinFilter},     {"batch", Batch},
      {"slice", SliceFilter},   {"sort", Sort},
      {"min", Extreme<false>},  {"max", Extreme<true>},
      {"unique", Unique},       {"dictsort", DictSort},
      {"groupby", GroupBy},     {"sum", Sum},
      {"items", Items},
  };
  return kFilters;
}

}  // namespace kvasir::jinja
