#include "api/chat_tools.h"

#include <nlohmann/json.hpp>
#include <string_view>

namespace kvasir {
namespace {

using Json = nlohmann::json;

bool Absent(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null();
}

ApiError Wrong(const std::string& path, std::string_view what, const Json& object,
               const char* key) {
  return BadField(path, "'{}' {}; {} is expected", path,
                  Absent(object, key) ? "is missing" : "has the wrong type", what);
}

std::optional<ApiError> CheckTool(const std::string& path, const Json& tool) {
  if (!tool.is_object()) {
    return BadField(path,
                    "'{}' must be an object such as {{\"type\": \"function\", \"function\": "
                    "{{\"name\": ...}}}}",
                    path);
  }
  if (Absent(tool, "type") || !tool.at("type").is_string()) {
    return Wrong(path + ".type", "\"function\"", tool, "type");
  }
  const std::string type = tool.at("type").get<std::string>();
  if (type != "function") {
    return UnsupportedField(path + ".type", fmt::format("a tool of the type '{}'", type));
  }
  const std::string at = path + ".function";
  if (Absent(tool, "function") || !tool.at("function").is_object()) {
    return Wrong(at, "an object with a name", tool, "function");
  }
  const Json& function = tool.at("function");
  if (Absent(function, "name") || !function.at("name").is_string() ||
      function.at("name").get_ref<const std::string&>().empty()) {
    return Wrong(at + ".name", "a string that is not empty", function, "name");
  }
  if (!Absent(function, "description") && !function.at("description").is_string()) {
    return Wrong(at + ".description", "a string", function, "description");
  }
  if (!Absent(function, "parameters") && !function.at("parameters").is_object()) {
    return Wrong(at + ".parameters", "an object", function, "parameters");
  }
  return std::nullopt;
}

}  // namespace

std::optional<ApiError> CheckTools(const std::string& tools_json) {
  const Json tools = Json::parse(tools_json, nullptr, /*allow_exceptions=*/false);
  for (size_t i = 0; i < tools.size(); ++i) {
    std::optional<ApiError> error = CheckTool(fmt::format("tools[{}]", i), tools[i]);
    if (error.has_value()) return error;
  }
  return std::nullopt;
}

}  // namespace kvasir
