#include "api/kv_schema.h"

#include <charconv>
#include <utility>

#include "text/utf8.h"

namespace kvasir {
namespace {

constexpr size_t kMaxNameBytes = 1024;

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// nullopt for a '%' without two digits.
std::optional<std::string> PercentDecoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out.push_back(text[i] == '+' ? ' ' : text[i]);
      continue;
    }
    const int high = i + 2 < text.size() ? HexDigit(text[i + 1]) : -1;
    const int low = i + 2 < text.size() ? HexDigit(text[i + 2]) : -1;
    if (high < 0 || low < 0) return std::nullopt;
    out.push_back(static_cast<char>(high * 16 + low));
    i += 2;
  }
  return out;
}

// The whole text as a number.
std::optional<uint64_t> NumberOf(std::string_view text, int base) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<ApiError> ReadListField(std::string_view name, const std::string& value,
                                      KvListRequest* out) {
  if (name == "limit") {
    const std::optional<uint64_t> limit = NumberOf(value, 10);
    if (!limit.has_value() || *limit < 1 || *limit > kMostKvEntries) {
      return BadField(name, "'limit' must be a whole number from 1 to {}", kMostKvEntries);
    }
    out->limit = static_cast<uint32_t>(*limit);
  } else if (name == "cursor") {
    const std::optional<uint64_t> at = NumberOf(value, 16);
    if (!at.has_value()) {
      return BadField(name, "'cursor' must be the 'next_cursor' of the page before");
    }
    out->from.at = *at;
  } else if (name == "cache_salt") {
    if (value.size() > kMaxNameBytes || !ValidateUtf8(value).ok()) {
      return BadField(name, "'cache_salt' must be UTF-8 of at most {} bytes", kMaxNameBytes);
    }
    out->cache_salt = value;
  }
  return std::nullopt;
}

}  // namespace

std::optional<ApiError> ParseKvListRequest(std::string_view query, KvListRequest* out) {
  while (!query.empty()) {
    const std::string_view field = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), field.size() + 1));
    const size_t equals = std::min(field.find('='), field.size());
    const std::string_view name = field.substr(0, equals);
    const std::string_view sent = field.substr(std::min(field.size(), equals + 1));
    const std::optional<std::string> value = PercentDecoded(sent);
    if (!value.has_value()) return BadField(name, "the query holds a malformed percent code");
    std::optional<ApiError> error = ReadListField(name, *value, out);
    if (error.has_value()) return error;
  }
  return std::nullopt;
}

std::optional<ApiError> ParseKvPrefixRequest(std::string_view body, const SchemaContext& context,
                                             KvPrefixRequest* out) {
  RequestFields fields(body);
  fields.ReadString("model", kMaxNameBytes, &out->model);
  fields.ReadString("cache_salt", kMaxNameBytes, &out->cache_salt);
  double seconds = 0;
  if (fields.ReadNumber("ttl_s", 1.0, kMostPinSeconds, &seconds)) {
    out->ttl_us = static_cast<TimeUs>(seconds * 1e6);
  }
  fields.ReadBool("parse_special", &out->parse_special);
  const bool messages = fields.Has("messages");
  const int given = int{messages} + int{fields.Has("prompt")} + int{fields.Has("hash")};
  if (given != 1) {
    fields.Fail(BadField("", "Give {} of 'messages', 'prompt' and 'hash'",
                         given == 0 ? "one" : "only one"));
  }
  std::string hex;
  if (fields.ReadString("hash", kMaxNameBytes, &hex)) {
    out->hash = BlockHashFromHex(hex);
    if (!out->hash.has_value()) {
      fields.Fail(BadField("hash", "'hash' must be 64 hexadecimal digits, as GET /v1/kv has them"));
    }
  }
  std::vector<PromptInput> prompts;
  if (fields.ReadPrompts("prompt", context.vocab_size, 1, &prompts)) {
    out->prompt = std::move(prompts.front());
  }
  if (fields.error().has_value() || !messages) return fields.error();
  const std::optional<ApiError> error =
      ParseApplyTemplateRequest(body, context, &out->model, &out->chat.emplace());
  // What is kept goes on in many ways, with other roles than the assistant's.
  if (!fields.Has("add_generation_prompt")) out->chat->add_generation_prompt = false;
  return error;
}

std::optional<ApiError> ParseKvClearRequest(std::string_view body, std::string* model,
                                            std::string* cache_salt) {
  RequestFields fields(body.empty() ? "{}" : body);
  // Who names a prefix means it alone, and must not lose the rest.
  for (const char* name : {"messages", "prompt", "hash"}) {
    if (!fields.Has(name)) continue;
    fields.Fail(BadField(name,
                         "'{}' cannot be given here: everything of this key and cache_salt is "
                         "cleared that no request and no pin needs",
                         name));
  }
  fields.ReadString("model", kMaxNameBytes, model);
  fields.ReadString("cache_salt", kMaxNameBytes, cache_salt);
  return fields.error();
}

std::optional<BlockHash> BlockHashFromHex(std::string_view text) {
  BlockHash hash;
  if (text.size() != 2 * hash.bytes.size()) return std::nullopt;
  for (size_t i = 0; i < hash.bytes.size(); ++i) {
    const int high = HexDigit(text[2 * i]), low = HexDigit(text[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    hash.bytes[i] = static_cast<uint8_t>(high * 16 + low);
  }
  return hash;
}

std::string FormatKvCursor(KvCursor cursor) { return fmt::format("{:x}", cursor.at); }

}  // namespace kvasir
