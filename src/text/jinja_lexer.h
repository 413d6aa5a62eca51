// Turns template source into tokens, with jinja2's white space rules.
//
// As Hugging Face configures jinja2: trim_blocks and lstrip_blocks on, one trailing newline of the
// source dropped, line ends normalised to \n. `-` strips white space on its side of a tag, `+`
// turns lstrip/trim off for it. Comments vanish here and raw blocks become text.
//
// Source: jinja2 documentation, "Template Designer", sections White Space Control and Escaping.
#ifndef KVASIR_TEXT_JINJA_LEXER_H_
#define KVASIR_TEXT_JINJA_LEXER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace kvasir::jinja {

enum class TokenKind : uint8_t {
  kText,           // Literal output.
  kBlockBegin,     // {%
  kBlockEnd,       // %}
  kVariableBegin,  // {{
  kVariableEnd,    // }}
  kName,
  kString,  // text: the value, escapes resolved.
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  int line = 0;
  std::string text;
  int64_t integer = 0;
  double number = 0;
};

// Errors name the line and what is wrong: an unclosed tag, string or bracket, a bad character, a
// number too large. The result ends with one kEnd. O(size).
StatusOr<std::vector<Token>> Tokenize(std::string_view source);

// How messages show a token: "'endfor'", "end of template".
std::string DescribeToken(const Token& token);

}  // namespace kvasir::jinja

#endif  // KVASIR_TEXT_JINJA_LEXER_H_
