#include "api/openai_reply.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>

#include "api/error.h"
#include "api/sse.h"
#include "text/small_vocabulary.h"

namespace kvasir {
namespace {

class OpenAiReplyTest : public testing::Test {
 protected:
  OpenAiReplyTest() : tokenizer_(SmallBpeVocabulary().Create()) {
    style_.id = "id-1";
    style_.created = 7;
    style_.model = "m";
    style_.fingerprint = "f";
    style_.tokenizer = tokenizer_.get();
  }

  // The token of one byte.
  TokenId Byte(char c) const { return *tokenizer_->Find(BpeTextOfByte(static_cast<uint8_t>(c))); }

  ScoredToken Scored(char c, float log_prob, std::vector<TokenLogProb> top = {}) const {
    return {Byte(c), LogProbReport{log_prob, std::move(top)}};
  }

  std::unique_ptr<Tokenizer> tokenizer_;
  ReplyStyle style_;
};

TEST_F(OpenAiReplyTest, WholeChat) {
  ChoicePiece piece{0, "Hi \"you\"", {}, 0, FinishReason::kStop};
  EXPECT_EQ(FormatReply(style_, {piece}, {10, 4, 3}, std::nullopt),
            R"({"id":"id-1","object":"chat.completion","created":7,"model":"m",)"
            R"("system_fingerprint":"f","choices":[{"index":0,"message":{"role":"assistant",)"
            R"("content":"Hi \"you\"","refusal":null},"logprobs":null,"finish_reason":"stop"}],)"
            R"("usage":{"prompt_tokens":10,"completion_tokens":3,"total_tokens":13,)"
            R"("prompt_tokens_details":{"cached_tokens":4}}})");
}

TEST_F(OpenAiReplyTest, ChatChunks) {
  style_.usage_in_stream = true;
  const std::string head =
      R"({"id":"id-1","object":"chat.completion.chunk","created":7,"model":"m",)"
      R"("system_fingerprint":"f","choices":[)";
  EXPECT_EQ(FormatRoleChunk(style_, 1),
            head + R"({"index":1,"delta":{"role":"assistant","content":""},"logprobs":null,)"
                   R"("finish_reason":null}],"usage":null})");
  EXPECT_EQ(FormatChunk(style_, {1, "a", {}, 0, FinishReason::kNone}),
            head + R"({"index":1,"delta":{"content":"a"},"logprobs":null,"finish_reason":null}],)"
                   R"("usage":null})");
  EXPECT_EQ(FormatChunk(style_, {1, "", {}, 0, FinishReason::kLength}),
            head + R"({"index":1,"delta":{},"logprobs":null,"finish_reason":"length"}],)"
                   R"("usage":null})");
  EXPECT_EQ(FormatClosingChunk(style_, UsageCounts{1, 0, 2}, std::nullopt),
            head + R"(],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3,)"
                   R"("prompt_tokens_details":{"cached_tokens":0}}})");
}

TEST_F(OpenAiReplyTest, ChatLogProbs) {
  style_.logprobs = true;
  const float lowest = -std::numeric_limits<float>::infinity();
  ChoicePiece piece{0,
                    "a",
                    {Scored('a', -0.5f, {{Byte('a'), -0.5f}, {Byte('\xe2'), lowest}})},
                    0,
                    FinishReason::kNone};
  const std::string chunk = FormatChunk(style_, piece);
  // Bytes that are no whole character are named by the replacement character and listed exactly.
  EXPECT_NE(chunk.find(R"("logprobs":{"content":[{"token":"a","logprob":-0.5,"bytes":[97],)"
                       R"("top_logprobs":[{"token":"a","logprob":-0.5,"bytes":[97]},)"
                       "{\"token\":\"\xEF\xBF\xBD\",\"logprob\":-9999.0,\"bytes\":[226]}]}],"
                       R"("refusal":null})"),
            std::string::npos)
      << chunk;
}

TEST_F(OpenAiReplyTest, CompletionLogProbsWithOffsets) {
  style_.chat = false;
  style_.logprobs = true;
  ScoredToken first{Byte('x'), std::nullopt};
  ChoicePiece piece{0,
                    "x\xC3\xA9y",
                    {first, Scored('\xC3', -1.0f), Scored('\xA9', -0.25f),
                     Scored('y', -2.0f, {{Byte('z'), -0.125f}})},
                    5,
                    FinishReason::kLength};
  const std::string reply = FormatReply(style_, {piece}, {1, 0, 3}, std::nullopt);
  EXPECT_NE(reply.find(R"("object":"text_completion")"), std::string::npos);
  // The second byte of a character does not begin another one.
  EXPECT_NE(reply.find(R"("text_offset":[5,6,7,7])"), std::string::npos) << reply;
  EXPECT_NE(reply.find(R"("token_logprobs":[null,-1.0,-0.25,-2.0])"), std::string::npos) << reply;
  EXPECT_NE(reply.find(R"({"z":-0.125,"y":-2.0}])"), std::string::npos) << reply;
  EXPECT_NE(reply.find(R"("top_logprobs":[null,)"), std::string::npos) << reply;
  EXPECT_EQ(CharactersOf(*tokenizer_, piece.tokens), 3u);
  style_.tokens_as_ids = true;
  EXPECT_NE(FormatReply(style_, {piece}, {}, std::nullopt)
                .find(fmt::format("\"token_id:{}\"", Index(Byte('x')))),
            std::string::npos);
}

TEST_F(OpenAiReplyTest, ExplanationSaysWhereThePromptLeftTheCache) {
  Explanation explanation;
  explanation.cached_tokens = 5;
  explanation.draft_tokens = 8;
  explanation.accepted_draft_tokens = 6;
  explanation.queue_ms = 1.23456;
  EXPECT_NE(FormatReply(style_, {}, {}, explanation)
                .find(R"("kvasir":{"cached_tokens":{"memory":5},"diverged_at":null,)"
                      R"("draft_tokens":{"proposed":8,"accepted":6},)"
                      R"("queue_ms":1.235,"prefill_ms":0.0,"decode_ms":0.0})"),
            std::string::npos);
  explanation.diverged_at = Divergence{1, 9, "10:41:", "53.", true};
  EXPECT_NE(FormatClosingChunk(style_, std::nullopt, explanation)
                .find(R"("diverged_at":{"prompt":1,"token":9,"text_before":"10:41:",)"
                      R"("text_after":"53.","retokenized":true})"),
            std::string::npos);
}

TEST(ApiErrorTest, ShapesAndStatuses) {
  EXPECT_EQ(FormatError(BadField("n", "'n' is {}", 0)),
            R"({"error":{"message":"'n' is 0","type":"invalid_request_error","param":"n",)"
            R"("code":null}})");
  EXPECT_EQ(FormatError(BadField("", "a\xff")),
            "{\"error\":{\"message\":\"a\xEF\xBF\xBD\",\"type\":\"invalid_request_error\","
            "\"param\":null,\"code\":null}}");
  EXPECT_EQ(ModelNotFound("x").status, 404);
  EXPECT_EQ(ModelNotFound("x").code, "model_not_found");
  EXPECT_EQ(InvalidApiKey().status, 401);
  EXPECT_EQ(TimedOut().status, 504);
  EXPECT_EQ(ErrorFromStatus(InvalidArgument("x")).status, 400);
  EXPECT_EQ(ErrorFromStatus(ResourceExhausted("x")).status, 429);
  EXPECT_EQ(ErrorFromStatus(MakeStatus(StatusCode::kUnavailable, "x")).status, 503);
  EXPECT_EQ(ErrorFromStatus(Internal("x")).status, 500);
  const ApiError length = ContextLengthExceeded(100, 90, 20, "messages");
  EXPECT_EQ(length.code, "context_length_exceeded");
  for (const char* count : {"100", "110", "90", "20"}) {
    EXPECT_NE(length.message.find(count), std::string::npos) << count;
  }
}

TEST(Sse, OneEventALine) {
  EXPECT_EQ(SseEvent("{}"), "data: {}\n\n");
  EXPECT_EQ(kSseDone, "data: [DONE]\n\n");
}

}  // namespace
}  // namespace kvasir
