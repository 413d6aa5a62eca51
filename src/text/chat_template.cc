#include "text/chat_template.h"

#include <algorithm>
#include <cstdio>

#include "text/jinja_eval.h"
#include "text/jinja_parser.h"
#include "text/jinja_strings.h"
#include "text/tool_arguments.h"

namespace kvasir {
namespace {

using jinja::Kind;
using jinja::SequenceType;
using jinja::Value;

bool IsKnownRole(std::string_view role) {
  return std::find(std::begin(kKnownRoles), std::end(kKnownRoles), role) != std::end(kKnownRoles);
}

// What JSON calls a value that ParseJson made.
std::string_view JsonTypeName(const Value& value) {
  switch (value.kind()) {
    case Kind::kNone:
      return "null";
    case Kind::kBool:
      return value.as_bool() ? "true" : "false";
    case Kind::kInt:
    case Kind::kFloat:
      return "a number";
    case Kind::kString:
      return "a string";
    case Kind::kSequence:
      return "an array";
    default:
      return "an object";
  }
}

StatusOr<Value> ReadJson(std::string_view what, std::string_view json) {
  // Before anything is built: values take many times the bytes of their JSON.
  if (json.size() > kMaxChatJsonBytes) {
    return InvalidArgument("{}: {} bytes of JSON; at most {} MiB are supported", what, json.size(),
                           kMaxChatJsonBytes >> 20);
  }
  StatusOr<Value> value = jinja::ParseJson(json);
  if (!value.ok()) return WithPrefix(value.status(), what);
  return value;
}

// The same messages with known roles marked as the template's, and calls as it wants them.
StatusOr<Value> CheckMessages(const Value& messages, ToolArgumentForm form) {
  if (!messages.is_sequence(SequenceType::kList)) {
    return InvalidArgument("messages: must be an array, not {}", JsonTypeName(messages));
  }
  jinja::ValueList checked;
  checked.reserve(messages.items().size());
  for (size_t i = 0; i < messages.items().size(); ++i) {
    const Value& message = messages.items()[i];
    if (!message.is(Kind::kDict)) {
      return InvalidArgument("messages[{}]: must be an object, not {}", i, JsonTypeName(message));
    }
    const Value* role = message.dict().Find("role");
    if (role == nullptr) return InvalidArgument("messages[{}]: has no \"role\"", i);
    if (!role->is(Kind::kString)) {
      return InvalidArgument("messages[{}].role: must be a string, not {}", i, JsonTypeName(*role));
    }
    KV_ASSIGN_OR_RETURN(const Value adapted, WithToolArguments(message, form));
    if (!IsKnownRole(role->view())) {
      checked.push_back(adapted);
      continue;
    }
    auto copy = std::make_shared<jinja::DictObject>();
    for (const auto& [key, value] : adapted.dict().entries) {
      copy->Set(key, key.view() == "role" ? Value::String(value.view(), true) : value);
    }
    checked.push_back(Value::Dict(std::move(copy)));
  }
  return Value::Sequence(std::move(checked));
}

Status DefineVariables(const ChatInput& input, ToolArgumentForm form,
                       jinja::Interpreter* interpreter) {
  if (!input.variables_json.empty()) {
    KV_ASSIGN_OR_RETURN(const Value variables,
                        ReadJson("template variables", input.variables_json));
    if (!variables.is(Kind::kDict)) {
      return InvalidArgument("template variables: must be an object, not {}",
                             JsonTypeName(variables));
    }
    for (const auto& [name, value] : variables.dict().entries) {
      interpreter->Define(name.view(), value);
    }
  }
  KV_ASSIGN_OR_RETURN(const Value parsed, ReadJson("messages", input.messages_json));
  KV_ASSIGN_OR_RETURN(Value messages, CheckMessages(parsed, form));
  Value tools = Value::None();
  if (!input.tools_json.empty()) {
    KV_ASSIGN_OR_RETURN(tools, ReadJson("tools", input.tools_json));
    if (!tools.is_sequence(SequenceType::kList) && !tools.is(Kind::kNone)) {
      return InvalidArgument("tools: must be an array, not {}", JsonTypeName(tools));
    }
  }
  interpreter->Define("messages", std::move(messages));
  interpreter->Define("tools", std::move(tools));
  interpreter->Define("add_generation_prompt", Value::Bool(input.add_generation_prompt));
  interpreter->Define("bos_token", Value::String(input.bos_token, true));
  interpreter->Define("eos_token", Value::String(input.eos_token, true));
  return OkStatus();
}

}  // namespace

std::vector<TextSegment> RenderedPrompt::Views() const {
  std::vector<TextSegment> views;
  views.reserve(segments.size());
  for (const Segment& segment : segments) {
    views.push_back({std::string_view(text).substr(segment.begin, segment.end - segment.begin),
                     segment.trusted});
  }
  return views;
}

ChatTemplate::ChatTemplate(std::string source, std::unique_ptr<const jinja::Template> tree)
    : source_(std::move(source)), tree_(std::move(tree)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

StatusOr<ChatTemplate> ChatTemplate::Parse(std::string source) {
  KV_ASSIGN_OR_RETURN(std::unique_ptr<const jinja::Template> tree, jinja::ParseTemplate(source));
  ChatTemplate parsed(std::move(source), std::move(tree));
  parsed.tool_argument_form_ = FindToolArgumentForm(parsed);
  return parsed;
}

StatusOr<RenderedPrompt> ChatTemplate::Render(const ChatInput& input,
                                              const ChatTemplateLimits& limits) const {
  jinja::Limits bounds;
  bounds.steps = limits.steps;
  bounds.bytes = limits.value_bytes;
  bounds.output_bytes = limits.output_bytes;
  jinja::Runtime runtime(bounds, input.now);
  jinja::Interpreter interpreter(tree_.get(), &runtime);
  // Variables that Hugging Face always defines; a template may test them for none.
  interpreter.Define("documents", Value::None());
  const ToolArgumentForm form =
      input.adapt_tool_arguments ? tool_argument_form_ : ToolArgumentForm::kAsGiven;
  KV_RETURN_IF_ERROR(DefineVariables(input, form, &interpreter));
  KV_ASSIGN_OR_RETURN(const TracedText text, interpreter.Run());
  RenderedPrompt prompt;
  prompt.text = text.bytes();
  size_t begin = 0;
  for (const TracedText::Run& run : text.runs()) {
    prompt.segments.push_back({begin, run.end, run.trusted});
    begin = run.end;
  }
  return prompt;
}

StatusOr<std::tm> ParseIsoTime(std::string_view text) {
  std::tm time{};
  const std::string copy(text);
  char separator = '\0';
  int used = 0;
  int read = std::sscanf(copy.c_str(), "%4d-%2d-%2d%n%c%2d:%2d:%2d%n", &time.tm_year, &time.tm_mon,
                         &time.tm_mday, &used, &separator, &time.tm_hour, &time.tm_min,
                         &time.tm_sec, &used);
  const bool complete = (read == 3 || (read == 7 && (separator == 'T' || separator == ' '))) &&
                        static_cast<size_t>(used) == copy.size();
  const bool in_range = time.tm_mon >= 1 && time.tm_mon <= 12 && time.tm_mday >= 1 &&
                        time.tm_mday <= 31 && time.tm_hour >= 0 && time.tm_hour < 24 &&
                        time.tm_min >= 0 && time.tm_min < 60 && time.tm_sec >= 0 &&
                        time.tm_sec < 60 && time.tm_year >= 1;
  if (!complete || !in_range) {
    return InvalidArgument("'{}' is not a time such as 2026-01-02T03:04:05", text);
  }
  time.tm_year -= 1900;
  time.tm_mon -= 1;
  const int day = time.tm_mday;
  std::tm normal = time;
  // As UTC: no time zone of this machine may move the day. Fills tm_wday and tm_yday.
  if (timegm(&normal) == -1 && normal.tm_mday != day) normal.tm_mday = 0;
  if (normal.tm_mday != day) return InvalidArgument("'{}' is not a day of the calendar", text);
  return normal;
}

}  // namespace kvasir
