// Value: what a template expression evaluates to, with Python's semantics.
//
// Covers the values that chat templates meet: undefined, None, bool, int (64 bits; larger results
// are errors), float, str, list and its relatives, dict, namespace, loop, callables. All but
// namespaces, loops and iterators are immutable, as in jinja2's ImmutableSandboxedEnvironment, so
// values share structure freely.
//
// Invariant: container_depth() <= kMaxContainerDepth and weight() <= kMaxWeight for containers, so
// printing, comparing and destroying a value take known depth and time.
// Thread:    a value belongs to one rendering; constants in a parsed template are only read.
#ifndef KVASIR_TEXT_JINJA_VALUE_H_
#define KVASIR_TEXT_JINJA_VALUE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/traced_text.h"

namespace kvasir::jinja {

inline constexpr int kMaxContainerDepth = 100;
// Values share structure, so a small list of lists can stand for exponentially many items.
inline constexpr int64_t kMaxWeight = 32ll << 20;

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kSequence,
  kDict,
  kNamespace,
  kLoop,
  kMacro,
  kNative,
};

// The Python type behind a kSequence; decides printing, len(), indexing and one-time iteration.
enum class SequenceType : uint8_t {
  kList,
  kTuple,
  kRange,
  kIterator,
  kDictKeys,
  kDictValues,
  kDictItems,
};

struct Object {
  int depth = 0;       // Containers within containers, this one included.
  int64_t weight = 1;  // See Value::weight().

  Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;
};

class Value;
struct DictObject;
using ValueList = std::vector<Value>;

class Value {
 public:
  Value() = default;  // Undefined without a hint.
  static Value Undefined(std::string hint);
  static Value None();
  static Value Bool(bool value);
  static Value Int(int64_t value);
  static Value Float(double value);
  // An integer beyond 64 bits, given in decimal: a float that keeps its digits. It prints and
  // compares with its like exactly; arithmetic goes on with the float.
  static Value LongInt(double value, std::string digits);
  static Value String(TracedText text);
  static Value String(std::string_view text, bool trusted);
  // A container beyond the limits is replaced by None; Runtime::Sequence and Dict report it.
  static Value Sequence(ValueList items, SequenceType type = SequenceType::kList);
  static Value Dict(std::shared_ptr<DictObject> dict);
  static Value Wrap(Kind kind, std::shared_ptr<Object> object);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_sequence(SequenceType type) const;
  // bool, int or float, as Python's numbers.Number.
  bool is_number() const;
  bool is_integral() const { return is(Kind::kInt) || is(Kind::kBool); }

  // REQUIRES the kind that the name says (is_integral / is_number for the last two).
  bool as_bool() const { return integer_ != 0; }
  int64_t as_int() const { return integer_; }
  double as_double() const;
  // The digits of a LongInt, else empty.
  std::string_view long_digits() const;
  const TracedText& text() const;
  std::string_view view() const { return text().view(); }
  const ValueList& items() const;
  SequenceType sequence_type() const;
  const DictObject& dict() const;
  Object* object() const { return object_.get(); }
  const std::shared_ptr<Object>& shared() const { return object_; }
  // Why the value is undefined ("'x' is undefined").
  std::string undefined_hint() const;

  int container_depth() const;
  // Items and string bytes that a walk over the whole value meets.
  int64_t weight() const;

 private:
  Kind kind_ = Kind::kUndefined;
  int64_t integer_ = 0;
  double number_ = 0;
  std::shared_ptr<Object> object_;
};

struct UndefinedObject : Object {
  std::string hint;
};

struct StringObject : Object {
  TracedText text;
};

struct SequenceObject : Object {
  SequenceType type = SequenceType::kList;
  ValueList items;
  bool consumed = false;  // Iterators yield their items once.
  bool is_group = false;  // A groupby() tuple: .grouper and .list name its parts.
};

// A Python dict: insertion-ordered. Keys keep their provenance.
struct DictObject : Object {
  std::vector<std::pair<Value, Value>> entries;

  // Adds or replaces; a replaced entry keeps its place and key. False: `key` is not hashable.
  bool Set(const Value& key, Value value);
  // nullptr when absent or not hashable.
  const Value* Find(const Value& key) const;
  const Value* Find(std::string_view key) const;

 private:
  std::unordered_map<std::string, size_t> index_;  // Canonical key -> entry.
};

struct NamespaceObject : Object {
  DictObject members;
  bool is_sealed = false;  // A cycler: templates cannot set its members.
};

// A Python type name for messages: "str", "list", "NoneType" ...
std::string_view TypeName(const Value& value);

bool IsTruthy(const Value& value);
// Python's ==.
bool Equals(const Value& a, const Value& b);
// Python's <; an error for types that have no order between them.
StatusOr<bool> LessThan(const Value& a, const Value& b);
// Python's str() and repr(), except that namespaces inside other values stay closed: they can hold
// each other. Structure and numbers are untrusted, strings keep their provenance.
TracedText ToText(const Value& value);
void AppendRepr(const Value& value, TracedText* out);
// The shortest decimal that reads back as `value`, laid out like Python's repr(float).
std::string FloatRepr(double value);

// A key under which equal (Python ==) hashable values collide; nullopt for list, dict ...
std::optional<std::string> HashKey(const Value& value);

}  // namespace kvasir::jinja

#endif  // KVASIR_TEXT_JINJA_VALUE_H_
