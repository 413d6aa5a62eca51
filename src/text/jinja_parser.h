// Parses template source into the tree of jinja_ast.h.
//
// The whole template language but what needs other template files (include, import, extends);
// `block` renders in place. Nothing is evaluated here: an unknown filter is found when it is used,
// as in jinja2.
//
// Source: jinja2 documentation, "Template Designer"; precedence as in jinja2 3.1.
#ifndef KVASIR_TEXT_JINJA_PARSER_H_
#define KVASIR_TEXT_JINJA_PARSER_H_

#include <memory>
#include <string_view>

#include "base/status.h"
#include "text/jinja_ast.h"

namespace kvasir::jinja {

// Errors name the line and the construct: "line 3: 'for' without 'endfor'". Source must be UTF-8.
StatusOr<std::unique_ptr<Template>> ParseTemplate(std::string_view source);

}  // namespace kvasir::jinja

#endif  // KVASIR_TEXT_JINJA_PARSER_H_
