#include <algorithm>

#include "text/jinja_eval.h"

namespace kvasir::jinja {

void Scope::Set(int name_id, Value value) {
  for (auto& [id, slot] : variables) {
    if (id == name_id) {
      slot = std::move(value);
      return;
    }
  }
  variables.emplace_back(name_id, std::move(value));
}

const Value* Scope::FindHere(int name_id) const {
  for (const auto& [id, value] : variables) {
    if (id == name_id) return &value;
  }
  return nullptr;
}

namespace {

// Names that the interpreter itself assigns get ids of their own when the template does not use
// them, so that they never meet a template's variable.
int IdOf(const Template& source, const std::string& name, int fallback) {
  const auto it = source.name_ids.find(name);
  return it == source.name_ids.end() ? fallback : it->second;
}

}  // namespace

Interpreter::Interpreter(const Template* source, Runtime* runtime)
    : template_(*source),
      runtime_(*runtime),
      scope_(std::make_shared<Scope>()),
      varargs_id_(IdOf(*source, "varargs", -2)),
      kwargs_id_(IdOf(*source, "kwargs", -3)),
      caller_id_(IdOf(*source, "caller", -4)),
      loop_id_(IdOf(*source, "loop", -5)) {}

Interpreter::~Interpreter() {
  for (const ScopePtr& scope : closures_) scope->variables.clear();
  runtime_.ClearNamespaces();
}

void Interpreter::Define(std::string_view name, Value value) {
  const auto it = template_.name_ids.find(std::string(name));
  if (it != template_.name_ids.end()) scope_->Set(it->second, std::move(value));
}

StatusOr<TracedText> Interpreter::Run() {
  // What the caller defined stays apart from what the template sets.
  auto top = std::make_shared<Scope>();
  top->parent = scope_;
  scope_ = std::move(top);
  output_ = &root_output_;
  Flow flow = Flow::kNormal;
  KV_RETURN_IF_ERROR(ExecuteBody(template_.body, &flow));
  return std::move(root_output_);
}

Status Interpreter::ExecuteBody(const Body& body, Flow* flow) {
  for (const auto& stmt : body) {
    KV_RETURN_IF_ERROR(EnterNode(stmt->line));
    KV_RETURN_IF_ERROR(At(stmt->line, Execute(*stmt, flow)));
    --depth_;
    if (*flow != Flow::kNormal) return OkStatus();
  }
  return OkStatus();
}

Status Interpreter::Execute(const Stmt& stmt, Flow* flow) {
  switch (stmt.kind) {
    case StmtKind::kText:
      return Write(stmt.line, TracedText(stmt.text, true));
    case StmtKind::kOutput: {
      KV_ASSIGN_OR_RETURN(const Value value, Evaluate(*stmt.exprs[0]));
      if (value.is(Kind::kString)) return Write(stmt.line, value.text());
      KV_ASSIGN_OR_RETURN(const TracedText text, runtime_.Text(value));
      return Write(stmt.line, text);
    }
    case StmtKind::kIf:
      return ExecuteIf(stmt, flow);
    case StmtKind::kFor:
      return ExecuteFor(stmt);
    case StmtKind::kSet: {
      KV_ASSIGN_OR_RETURN(const Value value, Evaluate(*stmt.exprs[0]));
      return Assign(stmt.target, value);
    }
    case StmtKind::kSetBlock:
      return ExecuteSetBlock(stmt);
    case StmtKind::kMacro:
      scope_->Set(stmt.name_id, MakeMacro(stmt));
      return OkStatus();
    case StmtKind::kCallBlock:
      return ExecuteCallBlock(stmt);
    case StmtKind::kFilterBlock:
      return ExecuteFilterBlock(stmt);
    case StmtKind::kWith:
      return ExecuteWith(stmt, flow);
    case StmtKind::kScope:
      return ExecuteScope(stmt, flow);
    case StmtKind::kBreak:
      *flow = Flow::kBreak;
      return OkStatus();
    case StmtKind::kContinue:
      *flow = Flow::kContinue;
      return OkStatus();
  }
  return OkStatus();
}

Status Interpreter::Write(int line, const TracedText& text) {
  if (output_->size() + text.size() > runtime_.limits().output_bytes) {
    return ResourceExhausted("line {}: the output is larger than {} MiB", line,
                             runtime_.limits().output_bytes >> 20);
  }
  KV_RETURN_IF_ERROR(runtime_.Spend(static_cast<int64_t>(text.size() / 256)));
  output_->Append(text);
  return OkStatus();
}

StatusOr<TracedText> Interpreter::Capture(const Body& body, ScopePtr scope) {
  TracedText text;
  TracedText* const output = std::exchange(output_, &text);
  ScopePtr outer = std::exchange(scope_, std::move(scope));
  Flow flow = Flow::kNormal;
  const Status status = ExecuteBody(body, &flow);
  scope_ = std::move(outer);
  output_ = output;
  KV_RETURN_IF_ERROR(status);
  return text;
}

Status Interpreter::ExecuteIf(const Stmt& stmt, Flow* flow) {
  for (size_t i = 0; i < stmt.exprs.size(); ++i) {
    KV_ASSIGN_OR_RETURN(const Value condition, Evaluate(*stmt.exprs[i]));
    if (IsTruthy(condition)) return ExecuteBody(stmt.bodies[i], flow);
  }
  if (stmt.bodies.size() > stmt.exprs.size()) return ExecuteBody(stmt.bodies.back(), flow);
  return OkStatus();
}

Status Interpreter::Assign(const Target& target, const Value& value) {
  if (target.is_tuple) {
    KV_ASSIGN_OR_RETURN(const ValueList items, Iterate(runtime_, value));
    if (items.size() != target.parts.size()) {
      return InvalidArgument("line {}: cannot unpack {} values into {} names", target.line,
                             items.size(), target.parts.size());
    }
    for (size_t i = 0; i < items.size(); ++i) {
      KV_RETURN_IF_ERROR(Assign(target.parts[i], items[i]));
    }
    return OkStatus();
  }
  if (target.attribute.empty()) {
    scope_->Set(target.name_id, value);
    return runtime_.Spend(static_cast<int64_t>(scope_->variables.size() / 64));
  }
  for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->parent.get()) {
    const Value* found = scope->FindHere(target.name_id);
    if (found == nullptr) continue;
    if (!found->is(Kind::kNamespace)) break;
    auto* space = static_cast<NamespaceObject*>(found->object());
    if (space->is_sealed) break;
    KV_RETURN_IF_ERROR(runtime_.Allocate(192 + target.attribute.size()));
    space->members.Set(Value::String(target.attribute, true), value);
    return OkStatus();
  }
  return InvalidArgument("line {}: cannot set '{}' on '{}', which is not a namespace", target.line,
                         target.attribute, template_.names[static_cast<size_t>(target.name_id)]);
}

Status Interpreter::ExecuteWith(const Stmt& stmt, Flow* flow) {
  auto scope = std::make_shared<Scope>();
  scope->parent = scope_;
  for (size_t i = 0; i < stmt.targets.size(); ++i) {
    KV_ASSIGN_OR_RETURN(Value value, Evaluate(*stmt.exprs[i]));
    scope->Set(stmt.targets[i].name_id, std::move(value));
  }
  ScopePtr outer = std::exchange(scope_, std::move(scope));
  const Status status = ExecuteBody(stmt.bodies[0], flow);
  scope_ = std::move(outer);
  return status;
}

Status Interpreter::ExecuteScope(const Stmt& stmt, Flow* flow) {
  auto scope = std::make_shared<Scope>();
  scope->parent = scope_;
  ScopePtr outer = std::exchange(scope_, std::move(scope));
  const Status status = ExecuteBody(stmt.bodies[0], flow);
  scope_ = std::move(outer);
  return status;
}

Status Interpreter::ExecuteSetBlock(const Stmt& stmt) {
  auto scope = std::make_shared<Scope>();
  scope->parent = scope_;
  KV_ASSIGN_OR_RETURN(TracedText text, Capture(stmt.bodies[0], std::move(scope)));
  KV_ASSIGN_OR_RETURN(Value value, runtime_.String(std::move(text)));
  if (stmt.exprs[0] != nullptr) {
    KV_ASSIGN_OR_RETURN(value, EvaluateFilter(*stmt.exprs[0], &value));
  }
  return Assign(stmt.target, value);
}

Status Interpreter::ExecuteFilterBlock(const Stmt& stmt) {
  auto scope = std::make_shared<Scope>();
  scope->parent = scope_;
  KV_ASSIGN_OR_RETURN(TracedText text, Capture(stmt.bodies[0], std::move(scope)));
  KV_ASSIGN_OR_RETURN(const Value captured, runtime_.String(std::move(text)));
  KV_ASSIGN_OR_RETURN(const Value value, EvaluateFilter(*stmt.exprs[0], &captured));
  KV_ASSIGN_OR_RETURN(const TracedText result, runtime_.Text(value));
  return Write(stmt.line, result);
}

Value Interpreter::MakeMacro(const Stmt& stmt) {
  auto macro = std::make_shared<MacroObject>();
  macro->definition = &stmt;
  macro->closure = scope_;
  if (closures_.empty() || closures_.back() != scope_) closures_.push_back(scope_);
  return Value::Wrap(Kind::kMacro, std::move(macro));
}

Status Interpreter::ExecuteCallBlock(const Stmt& stmt) {
  const Value caller = MakeMacro(stmt);
  KV_ASSIGN_OR_RETURN(const Value value, EvaluateCall(*stmt.exprs[0], &caller));
  KV_ASSIGN_OR_RETURN(const TracedText text, runtime_.Text(value));
  return Write(stmt.line, text);
}

}  // namespace kvasir::jinja
