// The for statement and its `loop` variable.
#include <algorithm>

#include "text/jinja_eval.h"

namespace kvasir::jinja {

namespace {

// A loop may outlive its statement in a namespace. It must then hold nothing: a chain of loops that
// hold each other would be freed recursively, and a cycle never.
void Finish(LoopObject* loop) {
  loop->outer.reset();
  loop->source.clear();
  loop->next = 0;
  loop->ready.clear();
  loop->previous = loop->current = loop->last_changed = Value();
}

}  // namespace

Status Interpreter::ExecuteFor(const Stmt& stmt) {
  KV_ASSIGN_OR_RETURN(const Value iterable, Evaluate(*stmt.exprs[0]));
  StatusOr<ValueList> items = Iterate(runtime_, iterable);
  if (!items.ok()) return At(stmt.line, items.status());
  return RunLoop(stmt, std::move(items).value(), scope_, 0);
}

StatusOr<bool> Interpreter::LoopAccepts(LoopObject* loop, const Value& item) {
  const Stmt& stmt = *loop->statement;
  if (stmt.exprs.size() < 2) return true;
  auto scope = std::make_shared<Scope>();
  scope->parent = loop->outer;
  ScopePtr outer = std::exchange(scope_, std::move(scope));
  Status status = Assign(stmt.target, item);
  bool accepted = false;
  if (status.ok()) {
    const StatusOr<Value> condition = Evaluate(*stmt.exprs[1]);
    status = condition.status();
    accepted = condition.ok() && IsTruthy(*condition);
  }
  scope_ = std::move(outer);
  KV_RETURN_IF_ERROR(status);
  return accepted;
}

StatusOr<bool> Interpreter::LoopPeek(LoopObject* loop, size_t offset) {
  while (loop->ready.size() <= offset) {
    if (loop->next >= loop->source.size()) return false;
    const Value item = loop->source[loop->next++];
    KV_ASSIGN_OR_RETURN(const bool accepted, LoopAccepts(loop, item));
    if (accepted) loop->ready.push_back(item);
  }
  return true;
}

Status Interpreter::RunLoop(const Stmt& stmt, ValueList items, const ScopePtr& outer,
                            int64_t depth0) {
  auto loop = std::make_shared<LoopObject>();
  loop->statement = &stmt;
  loop->outer = outer;
  loop->source = std::move(items);
  loop->depth0 = depth0;
  Status status;
  // jinja2 takes the else branch when no iteration reached the end of the body, even if some began.
  bool has_finished_one = false;
  while (true) {
    const StatusOr<bool> more = LoopPeek(loop.get(), 0);
    status = more.status();
    if (!status.ok() || !*more) break;
    Value item = loop->ready.front();
    loop->ready.pop_front();
    ++loop->index0;
    loop->previous = std::exchange(loop->current, item);
    Flow flow = Flow::kNormal;
    status = LoopBody(loop, std::move(item), &flow);
    if (!status.ok() || flow == Flow::kBreak) break;
    has_finished_one = has_finished_one || flow == Flow::kNormal;
  }
  Finish(loop.get());
  KV_RETURN_IF_ERROR(status);
  if (has_finished_one || stmt.bodies.size() < 2) return OkStatus();
  auto scope = std::make_shared<Scope>();
  scope->parent = outer;
  ScopePtr previous = std::exchange(scope_, std::move(scope));
  Flow flow = Flow::kNormal;
  status = ExecuteBody(stmt.bodies[1], &flow);
  scope_ = std::move(previous);
  return status;
}

Status Interpreter::LoopBody(const std::shared_ptr<LoopObject>& loop, Value item, Flow* flow) {
  auto scope = std::make_shared<Scope>();
  scope->parent = loop->outer;
  scope->Set(loop_id_, Value::Wrap(Kind::kLoop, loop));
  ScopePtr outer = std::exchange(scope_, scope);
  KV_RETURN_IF_ERROR(
      At(loop->statement->line, runtime_.Allocate(sizeof(Scope) + 2 * sizeof(Value))));
  Status status = At(loop->statement->line, Assign(loop->statement->target, item));
  if (status.ok()) status = ExecuteBody(loop->statement->bodies[0], flow);
  scope_ = std::move(outer);
  return status;
}

namespace {

StatusOr<Value> LoopCycle(Runtime&, const Value& self, const Arguments& arguments) {
  const auto& loop = *static_cast<const LoopObject*>(self.object());
  if (arguments.positional.empty()) return InvalidArgument("needs at least one value");
  return arguments.positional[static_cast<size_t>(loop.index0) % arguments.positional.size()];
}

StatusOr<Value> LoopChanged(Runtime& runtime, const Value& self, const Arguments& arguments) {
  auto& loop = *static_cast<LoopObject*>(self.object());
  if (loop.outer == nullptr) return InvalidArgument("the loop has ended");
  KV_ASSIGN_OR_RETURN(Value seen, runtime.Sequence(arguments.positional, SequenceType::kTuple));
  KV_RETURN_IF_ERROR(runtime.SpendOnComparison(seen, loop.last_changed));
  const bool changed = !loop.has_changed || !Equals(seen, loop.last_changed);
  loop.has_changed = true;
  loop.last_changed = std::move(seen);
  return Value::Bool(changed);
}

}  // namespace

StatusOr<Value> Interpreter::LoopAttribute(const Value& value, std::string_view name) {
  LoopObject* loop = static_cast<LoopObject*>(value.object());
  const int64_t index0 = loop->index0;
  if (name == "index") return Value::Int(index0 + 1);
  if (name == "index0") return Value::Int(index0);
  if (name == "first") return Value::Bool(index0 == 0);
  if (name == "depth") return Value::Int(loop->depth0 + 1);
  if (name == "depth0") return Value::Int(loop->depth0);
  if (name == "cycle") return MakeNative(name, LoopCycle, value);
  if (name == "changed") return MakeNative(name, LoopChanged, value);
  if (name == "previtem") {
    return index0 > 0 ? loop->previous : Value::Undefined("there is no previous item");
  }
  if (name == "last" || name == "nextitem") {
    KV_ASSIGN_OR_RETURN(const bool more, LoopPeek(loop, 0));
    if (name == "last") return Value::Bool(!more);
    return more ? loop->ready.front() : Value::Undefined("there is no next item");
  }
  if (name == "length" || name == "revindex" || name == "revindex0") {
    KV_RETURN_IF_ERROR(LoopPeek(loop, loop->source.size()).status());
    const auto length = static_cast<int64_t>(loop->ready.size()) + index0 + 1;
    if (name == "length") return Value::Int(length);
    return Value::Int(length - index0 - (name == "revindex" ? 0 : 1));
  }
  return Value::Undefined(fmt::format("'loop' has no attribute '{}'", name));
}

}  // namespace kvasir::jinja
