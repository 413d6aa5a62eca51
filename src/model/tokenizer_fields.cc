#include "model/tokenizer_fields.h"

#include <string>

#include "model/quoted_text.h"

namespace kvasir {
namespace {

std::string Key(std::string_view name) { return fmt::format("tokenizer.ggml.{}", name); }

StatusOr<std::optional<uint32_t>> ReadId(const GgufFile& file, std::string_view name,
                                         uint64_t token_count) {
  const std::string key = Key(name);
  const GgufEntry* entry = file.FindEntry(key);
  if (entry == nullptr) return std::optional<uint32_t>();
  KV_ASSIGN_OR_RETURN(const uint64_t id, file.GetUint(key));
  // 2^32 - 1 is how converters write "none".
  if (id == 0xFFFFFFFFu) return std::optional<uint32_t>();
  if (id >= token_count) {
    return InvalidArgument(
        "metadata key {}: token {} is outside the vocabulary of {} (at offset {})", Quoted(key), id,
        token_count, entry->offset);
  }
  return std::optional<uint32_t>(static_cast<uint32_t>(id));
}

StatusOr<std::optional<bool>> ReadFlag(const GgufFile& file, std::string_view name) {
  const std::string key = Key(name);
  if (file.FindEntry(key) == nullptr) return std::optional<bool>();
  KV_ASSIGN_OR_RETURN(const bool value, file.GetBoolOr(key, false));
  return std::optional<bool>(value);
}

// A list with one number a token, or none at all.
StatusOr<GgufNumbers> ReadPerToken(const GgufFile& file, std::string_view name, bool integers,
                                   uint64_t token_count) {
  const std::string key = Key(name);
  KV_ASSIGN_OR_RETURN(const GgufNumbers numbers, file.GetNumbers(key));
  if (numbers.empty()) return numbers;
  const uint64_t offset = file.FindEntry(key)->offset;
  if (numbers.is_integer() != integers || numbers.type() == GgufType::kBool) {
    return InvalidArgument("metadata key {}: expected {}, found type {} (at offset {})",
                           Quoted(key), integers ? "integers" : "floating-point numbers",
                           NameOf(numbers.type()), offset);
  }
  if (numbers.size() != token_count) {
    return InvalidArgument("metadata key {}: {} values for {} tokens (at offset {})", Quoted(key),
                           numbers.size(), token_count, offset);
  }
  return numbers;
}

Status ReadLists(const GgufFile& file, TokenizerFields& fields) {
  KV_ASSIGN_OR_RETURN(fields.model, file.GetString(Key("model")));
  KV_ASSIGN_OR_RETURN(fields.pre, file.GetStringOr(Key("pre"), ""));
  KV_ASSIGN_OR_RETURN(fields.tokens, file.GetStrings(Key("tokens")));
  // Token ids are signed 32 bit everywhere else.
  if (fields.tokens.empty() || fields.tokens.size() > 0x7FFFFFFFu) {
    return InvalidArgument("metadata key 'tokenizer.ggml.tokens': {} tokens, must be at least 1",
                           fields.tokens.size());
  }
  KV_ASSIGN_OR_RETURN(fields.scores, ReadPerToken(file, "scores", false, fields.tokens.size()));
  KV_ASSIGN_OR_RETURN(fields.types, ReadPerToken(file, "token_type", true, fields.tokens.size()));
  KV_ASSIGN_OR_RETURN(fields.merges, file.GetStrings(Key("merges")));
  return OkStatus();
}

Status ReadIds(const GgufFile& file, TokenizerFields& fields) {
  const uint64_t count = fields.tokens.size();
  KV_ASSIGN_OR_RETURN(fields.bos_id, ReadId(file, "bos_token_id", count));
  KV_ASSIGN_OR_RETURN(fields.eos_id, ReadId(file, "eos_token_id", count));
  KV_ASSIGN_OR_RETURN(fields.eot_id, ReadId(file, "eot_token_id", count));
  KV_ASSIGN_OR_RETURN(fields.eom_id, ReadId(file, "eom_token_id", count));
  KV_ASSIGN_OR_RETURN(fields.unknown_id, ReadId(file, "unknown_token_id", count));
  KV_ASSIGN_OR_RETURN(fields.padding_id, ReadId(file, "padding_token_id", count));
  return OkStatus();
}

}  // namespace

StatusOr<TokenizerFields> ReadTokenizerFields(const GgufFile& file) {
  TokenizerFields fields;
  KV_RETURN_IF_ERROR(ReadLists(file, fields));
  KV_RETURN_IF_ERROR(ReadIds(file, fields));
  KV_ASSIGN_OR_RETURN(fields.add_bos, ReadFlag(file, "add_bos_token"));
  KV_ASSIGN_OR_RETURN(fields.add_eos, ReadFlag(file, "add_eos_token"));
  KV_ASSIGN_OR_RETURN(fields.add_space_prefix, ReadFlag(file, "add_space_prefix"));
  KV_ASSIGN_OR_RETURN(fields.remove_extra_whitespaces, ReadFlag(file, "remove_extra_whitespaces"));
  if (file.FindEntry("tokenizer.chat_template") != nullptr) {
    KV_ASSIGN_OR_RETURN(fields.chat_template, file.GetString("tokenizer.chat_template"));
  }
  return fields;
}

}  // namespace kvasir
