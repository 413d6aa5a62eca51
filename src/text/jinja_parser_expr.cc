#include <algorithm>
#include <array>

#include "text/jinja_token_stream.h"

namespace kvasir::jinja {

Token TokenStream::Take() {
  Token token = tokens_[pos_];
  if (pos_ + 1 < tokens_.size()) ++pos_;
  return token;
}

bool TokenStream::TakeOperator(std::string_view op) {
  if (!at_operator(op)) return false;
  Take();
  return true;
}

bool TokenStream::TakeName(std::string_view name) {
  if (!at_name(name)) return false;
  Take();
  return true;
}

Status TokenStream::ExpectOperator(std::string_view op) {
  if (TakeOperator(op)) return OkStatus();
  return Unexpected(fmt::format("'{}'", op));
}

StatusOr<std::string> TokenStream::ExpectName() {
  if (!at(TokenKind::kName)) return Unexpected("a name");
  return Take().text;
}

Status TokenStream::Unexpected(std::string_view expected) const {
  return InvalidArgument("line {}: unexpected {}, expected {}", line(), DescribeToken(current()),
                         expected);
}

StatusOr<ExprPtr> ExprParser::Make(ExprKind kind, int line, std::string text,
                                   std::vector<ExprPtr> children) {
  auto node = std::make_unique<Expr>();
  node->kind = kind;
  node->line = line;
  node->text = std::move(text);
  for (const ExprPtr& child : children) {
    if (child != nullptr) node->depth = std::max(node->depth, child->depth + 1);
  }
  node->children = std::move(children);
  if (node->depth > kMaxNodeDepth) {
    return InvalidArgument("line {}: an expression is nested more than {} levels deep", line,
                           kMaxNodeDepth);
  }
  return node;
}

namespace {

template <typename... Ptrs>
std::vector<ExprPtr> Children(Ptrs... ptrs) {
  std::vector<ExprPtr> children;
  (children.push_back(std::move(ptrs)), ...);
  return children;
}

bool IsOneOf(const Token& token, std::initializer_list<std::string_view> operators) {
  return token.kind == TokenKind::kOperator &&
         std::find(operators.begin(), operators.end(), token.text) != operators.end();
}

int ArgumentDepth(const ArgumentExprs& arguments) {
  int depth = 0;
  const auto add = [&](const ExprPtr& expr) {
    if (expr != nullptr) depth = std::max(depth, expr->depth);
  };
  for (const ExprPtr& expr : arguments.positional) add(expr);
  for (const auto& [name, expr] : arguments.named) add(expr);
  add(arguments.star);
  add(arguments.double_star);
  return depth;
}

}  // namespace

StatusOr<ExprPtr> ExprParser::ParseExpression(bool with_condition) {
  if (++nesting_ > kMaxNodeDepth) {
    return InvalidArgument("line {}: an expression is nested more than {} levels deep",
                           stream_.line(), kMaxNodeDepth);
  }
  KV_ASSIGN_OR_RETURN(ExprPtr node, ParseOr());
  while (with_condition && stream_.at_name("if")) {
    const int line = stream_.Take().line;
    KV_ASSIGN_OR_RETURN(ExprPtr condition, ParseOr());
    ExprPtr otherwise;
    if (stream_.TakeName("else")) {
      KV_ASSIGN_OR_RETURN(otherwise, ParseExpression());
    }
    KV_ASSIGN_OR_RETURN(
        node, Make(ExprKind::kConditional, line, "",
                   Children(std::move(condition), std::move(node), std::move(otherwise))));
  }
  --nesting_;
  return node;
}

StatusOr<ExprPtr> ExprParser::ParseOr() {
  KV_ASSIGN_OR_RETURN(ExprPtr left, ParseAnd());
  while (stream_.at_name("or")) {
    const int line = stream_.Take().line;
    KV_ASSIGN_OR_RETURN(ExprPtr right, ParseAnd());
    KV_ASSIGN_OR_RETURN(left,
                        Make(ExprKind::kOr, line, "", Children(std::move(left), std::move(right))));
  }
  return left;
}

StatusOr<ExprPtr> ExprParser::ParseAnd() {
  KV_ASSIGN_OR_RETURN(ExprPtr left, ParseNot());
  while (stream_.at_name("and")) {
    const int line = stream_.Take().line;
    KV_ASSIGN_OR_RETURN(ExprPtr right, ParseNot());
    KV_ASSIGN_OR_RETURN(
        left, Make(ExprKind::kAnd, line, "", Children(std::move(left), std::move(right))));
  }
  return left;
}

StatusOr<ExprPtr> ExprParser::ParseNot() {
  std::vector<int> lines;
  while (stream_.at_name("not")) lines.push_back(stream_.Take().line);
  KV_ASSIGN_OR_RETURN(ExprPtr node, ParseCompare());
  for (; !lines.empty(); lines.pop_back()) {
    KV_ASSIGN_OR_RETURN(node, Make(ExprKind::kNot, lines.back(), "", Children(std::move(node))));
  }
  return node;
}

StatusOr<ExprPtr> ExprParser::ParseCompare() {
  KV_ASSIGN_OR_RETURN(ExprPtr first, ParseArithmetic(0));
  const int line = stream_.line();
  std::vector<ExprPtr> operands = Children(std::move(first));
  std::vector<std::string> operators;
  while (true) {
    if (IsOneOf(stream_.current(), {"==", "!=", "<", "<=", ">", ">="})) {
      operators.push_back(stream_.Take().text);
    } else if (stream_.TakeName("in")) {
      operators.push_back("in");
    } else if (stream_.at_name("not") && stream_.next().kind == TokenKind::kName &&
               stream_.next().text == "in") {
      stream_.Take();
      stream_.Take();
      operators.push_back("not in");
    } else {
      break;
    }
    KV_ASSIGN_OR_RETURN(ExprPtr operand, ParseArithmetic(0));
    operands.push_back(std::move(operand));
  }
  if (operators.empty()) return std::move(operands[0]);
  KV_ASSIGN_OR_RETURN(ExprPtr node, Make(ExprKind::kCompare, line, "", std::move(operands)));
  node->operators = std::move(operators);
  return node;
}

StatusOr<ExprPtr> ExprParser::ParseArithmetic(int level) {
  static const std::array<std::vector<std::string>, 4> kOperators = {
      {{"+", "-"}, {"~"}, {"*", "/", "//", "%"}, {"**"}}};
  if (level == 4) return ParseUnary();
  KV_ASSIGN_OR_RETURN(ExprPtr left, ParseArithmetic(level + 1));
  const auto& operators = kOperators[static_cast<size_t>(level)];
  const auto at_operator = [&] {
    return stream_.at(TokenKind::kOperator) &&
           std::find(operators.begin(), operators.end(), stream_.current().text) != operators.end();
  };
  if (level == 1 && at_operator()) {
    const int line = stream_.line();
    std::vector<ExprPtr> parts = Children(std::move(left));
    while (stream_.TakeOperator("~")) {
      KV_ASSIGN_OR_RETURN(ExprPtr part, ParseArithmetic(2));
      parts.push_back(std::move(part));
    }
    return Make(ExprKind::kConcat, line, "", std::move(parts));
  }
  while (at_operator()) {
    const Token op = stream_.Take();
    KV_ASSIGN_OR_RETURN(ExprPtr right, ParseArithmetic(level + 1));
    KV_ASSIGN_OR_RETURN(left, Make(ExprKind::kBinary, op.line, op.text,
                                   Children(std::move(left), std::move(right))));
  }
  return left;
}

StatusOr<ExprPtr> ExprParser::ParseUnary(bool with_filter) {
  std::vector<Token> signs;
  while (stream_.at_operator("-") || stream_.at_operator("+")) signs.push_back(stream_.Take());
  KV_ASSIGN_OR_RETURN(ExprPtr node, ParsePrimary());
  // As in jinja2, postfixes and filters bind to the operand before the sign, except that filters
  // after a signed operand apply to the signed value.
  KV_ASSIGN_OR_RETURN(node, ParsePostfix(std::move(node)));
  for (; !signs.empty(); signs.pop_back()) {
    KV_ASSIGN_OR_RETURN(node, Make(signs.back().text == "-" ? ExprKind::kNegate : ExprKind::kPlus,
                                   signs.back().line, "", Children(std::move(node))));
  }
  if (with_filter) return ParseFilterExpr(std::move(node));
  return node;
}

StatusOr<ExprPtr> ExprParser::ParsePrimary() {
  const int line = stream_.line();
  switch (stream_.current().kind) {
    case TokenKind::kName:
      return ParseName();
    case TokenKind::kString: {
      std::string text = stream_.Take().text;
      while (stream_.at(TokenKind::kString)) text += stream_.Take().text;
      KV_ASSIGN_OR_RETURN(ExprPtr node, Make(ExprKind::kConstant, line, "", {}));
      node->constant = Value::String(TracedText(std::move(text), true));
      return node;
    }
    case TokenKind::kInteger:
    case TokenKind::kFloat: {
      const Token token = stream_.Take();
      KV_ASSIGN_OR_RETURN(ExprPtr node, Make(ExprKind::kConstant, line, "", {}));
      node->constant = token.kind == TokenKind::kInteger ? Value::Int(token.integer)
                                                         : Value::Float(token.number);
      return node;
    }
    default:
      break;
  }
  if (stream_.TakeOperator("(")) {
    KV_ASSIGN_OR_RETURN(ExprPtr node, ParseTuple(true, {}, true));
    KV_RETURN_IF_ERROR(stream_.ExpectOperator(")"));
    return node;
  }
  if (stream_.TakeOperator("[")) return ParseList();
  if (stream_.TakeOperator("{")) return ParseDict();
  return stream_.Unexpected("an expression");
}

StatusOr<ExprPtr> ExprParser::ParseName() {
  const Token token = stream_.Take();
  const std::string& name = token.text;
  const bool is_true = name == "true" || name == "True";
  const bool is_none = name == "none" || name == "None";
  if (is_true || is_none || name == "false" || name == "False") {
    KV_ASSIGN_OR_RETURN(ExprPtr node, Make(ExprKind::kConstant, token.line, "", {}));
    node->constant = is_none ? Value::None() : Value::Bool(is_true);
    return node;
  }
  if (name == "varargs") ++reads_[0];
  if (name == "kwargs") ++reads_[1];
  if (name == "caller") ++reads_[2];
  KV_ASSIGN_OR_RETURN(ExprPtr node, Make(ExprKind::kName, token.line, name, {}));
  node->name_id = template_.Intern(name);
  return node;
}

StatusOr<ExprPtr> ExprParser::ParseList() {
  const int line = stream_.line();
  std::vector<ExprPtr> items;
  while (!stream_.TakeOperator("]")) {
    if (!items.empty()) {
      KV_RETURN_IF_ERROR(stream_.ExpectOperator(","));
      if (stream_.TakeOperator("]")) break;
    }
    KV_ASSIGN_OR_RETURN(ExprPtr item, ParseExpression());
    items.push_back(std::move(item));
  }
  return Make(ExprKind::kList, line, "", std::move(items));
}

StatusOr<ExprPtr> ExprParser::ParseDict() {
  const int line = stream_.line();
  std::vector<ExprPtr> items;
  while (!stream_.TakeOperator("}")) {
    if (!items.empty()) {
      KV_RETURN_IF_ERROR(stream_.ExpectOperator(","));
      if (stream_.TakeOperator("}")) break;
    }
    KV_ASSIGN_OR_RETURN(ExprPtr key, ParseExpression());
    KV_RETURN_IF_ERROR(stream_.ExpectOperator(":"));
    KV_ASSIGN_OR_RETURN(ExprPtr value, ParseExpression());
    items.push_back(std::move(key));
    items.push_back(std::move(value));
  }
  return Make(ExprKind::kDict, line, "", std::move(items));
}

bool ExprParser::AtTupleEnd(std::string_view end_name) const {
  return stream_.at(TokenKind::kVariableEnd) || stream_.at(TokenKind::kBlockEnd) ||
         stream_.at_operator(")") || (!end_name.empty() && stream_.at_name(end_name));
}

StatusOr<ExprPtr> ExprParser::ParseTuple(bool with_condition, std::string_view end_name,
                                         bool in_parentheses) {
  const int line = stream_.line();
  std::vector<ExprPtr> items;
  bool is_tuple = false;
  while (!AtTupleEnd(end_name)) {
    KV_ASSIGN_OR_RETURN(ExprPtr item, ParseExpression(with_condition));
    items.push_back(std::move(item));
    if (!stream_.TakeOperator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && items.size() == 1) return std::move(items[0]);
  if (items.empty() && !in_parentheses) return stream_.Unexpected("an expression");
  return Make(ExprKind::kTuple, line, "", std::move(items));
}

StatusOr<ExprPtr> ExprParser::ParsePostfix(ExprPtr node) {
  while (true) {
    if (stream_.at_operator(".")) {
      KV_ASSIGN_OR_RETURN(node, ParseAttribute(std::move(node)));
    } else if (stream_.at_operator("[")) {
      KV_ASSIGN_OR_RETURN(node, ParseSubscript(std::move(node)));
    } else if (stream_.at_operator("(")) {
      KV_ASSIGN_OR_RETURN(node, ParseCall(std::move(node)));
    } else {
      return node;
    }
  }
}

StatusOr<ExprPtr> ExprParser::ParseAttribute(ExprPtr node) {
  const int line = stream_.Take().line;
  if (stream_.at(TokenKind::kInteger)) {
    KV_ASSIGN_OR_RETURN(ExprPtr index, Make(ExprKind::kConstant, line, "", {}));
    index->constant = Value::Int(stream_.Take().integer);
    return Make(ExprKind::kItem, line, "", Children(std::move(node), std::move(index)));
  }
  KV_ASSIGN_OR_RETURN(std::string name, stream_.ExpectName());
  return Make(ExprKind::kAttribute, line, std::move(name), Children(std::move(node)));
}

StatusOr<ExprPtr> ExprParser::ParseSubscript(ExprPtr node) {
  const int line = stream_.Take().line;
  std::vector<ExprPtr> parts;
  while (!stream_.TakeOperator("]")) {
    if (!parts.empty()) KV_RETURN_IF_ERROR(stream_.ExpectOperator(","));
    KV_ASSIGN_OR_RETURN(ExprPtr part, ParseSlicePart());
    parts.push_back(std::move(part));
  }
  if (parts.size() == 1) {
    return Make(ExprKind::kItem, line, "", Children(std::move(node), std::move(parts[0])));
  }
  KV_ASSIGN_OR_RETURN(ExprPtr index, Make(ExprKind::kTuple, line, "", std::move(parts)));
  return Make(ExprKind::kItem, line, "", Children(std::move(node), std::move(index)));
}

StatusOr<ExprPtr> ExprParser::ParseSlicePart() {
  const int line = stream_.line();
  std::vector<ExprPtr> parts(3);
  if (!stream_.at_operator(":")) {
    KV_ASSIGN_OR_RETURN(parts[0], ParseExpression());
    if (!stream_.at_operator(":")) return std::move(parts[0]);
  }
  for (size_t i = 1; i < 3 && stream_.TakeOperator(":"); ++i) {
    if (stream_.at_operator(":") || stream_.at_operator("]") || stream_.at_operator(",")) continue;
    KV_ASSIGN_OR_RETURN(parts[i], ParseExpression());
  }
  return Make(ExprKind::kSlice, line, "", std::move(parts));
}

StatusOr<ExprPtr> ExprParser::ParseFilterExpr(ExprPtr node) {
  while (true) {
    if (stream_.at_operator("|")) {
      KV_ASSIGN_OR_RETURN(node, ParseFilters(std::move(node), false));
    } else if (stream_.at_name("is")) {
      KV_ASSIGN_OR_RETURN(node, ParseTest(std::move(node)));
    } else if (stream_.at_operator("(")) {
      KV_ASSIGN_OR_RETURN(node, ParseCall(std::move(node)));
    } else {
      return node;
    }
  }
}

StatusOr<ExprPtr> ExprParser::ParseCall(ExprPtr node) {
  const int line = stream_.line();
  auto arguments = std::make_unique<ArgumentExprs>();
  KV_RETURN_IF_ERROR(ParseArguments(arguments.get()));
  KV_ASSIGN_OR_RETURN(ExprPtr call, Make(ExprKind::kCall, line, "", Children(std::move(node))));
  call->depth = std::max(call->depth, ArgumentDepth(*arguments) + 1);
  call->arguments = std::move(arguments);
  return call;
}

Status ExprParser::ParseArguments(ArgumentExprs* arguments) {
  KV_RETURN_IF_ERROR(stream_.ExpectOperator("("));
  bool first = true;
  while (!stream_.TakeOperator(")")) {
    if (!first) {
      KV_RETURN_IF_ERROR(stream_.ExpectOperator(","));
      if (stream_.TakeOperator(")")) break;
    }
    first = false;
    const int line = stream_.line();
    const bool named = stream_.at(TokenKind::kName) &&
                       stream_.next().kind == TokenKind::kOperator && stream_.next().text == "=";
    if (stream_.TakeOperator("*")) {
      if (arguments->star != nullptr || arguments->double_star != nullptr) {
        return InvalidArgument("line {}: misplaced *arguments in a call", line);
      }
      KV_ASSIGN_OR_RETURN(arguments->star, ParseExpression());
    } else if (stream_.TakeOperator("**")) {
      if (arguments->double_star != nullptr) {
        return InvalidArgument("line {}: a second **arguments in a call", line);
      }
      KV_ASSIGN_OR_RETURN(arguments->double_star, ParseExpression());
    } else if (named && arguments->double_star == nullptr) {
      std::string name = stream_.Take().text;
      stream_.Take();
      KV_ASSIGN_OR_RETURN(ExprPtr value, ParseExpression());
      arguments->named.emplace_back(std::move(name), std::move(value));
    } else if (arguments->star == nullptr && arguments->double_star == nullptr &&
               arguments->named.empty()) {
      KV_ASSIGN_OR_RETURN(ExprPtr value, ParseExpression());
      arguments->positional.push_back(std::move(value));
    } else {
      return InvalidArgument("line {}: a positional argument after named ones in a call", line);
    }
  }
  return OkStatus();
}

StatusOr<std::string> ExprParser::ParseDottedName() {
  KV_ASSIGN_OR_RETURN(std::string name, stream_.ExpectName());
  while (stream_.TakeOperator(".")) {
    KV_ASSIGN_OR_RETURN(std::string part, stream_.ExpectName());
    name += "." + part;
  }
  return name;
}

StatusOr<ExprPtr> ExprParser::ParseFilters(ExprPtr input, bool starts_inline) {
  while (starts_inline || stream_.at_operator("|")) {
    if (!starts_inline) stream_.Take();
    starts_inline = false;
    const int line = stream_.line();
    KV_ASSIGN_OR_RETURN(std::string name, ParseDottedName());
    auto arguments = std::make_unique<ArgumentExprs>();
    if (stream_.at_operator("(")) KV_RETURN_IF_ERROR(ParseArguments(arguments.get()));
    KV_ASSIGN_OR_RETURN(input,
                        Make(ExprKind::kFilter, line, std::move(name), Children(std::move(input))));
    input->depth = std::max(input->depth, ArgumentDepth(*arguments) + 1);
    input->arguments = std::move(arguments);
  }
  return input;
}

StatusOr<ExprPtr> ExprParser::ParseTest(ExprPtr node) {
  const int line = stream_.Take().line;
  const bool negated = stream_.TakeName("not");
  KV_ASSIGN_OR_RETURN(std::string name, ParseDottedName());
  auto arguments = std::make_unique<ArgumentExprs>();
  const TokenKind kind = stream_.current().kind;
  const bool starts_value = kind == TokenKind::kName || kind == TokenKind::kString ||
                            kind == TokenKind::kInteger || kind == TokenKind::kFloat ||
                            IsOneOf(stream_.current(), {"[", "{"});
  if (stream_.at_operator("(")) {
    KV_RETURN_IF_ERROR(ParseArguments(arguments.get()));
  } else if (starts_value && !stream_.at_name("else") && !stream_.at_name("or") &&
             !stream_.at_name("and")) {
    if (stream_.at_name("is")) {
      return InvalidArgument("line {}: tests cannot be chained with 'is'", line);
    }
    KV_ASSIGN_OR_RETURN(ExprPtr argument, ParsePrimary());
    KV_ASSIGN_OR_RETURN(argument, ParsePostfix(std::move(argument)));
    arguments->positional.push_back(std::move(argument));
  }
  KV_ASSIGN_OR_RETURN(ExprPtr test,
                      Make(ExprKind::kTest, line, std::move(name), Children(std::move(node))));
  test->depth = std::max(test->depth, ArgumentDepth(*arguments) + 1);
  test->arguments = std::move(arguments);
  if (!negated) return test;
  return Make(ExprKind::kNot, line, "", Children(std::move(test)));
}

}  // namespace kvasir::jinja
