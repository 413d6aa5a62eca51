#include "text/jinja_filters.h"

#include <algorithm>
#include <array>

#include "text/jinja_strings.h"

namespace kvasir::jinja {
namespace {

const std::array<const std::vector<NativeEntry>*, 4>& AllFilters() {
  static const std::array<const std::vector<NativeEntry>*, 4> kAll = {
      &TextFilters(), &SequenceFilters(), &SelectionFilters(), &ValueFilters()};
  return kAll;
}

NativeFunction FindFilter(std::string_view name) {
  for (const auto* table : AllFilters()) {
    if (const NativeFunction function = FindNative(*table, name)) return function;
  }
  return nullptr;
}

std::string KnownFilters() {
  std::vector<std::string_view> names;
  for (const auto* table : AllFilters()) {
    for (const NativeEntry& entry : *table) names.push_back(entry.name);
  }
  std::sort(names.begin(), names.end());
  std::string known;
  for (const std::string_view name : names) {
    if (!known.empty()) known += ", ";
    known += name;
  }
  return known;
}

}  // namespace

NativeFunction FindNative(const std::vector<NativeEntry>& table, std::string_view name) {
  for (const NativeEntry& entry : table) {
    if (entry.name == name) return entry.function;
  }
  return nullptr;
}

StatusOr<Value> ApplyFilter(Runtime& runtime, std::string_view name, const Value& input,
                            const Arguments& arguments) {
  const NativeFunction function = FindFilter(name);
  if (function == nullptr) {
    return InvalidArgument("unknown filter '{}' (known: {})", name, KnownFilters());
  }
  KV_RETURN_IF_ERROR(runtime.Spend(1));
  KV_RETURN_IF_ERROR(runtime.SpendOnCall(input, arguments));
  StatusOr<Value> result = function(runtime, input, arguments);
  if (!result.ok()) return WithPrefix(result.status(), fmt::format("filter '{}'", name));
  return result;
}

StatusOr<Value> FoldCase(Runtime& runtime, const Value& value) {
  if (!value.is(Kind::kString)) return value;
  KV_RETURN_IF_ERROR(runtime.SpendOnChars(value.view().size()));
  KV_RETURN_IF_ERROR(runtime.Allocate(value.view().size()));
  return Value::String(ChangeCase(value.text(), CaseChange::kLower));
}

StatusOr<Value> ReadPath(Runtime& runtime, const Value& value, const Value& path) {
  if (path.is_integral()) return GetItem(runtime, value, path);
  if (!path.is(Kind::kString)) {
    return InvalidArgument("an attribute must be a string or an int, not {}", TypeName(path));
  }
  Value result = value;
  std::string_view rest = path.view();
  while (true) {
    const size_t dot = std::min(rest.find('.'), rest.size());
    const std::string_view part = rest.substr(0, dot);
    KV_RETURN_IF_ERROR(runtime.Spend(1 + static_cast<int64_t>(dot / 16)));
    const bool is_index = !part.empty() && part.size() < 10 &&
                          part.find_first_not_of("0123456789") == std::string_view::npos;
    const Value key =
        is_index ? Value::Int(std::stoll(std::string(part))) : Value::String(part, true);
    KV_ASSIGN_OR_RETURN(result, GetItem(runtime, result, key));
    if (dot == rest.size()) return result;
    rest.remove_prefix(dot + 1);
  }
}

}  // namespace kvasir::jinja
