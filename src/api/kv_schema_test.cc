#include "api/kv_schema.h"

#include <gtest/gtest.h>

#include <string>

namespace kvasir {
namespace {

SchemaContext Context() {
  SchemaContext context;
  context.vocab_size = 100;
  return context;
}

std::string ProblemOf(std::string_view body) {
  KvPrefixRequest request;
  const std::optional<ApiError> error = ParseKvPrefixRequest(body, Context(), &request);
  return error.has_value() ? error->param.value_or("body") : "";
}

TEST(KvSchema, HashesGoThereAndBack) {
  BlockHash hash;
  for (size_t i = 0; i < hash.bytes.size(); ++i) hash.bytes[i] = static_cast<uint8_t>(i * 37 + 5);
  const std::string hex = ToHex(hash);
  EXPECT_EQ(BlockHashFromHex(hex), hash);
  std::string upper = hex;
  for (char& c : upper) c = static_cast<char>(std::toupper(c));
  EXPECT_EQ(BlockHashFromHex(upper), hash);
  EXPECT_FALSE(BlockHashFromHex("").has_value());
  EXPECT_FALSE(BlockHashFromHex(hex.substr(1)).has_value());
  EXPECT_FALSE(BlockHashFromHex(hex + "00").has_value());
  EXPECT_FALSE(BlockHashFromHex("g" + hex.substr(1)).has_value());
  EXPECT_FALSE(BlockHashFromHex("+" + hex.substr(1)).has_value());
}

TEST(KvSchema, Lists) {
  KvListRequest request;
  EXPECT_FALSE(ParseKvListRequest("", &request).has_value());
  EXPECT_EQ(request.limit, 100u);
  EXPECT_EQ(request.from.at, 0u);
  EXPECT_FALSE(
      ParseKvListRequest("limit=7&&x=1&cursor=1fffffffff&cache_salt=a%20b+c%C3%A9", &request)
          .has_value());
  EXPECT_EQ(request.limit, 7u);
  EXPECT_EQ(request.from.at, 0x1fffffffffu);
  EXPECT_EQ(request.cache_salt, "a b c\xC3\xA9");
  KvListRequest again;
  EXPECT_FALSE(ParseKvListRequest("cursor=" + FormatKvCursor(request.from), &again).has_value());
  EXPECT_EQ(again.from.at, request.from.at);
  for (const char* wrong :
       {"limit=0", "limit=1001", "limit=", "limit", "limit=-1", "limit=1x",
        "limit=99999999999999999999", "cursor=", "cursor=xyz", "cursor=11111111111111111",
        "cache_salt=%ff", "cache_salt=%4", "cache_salt=%zz"}) {
    KvListRequest out;
    const std::optional<ApiError> error = ParseKvListRequest(wrong, &out);
    ASSERT_TRUE(error.has_value()) << wrong;
    EXPECT_EQ(error->status, 400);
    EXPECT_EQ(std::string(wrong).substr(0, error->param->size()), *error->param);
  }
}

TEST(KvSchema, Prefixes) {
  KvPrefixRequest request;
  ASSERT_FALSE(ParseKvPrefixRequest(R"({"prompt": "x", "ttl_s": 2.5, "cache_salt": "s",
                                        "parse_special": false})",
                                    Context(), &request)
                   .has_value());
  EXPECT_EQ(request.prompt->text, "x");
  EXPECT_EQ(request.ttl_us, 2'500'000);
  EXPECT_EQ(request.cache_salt, "s");
  EXPECT_FALSE(request.parse_special);
  KvPrefixRequest tokens;
  ASSERT_FALSE(ParseKvPrefixRequest(R"({"prompt": [1, 2]})", Context(), &tokens).has_value());
  EXPECT_TRUE(tokens.prompt->is_tokens);
  EXPECT_EQ(tokens.ttl_us, 3'600'000'000);
  KvPrefixRequest chat;
  ASSERT_FALSE(ParseKvPrefixRequest(R"({"messages": [{"role": "system", "content": "s"}]})",
                                    Context(), &chat)
                   .has_value());
  EXPECT_FALSE(chat.chat.value().add_generation_prompt);
  KvPrefixRequest hash;
  ASSERT_FALSE(ParseKvPrefixRequest("{\"hash\": \"" + ToHex(BlockHash()) + "\"}", Context(), &hash)
                   .has_value());
  EXPECT_EQ(hash.hash, BlockHash());

  EXPECT_EQ(ProblemOf("{}"), "body");
  EXPECT_EQ(ProblemOf("[]"), "body");
  EXPECT_EQ(ProblemOf(R"({"prompt": "x", "hash": "0"})"), "body");
  EXPECT_EQ(ProblemOf(R"({"hash": "0"})"), "hash");
  EXPECT_EQ(ProblemOf(R"({"hash": 5})"), "hash");
  EXPECT_EQ(ProblemOf(R"({"prompt": ["a", "b"]})"), "prompt");
  EXPECT_EQ(ProblemOf(R"({"prompt": [100]})"), "prompt[0]");
  KvPrefixRequest two;
  EXPECT_EQ(ParseKvPrefixRequest(R"({"prompt": ["a", "b"]})", Context(), &two)->message,
            "'prompt' must be one string or one array of token ids");
  EXPECT_EQ(ProblemOf(R"({"messages": []})"), "messages");
  EXPECT_EQ(ProblemOf(R"({"prompt": "x", "ttl_s": 0})"), "ttl_s");
  EXPECT_EQ(ProblemOf(R"({"prompt": "x", "ttl_s": 1e9})"), "ttl_s");
  EXPECT_EQ(ProblemOf(R"({"prompt": "x", "cache_salt": 1})"), "cache_salt");
}

TEST(KvSchema, Clear) {
  std::string model, salt;
  EXPECT_FALSE(ParseKvClearRequest("", &model, &salt).has_value());
  EXPECT_FALSE(
      ParseKvClearRequest(R"({"cache_salt": "s", "model": "m"})", &model, &salt).has_value());
  EXPECT_EQ(salt, "s");
  EXPECT_EQ(model, "m");
  EXPECT_TRUE(ParseKvClearRequest("x", &model, &salt).has_value());
  for (const std::string name : {"hash", "prompt", "messages"}) {
    const auto error = ParseKvClearRequest("{\"" + name + "\": \"a\"}", &model, &salt);
    ASSERT_TRUE(error.has_value()) << name;
    EXPECT_EQ(error->param, name);
  }
}

}  // namespace
}  // namespace kvasir
