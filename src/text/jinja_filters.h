// The tables of filters, tests, methods and globals, one function per topic.
//
// Internal to the jinja_*.cc files; the rest of the interpreter calls ApplyFilter, ApplyTest,
// FindMethod and FindGlobal of jinja_runtime.h.
#ifndef KVASIR_TEXT_JINJA_FILTERS_H_
#define KVASIR_TEXT_JINJA_FILTERS_H_

#include <vector>

#include "text/jinja_runtime.h"

namespace kvasir::jinja {

// Filters of strings: upper, replace, indent ...
const std::vector<NativeEntry>& TextFilters();
// Filters of sequences: map, sort, first ...
const std::vector<NativeEntry>& SequenceFilters();
// Filters that choose or change items by attribute, filter or test: map, select, groupby ...
const std::vector<NativeEntry>& SelectionFilters();
// Numbers, conversion, tojson.
const std::vector<NativeEntry>& ValueFilters();

const std::vector<NativeEntry>& StringMethods();
// Splitting and searching methods of strings.
const std::vector<NativeEntry>& StringSearchMethods();

// The filter pprint (jinja_pprint.cc).
StatusOr<Value> PrettyPrint(Runtime& runtime, const Value& self, const Arguments& arguments);

// The function called `name` in `table`, or nullptr.
NativeFunction FindNative(const std::vector<NativeEntry>& table, std::string_view name);

// value.a.b.0 for the attribute "a.b.0" (or an int), as map(attribute=...) reads it.
StatusOr<Value> ReadPath(Runtime& runtime, const Value& value, const Value& path);

// What jinja2 compares when case does not matter: strings in lower case, the rest as it is.
StatusOr<Value> FoldCase(Runtime& runtime, const Value& value);

}  // namespace kvasir::jinja

#endif  // KVASIR_TEXT_JINJA_FILTERS_H_
