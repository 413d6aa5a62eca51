// The string operations that filters, methods and operators share; all keep provenance.
#ifndef KVASIR_TEXT_JINJA_STRINGS_H_
#define KVASIR_TEXT_JINJA_STRINGS_H_

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/jinja_runtime.h"
#include "text/jinja_value.h"
#include "text/traced_text.h"

namespace kvasir::jinja {

enum class CaseChange : uint8_t { kUpper, kLower, kTitle, kCapitalize, kSwap, kFold };

// Like text.find(needle, from) and text.rfind(needle), in time linear in both; see
// Runtime::SpendOnSearch.
size_t FindText(std::string_view text, std::string_view needle, size_t from = 0);
size_t FindTextFromRight(std::string_view text, std::string_view needle);

// Each resulting character has the trust of the one it came from.
TracedText ChangeCase(const TracedText& text, CaseChange change);

// Python's strip family; `chars` nullopt means white space.
TracedText Strip(const TracedText& text, std::optional<std::string_view> chars, bool left,
                 bool right);

// Up to `limit` replacements (negative: all). An empty `from` matches between characters.
StatusOr<TracedText> Replace(Runtime& runtime, const TracedText& text, std::string_view from,
                             const TracedText& to, int64_t limit);

// str() of each item with `separator` between.
StatusOr<TracedText> Join(Runtime& runtime, const TracedText& separator, const ValueList& items);

// `text % arguments`: %s %r %a %d %i %u %f %e %g %x %X %o %c %% with flags, width and precision.
StatusOr<Value> FormatPercent(Runtime& runtime, const TracedText& text, const Value& arguments);
// text.format(...): {} {0} {name} {a.b} {a[0]} with !s !r and the common format specifications.
StatusOr<Value> FormatBraces(Runtime& runtime, const TracedText& text, const Arguments& arguments);

// json.dumps(value, ensure_ascii, indent, separators, sort_keys) as Python prints it. Strings keep
// their provenance; punctuation and numbers are untrusted.
struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<TracedText> indent;  // What one level is indented with.
  TracedText item_separator;
  TracedText key_separator;
};
StatusOr<TracedText> DumpJson(Runtime& runtime, const Value& value, const JsonStyle& style);

// A value of JSON text; all strings are untrusted. Errors name the byte. Depth and size bounded.
StatusOr<Value> ParseJson(std::string_view json);

}  // namespace kvasir::jinja

#endif  // KVASIR_TEXT_JINJA_STRINGS_H_
