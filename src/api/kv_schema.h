// What /v1/kv and its sub-paths are asked, as typed values. docs/HTTP_API.md lists the fields.
// Thread: pure functions.
#ifndef KVASIR_API_KV_SCHEMA_H_
#define KVASIR_API_KV_SCHEMA_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "api/error.h"
#include "api/openai_schema.h"
#include "base/clock.h"
#include "kv/block_hash.h"
#include "kv/kv_listing.h"

namespace kvasir {

inline constexpr uint32_t kMostKvEntries = 1000;
inline constexpr double kMostPinSeconds = 30.0 * 86'400;

struct KvListRequest {
  uint32_t limit = 100;
  KvCursor from;
  std::string cache_salt;
};

// Names a prefix in one of three ways.
struct KvPrefixRequest {
  std::string model;  // Empty: not named.
  std::string cache_salt;
  std::optional<BlockHash> hash;
  std::optional<PromptInput> prompt;
  bool parse_special = true;  // As for completions.
  std::optional<ChatPromptInput> chat;
  TimeUs ttl_us = 3'600'000'000;
};

// Each returns what is wrong, or nullopt having filled `out`. `query` is as sent.
std::optional<ApiError> ParseKvListRequest(std::string_view query, KvListRequest* out);
std::optional<ApiError> ParseKvPrefixRequest(std::string_view body, const SchemaContext& context,
                                             KvPrefixRequest* out);
// An empty body is an empty object.
std::optional<ApiError> ParseKvClearRequest(std::string_view body, std::string* model,
                                            std::string* cache_salt);

// What ToHex wrote, in either case; nullopt for anything else.
std::optional<BlockHash> BlockHashFromHex(std::string_view text);

// The cursor as a client gets it and sends it back.
std::string FormatKvCursor(KvCursor cursor);

}  // namespace kvasir

#endif  // KVASIR_API_KV_SCHEMA_H_
