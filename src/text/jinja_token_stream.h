// TokenStream and ExprParser: the expression half of the template parser.
//
// Internal to jinja_parser.cc and jinja_parser_expr.cc. REQUIRES everywhere: the token list ends
// with kEnd, so looking one token ahead is always possible.
#ifndef KVASIR_TEXT_JINJA_TOKEN_STREAM_H_
#define KVASIR_TEXT_JINJA_TOKEN_STREAM_H_

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/jinja_ast.h"
#include "text/jinja_lexer.h"

namespace kvasir::jinja {

class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[pos_]; }
  const Token& next() const { return tokens_[pos_ + 1 < tokens_.size() ? pos_ + 1 : pos_]; }
  int line() const { return current().line; }
  bool at(TokenKind kind) const { return current().kind == kind; }
  bool at_operator(std::string_view op) const {
    return at(TokenKind::kOperator) && current().text == op;
  }
  bool at_name(std::string_view name) const {
    return at(TokenKind::kName) && current().text == name;
  }
  // The current token; the stream moves on, but never past the end.
  Token Take();
  bool TakeOperator(std::string_view op);
  bool TakeName(std::string_view name);
  Status ExpectOperator(std::string_view op);
  StatusOr<std::string> ExpectName();
  // "line 4: unexpected 'x', expected <expected>".
  Status Unexpected(std::string_view expected) const;

 private:
  std::vector<Token> tokens_;
  size_t pos_ = 0;
};

class ExprParser {
 public:
  // Both outlive the parser.
  ExprParser(TokenStream* stream, Template* result) : stream_(*stream), template_(*result) {}

  // One expression, with or without a trailing `a if b else c`.
  StatusOr<ExprPtr> ParseExpression(bool with_condition = true);
  // Expressions separated by commas become a tuple. `end_name`: a keyword that ends the list.
  StatusOr<ExprPtr> ParseTuple(bool with_condition = true, std::string_view end_name = {},
                               bool in_parentheses = false);
  // | filter | filter ... on `input` (null: the body of a filter block, first name without `|`).
  StatusOr<ExprPtr> ParseFilters(ExprPtr input, bool starts_inline);
  StatusOr<ExprPtr> ParseUnary(bool with_filter = true);

  // How often `name` was read so far; kept for varargs, kwargs and caller.
  int reads_of(std::string_view name) const {
    return name == "varargs" ? reads_[0] : name == "kwargs" ? reads_[1] : reads_[2];
  }

 private:
  StatusOr<ExprPtr> Make(ExprKind kind, int line, std::string text, std::vector<ExprPtr> children);
  StatusOr<ExprPtr> ParseOr();
  StatusOr<ExprPtr> ParseAnd();
  StatusOr<ExprPtr> ParseNot();
  StatusOr<ExprPtr> ParseCompare();
  // Left-associative: level 0 is + -, 1 is ~, 2 is * / // %, 3 is **.
  StatusOr<ExprPtr> ParseArithmetic(int level);
  StatusOr<ExprPtr> ParsePrimary();
  StatusOr<ExprPtr> ParseName();
  StatusOr<ExprPtr> ParseList();
  StatusOr<ExprPtr> ParseDict();
  StatusOr<ExprPtr> ParsePostfix(ExprPtr node);
  StatusOr<ExprPtr> ParseAttribute(ExprPtr node);
  StatusOr<ExprPtr> ParseSubscript(ExprPtr node);
  StatusOr<ExprPtr> ParseSlicePart();
  StatusOr<ExprPtr> ParseFilterExpr(ExprPtr node);
  StatusOr<ExprPtr> ParseCall(ExprPtr node);
  StatusOr<ExprPtr> ParseTest(ExprPtr node);
  Status ParseArguments(ArgumentExprs* arguments);
  StatusOr<std::string> ParseDottedName();
  bool AtTupleEnd(std::string_view end_name) const;

  TokenStream& stream_;
  Template& template_;
  int nesting_ = 0;
  int reads_[3] = {0, 0, 0};  // varargs, kwargs, caller.
};

}  // namespace kvasir::jinja

#endif  // KVASIR_TEXT_JINJA_TOKEN_STREAM_H_
