// Runtime: what filters, methods and operators share while one template is rendered.
//
// Holds the budget (steps, bytes) and the clock value; does not know the syntax tree. Every
// operation whose cost depends on data spends steps, and every new container or string is
// allocated through here, so a template can neither run for long nor fill the memory.
//
// Errors returned by everything below carry no line; the interpreter puts it in front.
// Thread: one rendering.
#ifndef KVASIR_TEXT_JINJA_RUNTIME_H_
#define KVASIR_TEXT_JINJA_RUNTIME_H_

#include <ctime>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/jinja_value.h"

namespace kvasir::jinja {

struct Limits {
  int64_t steps = 20'000'000;       // About a second or two.
  int64_t bytes = 512ll << 20;      // All values ever made, not those alive.
  size_t output_bytes = 64u << 20;  // Also of one captured block.
  int call_depth = 100;             // Macros within macros, recursive loops.
  int node_depth = 800;             // Expressions and blocks within each other, across calls.
};

// Arguments of a call, evaluated.
struct Arguments {
  ValueList positional;
  std::vector<std::pair<Value, Value>> named;  // The key is a string.

  const Value* Named(std::string_view name) const;
};

class Runtime {
 public:
  Runtime(const Limits& limits, const std::optional<std::tm>& now)
      : limits_(limits), steps_left_(limits.steps), bytes_left_(limits.bytes), now_(now) {}

  Status Spend(int64_t steps);
  Status Allocate(size_t bytes);

  // The prices of linear work, so that a step is at most about a tenth of a microsecond.
  // A walk over all of `value`: hashing, printing.
  Status SpendOn(const Value& value);
  // Copying or comparing bytes; work on each character (case, classes, offsets).
  Status SpendOnBytes(size_t bytes) { return Spend(static_cast<int64_t>(bytes / 256)); }
  Status SpendOnChars(size_t bytes) { return Spend(static_cast<int64_t>(bytes / 4)); }
  // One FindText.
  Status SpendOnSearch(std::string_view text, std::string_view needle) {
    return Spend(1 + static_cast<int64_t>((text.size() + needle.size()) / 16));
  }
  // One Equals or LessThan.
  Status SpendOnComparison(const Value& a, const Value& b);
  // Handing `self` and `arguments` to a native function, which may copy or compare every string.
  Status SpendOnCall(const Value& self, const Arguments& arguments);

  // str(value).
  StatusOr<TracedText> Text(const Value& value);
  StatusOr<Value> String(TracedText text);
  StatusOr<Value> Sequence(ValueList items, SequenceType type = SequenceType::kList);
  StatusOr<Value> Dict(std::shared_ptr<DictObject> dict);

  const Limits& limits() const { return limits_; }
  const std::optional<std::tm>& now() const { return now_; }
  // Namespaces can hold each other in a cycle; the interpreter empties them when it is done.
  void Register(std::shared_ptr<NamespaceObject> space) { spaces_.push_back(std::move(space)); }
  void ClearNamespaces();

 private:
  const Limits limits_;
  int64_t steps_left_;
  int64_t bytes_left_;
  const std::optional<std::tm> now_;
  std::vector<std::shared_ptr<NamespaceObject>> spaces_;
};

// A function of the language; `self` is the object of a method, or the input of a filter or test.
using NativeFunction = StatusOr<Value> (*)(Runtime& runtime, const Value& self,
                                           const Arguments& arguments);

struct NativeObject : Object {
  std::string name;
  NativeFunction function = nullptr;
  Value self;
};
// A method bound to `self`, or a global function without one.
Value MakeNative(std::string_view name, NativeFunction function, Value self = Value());

struct NativeEntry {
  std::string_view name;
  NativeFunction function;
};

// Arguments matched with parameter names, as Python does for f(a, b=1).
class Bound {
 public:
  // Errors: too many, unknown, given twice, or one of the first `required` missing.
  static StatusOr<Bound> Make(const Arguments& arguments,
                              std::initializer_list<std::string_view> names, size_t required = 0);

  bool has(size_t i) const { return values_[i].has_value(); }
  const Value& operator[](size_t i) const { return *values_[i]; }  // REQUIRES: has(i).
  StatusOr<int64_t> Int(size_t i, int64_t fallback) const;
  bool Truthy(size_t i, bool fallback) const;
  // The string argument, or an untrusted `fallback`; another type is an error.
  StatusOr<TracedText> Text(size_t i, std::string_view fallback) const;

 private:
  std::vector<std::string> names_;
  std::vector<std::optional<Value>> values_;
};

// Items in iteration order: of a sequence, the keys of a dict, the characters of a string, nothing
// for undefined. Iterators are consumed. Other types are an error.
StatusOr<ValueList> Iterate(Runtime& runtime, const Value& value);
// len(); an error for types without one.
StatusOr<int64_t> Length(const Value& value);

// value.name and value[key] as jinja2's sandbox: a missing one is undefined, not an error; any
// access to undefined is. Dots find methods first, brackets items first.
StatusOr<Value> GetAttribute(Runtime& runtime, const Value& value, std::string_view name);
StatusOr<Value> GetItem(Runtime& runtime, const Value& value, const Value& key);
// value[start:stop:step]; each part is None or int.
StatusOr<Value> GetSlice(Runtime& runtime, const Value& value, const Value& start,
                         const Value& stop, const Value& step);
// A bound method of a str, list, dict ..., or nullopt.
std::optional<Value> FindMethod(const Value& value, std::string_view name);

StatusOr<Value> BinaryOperation(Runtime& runtime, std::string_view op, const Value& a,
                                const Value& b);
StatusOr<Value> Negate(const Value& value);
StatusOr<bool> Contains(Runtime& runtime, const Value& container, const Value& item);
// op: == != < <= > >=.
StatusOr<bool> Compare(Runtime& runtime, std::string_view op, const Value& a, const Value& b);

// Errors: unknown names (with those known), bad arguments.
StatusOr<Value> ApplyFilter(Runtime& runtime, std::string_view name, const Value& input,
                            const Arguments& arguments);
StatusOr<bool> ApplyTest(Runtime& runtime, std::string_view name, const Value& input,
                         const Arguments& arguments);
// range, dict, namespace, cycler, joiner, raise_exception, strftime_now; nullopt when unknown.
std::optional<Value> FindGlobal(std::string_view name);

}  // namespace kvasir::jinja

#endif  // KVASIR_TEXT_JINJA_RUNTIME_H_
