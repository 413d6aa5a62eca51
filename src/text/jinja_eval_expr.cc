#include <algorithm>

#include "text/jinja_eval.h"

namespace kvasir::jinja {

Status Interpreter::At(int line, const Status& status) const {
  if (status.ok() || MessageOf(status).substr(0, 5) == "line ") return status;
  return WithPrefix(status, fmt::format("line {}", line));
}

Status Interpreter::EnterCall(int line) {
  if (call_depth_ < runtime_.limits().call_depth) {
    ++call_depth_;
    return OkStatus();
  }
  return ResourceExhausted("line {}: calls are nested more than {} deep", line,
                           runtime_.limits().call_depth);
}

Status Interpreter::EnterNode(int line) {
  KV_RETURN_IF_ERROR(At(line, runtime_.Spend(1)));
  if (++depth_ <= runtime_.limits().node_depth) return OkStatus();
  return ResourceExhausted("line {}: the template recurses more than {} levels deep", line,
                           runtime_.limits().node_depth);
}

StatusOr<Value> Interpreter::Evaluate(const Expr& expr) {
  KV_RETURN_IF_ERROR(EnterNode(expr.line));
  // Names may be as long as the template, and are copied into messages and keys.
  KV_RETURN_IF_ERROR(At(expr.line, runtime_.SpendOnBytes(expr.text.size())));
  StatusOr<Value> value = EvaluateKind(expr);
  --depth_;
  if (!value.ok()) return At(expr.line, value.status());
  return value;
}

StatusOr<Value> Interpreter::EvaluateKind(const Expr& expr) {
  switch (expr.kind) {
    case ExprKind::kConstant:
      return expr.constant;
    case ExprKind::kName:
      return EvaluateName(expr);
    case ExprKind::kList:
    case ExprKind::kTuple:
      return EvaluateList(expr);
    case ExprKind::kDict:
      return EvaluateDict(expr);
    case ExprKind::kNegate:
    case ExprKind::kPlus: {
      KV_ASSIGN_OR_RETURN(const Value value, Evaluate(*expr.children[0]));
      KV_ASSIGN_OR_RETURN(const Value negated, Negate(value));
      if (expr.kind == ExprKind::kNegate) return negated;
      return Negate(negated);
    }
    case ExprKind::kNot: {
      KV_ASSIGN_OR_RETURN(const Value value, Evaluate(*expr.children[0]));
      return Value::Bool(!IsTruthy(value));
    }
    case ExprKind::kAnd:
    case ExprKind::kOr: {
      KV_ASSIGN_OR_RETURN(Value left, Evaluate(*expr.children[0]));
      if (IsTruthy(left) == (expr.kind == ExprKind::kOr)) return left;
      return Evaluate(*expr.children[1]);
    }
    case ExprKind::kBinary:
      return EvaluateBinary(expr);
    case ExprKind::kConcat:
      return EvaluateConcat(expr);
    case ExprKind::kCompare:
      return EvaluateCompare(expr);
    case ExprKind::kConditional:
      return EvaluateConditional(expr);
    case ExprKind::kAttribute:
      return EvaluateAttribute(expr);
    case ExprKind::kItem:
      return EvaluateItem(expr);
    case ExprKind::kSlice:
      return InvalidArgument("a slice is only allowed alone between brackets");
    case ExprKind::kCall:
      return EvaluateCall(expr, nullptr);
    case ExprKind::kFilter:
      return EvaluateFilter(expr, nullptr);
    case ExprKind::kTest:
      return EvaluateTest(expr);
  }
  return InvalidArgument("unknown expression");
}

StatusOr<Value> Interpreter::EvaluateName(const Expr& expr) {
  for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->parent.get()) {
    KV_RETURN_IF_ERROR(runtime_.Spend(static_cast<int64_t>(scope->variables.size() / 64)));
    if (const Value* value = scope->FindHere(expr.name_id)) return *value;
  }
  if (auto global = FindGlobal(expr.text)) return std::move(*global);
  return Value::Undefined(fmt::format("'{}' is undefined", expr.text));
}

StatusOr<Value> Interpreter::EvaluateList(const Expr& expr) {
  ValueList items;
  items.reserve(expr.children.size());
  for (const ExprPtr& child : expr.children) {
    KV_ASSIGN_OR_RETURN(Value item, Evaluate(*child));
    items.push_back(std::move(item));
  }
  return runtime_.Sequence(
      std::move(items), expr.kind == ExprKind::kTuple ? SequenceType::kTuple : SequenceType::kList);
}

StatusOr<Value> Interpreter::EvaluateDict(const Expr& expr) {
  auto dict = std::make_shared<DictObject>();
  for (size_t i = 0; i + 1 < expr.children.size(); i += 2) {
    KV_ASSIGN_OR_RETURN(const Value key, Evaluate(*expr.children[i]));
    KV_ASSIGN_OR_RETURN(Value value, Evaluate(*expr.children[i + 1]));
    KV_RETURN_IF_ERROR(runtime_.SpendOn(key));
    if (!dict->Set(key, std::move(value))) {
      return InvalidArgument("unhashable type: '{}'", TypeName(key));
    }
  }
  return runtime_.Dict(std::move(dict));
}

StatusOr<Value> Interpreter::EvaluateBinary(const Expr& expr) {
  KV_ASSIGN_OR_RETURN(const Value left, Evaluate(*expr.children[0]));
  KV_ASSIGN_OR_RETURN(const Value right, Evaluate(*expr.children[1]));
  return BinaryOperation(runtime_, expr.text, left, right);
}

StatusOr<Value> Interpreter::EvaluateConcat(const Expr& expr) {
  TracedText out;
  for (const ExprPtr& child : expr.children) {
    KV_ASSIGN_OR_RETURN(const Value part, Evaluate(*child));
    KV_ASSIGN_OR_RETURN(const TracedText text, runtime_.Text(part));
    out.Append(text);
  }
  return runtime_.String(std::move(out));
}

StatusOr<Value> Interpreter::EvaluateCompare(const Expr& expr) {
  KV_ASSIGN_OR_RETURN(Value left, Evaluate(*expr.children[0]));
  for (size_t i = 0; i < expr.operators.size(); ++i) {
    const std::string& op = expr.operators[i];
    KV_ASSIGN_OR_RETURN(Value right, Evaluate(*expr.children[i + 1]));
    bool holds = false;
    if (op == "in" || op == "not in") {
      KV_ASSIGN_OR_RETURN(const bool contains, Contains(runtime_, right, left));
      holds = contains == (op == "in");
    } else {
      KV_ASSIGN_OR_RETURN(holds, Compare(runtime_, op, left, right));
    }
    if (!holds) return Value::Bool(false);
    left = std::move(right);
  }
  return Value::Bool(true);
}

StatusOr<Value> Interpreter::EvaluateConditional(const Expr& expr) {
  KV_ASSIGN_OR_RETURN(const Value condition, Evaluate(*expr.children[0]));
  if (IsTruthy(condition)) return Evaluate(*expr.children[1]);
  if (expr.children[2] != nullptr) return Evaluate(*expr.children[2]);
  return Value::Undefined("the inline if-expression evaluated to false and has no else");
}

bool Interpreter::HasOwnAttributes(const Value& value) const {
  return value.is(Kind::kLoop) || value.is(Kind::kMacro);
}

StatusOr<Value> Interpreter::OwnAttribute(const Value& value, std::string_view name) {
  if (value.is(Kind::kLoop)) return LoopAttribute(value, name);
  const Stmt& definition = *static_cast<const MacroObject*>(value.object())->definition;
  if (name == "name") return Value::String(definition.text, true);
  if (name == "arguments") {
    ValueList names;
    for (const Parameter& parameter : definition.parameters) {
      names.push_back(Value::String(parameter.name, true));
    }
    return runtime_.Sequence(std::move(names), SequenceType::kTuple);
  }
  if (name == "catch_varargs") return Value::Bool(definition.uses_varargs);
  if (name == "catch_kwargs") return Value::Bool(definition.uses_kwargs);
  if (name == "caller") return Value::Bool(definition.uses_caller);
  return Value::Undefined(fmt::format("'macro object' has no attribute '{}'", name));
}

StatusOr<Value> Interpreter::EvaluateAttribute(const Expr& expr) {
  KV_ASSIGN_OR_RETURN(const Value value, Evaluate(*expr.children[0]));
  if (HasOwnAttributes(value)) return OwnAttribute(value, expr.text);
  return GetAttribute(runtime_, value, expr.text);
}

StatusOr<Value> Interpreter::EvaluateItem(const Expr& expr) {
  KV_ASSIGN_OR_RETURN(const Value value, Evaluate(*expr.children[0]));
  const Expr& index = *expr.children[1];
  if (index.kind == ExprKind::kSlice) {
    Value parts[3];
    for (size_t i = 0; i < 3; ++i) {
      parts[i] = Value::None();
      if (index.children[i] == nullptr) continue;
      KV_ASSIGN_OR_RETURN(parts[i], Evaluate(*index.children[i]));
    }
    return GetSlice(runtime_, value, parts[0], parts[1], parts[2]);
  }
  KV_ASSIGN_OR_RETURN(const Value key, Evaluate(index));
  if (HasOwnAttributes(value) && key.is(Kind::kString)) return OwnAttribute(value, key.view());
  KV_RETURN_IF_ERROR(runtime_.SpendOn(key));
  return GetItem(runtime_, value, key);
}

Status Interpreter::EvaluateArguments(const ArgumentExprs& exprs, Arguments* arguments) {
  for (const ExprPtr& expr : exprs.positional) {
    KV_ASSIGN_OR_RETURN(Value value, Evaluate(*expr));
    arguments->positional.push_back(std::move(value));
  }
  if (exprs.star != nullptr) {
    KV_ASSIGN_OR_RETURN(const Value star, Evaluate(*exprs.star));
    KV_ASSIGN_OR_RETURN(const ValueList more, Iterate(runtime_, star));
    arguments->positional.insert(arguments->positional.end(), more.begin(), more.end());
  }
  for (const auto& [name, expr] : exprs.named) {
    KV_ASSIGN_OR_RETURN(Value value, Evaluate(*expr));
    KV_RETURN_IF_ERROR(
        runtime_.Spend(static_cast<int64_t>(arguments->named.size() / 8 + name.size() / 256)));
    if (arguments->Named(name) != nullptr) {
      return InvalidArgument("the argument '{}' is given twice", name);
    }
    arguments->named.emplace_back(Value::String(name, true), std::move(value));
  }
  if (exprs.double_star == nullptr) return OkStatus();
  KV_ASSIGN_OR_RETURN(const Value more, Evaluate(*exprs.double_star));
  if (!more.is(Kind::kDict)) return InvalidArgument("**{} is not a dict", TypeName(more));
  for (const auto& [key, value] : more.dict().entries) {
    if (!key.is(Kind::kString)) return InvalidArgument("names of arguments must be strings");
    if (arguments->Named(key.view()) != nullptr) {
      return InvalidArgument("the argument '{}' is given twice", key.view());
    }
    arguments->named.emplace_back(key, value);
    KV_RETURN_IF_ERROR(runtime_.Spend(static_cast<int64_t>(arguments->named.size())));
  }
  return OkStatus();
}

StatusOr<Value> Interpreter::EvaluateCall(const Expr& expr, const Value* caller) {
  KV_ASSIGN_OR_RETURN(const Value callee, Evaluate(*expr.children[0]));
  Arguments arguments;
  KV_RETURN_IF_ERROR(EvaluateArguments(*expr.arguments, &arguments));
  if (caller != nullptr) arguments.named.emplace_back(Value::String("caller", true), *caller);
  switch (callee.kind()) {
    case Kind::kMacro:
      return CallMacro(expr.line, *static_cast<const MacroObject*>(callee.object()), arguments);
    case Kind::kLoop:
      return CallLoop(expr.line, *static_cast<const LoopObject*>(callee.object()), arguments);
    case Kind::kNative: {
      const auto& native = *static_cast<const NativeObject*>(callee.object());
      KV_RETURN_IF_ERROR(runtime_.SpendOnCall(native.self, arguments));
      StatusOr<Value> result = native.function(runtime_, native.self, arguments);
      // What a template raises is its own message; everything else names the function.
      if (!result.ok() && native.name != "raise_exception") {
        return WithPrefix(result.status(), fmt::format("line {}: {}()", expr.line, native.name));
      }
      return result;
    }
    case Kind::kUndefined:
      return InvalidArgument("{}", callee.undefined_hint());
    default:
      return InvalidArgument("'{}' object is not callable", TypeName(callee));
  }
}

StatusOr<Value> Interpreter::EvaluateFilter(const Expr& expr, const Value* captured) {
  Value input;
  const Expr* child = expr.children[0].get();
  if (child == nullptr) {
    if (captured == nullptr) return InvalidArgument("filter '{}' has no input", expr.text);
    input = *captured;
  } else if (child->kind == ExprKind::kFilter) {
    KV_RETURN_IF_ERROR(EnterNode(child->line));
    StatusOr<Value> inner = EvaluateFilter(*child, captured);
    --depth_;
    if (!inner.ok()) return At(child->line, inner.status());
    input = std::move(inner).value();
  } else {
    KV_ASSIGN_OR_RETURN(input, Evaluate(*child));
  }
  Arguments arguments;
  KV_RETURN_IF_ERROR(EvaluateArguments(*expr.arguments, &arguments));
  return ApplyFilter(runtime_, expr.text, input, arguments);
}

StatusOr<Value> Interpreter::EvaluateTest(const Expr& expr) {
  KV_ASSIGN_OR_RETURN(const Value input, Evaluate(*expr.children[0]));
  Arguments arguments;
  KV_RETURN_IF_ERROR(EvaluateArguments(*expr.arguments, &arguments));
  KV_ASSIGN_OR_RETURN(const bool holds, ApplyTest(runtime_, expr.text, input, arguments));
  return Value::Bool(holds);
}

Status Interpreter::BindParameters(const Stmt& definition, const Arguments& arguments,
                                   Scope* scope) {
  const auto& parameters = definition.parameters;
  const size_t named_count = arguments.named.size();
  KV_RETURN_IF_ERROR(runtime_.Spend(static_cast<int64_t>(
      parameters.size() * (1 + named_count / 4 + parameters.size() / 64) + named_count)));
  ValueList extra;
  for (size_t i = parameters.size(); i < arguments.positional.size(); ++i) {
    extra.push_back(arguments.positional[i]);
  }
  auto extra_named = std::make_shared<DictObject>();
  if (definition.uses_caller) scope->Set(caller_id_, Value::Undefined("no caller defined"));
  for (const auto& [key, value] : arguments.named) {
    const auto it = std::find_if(parameters.begin(), parameters.end(),
                                 [&key = key](const Parameter& p) { return p.name == key.view(); });
    if (it == parameters.end()) {
      if (key.view() == "caller" && definition.uses_caller) {
        scope->Set(caller_id_, value);
      } else {
        extra_named->Set(key, value);
      }
    } else if (static_cast<size_t>(it - parameters.begin()) < arguments.positional.size()) {
      return InvalidArgument("macro '{}' got the argument '{}' twice", definition.text, key.view());
    }
  }
  if (!extra.empty() && !definition.uses_varargs) {
    return InvalidArgument("macro '{}' takes not more than {} arguments", definition.text,
                           parameters.size());
  }
  if (!extra_named->entries.empty() && !definition.uses_kwargs) {
    return InvalidArgument("macro '{}' takes no keyword argument '{}'", definition.text,
                           extra_named->entries[0].first.view());
  }
  if (definition.uses_varargs) {
    KV_ASSIGN_OR_RETURN(Value list, runtime_.Sequence(std::move(extra), SequenceType::kTuple));
    scope->Set(varargs_id_, std::move(list));
  }
  if (definition.uses_kwargs) {
    KV_ASSIGN_OR_RETURN(Value dict, runtime_.Dict(std::move(extra_named)));
    scope->Set(kwargs_id_, std::move(dict));
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Value* named = arguments.Named(parameters[i].name);
    Value value;
    if (i < arguments.positional.size()) {
      value = arguments.positional[i];
    } else if (named != nullptr) {
      value = *named;
    } else if (parameters[i].default_value != nullptr) {
      KV_ASSIGN_OR_RETURN(value, Evaluate(*parameters[i].default_value));
    } else {
      value = Value::Undefined(fmt::format("parameter '{}' was not provided", parameters[i].name));
    }
    scope->Set(parameters[i].name_id, std::move(value));
  }
  return OkStatus();
}

StatusOr<Value> Interpreter::CallMacro(int line, const MacroObject& macro,
                                       const Arguments& arguments) {
  KV_RETURN_IF_ERROR(EnterCall(line));
  // Kept here: the body may drop the last reference to the macro.
  const Stmt& definition = *macro.definition;
  auto scope = std::make_shared<Scope>();
  scope->parent = macro.closure;
  // Defaults are evaluated in the scope of the macro, where earlier parameters are visible.
  const ScopePtr outer = std::exchange(scope_, scope);
  const Status bound = BindParameters(definition, arguments, scope.get());
  scope_ = outer;
  KV_RETURN_IF_ERROR(At(line, bound));
  KV_ASSIGN_OR_RETURN(TracedText text, Capture(definition.bodies[0], std::move(scope)));
  --call_depth_;
  return runtime_.String(std::move(text));
}

StatusOr<Value> Interpreter::CallLoop(int line, const LoopObject& loop,
                                      const Arguments& arguments) {
  if (!loop.statement->recursive || loop.outer == nullptr) {
    return InvalidArgument("loop() needs a loop marked 'recursive'");
  }
  KV_ASSIGN_OR_RETURN(const Bound bound, Bound::Make(arguments, {"iterable"}, 1));
  KV_RETURN_IF_ERROR(EnterCall(line));
  const Stmt& statement = *loop.statement;
  const ScopePtr outer = loop.outer;
  KV_ASSIGN_OR_RETURN(ValueList items, Iterate(runtime_, bound[0]));
  TracedText text;
  TracedText* const output = std::exchange(output_, &text);
  const Status status = RunLoop(statement, std::move(items), outer, loop.depth0 + 1);
  output_ = output;
  KV_RETURN_IF_ERROR(status);
  --call_depth_;
  return runtime_.String(std::move(text));
}

}  // namespace kvasir::jinja
