#include "text/tool_arguments.h"

#include <memory>
#include <optional>
#include <utility>

#include "text/chat_template.h"
#include "text/jinja_strings.h"

namespace kvasir {
namespace {

using jinja::DictObject;
using jinja::Kind;
using jinja::SequenceType;
using jinja::Value;

constexpr std::string_view kArguments = R"({"kvp": "kvw"})";

// The output of one call with these arguments, or nullopt when the template fails.
std::optional<std::string> Probe(const ChatTemplate& parsed, std::string_view arguments,
                                 bool with_answer, bool with_tools) {
  ChatInput input;
  input.messages_json = fmt::format(
      R"([{{"role": "user", "content": "u"}}, {{"role": "assistant", "content": "", "tool_calls": )"
      R"([{{"id": "call00001", "type": "function", )"
      R"("function": {{"name": "f", "arguments": {}}}}}]}}{}])",
      arguments,
      with_answer
          ? R"(, {"role": "tool", "name": "f", "tool_call_id": "call00001", "content": "a"})"
          : "");
  if (with_tools) {
    input.tools_json =
        R"([{"type": "function", "function": {"name": "f", "description": "d", "parameters": )"
        R"({"type": "object", "properties": {"kvq": {"type": "string", "description": "d"}}, )"
        R"("required": ["kvq"]}}}])";
  }
  input.bos_token = "<s>";
  input.eos_token = "</s>";
  input.now = ParseIsoTime("2026-01-02T03:04:05").value();
  input.adapt_tool_arguments = false;
  ChatTemplateLimits limits;
  limits.steps = 200'000;
  limits.value_bytes = 16 << 20;
  limits.output_bytes = 1 << 20;
  StatusOr<RenderedPrompt> prompt = parsed.Render(input, limits);
  if (!prompt.ok()) return std::nullopt;
  return std::move(prompt->text);
}

bool Holds(const std::optional<std::string>& text, std::string_view part) {
  return text && text->find(part) != std::string::npos;
}

// The value in the other form, or nullopt when it stays.
StatusOr<std::optional<Value>> Converted(const Value& arguments, ToolArgumentForm form) {
  if (form == ToolArgumentForm::kObject && arguments.is(Kind::kString)) {
    StatusOr<Value> object = jinja::ParseJson(arguments.view());
    if (!object.ok() || !object->is(Kind::kDict)) return std::optional<Value>();
    return std::optional<Value>(std::move(*object));
  }
  if (form == ToolArgumentForm::kJsonText && arguments.is(Kind::kDict)) {
    // Bounded by the JSON that the object was read from.
    jinja::Runtime runtime({}, std::nullopt);
    jinja::JsonStyle style;
    style.item_separator.Append(", ", false);
    style.key_separator.Append(": ", false);
    KV_ASSIGN_OR_RETURN(TracedText text, jinja::DumpJson(runtime, arguments, style));
    return std::optional<Value>(Value::String(std::move(text)));
  }
  return std::optional<Value>();
}

// `object` with `name` replaced.
Value Replaced(const Value& object, std::string_view name, const Value& value) {
  auto copy = std::make_shared<DictObject>();
  for (const auto& [key, item] : object.dict().entries) {
    copy->Set(key, key.view() == name ? value : item);
  }
  return Value::Dict(std::move(copy));
}

StatusOr<Value> ConvertedCall(const Value& call, ToolArgumentForm form) {
  if (!call.is(Kind::kDict)) return call;
  const Value* const function = call.dict().Find("function");
  if (function != nullptr && function->is(Kind::kDict)) {
    KV_ASSIGN_OR_RETURN(const Value inner, ConvertedCall(*function, form));
    return Replaced(call, "function", inner);
  }
  const Value* const arguments = call.dict().Find("arguments");
  if (arguments == nullptr) return call;
  KV_ASSIGN_OR_RETURN(const std::optional<Value> converted, Converted(*arguments, form));
  return converted ? Replaced(call, "arguments", *converted) : call;
}

}  // namespace

std::string_view NameOf(ToolArgumentForm form) {
  switch (form) {
    case ToolArgumentForm::kAsGiven:
      return "as given";
    case ToolArgumentForm::kObject:
      return "object";
    case ToolArgumentForm::kJsonText:
      return "JSON text";
  }
  return "?";
}

ToolArgumentForm FindToolArgumentForm(const ChatTemplate& parsed) {
  // Names that stand in no template that writes no calls: nothing to find, nothing to render.
  if (parsed.source().find("arguments") == std::string::npos &&
      parsed.source().find("tool_calls") == std::string::npos) {
    return ToolArgumentForm::kAsGiven;
  }
  constexpr std::string_view kAsText = R"("{\"kvp\": \"kvw\"}")";
  for (const bool with_tools : {true, false}) {
    for (const bool with_answer : {true, false}) {
      const auto object = Probe(parsed, kArguments, with_answer, with_tools);
      const auto text = Probe(parsed, kAsText, with_answer, with_tools);
      const bool takes_object =
          Holds(object, "kvp") && Holds(object, "kvw") && !Holds(object, "{'kvp'");
      const bool takes_text = Holds(text, kArguments);
      if (takes_object && takes_text) return ToolArgumentForm::kAsGiven;
      if (takes_object) return ToolArgumentForm::kObject;
      if (takes_text) return ToolArgumentForm::kJsonText;
    }
  }
  return ToolArgumentForm::kAsGiven;
}

StatusOr<Value> WithToolArguments(const Value& message, ToolArgumentForm form) {
  if (form == ToolArgumentForm::kAsGiven || !message.is(Kind::kDict)) return message;
  const Value* const calls = message.dict().Find("tool_calls");
  if (calls == nullptr || !calls->is_sequence(SequenceType::kList)) return message;
  jinja::ValueList converted;
  converted.reserve(calls->items().size());
  for (const Value& call : calls->items()) {
    KV_ASSIGN_OR_RETURN(Value in_form, ConvertedCall(call, form));
    converted.push_back(std::move(in_form));
  }
  return Replaced(message, "tool_calls", Value::Sequence(std::move(converted)));
}

}  // namespace kvasir
