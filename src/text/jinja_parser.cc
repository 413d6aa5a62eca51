#include "text/jinja_parser.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "text/jinja_lexer.h"
#include "text/jinja_token_stream.h"
#include "text/jinja_unicode.h"

namespace kvasir::jinja {

int Template::Intern(std::string_view name) {
  const auto [it, inserted] =
      name_ids.try_emplace(std::string(name), static_cast<int>(names.size()));
  if (inserted) names.emplace_back(name);
  return it->second;
}

namespace {

using StmtPtr = std::unique_ptr<Stmt>;

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens)
      : template_(std::make_unique<Template>()),
        stream_(std::move(tokens)),
        exprs_(&stream_, template_.get()) {}

  StatusOr<std::unique_ptr<Template>> Run() {
    KV_RETURN_IF_ERROR(ParseBody({}, "", 0, &template_->body));
    return std::move(template_);
  }

 private:
  // Parses statements up to a block tag whose name is in `ends`; that name is consumed and
  // returned through last_end_. `opener` and `opener_line` name the construct in errors.
  Status ParseBody(std::initializer_list<std::string_view> ends, std::string_view opener,
                   int opener_line, Body* body) {
    if (++nesting_ > kMaxNodeDepth) {
      return InvalidArgument("line {}: blocks are nested more than {} levels deep", stream_.line(),
                             kMaxNodeDepth);
    }
    while (true) {
      if (stream_.at(TokenKind::kEnd)) {
        --nesting_;
        if (ends.size() == 0) return OkStatus();
        return InvalidArgument("line {}: '{}' without '{}'", opener_line, opener,
                               *(ends.end() - 1));
      }
      if (stream_.at(TokenKind::kText)) {
        body->push_back(New(StmtKind::kText));
        body->back()->text = stream_.Take().text;
      } else if (stream_.at(TokenKind::kVariableBegin)) {
        KV_RETURN_IF_ERROR(ParseOutput(body));
      } else {
        stream_.Take();  // {%
        if (!stream_.at(TokenKind::kName)) return stream_.Unexpected("the name of a tag");
        const std::string& name = stream_.current().text;
        if (std::find(ends.begin(), ends.end(), name) != ends.end()) {
          last_end_ = stream_.Take().text;
          --nesting_;
          return OkStatus();
        }
        if (name.rfind("end", 0) == 0 || name == "else" || name == "elif") {
          return InvalidArgument(
              "line {}: unexpected '{}'{}", stream_.line(), name,
              opener.empty() ? std::string(": no block is open")
                             : fmt::format(" inside the '{}' of line {}", opener, opener_line));
        }
        KV_ASSIGN_OR_RETURN(StmtPtr stmt, ParseStatement());
        body->push_back(std::move(stmt));
        if (!stream_.at(TokenKind::kBlockEnd)) return stream_.Unexpected("'%}'");
        stream_.Take();
      }
    }
  }

  StmtPtr New(StmtKind kind) {
    auto stmt = std::make_unique<Stmt>();
    stmt->kind = kind;
    stmt->line = stream_.line();
    return stmt;
  }

  Status ParseOutput(Body* body) {
    StmtPtr stmt = New(StmtKind::kOutput);
    stream_.Take();
    KV_ASSIGN_OR_RETURN(ExprPtr expr, exprs_.ParseTuple());
    stmt->exprs.push_back(std::move(expr));
    body->push_back(std::move(stmt));
    if (!stream_.at(TokenKind::kVariableEnd)) return stream_.Unexpected("'}}'");
    stream_.Take();
    return OkStatus();
  }

  Status FinishOpeningTag() {
    if (!stream_.at(TokenKind::kBlockEnd)) return stream_.Unexpected("'%}'");
    stream_.Take();
    return OkStatus();
  }

  // One more body of `stmt`, after its tag is closed.
  Status AddBody(Stmt* stmt, std::initializer_list<std::string_view> ends,
                 std::string_view opener) {
    KV_RETURN_IF_ERROR(FinishOpeningTag());
    stmt->bodies.emplace_back();
    return ParseBody(ends, opener, stmt->line, &stmt->bodies.back());
  }

  StatusOr<StmtPtr> ParseStatement() {
    const std::string name = stream_.current().text;
    if (name == "if") return ParseIf();
    if (name == "for") return ParseFor();
    if (name == "set") return ParseSet();
    if (name == "macro") return ParseMacro();
    if (name == "call") return ParseCallBlock();
    if (name == "filter") return ParseFilterBlock();
    if (name == "with") return ParseWith();
    if (name == "break" || name == "continue") return ParseJump();
    if (name == "block" || name == "generation" || name == "autoescape") return ParseScope();
    if (name == "include" || name == "import" || name == "from" || name == "extends") {
      return InvalidArgument("line {}: '{}' needs a second template; a chat template is one text",
                             stream_.line(), name);
    }
    return InvalidArgument(
        "line {}: unknown tag '{}' (known: if, for, set, macro, call, filter, with, block, raw, "
        "generation, break, continue)",
        stream_.line(), name);
  }

  StatusOr<StmtPtr> ParseIf() {
    StmtPtr stmt = New(StmtKind::kIf);
    last_end_ = "elif";
    while (last_end_ == "elif" || stmt->bodies.empty()) {
      if (stmt->bodies.empty()) stream_.Take();
      KV_ASSIGN_OR_RETURN(ExprPtr condition, exprs_.ParseTuple(false));
      stmt->exprs.push_back(std::move(condition));
      KV_RETURN_IF_ERROR(AddBody(stmt.get(), {"elif", "else", "endif"}, "if"));
    }
    if (last_end_ == "else") KV_RETURN_IF_ERROR(AddBody(stmt.get(), {"endif"}, "if"));
    return stmt;
  }

  StatusOr<StmtPtr> ParseFor() {
    StmtPtr stmt = New(StmtKind::kFor);
    stream_.Take();
    ++for_depth_;
    KV_ASSIGN_OR_RETURN(stmt->target, ParseTarget("in", false));
    if (!stream_.TakeName("in")) return stream_.Unexpected("'in'");
    KV_ASSIGN_OR_RETURN(ExprPtr items, exprs_.ParseTuple(false, "recursive"));
    stmt->exprs.push_back(std::move(items));
    if (stream_.TakeName("if")) {
      KV_ASSIGN_OR_RETURN(ExprPtr filter, exprs_.ParseExpression());
      stmt->exprs.push_back(std::move(filter));
    }
    stmt->recursive = stream_.TakeName("recursive");
    ++loop_depth_;
    KV_RETURN_IF_ERROR(AddBody(stmt.get(), {"else", "endfor"}, "for"));
    --loop_depth_;
    if (last_end_ == "else") KV_RETURN_IF_ERROR(AddBody(stmt.get(), {"endfor"}, "for"));
    --for_depth_;
    return stmt;
  }

  // `end_name` is the keyword after the targets; `with_attributes` allows ns.member.
  StatusOr<Target> ParseTarget(std::string_view end_name, bool with_attributes) {
    Target tuple;
    tuple.line = stream_.line();
    tuple.is_tuple = true;
    bool has_comma = false;
    while (true) {
      KV_ASSIGN_OR_RETURN(Target part, ParseOneTarget(with_attributes));
      tuple.parts.push_back(std::move(part));
      if (!stream_.TakeOperator(",")) break;
      has_comma = true;
      if (stream_.at_operator("=") || stream_.at_operator(")") || stream_.at_name(end_name)) break;
    }
    if (has_comma) return tuple;
    return std::move(tuple.parts[0]);
  }

  StatusOr<Target> ParseOneTarget(bool with_attributes) {
    if (stream_.TakeOperator("(")) {
      if (++nesting_ > kMaxNodeDepth) return stream_.Unexpected("fewer parentheses");
      KV_ASSIGN_OR_RETURN(Target inner, ParseTarget("in", with_attributes));
      --nesting_;
      KV_RETURN_IF_ERROR(stream_.ExpectOperator(")"));
      return inner;
    }
    Target target;
    target.line = stream_.line();
    KV_ASSIGN_OR_RETURN(const std::string name, stream_.ExpectName());
    for (const std::string_view constant : {"true", "false", "none", "True", "False", "None"}) {
      if (name == constant) {
        return InvalidArgument("line {}: cannot assign to '{}'", target.line, name);
      }
    }
    if (name == "loop" && for_depth_ > 0) {
      return InvalidArgument("line {}: cannot assign to 'loop' in a for loop", target.line);
    }
    target.name_id = template_->Intern(name);
    if (with_attributes && stream_.TakeOperator(".")) {
      KV_ASSIGN_OR_RETURN(target.attribute, stream_.ExpectName());
    }
    return target;
  }

  StatusOr<StmtPtr> ParseSet() {
    StmtPtr stmt = New(StmtKind::kSet);
    stream_.Take();
    KV_ASSIGN_OR_RETURN(stmt->target, ParseTarget({}, true));
    if (stream_.TakeOperator("=")) {
      KV_ASSIGN_OR_RETURN(ExprPtr value, exprs_.ParseTuple());
      stmt->exprs.push_back(std::move(value));
      return stmt;
    }
    stmt->kind = StmtKind::kSetBlock;
    KV_ASSIGN_OR_RETURN(ExprPtr filter, exprs_.ParseFilters(nullptr, false));
    stmt->exprs.push_back(std::move(filter));
    KV_RETURN_IF_ERROR(AddBody(stmt.get(), {"endset"}, "set"));
    return stmt;
  }

  Status ParseParameters(Stmt* stmt) {
    KV_RETURN_IF_ERROR(stream_.ExpectOperator("("));
    while (!stream_.TakeOperator(")")) {
      if (!stmt->parameters.empty()) KV_RETURN_IF_ERROR(stream_.ExpectOperator(","));
      Parameter parameter;
      KV_ASSIGN_OR_RETURN(parameter.name, stream_.ExpectName());
      parameter.name_id = template_->Intern(parameter.name);
      if (stream_.TakeOperator("=")) {
        KV_ASSIGN_OR_RETURN(parameter.default_value, exprs_.ParseExpression());
      } else if (!stmt->parameters.empty() && stmt->parameters.back().default_value != nullptr) {
        return InvalidArgument("line {}: parameter '{}' without a default after one with",
                               stream_.line(), parameter.name);
      }
      stmt->parameters.push_back(std::move(parameter));
    }
    return OkStatus();
  }

  // The body of a macro or of a call block: loops outside do not reach into it.
  Status ParseCallable(Stmt* stmt, std::string_view opener, std::string_view end) {
    const int outer_loops = std::exchange(loop_depth_, 0);
    const int varargs = exprs_.reads_of("varargs");
    const int kwargs = exprs_.reads_of("kwargs");
    const int caller = exprs_.reads_of("caller");
    KV_RETURN_IF_ERROR(AddBody(stmt, {end}, opener));
    stmt->uses_varargs = exprs_.reads_of("varargs") > varargs;
    stmt->uses_kwargs = exprs_.reads_of("kwargs") > kwargs;
    stmt->uses_caller = exprs_.reads_of("caller") > caller;
    loop_depth_ = outer_loops;
    return OkStatus();
  }

  StatusOr<StmtPtr> ParseMacro() {
    StmtPtr stmt = New(StmtKind::kMacro);
    stream_.Take();
    KV_ASSIGN_OR_RETURN(stmt->text, stream_.ExpectName());
    stmt->name_id = template_->Intern(stmt->text);
    KV_RETURN_IF_ERROR(ParseParameters(stmt.get()));
    KV_RETURN_IF_ERROR(ParseCallable(stmt.get(), "macro", "endmacro"));
    // {% endmacro name %} may repeat the name.
    stream_.TakeName(stmt->text);
    return stmt;
  }

  StatusOr<StmtPtr> ParseCallBlock() {
    StmtPtr stmt = New(StmtKind::kCallBlock);
    stream_.Take();
    stmt->text = "caller";
    if (stream_.at_operator("(")) KV_RETURN_IF_ERROR(ParseParameters(stmt.get()));
    KV_ASSIGN_OR_RETURN(ExprPtr call, exprs_.ParseExpression());
    if (call->kind != ExprKind::kCall) {
      return InvalidArgument("line {}: 'call' needs a call, such as {{% call f() %}}", stmt->line);
    }
    stmt->exprs.push_back(std::move(call));
    KV_RETURN_IF_ERROR(ParseCallable(stmt.get(), "call", "endcall"));
    return stmt;
  }

  StatusOr<StmtPtr> ParseFilterBlock() {
    StmtPtr stmt = New(StmtKind::kFilterBlock);
    stream_.Take();
    KV_ASSIGN_OR_RETURN(ExprPtr filter, exprs_.ParseFilters(nullptr, true));
    stmt->exprs.push_back(std::move(filter));
    KV_RETURN_IF_ERROR(AddBody(stmt.get(), {"endfilter"}, "filter"));
    return stmt;
  }

  StatusOr<StmtPtr> ParseWith() {
    StmtPtr stmt = New(StmtKind::kWith);
    stream_.Take();
    while (!stream_.at(TokenKind::kBlockEnd)) {
      if (!stmt->targets.empty()) KV_RETURN_IF_ERROR(stream_.ExpectOperator(","));
      KV_ASSIGN_OR_RETURN(Target target, ParseOneTarget(false));
      KV_RETURN_IF_ERROR(stream_.ExpectOperator("="));
      KV_ASSIGN_OR_RETURN(ExprPtr value, exprs_.ParseExpression());
      stmt->targets.push_back(std::move(target));
      stmt->exprs.push_back(std::move(value));
    }
    KV_RETURN_IF_ERROR(AddBody(stmt.get(), {"endwith"}, "with"));
    return stmt;
  }

  StatusOr<StmtPtr> ParseJump() {
    StmtPtr stmt = New(stream_.at_name("break") ? StmtKind::kBreak : StmtKind::kContinue);
    const Token token = stream_.Take();
    if (loop_depth_ == 0) {
      return InvalidArgument("line {}: '{}' outside a loop", token.line, token.text);
    }
    return stmt;
  }

  StatusOr<StmtPtr> ParseScope() {
    StmtPtr stmt = New(StmtKind::kScope);
    const std::string opener = stream_.Take().text;
    std::string name;
    if (opener == "block") {
      KV_ASSIGN_OR_RETURN(name, stream_.ExpectName());
      while (stream_.TakeName("scoped") || stream_.TakeName("required")) {
      }
    } else if (opener == "autoescape") {
      KV_ASSIGN_OR_RETURN(ExprPtr mode, exprs_.ParseExpression());
      if (mode->kind != ExprKind::kConstant || IsTruthy(mode->constant)) {
        return InvalidArgument("line {}: only 'autoescape false' is supported", stmt->line);
      }
    }
    KV_RETURN_IF_ERROR(AddBody(stmt.get(), {"end" + opener}, opener));
    if (!name.empty()) stream_.TakeName(name);
    return stmt;
  }

  std::unique_ptr<Template> template_;
  TokenStream stream_;
  ExprParser exprs_;
  std::string last_end_;
  int nesting_ = 0;
  int loop_depth_ = 0;  // Loops that break and continue see.
  int for_depth_ = 0;   // All loops around, macros or not.
};

}  // namespace

StatusOr<std::unique_ptr<Template>> ParseTemplate(std::string_view source) {
  if (!IsValidUtf8(source)) return InvalidArgument("the template is not valid UTF-8");
  KV_ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(source));
  return Parser(std::move(tokens)).Run();
}

}  // namespace kvasir::jinja
