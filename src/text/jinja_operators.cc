// Arithmetic, comparison and membership with Python's meaning.
#include <cmath>
#include <limits>

#include "text/jinja_runtime.h"
#include "text/jinja_strings.h"

namespace kvasir::jinja {
namespace {

Status TooLarge() { return InvalidArgument("an integer result does not fit in 64 bits"); }

StatusOr<Value> IntegerPower(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return InvalidArgument("zero cannot be raised to a negative power");
    return Value::Float(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  int64_t square = base;
  bool square_overflows = false;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0 &&
        (square_overflows || __builtin_mul_overflow(result, square, &result))) {
      return TooLarge();
    }
    if (exponent > 1) {
      square_overflows = square_overflows || __builtin_mul_overflow(square, square, &square);
    }
  }
  return Value::Int(result);
}

StatusOr<Value> IntegerOperation(std::string_view op, int64_t a, int64_t b) {
  int64_t result = 0;
  if (op == "+") {
    if (__builtin_add_overflow(a, b, &result)) return TooLarge();
    return Value::Int(result);
  }
  if (op == "-") {
    if (__builtin_sub_overflow(a, b, &result)) return TooLarge();
    return Value::Int(result);
  }
  if (op == "*") {
    if (__builtin_mul_overflow(a, b, &result)) return TooLarge();
    return Value::Int(result);
  }
  if (op == "**") return IntegerPower(a, b);
  if (b == 0) return InvalidArgument("division by zero");
  if (op == "/") return Value::Float(static_cast<double>(a) / static_cast<double>(b));
  if (b == -1) {
    if (op == "%") return Value::Int(0);
    if (a == std::numeric_limits<int64_t>::min()) return TooLarge();
    return Value::Int(-a);
  }
  const int64_t remainder = a % b;
  const bool rounds_down = remainder != 0 && (remainder < 0) != (b < 0);
  if (op == "//") return Value::Int(a / b - (rounds_down ? 1 : 0));
  return Value::Int(remainder + (rounds_down ? b : 0));
}

StatusOr<Value> FloatOperation(std::string_view op, double a, double b) {
  if (op == "+") return Value::Float(a + b);
  if (op == "-") return Value::Float(a - b);
  if (op == "*") return Value::Float(a * b);
  if (op == "**") {
    if (a == 0 && b < 0) return InvalidArgument("zero cannot be raised to a negative power");
    if (a < 0 && b != std::floor(b)) return InvalidArgument("a complex result is not supported");
    const double power = std::pow(a, b);
    if (std::isinf(power) && std::isfinite(a) && std::isfinite(b)) {
      return InvalidArgument("the result of ** is out of range");
    }
    return Value::Float(power);
  }
  if (b == 0) return InvalidArgument("division by zero");
  if (op == "/") return Value::Float(a / b);
  double remainder = std::fmod(a, b);
  if (remainder != 0 && (remainder < 0) != (b < 0)) remainder += b;
  if (remainder == 0) remainder = std::copysign(0.0, b);
  if (op == "%") return Value::Float(remainder);
  double quotient = (a - remainder) / b;
  quotient = quotient == 0 ? std::copysign(0.0, a / b) : std::floor(quotient + 0.5);
  return Value::Float(quotient);
}

bool IsListOrTuple(const Value& value) {
  return value.is_sequence(SequenceType::kList) || value.is_sequence(SequenceType::kTuple);
}

StatusOr<Value> Repeat(Runtime& runtime, const Value& value, int64_t times) {
  const auto count = static_cast<size_t>(std::max<int64_t>(times, 0));
  const bool is_string = value.is(Kind::kString);
  const size_t size = is_string ? value.text().size() : value.items().size();
  size_t total = 0;
  if (__builtin_mul_overflow(size, count, &total) || total > (size_t{1} << 40)) {
    return ResourceExhausted("a repeated value is too large");
  }
  KV_RETURN_IF_ERROR(runtime.Allocate(total * (is_string ? 1 : sizeof(Value))));
  KV_RETURN_IF_ERROR(runtime.Spend(static_cast<int64_t>(total / 8)));
  if (is_string) {
    TracedText out;
    if (size > 0) {
      for (size_t i = 0; i < count; ++i) out.Append(value.text());
    }
    return runtime.String(std::move(out));
  }
  ValueList items;
  items.reserve(total);
  if (size > 0) {
    for (size_t i = 0; i < count; ++i) {
      items.insert(items.end(), value.items().begin(), value.items().end());
    }
  }
  return runtime.Sequence(std::move(items), value.sequence_type());
}

}  // namespace

StatusOr<Value> BinaryOperation(Runtime& runtime, std::string_view op, const Value& a,
                                const Value& b) {
  if (a.is_integral() && b.is_integral()) return IntegerOperation(op, a.as_int(), b.as_int());
  if (a.is_number() && b.is_number()) return FloatOperation(op, a.as_double(), b.as_double());
  for (const Value* side : {&a, &b}) {
    // "%" with a string on the left formats anything, undefined included.
    if (side->is(Kind::kUndefined) && !(op == "%" && a.is(Kind::kString))) {
      return InvalidArgument("{}", side->undefined_hint());
    }
  }
  if (op == "+" && a.is(Kind::kString) && b.is(Kind::kString)) {
    KV_RETURN_IF_ERROR(
        runtime.Spend(static_cast<int64_t>((a.text().size() + b.text().size()) / 256)));
    TracedText out = a.text();
    out.Append(b.text());
    return runtime.String(std::move(out));
  }
  if (op == "+" && IsListOrTuple(a) && IsListOrTuple(b) && a.sequence_type() == b.sequence_type()) {
    KV_RETURN_IF_ERROR(runtime.Allocate((a.items().size() + b.items().size()) * sizeof(Value)));
    ValueList items = a.items();
    items.insert(items.end(), b.items().begin(), b.items().end());
    return runtime.Sequence(std::move(items), a.sequence_type());
  }
  if (op == "*") {
    if ((a.is(Kind::kString) || IsListOrTuple(a)) && b.is_integral()) {
      return Repeat(runtime, a, b.as_int());
    }
    if ((b.is(Kind::kString) || IsListOrTuple(b)) && a.is_integral()) {
      return Repeat(runtime, b, a.as_int());
    }
  }
  if (op == "%" && a.is(Kind::kString)) return FormatPercent(runtime, a.text(), b);
  return InvalidArgument("unsupported operand types for {}: '{}' and '{}'", op, TypeName(a),
                         TypeName(b));
}

StatusOr<Value> Negate(const Value& value) {
  if (value.is(Kind::kFloat)) return Value::Float(-value.as_double());
  if (value.is_integral()) return IntegerOperation("-", 0, value.as_int());
  if (value.is(Kind::kUndefined)) return InvalidArgument("{}", value.undefined_hint());
  return InvalidArgument("bad operand type for a sign: '{}'", TypeName(value));
}

StatusOr<bool> Contains(Runtime& runtime, const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::kUndefined:
      return false;
    case Kind::kString:
      if (!item.is(Kind::kString)) {
        return InvalidArgument("'in <string>' needs a string on the left, not {}", TypeName(item));
      }
      KV_RETURN_IF_ERROR(runtime.SpendOnSearch(container.view(), item.view()));
      return FindText(container.view(), item.view()) != std::string_view::npos;
    case Kind::kDict:
      KV_RETURN_IF_ERROR(runtime.SpendOn(item));
      if (item.is(Kind::kDict) || item.is_sequence(SequenceType::kList) ||
          (item.is_sequence(SequenceType::kTuple) && !HashKey(item))) {
        return InvalidArgument("unhashable type: '{}'", TypeName(item));
      }
      return container.dict().Find(item) != nullptr;
    case Kind::kSequence: {
      KV_ASSIGN_OR_RETURN(const ValueList items, Iterate(runtime, container));
      for (const Value& candidate : items) {
        KV_RETURN_IF_ERROR(runtime.SpendOnComparison(candidate, item));
        if (Equals(candidate, item)) return true;
      }
      return false;
    }
    default:
      return InvalidArgument("argument of type '{}' is not iterable", TypeName(container));
  }
}

StatusOr<bool> Compare(Runtime& runtime, std::string_view op, const Value& a, const Value& b) {
  KV_RETURN_IF_ERROR(runtime.SpendOnComparison(a, b));
  if (op == "==") return Equals(a, b);
  if (op == "!=") return !Equals(a, b);
  if (op == "<") return LessThan(a, b);
  if (op == ">") return LessThan(b, a);
  const bool is_nan = (a.is(Kind::kFloat) && std::isnan(a.as_double())) ||
                      (b.is(Kind::kFloat) && std::isnan(b.as_double()));
  KV_ASSIGN_OR_RETURN(const bool reversed, op == "<=" ? LessThan(b, a) : LessThan(a, b));
  return !reversed && !is_nan;
}

}  // namespace kvasir::jinja
