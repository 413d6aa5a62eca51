#include "text/vocabulary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "text/small_vocabulary.h"

namespace kvasir {
namespace {

using ::testing::HasSubstr;

// The message of the error that a change to a good source brings about; empty if none.
std::string ErrorAfter(SmallVocabulary vocabulary,
                       const std::function<void(VocabularySource*)>& change) {
  change(&vocabulary.source());
  const auto result = Tokenizer::Create(vocabulary.source());
  if (result.ok()) return "";
  EXPECT_EQ(result.status().code(), StatusCode::kInvalidArgument);
  return std::string(MessageOf(result.status()));
}

// SmallVocabulary's strings do not survive a copy of its source, so it is rebuilt for each case.
std::string BpeError(const std::function<void(VocabularySource*)>& change) {
  return ErrorAfter(SmallBpeVocabulary(), change);
}
std::string SpmError(const std::function<void(VocabularySource*)>& change) {
  return ErrorAfter(SmallSpmVocabulary(), change);
}

TEST(Vocabulary, BytesFollowFromKind) {
  const auto bpe = SmallBpeVocabulary().Create();
  EXPECT_EQ(bpe->TokenBytes(*bpe->Find("\xC4\xA0world")), " world");
  EXPECT_EQ(bpe->TokenBytes(*bpe->Find("  \t")), "  \t");
  EXPECT_EQ(bpe->TokenBytes(*bpe->Find("<|im_end|>")), "<|im_end|>");
  const auto spm = SmallSpmVocabulary().Create();
  EXPECT_EQ(spm->TokenBytes(*spm->Find("\xE2\x96\x81world")), " world");
  EXPECT_EQ(spm->TokenBytes(*spm->Find("<0x0A>")), "\n");
  EXPECT_EQ(spm->TokenBytes(*spm->Find("<0x00>")), std::string_view("\0", 1));
  EXPECT_EQ(spm->TokenBytes(TokenId{-1}), "");
  EXPECT_EQ(spm->TokenBytes(TokenId{1 << 30}), "");
  EXPECT_FALSE(spm->Find("no such token"));
  EXPECT_FALSE(spm->Find(""));
}

TEST(Vocabulary, DefaultsDependOnTheModel) {
  SmallVocabulary spm = SmallSpmVocabulary();
  spm.source().add_bos.reset();
  spm.source().add_space_prefix.reset();
  const auto spm_tokenizer = spm.Create();
  EXPECT_TRUE(spm_tokenizer->adds_bos());
  EXPECT_TRUE(spm_tokenizer->adds_space_prefix());
  EXPECT_FALSE(spm_tokenizer->adds_eos());
  const auto bpe_tokenizer = SmallBpeVocabulary().Create();
  EXPECT_FALSE(bpe_tokenizer->adds_bos());
  EXPECT_FALSE(bpe_tokenizer->adds_space_prefix());
}

TEST(Vocabulary, EndOfGenerationIsIdsAndControlNames) {
  const auto bpe = SmallBpeVocabulary().Create();
  EXPECT_TRUE(bpe->IsEndOfGeneration(*bpe->Find("<|endoftext|>")));
  EXPECT_TRUE(bpe->IsEndOfGeneration(*bpe->Find("<|im_end|>")));
  EXPECT_FALSE(bpe->IsEndOfGeneration(*bpe->Find("<|im_start|>")));
  SmallVocabulary v = SmallSpmVocabulary();
  v.source().eos.reset();
  const TokenId tag{v.Add("<EOT>", TokenKind::kUserDefined)};
  const auto spm = v.Create();
  EXPECT_TRUE(spm->IsEndOfGeneration(*spm->Find("</s>")));
  EXPECT_TRUE(spm->IsEndOfGeneration(*spm->Find("<end_of_turn>")));
  EXPECT_FALSE(spm->IsEndOfGeneration(tag)) << "ordinary text that is spelled like one";
}

TEST(VocabularyErrors, ModelAndPretokenizerNameTheKnownOnes) {
  EXPECT_THAT(BpeError([](auto* s) { s->model = "bert"; }), HasSubstr("gpt2, llama"));
  EXPECT_THAT(BpeError([](auto* s) { s->pre = "no-such"; }), HasSubstr("default, gpt-2, "));
  EXPECT_THAT(BpeError([](auto* s) { s->pre = ""; }), HasSubstr("default, gpt-2, "));
  EXPECT_EQ(SpmError([](auto* s) { s->pre = "default"; }), "");
}

TEST(VocabularyErrors, Lengths) {
  EXPECT_THAT(BpeError([](auto* s) { s->tokens.clear(); }), HasSubstr("missing or empty"));
  EXPECT_THAT(BpeError([](auto* s) { s->types.pop_back(); }), HasSubstr("token_type has"));
  EXPECT_THAT(SpmError([](auto* s) { s->scores.pop_back(); }), HasSubstr("scores has"));
  EXPECT_THAT(SpmError([](auto* s) { s->scores.clear(); }), HasSubstr("scores has 0 entries"));
}

TEST(VocabularyErrors, Values) {
  EXPECT_THAT(BpeError([](auto* s) { s->types[3] = 7; }), HasSubstr("token_type[3] is 7"));
  EXPECT_THAT(BpeError([](auto* s) { s->types[3] = -1; }), HasSubstr("token_type[3] is -1"));
  EXPECT_THAT(SpmError([](auto* s) { s->scores[9] = std::nanf(""); }), HasSubstr("scores[9]"));
  EXPECT_EQ(SpmError([](auto* s) { s->scores[9] = std::numeric_limits<float>::infinity(); }), "");
  EXPECT_THAT(BpeError([](auto* s) { s->bos = -1; }), HasSubstr("bos_token_id is -1"));
  EXPECT_THAT(BpeError([](auto* s) { s->eos = int64_t{1} << 32; }), HasSubstr("eos_token_id"));
  EXPECT_THAT(BpeError([](auto* s) { s->pad = static_cast<int64_t>(s->tokens.size()); }),
              HasSubstr("padding_token_id"));
  EXPECT_THAT(SpmError([](auto* s) { s->bos.reset(); }), HasSubstr("without a bos_token_id"));
}

TEST(VocabularyErrors, Tokens) {
  EXPECT_THAT(BpeError([](auto* s) { s->tokens[7] = s->tokens[9]; }),
              HasSubstr("tokens[9] repeats token 7"));
  EXPECT_THAT(SpmError([](auto* s) { s->tokens[5] = "<0xZZ>"; }), HasSubstr("not a byte token"));
  EXPECT_THAT(SpmError([](auto* s) { s->types[5 + 0x41] = 1; }),
              HasSubstr("lacks 1 byte tokens, the first is \"<0x41>\""));
  EXPECT_THAT(BpeError([](auto* s) {
                for (int32_t& type : s->types) type = 3;
              }),
              HasSubstr("no token for a single byte"));
  // Empty rows are padding.
  EXPECT_EQ(BpeError([](auto* s) {
              for (int i = 0; i < 3; ++i) {
                s->tokens.push_back("");
                s->types.push_back(i == 0 ? 1 : 3);
              }
            }),
            "");
}

TEST(VocabularyErrors, Merges) {
  for (const char* merge : {"", " ", "a", "a ", " a", "a b c", "a  b"}) {
    EXPECT_THAT(BpeError([&](auto* s) { s->merges[2] = merge; }),
                HasSubstr("merges[2] is not two tokens"))
        << merge;
  }
  EXPECT_THAT(BpeError([](auto* s) { s->merges[1] = "xyz a"; }), HasSubstr("names \"xyz\""));
  EXPECT_THAT(BpeError([](auto* s) { s->merges[1] = "a xyz"; }), HasSubstr("names \"xyz\""));
  EXPECT_THAT(BpeError([](auto* s) { s->merges[1] = "a z"; }), HasSubstr("names \"az\""));
  // Merges must not be a back door to control tokens.
  EXPECT_THAT(BpeError([](auto* s) {
                s->tokens.push_back("ahe");
                s->types.push_back(3);
                s->merges.push_back("a he");
              }),
              HasSubstr("names \"ahe\", which is not an ordinary token"));
}

TEST(VocabularyErrors, SpmWithoutByteTokensNeedsAnUnknownToken) {
  const auto no_bytes = [](VocabularySource* s) {
    for (int32_t& type : s->types) {
      if (type == 6) type = 1;
    }
  };
  EXPECT_EQ(SpmError(no_bytes), "");
  EXPECT_THAT(SpmError([&](auto* s) {
                no_bytes(s);
                s->unk.reset();
              }),
              HasSubstr("neither byte tokens nor an unknown token"));
}

}  // namespace
}  // namespace kvasir
