#include "api/request_fields.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "text/utf8.h"

namespace kvasir {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxLogitBiases = 1024;
// Of keys with keys, in all objects of a text: some tenths of a second. One object may have about
// 10,000 members, any number of them a few hundred.
constexpr uint64_t kMaxKeyComparisons = 50'000'000;
// Doubles count every whole number up to here.
constexpr double kMaxWholeDouble = 9007199254740992.0;

const char* TypeName(const Json& value) {
  if (value.is_number()) return "a number";
  if (value.is_string()) return "a string";
  if (value.is_boolean()) return "a boolean";
  if (value.is_array()) return "an array";
  if (value.is_object()) return "an object";
  return "null";
}

// What the library says, without its "[json.exception...]" tag, and without the text it read last:
// messages are logged, prompts are not.
std::string ParseProblem(const std::string& what) {
  const size_t tag = what.find("] ");
  const size_t begin = tag == std::string::npos ? 0 : tag + 2;
  const size_t quote =
      std::min({what.find("; last read", begin), what.find(" parsing '", begin), what.size()});
  return what.substr(begin, quote - begin);
}

// Parses `body` into `root`; what is wrong with it, if anything.
std::optional<ApiError> ParseObject(std::string_view body, Json* root) {
  const std::optional<size_t> invalid = FindInvalidUtf8(body);
  if (invalid.has_value()) {
    return BadField("", "The request body is not valid UTF-8 (byte {})", *invalid);
  }
  if (const std::optional<std::string> problem = JsonShapeProblem(body)) {
    return BadField("", "The request body {}", *problem);
  }
  if (body.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    return BadField("", "The request body is empty; a JSON object is expected");
  }
  try {
    *root = Json::parse(body.begin(), body.end());
  } catch (const Json::exception& problem) {
    return BadField("", "The request body is not valid JSON: {}", ParseProblem(problem.what()));
  }
  if (!root->is_object()) {
    const std::string type = TypeName(*root);
    *root = Json::object();
    return BadField("", "The request body must be a JSON object, not {}", type);
  }
  return std::nullopt;
}

// The whole number `value` is, within [low, high].
std::optional<int64_t> AsInteger(const Json& value, int64_t low, int64_t high) {
  int64_t number = 0;
  if (value.is_number_unsigned()) {
    const uint64_t wide = value.get<uint64_t>();
    if (wide > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
    number = static_cast<int64_t>(wide);
  } else if (value.is_number_integer()) {
    number = value.get<int64_t>();
  } else if (value.is_number_float()) {
    const double real = value.get<double>();
    if (std::floor(real) != real || std::fabs(real) > kMaxWholeDouble) return std::nullopt;
    number = static_cast<int64_t>(real);
  } else {
    return std::nullopt;
  }
  if (number < low || number > high) return std::nullopt;
  return number;
}

std::string Shown(const Json& value) {
  if (value.is_number()) return value.dump();
  return TypeName(value);
}

std::optional<TokenId> AsTokenId(const Json& value, uint32_t vocab_size) {
  const std::optional<int64_t> id = AsInteger(value, 0, int64_t{vocab_size} - 1);
  if (!id.has_value()) return std::nullopt;
  return TokenId{static_cast<int32_t>(*id)};
}

// Reads an array of token ids; what is wrong with it, if anything.
std::optional<ApiError> TokensOf(const std::string& path, const Json& array, uint32_t vocab_size,
                                 std::vector<TokenId>* out) {
  out->clear();
  out->reserve(array.size());
  for (size_t i = 0; i < array.size(); ++i) {
    const std::optional<TokenId> id = AsTokenId(array[i], vocab_size);
    if (!id.has_value()) {
      return BadField(fmt::format("{}[{}]", path, i), "{}[{}] is {}, must be a token id (0 to {})",
                      path, i, Shown(array[i]), vocab_size - 1);
    }
    out->push_back(*id);
  }
  return std::nullopt;
}

}  // namespace

struct RequestFields::Tree {
  Json root = Json::object();

  // The field, or nullptr when it is absent or null.
  const Json* Find(std::string_view name) const {
    const auto found = root.find(std::string(name));
    return found == root.end() || found->is_null() ? nullptr : &*found;
  }
};

std::optional<std::string> JsonShapeProblem(std::string_view text) {
  std::array<uint64_t, kMaxJsonDepth + 1> members{};  // Of the object open at each level.
  size_t depth = 0;
  uint64_t comparisons = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxJsonDepth) {
        return fmt::format("is nested deeper than {} levels", kMaxJsonDepth);
      }
      members[depth] = 0;
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    } else if (c == ':') {
      comparisons += members[depth]++;
      if (comparisons > kMaxKeyComparisons) return "has objects with too many members";
    }
  }
  return std::nullopt;
}

RequestFields::RequestFields(std::string_view body) : tree_(std::make_unique<Tree>()) {
  error_ = ParseObject(body, &tree_->root);
}

RequestFields::~RequestFields() = default;

void RequestFields::Fail(ApiError error) {
  if (!error_.has_value()) error_ = std::move(error);
}

bool RequestFields::Has(std::string_view name) const { return tree_->Find(name) != nullptr; }

bool RequestFields::IsString(std::string_view name) const {
  const Json* value = tree_->Find(name);
  return value != nullptr && value->is_string();
}

bool RequestFields::IsNumber(std::string_view name, double number) const {
  const Json* value = tree_->Find(name);
  return value != nullptr && value->is_number() && value->get<double>() == number;
}

bool RequestFields::IsOff(std::string_view name) const {
  const Json* value = tree_->Find(name);
  if (value == nullptr) return true;
  if (value->is_boolean()) return !value->get<bool>();
  if (value->is_number()) return value->get<double>() == 0.0;
  if (value->is_string()) return value->get_ref<const std::string&>().empty();
  return value->empty();
}

bool RequestFields::ReadBool(std::string_view name, bool* out) {
  const Json* value = tree_->Find(name);
  if (error_.has_value() || value == nullptr) return false;
  if (!value->is_boolean()) {
    Fail(BadField(name, "'{}' must be true or false, not {}", name, TypeName(*value)));
    return false;
  }
  *out = value->get<bool>();
  return true;
}

bool RequestFields::ReadString(std::string_view name, size_t max_bytes, std::string* out) {
  const Json* value = tree_->Find(name);
  if (error_.has_value() || value == nullptr) return false;
  if (!value->is_string()) {
    Fail(BadField(name, "'{}' must be a string, not {}", name, TypeName(*value)));
    return false;
  }
  const std::string& text = value->get_ref<const std::string&>();
  if (text.size() > max_bytes) {
    Fail(BadField(name, "'{}' has {} bytes, at most {} are allowed", name, text.size(), max_bytes));
    return false;
  }
  *out = text;
  return true;
}

bool RequestFields::ReadInteger(std::string_view name, int64_t low, int64_t high, int64_t* out) {
  const Json* value = tree_->Find(name);
  if (error_.has_value() || value == nullptr) return false;
  const std::optional<int64_t> number = AsInteger(*value, low, high);
  if (!number.has_value()) {
    Fail(BadField(name, "'{}' is {}, must be a whole number from {} to {}", name, Shown(*value),
                  low, high));
    return false;
  }
  *out = *number;
  return true;
}

bool RequestFields::ReadNumber(std::string_view name, double low, double high, double* out) {
  const Json* value = tree_->Find(name);
  if (error_.has_value() || value == nullptr) return false;
  const double number = value->is_number() ? value->get<double>() : NAN;
  if (!(number >= low && number <= high)) {
    Fail(BadField(name, "'{}' is {}, must be a number from {} to {}", name, Shown(*value), low,
                  high));
    return false;
  }
  *out = number;
  return true;
}

bool RequestFields::ReadStrings(std::string_view name, size_t max_count,
                                std::vector<std::string>* out) {
  const Json* value = tree_->Find(name);
  if (error_.has_value() || value == nullptr) return false;
  const Json list = value->is_string() ? Json::array({*value}) : *value;
  if (!list.is_array()) {
    Fail(BadField(name, "'{}' must be a string or an array of strings, not {}", name,
                  TypeName(list)));
    return false;
  }
  if (list.size() > max_count) {
    Fail(BadField(name, "'{}' has {} strings, at most {} are allowed", name, list.size(),
                  max_count));
    return false;
  }
  std::vector<std::string> strings;
  for (size_t i = 0; i < list.size(); ++i) {
    if (!list[i].is_string() || list[i].get_ref<const std::string&>().empty()) {
      Fail(BadField(name, "'{}'[{}] must be a string that is not empty", name, i));
      return false;
    }
    strings.push_back(list[i].get<std::string>());
  }
  *out = std::move(strings);
  return true;
}

bool RequestFields::ReadLogitBias(std::string_view name,
                                  std::vector<std::pair<TokenId, float>>* out) {
  const Json* value = tree_->Find(name);
  if (error_.has_value() || value == nullptr) return false;
  if (!value->is_object()) {
    Fail(BadField(name, "'{}' must be an object of token ids and biases, not {}", name,
                  TypeName(*value)));
    return false;
  }
  if (value->size() > kMaxLogitBiases) {
    Fail(BadField(name, "'{}' has {} entries, at most {} are allowed", name, value->size(),
                  kMaxLogitBiases));
    return false;
  }
  std::vector<std::pair<TokenId, float>> biases;
  for (const auto& [key, bias] : value->items()) {
    const bool digits =
        !key.empty() && key.size() <= 9 && key.find_first_not_of("0123456789") == std::string::npos;
    if (!digits) {
      Fail(BadField(name, "'{}' has the key '{}', which is not a token id", name, key));
      return false;
    }
    const double number = bias.is_number() ? bias.get<double>() : NAN;
    if (!(number >= -100.0 && number <= 100.0)) {
      Fail(BadField(name, "'{}' of token {} is {}, must be a number from -100 to 100", name, key,
                    Shown(bias)));
      return false;
    }
    // -100 is a ban, as OpenAI documents it.
    const float effect = number == -100.0 ? -INFINITY : static_cast<float>(number);
    biases.emplace_back(TokenId{std::stoi(key)}, effect);
  }
  *out = std::move(biases);
  return true;
}

bool RequestFields::ReadTokens(std::string_view name, uint32_t vocab_size,
                               std::vector<TokenId>* out) {
  const Json* value = tree_->Find(name);
  if (error_.has_value() || value == nullptr) return false;
  if (!value->is_array()) {
    Fail(BadField(name, "'{}' must be an array of token ids, not {}", name, TypeName(*value)));
    return false;
  }
  std::optional<ApiError> problem = TokensOf(std::string(name), *value, vocab_size, out);
  if (!problem.has_value()) return true;
  Fail(*std::move(problem));
  return false;
}

bool RequestFields::ReadPrompts(std::string_view name, uint32_t vocab_size, size_t max_count,
                                std::vector<PromptInput>* out) {
  const Json* value = tree_->Find(name);
  if (error_.has_value() || value == nullptr) return false;
  // One prompt is a list of one; a list that begins with a number is one prompt of ids.
  const bool one =
      value->is_string() || (value->is_array() && !value->empty() && value->front().is_number());
  const Json list = one ? Json::array({*value}) : *value;
  if (!list.is_array() || list.empty() || list.size() > max_count) {
    if (max_count == 1) {
      Fail(BadField(name, "'{}' must be one string or one array of token ids", name));
    } else {
      Fail(BadField(name,
                    "'{}' must be a string, an array of token ids, or an array of 1 to {} of those",
                    name, max_count));
    }
    return false;
  }
  std::vector<PromptInput> prompts(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string path = one ? std::string(name) : fmt::format("{}[{}]", name, i);
    if (list[i].is_string()) {
      prompts[i].text = list[i].get<std::string>();
      continue;
    }
    prompts[i].is_tokens = true;
    std::optional<ApiError> problem =
        list[i].is_array() ? TokensOf(path, list[i], vocab_size, &prompts[i].tokens)
                           : BadField(path, "'{}' must be a string or an array of token ids", path);
    if (problem.has_value()) {
      Fail(*std::move(problem));
      return false;
    }
  }
  *out = std::move(prompts);
  return true;
}

bool RequestFields::ReadBoolIn(std::string_view object, std::string_view name, bool* out) {
  const Json* value = tree_->Find(object);
  if (error_.has_value() || value == nullptr) return false;
  if (!value->is_object()) {
    Fail(BadField(object, "'{}' must be an object, not {}", object, TypeName(*value)));
    return false;
  }
  const auto found = value->find(std::string(name));
  if (found == value->end() || found->is_null()) return false;
  if (!found->is_boolean()) {
    const std::string path = fmt::format("{}.{}", object, name);
    Fail(BadField(path, "'{}' must be true or false, not {}", path, TypeName(*found)));
    return false;
  }
  *out = found->get<bool>();
  return true;
}

bool RequestFields::ReadTypeOf(std::string_view object, std::string* out) {
  const Json* value = tree_->Find(object);
  if (error_.has_value() || value == nullptr) return false;
  if (!value->is_object() || !value->contains("type") || !value->at("type").is_string()) {
    Fail(BadField(object, "'{}' must be an object with a \"type\"", object));
    return false;
  }
  *out = value->at("type").get<std::string>();
  return true;
}

bool RequestFields::ReadArrayText(std::string_view name, std::string* out) {
  const Json* value = tree_->Find(name);
  if (error_.has_value() || value == nullptr) return false;
  if (!value->is_array()) {
    Fail(BadField(name, "'{}' must be an array, not {}", name, TypeName(*value)));
    return false;
  }
  *out = value->dump();
  return true;
}

bool RequestFields::ReadObjectText(std::string_view name, std::string* out) {
  const Json* value = tree_->Find(name);
  if (error_.has_value() || value == nullptr) return false;
  if (!value->is_object()) {
    Fail(BadField(name, "'{}' must be an object, not {}", name, TypeName(*value)));
    return false;
  }
  *out = value->dump();
  return true;
}

}  // namespace kvasir
