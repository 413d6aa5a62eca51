#include "api/chat_messages.h"

#include <nlohmann/json.hpp>

#include "api/request_fields.h"

namespace kvasir {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kRoles[] = {"system", "developer", "user", "assistant", "tool"};

bool KnownRole(const std::string& role) {
  for (const char* known : kRoles) {
    if (role == known) return true;
  }
  return false;
}

bool IsString(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string();
}

bool Absent(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null();
}

// The text of an array of parts.
std::optional<ApiError> JoinParts(const std::string& path, const Json& parts, std::string* out) {
  out->clear();
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string at = fmt::format("{}[{}]", path, i);
    if (!parts[i].is_object() || !IsString(parts[i], "type")) {
      return BadField(at, "{} must be an object such as {{\"type\": \"text\", \"text\": ...}}", at);
    }
    const std::string type = parts[i].at("type").get<std::string>();
    const char* key = type == "refusal" ? "refusal" : "text";
    if (type != "text" && type != "refusal") {
      return BadField(at + ".type", "{}.type is '{}'; this model reads only parts of type 'text'",
                      at, type);
    }
    if (!IsString(parts[i], key)) {
      return BadField(fmt::format("{}.{}", at, key), "{}.{} {}; a string is expected", at, key,
                      Absent(parts[i], key) ? "is missing" : "has the wrong type");
    }
    if (i > 0) out->push_back('\n');
    out->append(parts[i].at(key).get<std::string>());
  }
  return std::nullopt;
}

std::optional<ApiError> NormalizeContent(const std::string& path, bool may_be_null, Json* message) {
  const std::string at = path + ".content";
  if (Absent(*message, "content")) {
    if (!may_be_null) return BadField(at, "{} is missing; a string is expected", at);
    (*message)["content"] = "";
    return std::nullopt;
  }
  Json& content = message->at("content");
  if (content.is_string()) return std::nullopt;
  if (!content.is_array()) return BadField(at, "{} must be a string or an array of parts", at);
  std::string text;
  std::optional<ApiError> error = JoinParts(at, content, &text);
  if (!error.has_value()) content = text;
  return error;
}

std::optional<ApiError> NormalizeToolCalls(const std::string& path, bool by_assistant,
                                           Json* message) {
  if (Absent(*message, "tool_calls")) {
    message->erase("tool_calls");
    return std::nullopt;
  }
  const std::string at = path + ".tool_calls";
  Json& calls = message->at("tool_calls");
  if (!calls.is_array()) return BadField(at, "{} must be an array", at);
  if (!calls.empty() && !by_assistant) {
    return BadField(at, "{}: only a message of the assistant has tool calls", at);
  }
  for (size_t i = 0; i < calls.size(); ++i) {
    const std::string entry_at = fmt::format("{}[{}]", at, i);
    const std::string call_at = entry_at + ".function";
    if (calls[i].is_object() && !Absent(calls[i], "id") && !IsString(calls[i], "id")) {
      return BadField(entry_at + ".id", "{}.id must be a string", entry_at);
    }
    if (calls[i].is_object() && !Absent(calls[i], "type") &&
        (!IsString(calls[i], "type") || calls[i].at("type").get<std::string>() != "function")) {
      return BadField(entry_at + ".type", "{}.type must be \"function\"", entry_at);
    }
    if (!calls[i].is_object() || Absent(calls[i], "function") ||
        !calls[i].at("function").is_object()) {
      return BadField(call_at, "{} must be an object with name and arguments", call_at);
    }
    Json& function = calls[i].at("function");
    if (!IsString(function, "name")) {
      return BadField(call_at + ".name", "{}.name must be a string", call_at);
    }
    if (Absent(function, "arguments") || function.at("arguments").is_object()) continue;
    if (!IsString(function, "arguments")) {
      return BadField(call_at + ".arguments", "{}.arguments must be a string of JSON, or an object",
                      call_at);
    }
    const std::string arguments = function.at("arguments").get<std::string>();
    if (const std::optional<std::string> problem = JsonShapeProblem(arguments)) {
      return BadField(call_at + ".arguments", "The JSON of {}.arguments {}", call_at, *problem);
    }
  }
  return std::nullopt;
}

std::optional<ApiError> NormalizeMessage(const std::string& path, bool developer_is_system,
                                         Json* message) {
  if (!message->is_object()) return BadField(path, "{} must be an object", path);
  if (!IsString(*message, "role")) {
    return BadField(path + ".role", "{}.role {}; a string is expected", path,
                    Absent(*message, "role") ? "is missing" : "has the wrong type");
  }
  const std::string role = message->at("role").get<std::string>();
  if (!KnownRole(role)) {
    return BadField(path + ".role",
                    "{}.role is '{}', must be system, developer, user, assistant or tool", path,
                    role);
  }
  if (!Absent(*message, "function_call")) {
    return UnsupportedField(path + ".function_call", "the form before tool_calls");
  }
  if (!Absent(*message, "name") && !IsString(*message, "name")) {
    return BadField(path + ".name", "{}.name must be a string", path);
  }
  if (!Absent(*message, "tool_call_id") && !IsString(*message, "tool_call_id")) {
    return BadField(path + ".tool_call_id", "{}.tool_call_id must be a string", path);
  }
  if (role == "developer" && developer_is_system) (*message)["role"] = "system";
  std::optional<ApiError> error = NormalizeContent(path, role == "assistant", message);
  if (error.has_value()) return error;
  return NormalizeToolCalls(path, role == "assistant", message);
}

}  // namespace

std::optional<ApiError> NormalizeMessages(const std::string& messages_json,
                                          bool developer_is_system, NormalizedMessages* out) {
  Json messages = Json::parse(messages_json, nullptr, /*allow_exceptions=*/false);
  if (!messages.is_array() || messages.empty()) {
    return BadField("messages", "'messages' must be an array of at least one message");
  }
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string path = fmt::format("messages[{}]", i);
    std::optional<ApiError> error = NormalizeMessage(path, developer_is_system, &messages[i]);
    if (error.has_value()) return error;
  }
  out->last_role = messages.back().at("role").get<std::string>();
  out->last_content = messages.back().at("content").get<std::string>();
  out->json = messages.dump();
  return std::nullopt;
}

}  // namespace kvasir
