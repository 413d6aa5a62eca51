// The functions that every template can call.
#include <ctime>

#include "text/jinja_filters.h"
#include "text/jinja_strings.h"

namespace kvasir::jinja {
namespace {

// As jinja2's sandbox: enough for any template, too few to exhaust the memory.
constexpr int64_t kMaxRange = 100'000;

// What a cycler takes beside its items, measured.
constexpr size_t kCyclerBytes = 2560;

StatusOr<Value> Range(Runtime& runtime, const Value&, const Arguments& arguments) {
  if (!arguments.named.empty()) return InvalidArgument("takes no keyword arguments");
  KV_ASSIGN_OR_RETURN(const Bound bound, Bound::Make(arguments, {"start", "stop", "step"}, 1));
  KV_ASSIGN_OR_RETURN(const int64_t first, bound.Int(0, 0));
  KV_ASSIGN_OR_RETURN(const int64_t second, bound.Int(1, 0));
  KV_ASSIGN_OR_RETURN(const int64_t step, bound.Int(2, 1));
  const int64_t start = bound.has(1) ? first : 0;
  const int64_t stop = bound.has(1) ? second : first;
  if (step == 0) return InvalidArgument("the step must not be zero");
  // 128 bits: the difference of two ints may not fit in 64.
  const __int128 span =
      step > 0 ? static_cast<__int128>(stop) - start : static_cast<__int128>(start) - stop;
  const __int128 stride = step > 0 ? static_cast<__int128>(step) : -static_cast<__int128>(step);
  const __int128 count = span <= 0 ? 0 : (span + stride - 1) / stride;
  if (count > kMaxRange) return ResourceExhausted("a range is limited to {} items", kMaxRange);
  KV_RETURN_IF_ERROR(runtime.Spend(static_cast<int64_t>(count)));
  ValueList items;
  items.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) items.push_back(Value::Int(start + i * step));
  return runtime.Sequence(std::move(items), SequenceType::kRange);
}

StatusOr<std::shared_ptr<DictObject>> DictOf(Runtime& runtime, const Arguments& arguments) {
  auto dict = std::make_shared<DictObject>();
  if (arguments.positional.size() > 1) return InvalidArgument("takes at most one argument");
  for (const Value& source : arguments.positional) {
    if (source.is(Kind::kUndefined)) return InvalidArgument("{}", source.undefined_hint());
    if (source.is(Kind::kDict)) {
      KV_RETURN_IF_ERROR(runtime.SpendOn(source));
      for (const auto& [key, value] : source.dict().entries) dict->Set(key, value);
      continue;
    }
    KV_ASSIGN_OR_RETURN(const ValueList pairs, Iterate(runtime, source));
    for (const Value& item : pairs) {
      KV_ASSIGN_OR_RETURN(const ValueList pair, Iterate(runtime, item));
      if (pair.size() != 2) return InvalidArgument("needs pairs of key and value");
      KV_RETURN_IF_ERROR(runtime.SpendOn(pair[0]));
      if (!dict->Set(pair[0], pair[1])) {
        return InvalidArgument("unhashable type: '{}'", TypeName(pair[0]));
      }
    }
  }
  for (const auto& [key, value] : arguments.named) dict->Set(key, value);
  return dict;
}

StatusOr<Value> Dict(Runtime& runtime, const Value&, const Arguments& arguments) {
  KV_ASSIGN_OR_RETURN(auto dict, DictOf(runtime, arguments));
  return runtime.Dict(std::move(dict));
}

StatusOr<Value> Namespace(Runtime& runtime, const Value&, const Arguments& arguments) {
  KV_ASSIGN_OR_RETURN(const auto dict, DictOf(runtime, arguments));
  KV_RETURN_IF_ERROR(runtime.Allocate(sizeof(NamespaceObject) + 160 + dict->entries.size() * 192));
  auto space = std::make_shared<NamespaceObject>();
  for (const auto& [key, value] : dict->entries) space->members.Set(key, value);
  runtime.Register(space);
  return Value::Wrap(Kind::kNamespace, std::move(space));
}

Value Key(std::string_view name) { return Value::String(name, true); }

// A cycler is a namespace whose methods move its members; it is registered, so the cycle between
// it and its methods is broken when the rendering ends.
StatusOr<Value> CyclerNext(Runtime&, const Value& self, const Arguments&) {
  auto& members = static_cast<NamespaceObject*>(self.object())->members;
  const ValueList& items = members.Find("items")->items();
  const auto at = static_cast<size_t>(members.Find("position")->as_int());
  const Value current = items[at];
  const size_t next = (at + 1) % items.size();
  members.Set(Key("position"), Value::Int(static_cast<int64_t>(next)));
  members.Set(Key("current"), items[next]);
  return current;
}

StatusOr<Value> CyclerReset(Runtime&, const Value& self, const Arguments&) {
  auto& members = static_cast<NamespaceObject*>(self.object())->members;
  members.Set(Key("position"), Value::Int(0));
  members.Set(Key("current"), members.Find("items")->items()[0]);
  return Value::None();
}

StatusOr<Value> Cycler(Runtime& runtime, const Value&, const Arguments& arguments) {
  if (arguments.positional.empty()) return InvalidArgument("needs at least one item");
  auto space = std::make_shared<NamespaceObject>();
  KV_ASSIGN_OR_RETURN(Value items, runtime.Sequence(arguments.positional, SequenceType::kTuple));
  // Five members with keys, hash keys and index nodes, two bound methods.
  KV_RETURN_IF_ERROR(runtime.Allocate(sizeof(NamespaceObject) + kCyclerBytes));
  space->is_sealed = true;
  space->members.Set(Key("items"), std::move(items));
  space->members.Set(Key("position"), Value::Int(0));
  space->members.Set(Key("current"), arguments.positional[0]);
  const Value self = Value::Wrap(Kind::kNamespace, space);
  space->members.Set(Key("next"), MakeNative("next", CyclerNext, self));
  space->members.Set(Key("reset"), MakeNative("reset", CyclerReset, self));
  runtime.Register(space);
  return self;
}

// The separator is an iterator of one item that keeps whether it was used.
StatusOr<Value> JoinerCall(Runtime&, const Value& self, const Arguments&) {
  auto* state = static_cast<SequenceObject*>(self.object());
  if (state->consumed) return state->items[0];
  state->consumed = true;
  return Value::String(TracedText());
}

StatusOr<Value> Joiner(Runtime& runtime, const Value&, const Arguments& arguments) {
  KV_ASSIGN_OR_RETURN(const Bound bound, Bound::Make(arguments, {"sep"}));
  const Value separator = bound.has(0) ? bound[0] : Value::String(", ", false);
  KV_ASSIGN_OR_RETURN(Value state, runtime.Sequence({separator}, SequenceType::kIterator));
  return MakeNative("joiner", JoinerCall, std::move(state));
}

StatusOr<Value> RaiseException(Runtime& runtime, const Value&, const Arguments& arguments) {
  KV_ASSIGN_OR_RETURN(const Bound bound, Bound::Make(arguments, {"message"}, 1));
  KV_ASSIGN_OR_RETURN(const TracedText message, runtime.Text(bound[0]));
  return InvalidArgument("the template refuses: {}", message.view());
}

StatusOr<Value> StrftimeNow(Runtime& runtime, const Value&, const Arguments& arguments) {
  KV_ASSIGN_OR_RETURN(const Bound bound, Bound::Make(arguments, {"format"}, 1));
  KV_ASSIGN_OR_RETURN(const TracedText format, bound.Text(0, ""));
  if (!runtime.now()) return InvalidArgument("the caller gave no time");
  if (format.size() > 1024) return InvalidArgument("a format over 1024 bytes");
  if (format.empty()) return Value::String(TracedText());
  KV_RETURN_IF_ERROR(runtime.Spend(8 * static_cast<int64_t>(format.size())));
  // Widths such as %1000000d are a GNU extension that Python does not promise.
  for (size_t i = 0; i + 1 < format.size(); ++i) {
    if (format.view()[i] != '%') continue;
    ++i;
    if (format.view()[i] == '-' && i + 1 < format.size()) ++i;
    if (format.view()[i] >= '0' && format.view()[i] <= '9') {
      return InvalidArgument("a width in '{}'", format.view());
    }
  }
  const std::tm now = *runtime.now();
  std::string buffer(format.size() * 64 + 64, '\0');
  buffer.resize(std::strftime(buffer.data(), buffer.size(), format.bytes().c_str(), &now));
  return runtime.String(TracedText(std::move(buffer), false));
}

const std::vector<NativeEntry>& Globals() {
  static const std::vector<NativeEntry> kGlobals = {
      {"range", Range},
      {"dict", Dict},
      {"namespace", Namespace},
      {"cycler", Cycler},
      {"joiner", Joiner},
      {"raise_exception", RaiseException},
      {"strftime_now", StrftimeNow},
  };
  return kGlobals;
}

}  // namespace

std::optional<Value> FindGlobal(std::string_view name) {
  const NativeFunction function = FindNative(Globals(), name);
  if (function == nullptr) return std::nullopt;
  return MakeNative(name, function);
}

}  // namespace kvasir::jinja
