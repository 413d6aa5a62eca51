#include "engine/sequence.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/small_vocabulary.h"

namespace kvasir {
namespace {

class SequenceTest : public testing::Test {
 protected:
  SequenceTest() : tokenizer_(SmallBpeVocabulary().Create()) {}

  uint32_t vocab() const { return static_cast<uint32_t>(tokenizer_->vocab_size()); }

  std::vector<TokenId> Ids(std::string_view text) const { return tokenizer_->Encode(text); }

  // One token for each byte, so that characters and stop strings are cut everywhere.
  std::vector<TokenId> ByteIds(std::string_view text) const {
    std::vector<TokenId> ids;
    for (const char c : text) {
      ids.push_back(*tokenizer_->Find(BpeTextOfByte(static_cast<uint8_t>(c))));
    }
    return ids;
  }

  StatusOr<std::unique_ptr<Sequence>> Create(std::vector<TokenId> prompt, SequenceOptions options,
                                             uint32_t context = 100) const {
    return Sequence::Create(*tokenizer_, vocab(), context, std::move(prompt), std::move(options));
  }

  // Appends until finished or out of tokens; the pieces joined.
  static std::string Feed(Sequence& sequence, const std::vector<TokenId>& ids) {
    std::string text;
    for (const TokenId id : ids) {
      if (sequence.finished()) break;
      text += sequence.Append(id);
    }
    return text;
  }

  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(SequenceTest, ChunksCoverWhatIsKnownAndOnlyTheLastAsksForLogits) {
  const std::vector<TokenId> prompt = ByteIds("abcdefghij");
  const auto sequence = Create(prompt, {});
  ASSERT_TRUE(sequence.ok());
  uint32_t computed = 3;  // Found in a cache.
  std::vector<TokenId> seen;
  std::vector<size_t> sizes;
  while (computed < prompt.size()) {
    const Sequence::Chunk chunk = (*sequence)->NextChunk(computed, 4);
    EXPECT_EQ(chunk.start, computed);
    seen.insert(seen.end(), chunk.tokens.begin(), chunk.tokens.end());
    sizes.push_back(chunk.tokens.size());
    computed += static_cast<uint32_t>(chunk.tokens.size());
    EXPECT_EQ(chunk.ends_known, computed == prompt.size());
  }
  EXPECT_EQ(seen, std::vector<TokenId>(prompt.begin() + 3, prompt.end()));
  EXPECT_EQ(sizes, (std::vector<size_t>{4, 3}));
  (*sequence)->Append(prompt[0]);
  const Sequence::Chunk next = (*sequence)->NextChunk(computed, 4);
  EXPECT_EQ(next.tokens.size(), 1u);
  EXPECT_TRUE(next.ends_known);
}

TEST_F(SequenceTest, EndsAtTheNumberOfTokensAskedFor) {
  SequenceOptions options;
  options.max_new_tokens = 3;
  const auto sequence = Create(Ids("hello"), options);
  ASSERT_TRUE(sequence.ok());
  EXPECT_EQ(Feed(**sequence, ByteIds("abcdef")), "abc");
  EXPECT_EQ((*sequence)->finish_reason(), FinishReason::kLength);
  EXPECT_EQ((*sequence)->generated().size(), 3u);
}

TEST_F(SequenceTest, EndsWhenTheContextIsFull) {
  const auto sequence = Create(ByteIds("abcd"), {}, /*context=*/6);
  ASSERT_TRUE(sequence.ok());
  EXPECT_EQ(Feed(**sequence, ByteIds("efgh")), "ef");
  EXPECT_EQ((*sequence)->finish_reason(), FinishReason::kLength);
  EXPECT_EQ((*sequence)->known().size(), 6u);
}

TEST_F(SequenceTest, EndOfGenerationIsATokenWithoutText) {
  const TokenId end = *tokenizer_->Find("<|im_end|>");
  const auto sequence = Create(Ids("x"), {});
  ASSERT_TRUE(sequence.ok());
  (*sequence)->Append(ByteIds("y")[0]);
  EXPECT_EQ((*sequence)->Append(end), "");
  EXPECT_EQ((*sequence)->finish_reason(), FinishReason::kStop);
  EXPECT_EQ((*sequence)->generated().back(), end);

  SequenceOptions options;
  options.ignore_eos = true;
  const auto goes_on = Create(Ids("x"), options);
  ASSERT_TRUE(goes_on.ok());
  (*goes_on)->Append(end);
  EXPECT_FALSE((*goes_on)->finished());
  EXPECT_EQ((*goes_on)->Append(ByteIds("y")[0]), "y");
}

TEST_F(SequenceTest, NothingEndsGenerationBeforeTheLeastNumberOfTokens) {
  std::vector<TokenId> ends;
  for (uint32_t i = 0; i < vocab(); ++i) {
    const TokenId id{static_cast<int32_t>(i)};
    if (tokenizer_->IsEndOfGeneration(id)) ends.push_back(id);
  }
  ASSERT_FALSE(ends.empty());
  // Logits that want nothing more than an end, then 'x'.
  std::vector<float> logits(vocab(), -1.0f);
  for (const TokenId end : ends) logits[static_cast<size_t>(Index(end))] = 50.0f;
  const TokenId x = ByteIds("x")[0];
  logits[static_cast<size_t>(Index(x))] = 2.0f;
  for (const float temperature : {0.0f, 1.0f}) {
    SequenceOptions options;
    options.sampling.temperature = temperature;
    options.sampling.top_k = 1;
    options.min_new_tokens = 3;
    const auto sequence = Create(Ids("hello"), options);
    ASSERT_TRUE(sequence.ok());
    SamplerScratch scratch(vocab());
    for (int i = 0; i < 3; ++i) {
      const TokenId token = (*sequence)->Choose(logits, scratch);
      EXPECT_EQ(token, x) << "token " << i;
      (*sequence)->Append(token);
    }
    const TokenId last = (*sequence)->Choose(logits, scratch);
    EXPECT_TRUE(tokenizer_->IsEndOfGeneration(last));
    (*sequence)->Append(last);
    EXPECT_EQ((*sequence)->finish_reason(), FinishReason::kStop);
    EXPECT_EQ((*sequence)->generated().size(), 4u);
  }
}

TEST_F(SequenceTest, ChoosesTheLargestOnlyWithoutAnyOptionThatReadsOthers) {
  const auto chooses_largest = [&](const SequenceOptions& options) {
    const auto sequence = Create(Ids("hello"), options);
    return sequence.ok() && (*sequence)->chooses_largest();
  };
  EXPECT_TRUE(chooses_largest({}));
  std::vector<SequenceOptions> others(5);
  others[0].sampling.temperature = 0.5f;
  others[1].sampling.repetition_penalty = 1.1f;
  others[2].sampling.presence_penalty = 0.1f;
  others[3].sampling.frequency_penalty = 0.1f;
  others[4].sampling.logit_bias = {{TokenId{1}, 1.0f}};
  for (size_t i = 0; i < others.size(); ++i) EXPECT_FALSE(chooses_largest(others[i])) << i;

  // While ends are banned the second largest may be the answer.
  SequenceOptions options;
  options.min_new_tokens = 2;
  const auto sequence = Create(Ids("hello"), options);
  ASSERT_TRUE(sequence.ok());
  for (const bool expected : {false, false, true}) {
    EXPECT_EQ((*sequence)->chooses_largest(), expected);
    (*sequence)->Append(ByteIds("x")[0]);
  }
}

TEST_F(SequenceTest, AStopStringAcrossTokensNeverShows) {
  SequenceOptions options;
  options.stops = {"cde", "zz"};
  const auto sequence = Create(Ids("x"), options);
  ASSERT_TRUE(sequence.ok());
  EXPECT_EQ(Feed(**sequence, ByteIds("abcd")), "ab");  // "cd" may yet become the stop string.
  EXPECT_EQ(Feed(**sequence, ByteIds("ef")), "");
  EXPECT_EQ((*sequence)->finish_reason(), FinishReason::kStop);
  EXPECT_EQ((*sequence)->generated().size(), 5u);
}

TEST_F(SequenceTest, TextHeldBackForAStopStringAppearsAtTheEnd) {
  SequenceOptions options;
  options.stops = {"cde"};
  options.max_new_tokens = 4;
  const auto at_length = Create(Ids("x"), options);
  ASSERT_TRUE(at_length.ok());
  EXPECT_EQ(Feed(**at_length, ByteIds("abcd")), "abcd");

  const auto cancelled = Create(Ids("x"), options);
  ASSERT_TRUE(cancelled.ok());
  EXPECT_EQ(Feed(**cancelled, ByteIds("abc")), "ab");
  EXPECT_EQ((*cancelled)->Cancel(), "c");
  EXPECT_EQ((*cancelled)->finish_reason(), FinishReason::kCancelled);
  EXPECT_EQ((*cancelled)->Cancel(), "");
}

TEST_F(SequenceTest, CharactersComeOutWhole) {
  const auto sequence = Create(Ids("x"), {});
  ASSERT_TRUE(sequence.ok());
  const std::vector<TokenId> fox = ByteIds("\xF0\x9F\xA6\x8A");
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ((*sequence)->Append(fox[i]), "");
  EXPECT_EQ((*sequence)->Append(fox[3]), "\xF0\x9F\xA6\x8A");
  (*sequence)->Append(fox[0]);
  EXPECT_EQ((*sequence)->Cancel(), "");  // Cut off inside a character: nothing stands for it.

  SequenceOptions options;
  options.max_new_tokens = 3;
  const auto cut = Create(Ids("x"), options);
  ASSERT_TRUE(cut.ok());
  EXPECT_EQ(Feed(**cut, {ByteIds("y")[0], fox[0], fox[1]}), "y");
  EXPECT_EQ((*cut)->finish_reason(), FinishReason::kLength);
  // Broken by the model itself: in the middle, and where it ended.
  const auto broken = Create(Ids("x"), {});
  ASSERT_TRUE(broken.ok());
  EXPECT_EQ(Feed(**broken, {fox[0], ByteIds("y")[0], fox[0], *tokenizer_->Find("<|im_end|>")}),
            "\xEF\xBF\xBDy\xEF\xBF\xBD");
}

TEST_F(SequenceTest, PenaltiesSeeThePromptAndTheAnswer) {
  SequenceOptions options;
  options.sampling.repetition_penalty = 10.0f;
  const TokenId a = ByteIds("a")[0];
  const TokenId b = ByteIds("b")[0];
  const auto sequence = Create({a}, options);
  ASSERT_TRUE(sequence.ok());
  std::vector<float> logits(vocab(), -1.0f);
  logits[static_cast<size_t>(Index(a))] = 5.0f;
  logits[static_cast<size_t>(Index(b))] = 4.0f;
  SamplerScratch scratch(vocab());
  EXPECT_EQ((*sequence)->Choose(logits, scratch), b);
  (*sequence)->Append(b);
  EXPECT_EQ((*sequence)->Choose(logits, scratch), a);  // 0.5 against 0.4.
}

TEST_F(SequenceTest, BadRequestsAreRefused) {
  const auto problem = [this](std::vector<TokenId> prompt, SequenceOptions options) {
    const auto sequence = Create(std::move(prompt), std::move(options), /*context=*/8);
    return std::string(sequence.ok() ? "" : MessageOf(sequence.status()));
  };
  EXPECT_NE(problem({}, {}).find("empty"), std::string::npos);
  EXPECT_EQ(problem(ByteIds("1234567"), {}), "");
  EXPECT_NE(problem(ByteIds("12345678"), {}).find("8 tokens"), std::string::npos);
  EXPECT_NE(problem({TokenId{1}, TokenId{-1}}, {}).find("position 1"), std::string::npos);
  EXPECT_NE(problem({TokenId{static_cast<int32_t>(vocab())}}, {}).find("outside"),
            std::string::npos);
  SequenceOptions none;
  none.max_new_tokens = 0;
  EXPECT_NE(problem(ByteIds("1"), none).find("at least 1"), std::string::npos);
  SequenceOptions hot;
  hot.sampling.temperature = -2.0f;
  EXPECT_NE(problem(ByteIds("1"), hot).find("temperature"), std::string::npos);
  SequenceOptions stop;
  stop.stops = {""};
  EXPECT_NE(problem(ByteIds("1"), stop), "");
}

}  // namespace
}  // namespace kvasir
