// Interpreter: walks the tree of a template and produces its output.
//
// Variables live in scopes chained to the enclosing one, as jinja2's: loops, macros, with, block
// and captured bodies have their own scope, if has none; assignments stay in the scope where they
// are made. Every node spends a step; recursion is bounded by Limits::call_depth and
// Limits::node_depth.
//
// Thread: one rendering; the Template may be shared.
#ifndef KVASIR_TEXT_JINJA_EVAL_H_
#define KVASIR_TEXT_JINJA_EVAL_H_

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/jinja_ast.h"
#include "text/jinja_runtime.h"

namespace kvasir::jinja {

struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<int, Value>> variables;  // By name id; few, so searched linearly.

  void Set(int name_id, Value value);
  const Value* FindHere(int name_id) const;
};
using ScopePtr = std::shared_ptr<Scope>;

struct MacroObject : Object {
  const Stmt* definition = nullptr;
  ScopePtr closure;
};

// The `loop` variable, and the iteration itself: items are filtered one by one, as jinja2 does, so
// that a filter sees what earlier iterations changed.
struct LoopObject : Object {
  const Stmt* statement = nullptr;
  ScopePtr outer;  // Reset when the loop ends: it would be a cycle.
  ValueList source;
  size_t next = 0;  // Into source.
  std::deque<Value>
      ready;  // Items that passed the filter but are not yet used (from looking ahead).
  Value previous;
  Value current;
  int64_t index0 = -1;
  int64_t depth0 = 0;
  Value last_changed;
  bool has_changed = false;
};

class Interpreter {
 public:
  // Both outlive the interpreter.
  Interpreter(const Template* source, Runtime* runtime);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // A variable of the rendering; names the template never uses are ignored.
  void Define(std::string_view name, Value value);
  // Errors: "line 12: ...".
  StatusOr<TracedText> Run();

 private:
  enum class Flow : uint8_t { kNormal, kBreak, kContinue };

  // Statements (jinja_eval_stmt.cc). Each writes to *output_.
  Status ExecuteBody(const Body& body, Flow* flow);
  Status Execute(const Stmt& stmt, Flow* flow);
  Status ExecuteIf(const Stmt& stmt, Flow* flow);
  Status ExecuteFor(const Stmt& stmt);
  Status RunLoop(const Stmt& stmt, ValueList items, const ScopePtr& outer, int64_t depth0);
  Status LoopBody(const std::shared_ptr<LoopObject>& loop, Value item, Flow* flow);
  Status ExecuteWith(const Stmt& stmt, Flow* flow);
  Status ExecuteSetBlock(const Stmt& stmt);
  Status ExecuteFilterBlock(const Stmt& stmt);
  Status ExecuteCallBlock(const Stmt& stmt);
  Status ExecuteScope(const Stmt& stmt, Flow* flow);
  Status Assign(const Target& target, const Value& value);
  Status Write(int line, const TracedText& text);
  // The output of `body` in a scope of its own.
  StatusOr<TracedText> Capture(const Body& body, ScopePtr scope);
  Value MakeMacro(const Stmt& stmt);

  // The next item of a loop, looking ahead `offset` more; false at the end.
  StatusOr<bool> LoopPeek(LoopObject* loop, size_t offset);
  StatusOr<bool> LoopAccepts(LoopObject* loop, const Value& item);
  StatusOr<Value> LoopAttribute(const Value& loop, std::string_view name);

  // Expressions (jinja_eval_expr.cc).
  StatusOr<Value> Evaluate(const Expr& expr);
  StatusOr<Value> EvaluateKind(const Expr& expr);
  StatusOr<Value> EvaluateName(const Expr& expr);
  StatusOr<Value> EvaluateList(const Expr& expr);
  StatusOr<Value> EvaluateDict(const Expr& expr);
  StatusOr<Value> EvaluateBinary(const Expr& expr);
  StatusOr<Value> EvaluateConcat(const Expr& expr);
  StatusOr<Value> EvaluateCompare(const Expr& expr);
  StatusOr<Value> EvaluateConditional(const Expr& expr);
  StatusOr<Value> EvaluateAttribute(const Expr& expr);
  StatusOr<Value> EvaluateItem(const Expr& expr);
  StatusOr<Value> EvaluateCall(const Expr& expr, const Value* caller);
  StatusOr<Value> EvaluateTest(const Expr& expr);
  // The filter applied to `captured` when not null (filter blocks), else to its own input.
  StatusOr<Value> EvaluateFilter(const Expr& expr, const Value* captured);
  Status EvaluateArguments(const ArgumentExprs& exprs, Arguments* arguments);
  StatusOr<Value> CallMacro(int line, const MacroObject& macro, const Arguments& arguments);
  Status BindParameters(const Stmt& definition, const Arguments& arguments, Scope* scope);
  StatusOr<Value> CallLoop(int line, const LoopObject& loop, const Arguments& arguments);
  // `a.b` and `a['b']` on loops and macros, which the Runtime does not know.
  bool HasOwnAttributes(const Value& value) const;
  StatusOr<Value> OwnAttribute(const Value& value, std::string_view name);

  Status EnterCall(int line);
  Status EnterNode(int line);
  // Puts the line in front of an error that has none yet.
  Status At(int line, const Status& status) const;

  const Template& template_;
  Runtime& runtime_;
  ScopePtr scope_;
  TracedText* output_ = nullptr;
  TracedText root_output_;
  int call_depth_ = 0;
  int depth_ = 0;                   // Nested Evaluate and ExecuteBody.
  std::vector<ScopePtr> closures_;  // Scopes that hold macros that hold them: emptied at the end.
  int varargs_id_;
  int kwargs_id_;
  int caller_id_;
  int loop_id_;
};

}  // namespace kvasir::jinja

#endif  // KVASIR_TEXT_JINJA_EVAL_H_
