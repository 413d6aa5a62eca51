// RequestFields: the JSON object of a request body, read field by field with a type and a range
// for each.
//
// The first thing that is wrong becomes error(), naming the field; reads after it do nothing. A
// field that is absent or null leaves its output as it was. Of a key that comes twice the last
// counts, as in most JSON parsers. Shape and UTF-8 are checked before anything is built from the
// body; its size is the HTTP server's limit. Thread: one.
#ifndef KVASIR_API_REQUEST_FIELDS_H_
#define KVASIR_API_REQUEST_FIELDS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/error.h"
#include "base/ids.h"

namespace kvasir {

// One prompt of a completion request.
struct PromptInput {
  std::string text;
  std::vector<TokenId> tokens;
  bool is_tokens = false;
};

inline constexpr size_t kMaxJsonDepth = 64;

class RequestFields {
 public:
  // A body that is not a JSON object, has a JsonShapeProblem or is not UTF-8 gives an object
  // without fields whose error() says so.
  explicit RequestFields(std::string_view body);
  ~RequestFields();

  const std::optional<ApiError>& error() const { return error_; }
  void Fail(ApiError error);  // Kept if it is the first.

  bool Has(std::string_view name) const;  // Present and not null.
  bool IsString(std::string_view name) const;
  bool IsNumber(std::string_view name, double number) const;
  // Absent, null, false, 0, "", [] or {}: the ways to say that a feature is not wanted.
  bool IsOff(std::string_view name) const;

  bool ReadBool(std::string_view name, bool* out);
  bool ReadString(std::string_view name, size_t max_bytes, std::string* out);
  // Whole numbers, also written as 16.0. True when `out` was set.
  bool ReadInteger(std::string_view name, int64_t low, int64_t high, int64_t* out);
  bool ReadNumber(std::string_view name, double low, double high, double* out);
  // A string or an array of at most `max_count` strings, none of them empty.
  bool ReadStrings(std::string_view name, size_t max_count, std::vector<std::string>* out);
  // {"id": bias, ...} with biases in [-100, 100] and at most 1024 entries.
  bool ReadLogitBias(std::string_view name, std::vector<std::pair<TokenId, float>>* out);
  // An array of token ids in [0, vocab_size).
  bool ReadTokens(std::string_view name, uint32_t vocab_size, std::vector<TokenId>* out);
  // A string, an array of strings, of token ids, or of arrays of token ids; at most `max_count`.
  bool ReadPrompts(std::string_view name, uint32_t vocab_size, size_t max_count,
                   std::vector<PromptInput>* out);
  // The bool inside an object: {"stream_options": {"include_usage": true}}.
  bool ReadBoolIn(std::string_view object, std::string_view name, bool* out);
  // The "type" of an object such as response_format; true when `out` was set.
  bool ReadTypeOf(std::string_view object, std::string* out);

  // JSON text of an array or an object, for parsers further on.
  bool ReadArrayText(std::string_view name, std::string* out);
  bool ReadObjectText(std::string_view name, std::string* out);

 private:
  struct Tree;
  std::unique_ptr<Tree> tree_;
  std::optional<ApiError> error_;
};

// Why JSON text (also malformed text) must not be parsed, as the rest of a sentence about it, or
// nullopt: arrays and objects in more than kMaxJsonDepth levels (the parser recurses), or objects
// with so many members that building them, which compares each key with those before it, would take
// seconds. Linear, without recursion.
std::optional<std::string> JsonShapeProblem(std::string_view text);

}  // namespace kvasir

#endif  // KVASIR_API_REQUEST_FIELDS_H_
