// The tree that the parser builds from a template and the interpreter walks.
//
// Invariant: no node lies deeper than kMaxNodeDepth, so walks and destruction recurse to a known
//            depth. Names of variables are numbers (see Template::names).
// Thread:    immutable once parsed; shared by any number of renderings.
#ifndef KVASIR_TEXT_JINJA_AST_H_
#define KVASIR_TEXT_JINJA_AST_H_

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/jinja_value.h"

namespace kvasir::jinja {

inline constexpr int kMaxNodeDepth = 200;

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

enum class ExprKind : uint8_t {
  kConstant,     // constant
  kName,         // name_id
  kList,         // children
  kTuple,        // children
  kDict,         // children: key, value, key, value ...
  kNegate,       // children[0]
  kPlus,         // children[0]
  kNot,          // children[0]
  kAnd,          // children[0], children[1]
  kOr,           // children[0], children[1]
  kBinary,       // text: + - * / // % ** ; children[0], children[1]
  kConcat,       // children joined as strings
  kCompare,      // operators[i] stands between children[i] and children[i + 1]
  kConditional,  // children: condition, then, else (may be null)
  kAttribute,    // children[0] . text
  kItem,         // children[0] [ children[1] ]
  kSlice,        // as children[1] of kItem: start, stop, step (each may be null)
  kCall,         // children[0] ( arguments )
  kFilter,       // children[0] (null in a filter block) | text ( arguments )
  kTest,         // children[0] is text ( arguments )
};

struct ArgumentExprs {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr star;         // *expression, or null
  ExprPtr double_star;  // **expression, or null
};

struct Expr {
  ExprKind kind = ExprKind::kConstant;
  int line = 0;
  int depth = 1;     // 1 + the deepest child.
  int name_id = -1;  // kName
  std::string text;
  Value constant;
  std::vector<std::string> operators;
  std::vector<ExprPtr> children;
  std::unique_ptr<ArgumentExprs> arguments;
};

// What `set`, `for` and `with` assign to: a name, a namespace attribute, or a tuple of targets.
struct Target {
  int line = 0;
  int name_id = -1;
  std::string attribute;  // Not empty: name_id is a namespace, this its member.
  std::vector<Target> parts;
  bool is_tuple = false;
};

struct Stmt;
using Body = std::vector<std::unique_ptr<Stmt>>;

enum class StmtKind : uint8_t {
  kText,         // text
  kOutput,       // exprs[0]
  kIf,           // exprs[i] guards bodies[i]; one more body is the else
  kFor,          // target in exprs[0] [if exprs[1]]: bodies[0]; else bodies[1]
  kSet,          // target = exprs[0]
  kSetBlock,     // target = bodies[0], through the filter exprs[0] when not null
  kMacro,        // name_id ( parameters ): bodies[0]
  kCallBlock,    // exprs[0] is the call; parameters and bodies[0] are its caller()
  kFilterBlock,  // bodies[0] through the filter exprs[0]
  kWith,         // targets[i] = exprs[i] within bodies[0]
  kScope,        // bodies[0] with its own variables (block, generation, autoescape)
  kBreak,
  kContinue,
};

struct Parameter {
  int name_id = -1;
  std::string name;
  ExprPtr default_value;  // May be null.
};

struct Stmt {
  StmtKind kind = StmtKind::kText;
  int line = 0;
  int name_id = -1;
  std::string text;
  std::vector<ExprPtr> exprs;
  std::vector<Body> bodies;
  Target target;
  std::vector<Target> targets;
  std::vector<Parameter> parameters;
  bool recursive = false;     // kFor
  bool uses_varargs = false;  // kMacro, kCallBlock: the body names varargs, kwargs, caller.
  bool uses_kwargs = false;
  bool uses_caller = false;
};

struct Template {
  Body body;
  std::unordered_map<std::string, int> name_ids;
  std::vector<std::string> names;  // By id.

  int Intern(std::string_view name);
};

}  // namespace kvasir::jinja

#endif  // KVASIR_TEXT_JINJA_AST_H_
