// The tests behind `is`.
#include <algorithm>
#include <cmath>

#include "text/jinja_filters.h"
#include "text/jinja_unicode.h"

namespace kvasir::jinja {
namespace {

template <bool (*predicate)(const Value&)>
StatusOr<Value> Simple(Runtime&, const Value& self, const Arguments& arguments) {
  KV_RETURN_IF_ERROR(Bound::Make(arguments, {}).status());
  return Value::Bool(predicate(self));
}

bool IsDefined(const Value& v) { return !v.is(Kind::kUndefined); }
bool IsUndefined(const Value& v) { return v.is(Kind::kUndefined); }
bool IsNone(const Value& v) { return v.is(Kind::kNone); }
bool IsBoolean(const Value& v) { return v.is(Kind::kBool); }
bool IsTrue(const Value& v) { return v.is(Kind::kBool) && v.as_bool(); }
bool IsFalse(const Value& v) { return v.is(Kind::kBool) && !v.as_bool(); }
bool IsInteger(const Value& v) { return v.is(Kind::kInt) || !v.long_digits().empty(); }
bool IsFloat(const Value& v) { return v.is(Kind::kFloat) && v.long_digits().empty(); }
bool IsNumber(const Value& v) { return v.is_number(); }
bool IsString(const Value& v) { return v.is(Kind::kString); }
bool IsMapping(const Value& v) { return v.is(Kind::kDict); }
bool IsEscaped(const Value&) { return false; }
bool IsIterable(const Value& v) {
  return v.is(Kind::kString) || v.is(Kind::kSequence) || v.is(Kind::kDict) ||
         v.is(Kind::kUndefined) || v.is(Kind::kLoop);
}
bool IsSequence(const Value& v) {
  if (v.is(Kind::kString) || v.is(Kind::kDict) || v.is(Kind::kUndefined)) return true;
  return v.is_sequence(SequenceType::kList) || v.is_sequence(SequenceType::kTuple) ||
         v.is_sequence(SequenceType::kRange);
}
bool IsCallable(const Value& v) {
  return v.is(Kind::kMacro) || v.is(Kind::kNative) || v.is(Kind::kLoop) || v.is(Kind::kUndefined);
}

// At least one cased character, and all of them of that case.
template <bool (*wanted)(uint32_t), bool (*unwanted)(uint32_t)>
StatusOr<Value> CaseTest(Runtime& runtime, const Value& self, const Arguments& arguments) {
  KV_RETURN_IF_ERROR(Bound::Make(arguments, {}).status());
  KV_ASSIGN_OR_RETURN(const TracedText text, runtime.Text(self));
  KV_RETURN_IF_ERROR(runtime.SpendOnChars(text.size()));
  bool found = false;
  for (size_t i = 0; i < text.size(); i += CharLength(text.view(), i)) {
    const uint32_t c = CodePointAt(text.view(), i);
    if (unwanted(c) || IsTitlecase(c)) return Value::Bool(false);
    found = found || wanted(c);
  }
  return Value::Bool(found);
}

StatusOr<Value> Modulo(Runtime& runtime, const Value& self, const Value& by, int64_t remainder) {
  KV_ASSIGN_OR_RETURN(const Value rest, BinaryOperation(runtime, "%", self, by));
  return Value::Bool(Equals(rest, Value::Int(remainder)));
}

StatusOr<Value> IsOdd(Runtime& runtime, const Value& self, const Arguments&) {
  return Modulo(runtime, self, Value::Int(2), 1);
}

StatusOr<Value> IsEven(Runtime& runtime, const Value& self, const Arguments&) {
  return Modulo(runtime, self, Value::Int(2), 0);
}

StatusOr<Value> IsDivisibleBy(Runtime& runtime, const Value& self, const Arguments& arguments) {
  KV_ASSIGN_OR_RETURN(const Bound bound, Bound::Make(arguments, {"num"}, 1));
  return Modulo(runtime, self, bound[0], 0);
}

StatusOr<Value> IsSameAs(Runtime& runtime, const Value& self, const Arguments& arguments) {
  KV_ASSIGN_OR_RETURN(const Bound bound, Bound::Make(arguments, {"other"}, 1));
  const Value& other = bound[0];
  if (self.kind() != other.kind()) return Value::Bool(false);
  // Python shares equal short strings and small ints; templates compare such.
  if (self.is(Kind::kString)) KV_RETURN_IF_ERROR(runtime.SpendOn(self));
  if (self.is_number() || self.is(Kind::kString)) return Value::Bool(Equals(self, other));
  return Value::Bool(self.object() == other.object());
}

StatusOr<Value> IsIn(Runtime& runtime, const Value& self, const Arguments& arguments) {
  KV_ASSIGN_OR_RETURN(const Bound bound, Bound::Make(arguments, {"seq"}, 1));
  KV_ASSIGN_OR_RETURN(const bool contains, Contains(runtime, bound[0], self));
  return Value::Bool(contains);
}

enum class Order : uint8_t { kEq, kNe, kLt, kLe, kGt, kGe };

template <Order order>
StatusOr<Value> CompareTest(Runtime& runtime, const Value& self, const Arguments& arguments) {
  static constexpr std::string_view kOperators[] = {"==", "!=", "<", "<=", ">", ">="};
  KV_ASSIGN_OR_RETURN(const Bound bound, Bound::Make(arguments, {"other"}, 1));
  KV_ASSIGN_OR_RETURN(const bool holds,
                      Compare(runtime, kOperators[static_cast<size_t>(order)], self, bound[0]));
  return Value::Bool(holds);
}

StatusOr<Value> IsFilter(Runtime& runtime, const Value& self, const Arguments&);
StatusOr<Value> IsTest(Runtime& runtime, const Value& self, const Arguments&);

const std::vector<NativeEntry>& Tests() {
  static const std::vector<NativeEntry> kTests = {
      {"defined", Simple<IsDefined>},
      {"undefined", Simple<IsUndefined>},
      {"none", Simple<IsNone>},
      {"boolean", Simple<IsBoolean>},
      {"true", Simple<IsTrue>},
      {"false", Simple<IsFalse>},
      {"integer", Simple<IsInteger>},
      {"float", Simple<IsFloat>},
      {"number", Simple<IsNumber>},
      {"string", Simple<IsString>},
      {"mapping", Simple<IsMapping>},
      {"iterable", Simple<IsIterable>},
      {"sequence", Simple<IsSequence>},
      {"callable", Simple<IsCallable>},
      {"escaped", Simple<IsEscaped>},
      {"upper", CaseTest<IsUpper, IsLower>},
      {"lower", CaseTest<IsLower, IsUpper>},
      {"odd", IsOdd},
      {"even", IsEven},
      {"divisibleby", IsDivisibleBy},
      {"sameas", IsSameAs},
      {"in", IsIn},
      {"filter", IsFilter},
      {"test", IsTest},
      {"==", CompareTest<Order::kEq>},
      {"eq", CompareTest<Order::kEq>},
      {"equalto", CompareTest<Order::kEq>},
      {"!=", CompareTest<Order::kNe>},
      {"ne", CompareTest<Order::kNe>},
      {"<", CompareTest<Order::kLt>},
      {"lt", CompareTest<Order::kLt>},
      {"lessthan", CompareTest<Order::kLt>},
      {"<=", CompareTest<Order::kLe>},
      {"le", CompareTest<Order::kLe>},
      {">", CompareTest<Order::kGt>},
      {"gt", CompareTest<Order::kGt>},
      {"greaterthan", CompareTest<Order::kGt>},
      {">=", CompareTest<Order::kGe>},
      {"ge", CompareTest<Order::kGe>},
  };
  return kTests;
}

// Names are looked up in a dict.
Status CheckHashable(const Value& value) {
  if (!value.is(Kind::kDict) && !value.is_sequence(SequenceType::kList)) return OkStatus();
  return InvalidArgument("unhashable type: '{}'", TypeName(value));
}

StatusOr<Value> IsFilter(Runtime&, const Value& self, const Arguments&) {
  KV_RETURN_IF_ERROR(CheckHashable(self));
  if (!self.is(Kind::kString)) return Value::Bool(false);
  for (const auto* table :
       {&TextFilters(), &SequenceFilters(), &SelectionFilters(), &ValueFilters()}) {
    if (FindNative(*table, self.view()) != nullptr) return Value::Bool(true);
  }
  return Value::Bool(false);
}

StatusOr<Value> IsTest(Runtime&, const Value& self, const Arguments&) {
  KV_RETURN_IF_ERROR(CheckHashable(self));
  return Value::Bool(self.is(Kind::kString) && FindNative(Tests(), self.view()) != nullptr);
}

}  // namespace

StatusOr<bool> ApplyTest(Runtime& runtime, std::string_view name, const Value& input,
                         const Arguments& arguments) {
  const NativeFunction function = FindNative(Tests(), name);
  if (function == nullptr) {
    std::string known;
    for (const NativeEntry& entry : Tests()) {
      if (!known.empty()) known += ", ";
      known += entry.name;
    }
    return InvalidArgument("unknown test '{}' (known: {})", name, known);
  }
  KV_RETURN_IF_ERROR(runtime.Spend(1));
  KV_RETURN_IF_ERROR(runtime.SpendOnCall(input, arguments));
  const StatusOr<Value> result = function(runtime, input, arguments);
  if (!result.ok()) return WithPrefix(result.status(), fmt::format("test '{}'", name));
  return IsTruthy(*result);
}

}  // namespace kvasir::jinja
